//! Addresses that are asked until somebody there is a member.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sedge_base::{Deadlines, Duration, Instant, NodeId};

#[derive(Debug)]
struct Seed {
    pause: Duration,
    answered_by: Option<NodeId>,
}

#[derive(Debug)]
pub(crate) struct Seeds {
    by_addr: BTreeMap<SocketAddr, Seed>,
    deadlines: Deadlines<SocketAddr>,
    pause_min: Duration,
    pause_max: Duration,
}

impl Seeds {
    pub(crate) fn new(addrs: impl Iterator<Item = SocketAddr>, pause_min: Duration, pause_max: Duration) -> Self {
        let mut by_addr = BTreeMap::new();
        let mut deadlines = Deadlines::new();
        for addr in addrs {
            by_addr.insert(addr, Seed { pause: pause_min, answered_by: None });
            deadlines.set(addr, Instant::ZERO);
        }
        Self { by_addr, deadlines, pause_min, pause_max }
    }

    /// Only these are asked from here on, but for those behind which there is a member already.
    pub(crate) fn replace(
        &mut self,
        now: Instant,
        addrs: impl Iterator<Item = SocketAddr>,
        member_at: impl Fn(SocketAddr) -> Option<NodeId>,
    ) {
        let mut before = core::mem::take(&mut self.by_addr);
        for addr in addrs {
            let seed = before.remove(&addr).unwrap_or_else(|| {
                let answered_by = member_at(addr);
                if answered_by.is_none() {
                    self.deadlines.set(addr, now);
                }
                Seed { pause: self.pause_min, answered_by }
            });
            self.by_addr.insert(addr, seed);
        }
        for addr in before.keys().filter(|addr| !self.by_addr.contains_key(addr)) {
            self.deadlines.cancel(addr);
        }
    }

    /// `node`, a member now, has spoken from this address.
    pub(crate) fn answered(&mut self, addr: SocketAddr, node: NodeId) {
        if let Some(seed) = self.by_addr.get_mut(&addr) {
            seed.answered_by = Some(node);
            self.deadlines.cancel(&addr);
        }
    }

    /// `node` is a member no more: its address is asked again, for another may take it.
    pub(crate) fn lost(&mut self, now: Instant, node: NodeId) {
        for (addr, seed) in self.by_addr.iter_mut().filter(|(_, seed)| seed.answered_by == Some(node)) {
            seed.answered_by = None;
            seed.pause = self.pause_min;
            self.deadlines.set(*addr, now + self.pause_min);
        }
    }

    /// The next address to ask now.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<SocketAddr> {
        let addr = self.deadlines.pop_due(now)?;
        let seed = self.by_addr.get_mut(&addr)?;
        self.deadlines.set(addr, now + seed.pause);
        seed.pause = seed.pause.saturating_mul(2).min(self.pause_max);
        Some(addr)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    pub(crate) fn unreached(&self) -> impl Iterator<Item = SocketAddr> {
        self.by_addr.iter().filter(|(_, seed)| seed.answered_by.is_none()).map(|(addr, _)| *addr)
    }
}
