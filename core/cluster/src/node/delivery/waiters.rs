//! Waiters for changes of interest to be known everywhere, and the barriers by which shards tell that they know.

use std::collections::BTreeMap;

use sedge_base::{ClientId, NodeId, ShardId};
use sedge_broker::{SessionState, Ticket};
use sedge_mqtt::{MessageId, TopicFilter};
use sedge_overlay::Barrier;

use crate::lineage::Lineage;
use crate::mail::{Handed, Life};
use crate::node::sessions::leaving::Recipient;

/// A client or a task of the node that waits.
#[derive(Debug)]
pub(in crate::node) enum Waiter {
    /// A client for its SUBACK, UNSUBACK or CONNACK.
    Client {
        /// Its shard.
        shard: ShardId,
        /// Its request.
        ticket: Ticket,
        /// Filters whose retained messages it wants, by index of the change.
        retained: Vec<(usize, TopicFilter)>,
    },
    /// The node, until everything is in that its shards published before they knew that a session leaves.
    Departure(Departure),
    /// The node, which advertises the interest of a session that has arrived.
    Adoption(Handed),
    /// The node, until everything is in that was sent to the former and the new owner of a session at the same time.
    Flush(Handed),
    /// The node, until nothing comes for a session that it has given away that does not come to its new owner, too.
    Leftovers(Handed),
    /// The node, until all neighbours have answered, so that none only seems to know what is wanted here.
    Release(ClientId, NodeId),
    /// The node, until everything is in that was sent to the client's two owners.
    Reunion(ClientId, NodeId),
    /// The node, until all shards catch what is for sessions that it takes over.
    Inheritance(Life),
    /// The node, which advertises the interest of sessions that it takes over.
    Takeover(Life),
}

/// A session that leaves, or the answer that there is none.
#[derive(Debug)]
pub(in crate::node) struct Departure {
    pub client: ClientId,
    /// Epoch of the new owner.
    pub epoch: u64,
    /// The new owner.
    pub to: Recipient,
    pub session: Option<Box<SessionState>>,
    /// Publications that it takes along before they leave for other nodes.
    pub along: Vec<MessageId>,
    /// Under which epoch a home had granted it to this node.
    pub granted: u64,
    /// The owners before this node: see [`Owned::came`](crate::node::sessions::claims::Owned::came).
    pub came: Lineage,
}

#[derive(Debug)]
struct Pending {
    waiter: Waiter,
    overlay: bool,
    shards: bool,
}

/// The purpose of a barrier.
#[derive(Debug)]
enum Purpose {
    Overlay(Barrier),
    /// Numbers of those who wait.
    Settle(Vec<u64>),
}

/// Open waits and barriers.
#[derive(Debug, Default)]
pub(in crate::node) struct Settles {
    next: u64,
    pending: BTreeMap<u64, Pending>,
    barriers: BTreeMap<u64, (Purpose, u16)>,
    /// Waiters of the next barrier, while one is on its way.
    gathered: Vec<u64>,
    on_its_way: bool,
}

/// The consequences of a barrier that all shards have reached.
#[derive(Debug)]
pub(in crate::node) enum Reached {
    /// Not all have.
    NotYet,
    /// The overlay asked for it.
    Overlay(Barrier),
    /// These have nothing more to wait for.
    Settled(Vec<Waiter>),
}

impl Settles {
    /// Somebody waits for the overlay, for the shards, or for both. The number is the overlay's token.
    pub(in crate::node) fn wait(&mut self, waiter: Waiter, overlay: bool, shards: bool) -> u64 {
        self.next += 1;
        self.pending.insert(self.next, Pending { waiter, overlay, shards });
        if shards {
            self.gathered.push(self.next);
        }
        self.next
    }

    /// A barrier for the overlay: the number to send to all `shards` shards.
    pub(in crate::node) fn barrier_for_overlay(&mut self, barrier: Barrier, shards: u16) -> u64 {
        self.open(Purpose::Overlay(barrier), shards)
    }

    /// The number of the next barrier to send to all shards, if somebody waits for one and none is on its way: so one barrier
    /// serves all who came while the last one was on its way.
    pub(in crate::node) fn next_barrier(&mut self, shards: u16) -> Option<u64> {
        if self.on_its_way || self.gathered.is_empty() {
            return None;
        }
        self.on_its_way = true;
        let gathered = core::mem::take(&mut self.gathered);
        Some(self.open(Purpose::Settle(gathered), shards))
    }

    fn open(&mut self, purpose: Purpose, shards: u16) -> u64 {
        self.next += 1;
        self.barriers.insert(self.next, (purpose, shards));
        self.next
    }

    /// One more shard has reached a barrier.
    pub(in crate::node) fn reached(&mut self, number: u64) -> Reached {
        let Some((_, missing)) = self.barriers.get_mut(&number) else { return Reached::NotYet };
        *missing = missing.saturating_sub(1);
        if *missing > 0 {
            return Reached::NotYet;
        }
        match self.barriers.remove(&number) {
            Some((Purpose::Overlay(barrier), _)) => Reached::Overlay(barrier),
            Some((Purpose::Settle(numbers), _)) => {
                self.on_its_way = false;
                let done = numbers.into_iter().filter_map(|number| self.done(number, false));
                Reached::Settled(done.collect())
            }
            None => Reached::NotYet,
        }
    }

    /// Whether a session waits to leave.
    pub(in crate::node) fn has_departures(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending.waiter, Waiter::Departure(_)))
    }

    /// The overlay has settled this token: the waiter, if it has nothing more to wait for.
    pub(in crate::node) fn settled(&mut self, token: u64) -> Option<Waiter> {
        self.done(token, true)
    }

    fn done(&mut self, number: u64, overlay: bool) -> Option<Waiter> {
        let pending = self.pending.get_mut(&number)?;
        if overlay {
            pending.overlay = false;
        } else {
            pending.shards = false;
        }
        if pending.overlay || pending.shards {
            return None;
        }
        self.pending.remove(&number).map(|pending| pending.waiter)
    }
}
