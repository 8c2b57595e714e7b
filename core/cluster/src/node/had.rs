//! What a session has had where it was before: a QoS 2 publication of a client whose node dies goes out once more, to all who may not
//! have had it (see `takeover.rs`), and the ids that a node remembers say nothing about sessions that have come to it since.
//!
//! The former owner says, ahead of the session, how far the publications of each shard of each node had come there. Publications of one
//! shard come in order, so that the session has had all up to that.

use std::collections::BTreeMap;

use sedge_base::{ClientId, Deadlines, Duration, Incarnation, Instant, NodeId, ShardId};
use sedge_mqtt::{Message, MessageId, QoS};

use super::Node;
use super::marks::Source;
use crate::link::ControlTopic;
use crate::mail::SessionStep;
use crate::reception::shard_of;
use crate::wire::SessionMail;

/// How long a publication may be on its way until its node is known to be gone and its client's session goes on elsewhere.
const WINDOW: Duration = Duration::from_secs(15);
/// Sessions that are remembered; the one with the lowest client id is forgotten first.
const MAX_SESSIONS: usize = 10_000;
/// Shards that are remembered; those of the node with the lowest id are forgotten first.
const MAX_SHARDS: usize = 4_096;
/// Shards that are named for one session; those of the highest nodes are left out.
const MAX_MARKS: usize = 1_024;

/// A shard in one life of its node.
type Shard = (NodeId, Incarnation, ShardId);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Had {
    /// The last QoS 2 publication of each shard that came here, and when.
    here: BTreeMap<Shard, (u64, Instant)>,
    /// The last one of each shard that came from its own node.
    first_hand: BTreeMap<Shard, u64>,
    /// How far they had come for sessions that have moved here, and when those moved.
    sessions: BTreeMap<ClientId, (Instant, BTreeMap<Shard, u64>)>,
    /// When they are forgotten.
    deadlines: Deadlines<ClientId>,
}

impl Had {
    /// A publication has come, or was made here.
    pub(super) fn note(&mut self, now: Instant, message: &Message, is_first_hand: bool) {
        if message.qos == QoS::ExactlyOnce {
            let id = message.id;
            if is_first_hand {
                let last = self.first_hand.entry((id.node, id.incarnation, id.shard)).or_default();
                *last = id.seq.max(*last);
                if self.first_hand.len() > MAX_SHARDS {
                    self.first_hand.pop_first();
                }
            }
            let (last, at) = self.here.entry((id.node, id.incarnation, id.shard)).or_insert((id.seq, now));
            (*last, *at) = (id.seq.max(*last), now);
            if self.here.len() > MAX_SHARDS {
                self.here.pop_first();
            }
        }
    }

    /// Whether a publication that another node passes on is older than what its own node has sent here since. Then that node had nobody
    /// here to send it to, and it goes out once more because it was taken for dead: it is nothing for those who have come since.
    fn is_past(&self, message: &Message) -> bool {
        let id = message.id;
        let last = self.first_hand.get(&(id.node, id.incarnation, id.shard));
        message.qos == QoS::ExactlyOnce && last.is_some_and(|last| id.seq < *last)
    }

    /// What a session that leaves has had.
    fn leaves(&mut self, now: Instant, client: &ClientId) -> Vec<MessageId> {
        self.here.retain(|_, (_, at)| now < *at + WINDOW);
        let mut marks: BTreeMap<Shard, u64> = self.here.iter().map(|(shard, (last, _))| (*shard, *last)).collect();
        self.deadlines.cancel(client);
        let before = self.sessions.remove(client).filter(|(since, _)| now < *since + WINDOW);
        for (shard, last) in before.into_iter().flat_map(|(_, marks)| marks) {
            let known = marks.entry(shard).or_default();
            *known = last.max(*known);
        }
        let marks = marks.into_iter().take(MAX_MARKS);
        marks.map(|((node, incarnation, shard), seq)| MessageId { node, incarnation, shard, seq }).collect()
    }

    /// A session comes that has had this.
    pub(super) fn arrives(&mut self, now: Instant, client: ClientId, marks: &[MessageId]) {
        while let Some(client) = self.deadlines.pop_due(now) {
            self.sessions.remove(&client);
        }
        let marks = marks.iter().take(MAX_MARKS).map(|id| ((id.node, id.incarnation, id.shard), id.seq)).collect();
        self.deadlines.set(client.clone(), now + WINDOW);
        self.sessions.insert(client, (now, marks));
        if self.sessions.len() > MAX_SESSIONS
            && let Some((first, _)) = self.sessions.pop_first()
        {
            self.deadlines.cancel(&first);
        }
    }

    /// Sessions that had this publication before they came here.
    fn who(&self, id: &MessageId) -> Vec<ClientId> {
        let shard = (id.node, id.incarnation, id.shard);
        let had = self.sessions.iter().filter(|(_, (_, marks))| marks.get(&shard).is_some_and(|last| id.seq <= *last));
        had.map(|(client, _)| client.clone()).collect()
    }
}

impl Node {
    /// A session is about to be sent to its new owner.
    pub(super) fn send_had(&mut self, to: NodeId, client: &ClientId) {
        let marks = self.had.leaves(self.now.instant, client);
        if !marks.is_empty() {
            let mail = SessionMail::Had { client: client.clone(), marks };
            self.send_control(to, ControlTopic::Session, mail.encode());
        }
    }

    /// A publication is about to be given to the shards. If it does not come from the life of its node that made it, sessions that have
    /// moved here may have had it. False if nobody is to get it.
    pub(super) fn note_had(&mut self, from: Source, message: &Message) -> bool {
        let (Source::Link(sender) | Source::Stream(sender)) = from;
        let is_first_hand = sender == message.id.node && self.life_of(sender).incarnation == message.id.incarnation;
        if !is_first_hand && self.had.is_past(message) {
            self.counters.publications_repeated += 1;
            return false;
        }
        self.had.note(self.now.instant, message, is_first_hand);
        if message.qos == QoS::ExactlyOnce && !is_first_hand {
            self.tell_had(message);
        }
        true
    }

    fn tell_had(&mut self, message: &Message) {
        for client in self.had.who(&message.id) {
            let shard = shard_of(&client, self.config.shards);
            let had = SessionStep::Had { client, id: message.id };
            self.tell_shard(shard, super::claims::session_step(had));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sedge_mqtt::{Stamp, TopicName};

    use super::*;

    fn id(node: u64, seq: u64) -> MessageId {
        MessageId { node: NodeId::new(node), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
    }

    /// FT-21
    #[test]
    fn a_session_takes_along_what_it_had_at_all_its_nodes() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let at = Instant::from_millis;
        had.arrives(at(0), client.clone(), &[id(1, 5), id(2, 9)]);
        had.here.insert((NodeId::new(2), Incarnation::new(1), ShardId(0)), (4, at(1)));
        had.here.insert((NodeId::new(3), Incarnation::new(1), ShardId(0)), (7, at(1)));
        assert_eq!(had.who(&id(1, 5)), core::slice::from_ref(&client));
        assert!(had.who(&id(1, 6)).is_empty() && had.who(&id(3, 7)).is_empty());
        assert_eq!(had.leaves(at(2), &client), [id(1, 5), id(2, 9), id(3, 7)]);
        assert!(had.who(&id(1, 5)).is_empty());
        had.arrives(at(3), client.clone(), &[id(1, 5)]);
        assert!(had.leaves(at(3) + WINDOW, &client).is_empty());
    }

    fn message(id: MessageId) -> Arc<Message> {
        Arc::new(Message {
            id,
            topic: TopicName::new("t").unwrap(),
            payload: b"x".as_slice().into(),
            qos: QoS::ExactlyOnce,
            retain: false,
            properties: None,
            stamp: Stamp { millis: 1, counter: 0, node: id.node, shard: id.shard },
            expires_at: None,
            publisher: None,
        })
    }

    /// FT-31
    #[test]
    fn what_a_node_has_gone_beyond_is_past() {
        let (mut had, at) = (Had::default(), Instant::from_millis(0));
        had.note(at, &message(id(2, 8)), false);
        assert!(!had.is_past(&message(id(2, 7))), "only passed on so far");
        had.note(at, &message(id(2, 5)), true);
        assert!(had.is_past(&message(id(2, 4))));
        assert!(!had.is_past(&message(id(2, 6))), "it died before it had sent this");
        assert!(!had.is_past(&message(id(1, 4))), "of another node");
    }
}
