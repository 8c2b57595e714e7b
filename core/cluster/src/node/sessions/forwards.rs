//! Where sessions have gone: a node that comes back from the other side of a partition gives what it had for them to the node where they
//! were as far as it has heard. That node passes it on to where they are now.
//!
//! The new owner may have had the same publication; it tells by the id (see `had.rs` and `shard/inherit.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Instant, NodeId};
use sedge_mqtt::Message;

use crate::lineage::Lineage;
use crate::mail;
use crate::node::Node;
use crate::node::sessions::handed_over;

/// How long a node may be away.
const WINDOW: Duration = Duration::from_mins(10);
/// Sessions that are remembered; the one with the lowest client id is forgotten first.
const MAX_SESSIONS: usize = 10_000;
/// Owners that are to be told again; the one with the lowest client id is forgotten first, and catches until it has waited long enough.
const MAX_BEHIND: usize = 1024;
/// Bit of the epoch in mail with what is passed on, which no owner's has. The rest is the epoch under which the session has left the node that
/// passes it on: a node that has let it go before that does not know better, and so nothing goes in circles.
const LATE: u64 = 1 << 63;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Forwards {
    sessions: BTreeMap<ClientId, Left>,
    deadlines: Deadlines<ClientId>,
    /// Owners whose sessions came after that, with their epochs, and until when they catch: they are told again that they need not when more
    /// nodes know what is wanted here.
    behind: BTreeMap<(ClientId, NodeId), (u64, Instant)>,
}

/// A session that has left.
#[derive(Clone, Debug)]
struct Left {
    epoch: u64,
    to: NodeId,
    /// The owners before this node: see [`Owned::came`](super::claims::Owned::came).
    came: Lineage,
}

/// Of what is passed on, under which epoch the session has left the node that does so.
pub(in crate::node) const fn passed_on(epoch: u64) -> Option<u64> {
    if epoch & LATE == 0 { None } else { Some(epoch & !LATE) }
}

impl Forwards {
    /// A session has left.
    pub(in crate::node) fn note(&mut self, now: Instant, client: &ClientId, epoch: u64, to: NodeId) {
        while let Some(client) = self.deadlines.pop_due(now) {
            self.sessions.remove(&client);
        }
        self.deadlines.set(client.clone(), now + WINDOW);
        self.sessions.insert(client.clone(), Left { epoch, to, came: Lineage::default() });
        if self.sessions.len() > MAX_SESSIONS
            && let Some((first, _)) = self.sessions.pop_first()
        {
            self.deadlines.cancel(&first);
        }
    }

    /// A session that has left was to be here under this epoch: messages that others send here for that are to go after it, too.
    pub(in crate::node) fn refuse(&mut self, client: &ClientId, epoch: u64) {
        if let Some(left) = self.sessions.get_mut(client) {
            left.epoch = left.epoch.max(epoch + 1);
        }
    }

    /// The session that has left had come from these owners.
    pub(in crate::node) fn note_came(&mut self, client: &ClientId, came: Lineage) {
        if let Some(left) = self.sessions.get_mut(client) {
            left.came = came;
        }
    }

    /// Whether a session under this epoch is one that its owner gave to this node, with all that came for it, and that has left since.
    pub(in crate::node) fn came_from(&self, client: &ClientId, owner: NodeId, epoch: u64) -> bool {
        self.sessions.get(client).is_some_and(|left| left.came.succeeds(owner, epoch))
    }

    /// The session is here again.
    pub(in crate::node) fn forget(&mut self, client: &ClientId) {
        self.deadlines.cancel(client);
        self.sessions.remove(client);
    }

    /// Sessions that are remembered.
    pub(in crate::node) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether a session has left for a newer owner than this epoch's.
    fn has_left(&self, client: &ClientId, epoch: u64) -> bool {
        self.sessions.get(client).is_some_and(|left| left.epoch > epoch)
    }
}

impl Node {
    /// Whether the session has left here after `epoch`: a session of another owner under this epoch is for an owner that has come after it.
    pub(in crate::node) fn has_left(&self, client: &ClientId, epoch: u64) -> bool {
        self.forwards.has_left(client, epoch)
    }

    /// Another owner's session has come after the one that has left: that owner need not catch any longer.
    pub(in crate::node) fn release_behind(&mut self, from: NodeId, client: &ClientId, epoch: u64) {
        self.send_release(from, client, epoch);
        self.forwards.behind.insert((client.clone(), from), (epoch, self.now.instant + handed_over::PATIENCE));
        if self.forwards.behind.len() > MAX_BEHIND {
            self.forwards.behind.pop_first();
        }
    }

    /// More nodes know what is wanted here. The other owner may know more of them than this node.
    pub(in crate::node) fn release_behind_again(&mut self) {
        let (now, ring) = (self.now.instant, &self.ring);
        self.forwards.behind.retain(|(_, from), (_, until)| now < *until && ring.contains(from));
        let behind = self.forwards.behind.iter();
        for ((client, from), epoch) in behind.map(|(key, (epoch, _))| (key.clone(), *epoch)).collect::<Vec<_>>() {
            self.send_release(from, &client, epoch);
        }
    }

    /// Passes on what has come for a session that is elsewhere now.
    pub(in crate::node) fn send_late(&mut self, client: &ClientId, messages: &[Arc<Message>]) {
        if messages.is_empty() {
            return;
        }
        let left = self.forwards.sessions.get(client).cloned().filter(|left| self.ring.contains(&left.to));
        let Some(Left { epoch, to, .. }) = left else {
            self.counters.leftovers_discarded += messages.len() as u64;
            return;
        };
        self.send_leftovers(to, client, epoch | LATE, messages);
    }

    /// A former owner of a session, which it has left under this epoch, passes on what came for it. It may have moved again since.
    pub(in crate::node) fn passed_on(&mut self, from: NodeId, client: &ClientId, left: u64, messages: &[Arc<Message>]) {
        if !self.claims.owns(client) && !self.claims.wants(client) {
            if self.has_left(client, left) {
                self.send_late(client, messages);
            } else {
                self.counters.leftovers_discarded += messages.len() as u64;
            }
            return;
        }
        // The session that comes from there has had what had come there before it left: an older state of it may be passed on.
        let comes =
            self.claims.wanted.get(client).and_then(|wanted| wanted.given).is_some_and(|given| given.from == from);
        let held = messages.iter().map(|message| {
            let mut held = self.held(from, client, message, None);
            held.seen |= comes && self.had.had_there(from, client, &message.id);
            held
        });
        let messages = held.collect();
        let (client, from) = (client.clone(), self.life_of(from));
        self.merge(mail::Merge { client, from, messages, received: Vec::new(), sent: None, next: 0, is_late: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Given;

    /// FT-31
    #[test]
    fn it_is_known_where_a_session_has_gone_until_it_is_back_or_for_some_time() {
        let (mut forwards, a, b) = (Forwards::default(), ClientId::new("a"), ClientId::new("b"));
        let at = Instant::from_millis;
        forwards.note(at(0), &a, 7, NodeId::new(1));
        forwards.note(at(1), &b, 8, NodeId::new(2));
        assert!(forwards.has_left(&a, 6) && !forwards.has_left(&a, 7));
        assert_eq!((passed_on(7), passed_on(7 | LATE)), (None, Some(7)));
        forwards.refuse(&a, 9);
        assert!(forwards.has_left(&a, 9) && !forwards.has_left(&a, 10));
        forwards.forget(&a);
        forwards.refuse(&a, 9);
        assert!(!forwards.has_left(&a, 6) && forwards.has_left(&b, 7));
        forwards.note(at(1) + WINDOW, &a, 9, NodeId::new(1));
        assert!(forwards.has_left(&a, 8) && !forwards.has_left(&b, 7));
    }

    /// FT-20: the former owner dies later, and a copy of its session is from before it gave the session away.
    #[test]
    fn a_copy_from_before_a_session_came_is_known_while_it_is_known_where_it_has_gone() {
        let (mut forwards, client, former) = (Forwards::default(), ClientId::new("a"), NodeId::new(3));
        forwards.note_came(&client, Lineage::new([Given { from: former, epoch: 20 }]));
        assert!(!forwards.came_from(&client, former, 4), "it is not known where it has gone");
        forwards.note(Instant::from_millis(0), &client, 40, NodeId::new(1));
        forwards.note_came(&client, Lineage::new([Given { from: former, epoch: 20 }]));
        assert!(forwards.came_from(&client, former, 4) && !forwards.came_from(&client, NodeId::new(1), 4));
        assert!(!forwards.came_from(&client, former, 20), "the former owner has it again");
        forwards.note(Instant::from_millis(1), &client, 60, NodeId::new(1));
        assert!(!forwards.came_from(&client, former, 4), "it has come from elsewhere since");
    }
}
