//! The times since which other nodes could send here without a break: this node did not want the publications that they made meanwhile and did
//! not send.

use std::collections::BTreeMap;

use sedge_base::{Duration, Instant, NodeId};
use sedge_mqtt::MessageId;

use crate::mail::ShardLife;

/// So long after a link has begun anew publications may come that were kept.
const GIVEN: Duration = Duration::from_secs(1);
/// Shards that are remembered; those of the node with the lowest id are forgotten first.
const MAX_SHARDS: usize = 4_096;

/// By the shard that made publications with QoS 1 or 2.
#[derive(Debug, Default)]
pub(in crate::node) struct Contacts {
    shards: BTreeMap<ShardLife, Contact>,
}

/// Publications between which this node would have got whatever was wanted here.
#[derive(Clone, Copy, Debug)]
struct Contact {
    first: u64,
    last: u64,
    /// When the link has begun anew, if the next one is the first again.
    began: Option<Instant>,
}

impl Contacts {
    /// A publication has come from its own node.
    pub(in crate::node) fn note(&mut self, now: Instant, id: &MessageId) {
        let begun = Contact { first: id.seq, last: id.seq, began: None };
        let is_new = Contact { began: Some(now), ..begun };
        let contact = self.shards.entry((id.node, id.incarnation, id.shard)).or_insert(is_new);
        *contact = match contact.began {
            None => Contact { last: id.seq.max(contact.last), ..*contact },
            Some(began) if now >= began + GIVEN => begun,
            Some(_) => *contact,
        };
        if self.shards.len() > MAX_SHARDS {
            self.shards.pop_first();
        }
    }

    /// The link to a node has begun anew: its last publications may be lost, and those that it has kept come first.
    pub(in crate::node) fn breaks(&mut self, now: Instant, node: NodeId) {
        for (_, contact) in self.shards.iter_mut().filter(|((of, ..), _)| *of == node) {
            contact.began = Some(now);
        }
    }

    /// Whether a publication would have come if it had been wanted here.
    pub(in crate::node) fn was_sent_all(&self, id: &MessageId) -> bool {
        let contact = self.shards.get(&(id.node, id.incarnation, id.shard));
        contact.is_some_and(|contact| contact.began.is_none() && contact.first <= id.seq && id.seq <= contact.last)
    }

    /// Whether a publication that comes now for the first time, behind others, was not wanted here: its node had kept it for nodes that were gone.
    /// Publications that its node has kept for this one do not come behind others.
    pub(in crate::node) fn was_passed_over(&self, now: Instant, id: &MessageId) -> bool {
        let Some(contact) = self.shards.get(&(id.node, id.incarnation, id.shard)) else { return false };
        let is_given = contact.began.is_some_and(|began| now < began + GIVEN);
        is_given && id.seq < contact.last
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, ShardId};

    use super::*;

    fn id(seq: u64) -> MessageId {
        MessageId { node: NodeId::new(2), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
    }

    /// FT-31: publications that their node kept for others, and those that it could not send.
    #[test]
    fn what_comes_behind_others_was_passed_over() {
        let (mut contacts, at) = (Contacts::default(), Instant::from_millis);
        contacts.note(at(0), &id(3));
        contacts.note(at(1_000), &id(6));
        contacts.note(at(1_001), &id(9));
        assert!(!contacts.was_passed_over(at(1_002), &id(8)), "the link has not begun anew");
        contacts.breaks(at(2_000), NodeId::new(2));
        let was_passed_over = |contacts: &Contacts, millis, seq| contacts.was_passed_over(at(millis), &id(seq));
        assert!(was_passed_over(&contacts, 2_001, 8));
        assert!(was_passed_over(&contacts, 2_001, 5), "others had come since");
        assert!(!was_passed_over(&contacts, 2_001, 10), "the link was down when this was made");
        contacts.note(at(2_001), &id(8));
        contacts.note(at(2_002), &id(10));
        contacts.breaks(at(2_500), NodeId::new(2));
        assert!(was_passed_over(&contacts, 3_499, 7) && !was_passed_over(&contacts, 3_499, 9));
        assert!(!was_passed_over(&contacts, 3_500, 7), "it has given all that it had kept");
    }
}
