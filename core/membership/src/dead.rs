//! Members that died: listed for a while, and called for longer, so that both sides of a healed partition find each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sedge_base::{Deadlines, Duration, Instant, NodeId};

use crate::Member;

#[derive(Debug)]
struct Entry {
    member: Member,
    died: Instant,
    is_listed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Dead {
    by_node: BTreeMap<NodeId, Entry>,
    deadlines: Deadlines<NodeId>,
    listed_for: Duration,
    called_for: Duration,
    limit: usize,
    cleaned: u64,
}

impl Dead {
    /// At most `limit` are remembered: the one that died first makes room for another.
    pub(crate) fn new(listed_for: Duration, called_for: Duration, limit: usize) -> Self {
        let called_for = called_for.max(listed_for);
        Self { by_node: BTreeMap::new(), deadlines: Deadlines::new(), listed_for, called_for, limit, cleaned: 0 }
    }

    /// It does not answer anyone.
    pub(crate) fn died(&mut self, now: Instant, member: Member) {
        let node = member.node;
        if !self.by_node.contains_key(&node)
            && self.by_node.len() >= self.limit
            && let Some(first) = self.by_node.values().min_by_key(|entry| entry.died).map(|entry| entry.member.node)
        {
            self.cleaned += u64::from(self.by_node.get(&first).is_some_and(|entry| entry.is_listed));
            self.returned(first);
        }
        self.by_node.insert(node, Entry { member, died: now, is_listed: true });
        self.deadlines.set(node, now + self.listed_for);
    }

    /// It is a member again, or has said farewell.
    pub(crate) fn returned(&mut self, node: NodeId) {
        self.by_node.remove(&node);
        self.deadlines.cancel(&node);
    }

    /// Whether this node died, and is still called.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    /// Cleans up what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(node) = self.deadlines.pop_due(now) {
            let Some(entry) = self.by_node.get_mut(&node) else { continue };
            self.cleaned += u64::from(core::mem::replace(&mut entry.is_listed, false));
            let until = entry.died + self.called_for;
            if until <= now {
                self.by_node.remove(&node);
            } else {
                self.deadlines.set(node, until);
            }
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Those that are listed, with the time of their death.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (&Member, Instant)> {
        self.by_node.values().filter(|entry| entry.is_listed).map(|entry| (&entry.member, entry.died))
    }

    /// Where all of them were.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.by_node.values().map(|entry| entry.member.swim)
    }

    /// How many were taken off the list because their time was over, or for want of room.
    pub(crate) const fn cleaned(&self) -> u64 {
        self.cleaned
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::Incarnation;

    use super::*;

    fn member(node: u64) -> Member {
        let addr = SocketAddr::from(([10, 0, 0, 1], u16::try_from(node).unwrap_or(0)));
        Member::new(NodeId::new(node), Incarnation::new(1), addr, addr)
    }

    fn listed(dead: &Dead) -> Vec<u64> {
        dead.listed().map(|(member, _)| member.node.get()).collect()
    }

    /// EL-03
    #[test]
    fn the_dead_are_listed_for_a_while_and_called_for_longer() {
        let at = |seconds: u64| Instant::from_millis(seconds * 1_000);
        let mut dead = Dead::new(Duration::from_secs(10), Duration::from_secs(100), 3);
        for node in 1..=3 {
            dead.died(at(node), member(node));
        }
        dead.handle_timeout(at(11));
        assert_eq!((listed(&dead), dead.addresses().count(), dead.next()), (vec![2, 3], 3, Some(at(12))));
        dead.returned(NodeId::new(2));
        assert_eq!((listed(&dead), dead.cleaned()), (vec![3], 1));
        dead.died(at(12), member(4));
        dead.died(at(13), member(5));
        assert_eq!((listed(&dead), dead.addresses().count()), (vec![3, 4, 5], 3), "1 has made room");
        dead.died(at(14), member(6));
        assert_eq!((listed(&dead), dead.cleaned()), (vec![4, 5, 6], 2));
        dead.handle_timeout(at(1_000));
        assert_eq!((listed(&dead), dead.addresses().count(), dead.next(), dead.cleaned()), (vec![], 0, None, 5));
    }
}
