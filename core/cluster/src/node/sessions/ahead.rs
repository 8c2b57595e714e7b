//! Messages that the former owner of a moving session has caught for it, sent ahead of the word to send them: everybody has to have answered before
//! that, which takes long if a node has just died silently. Should the two owners lose sight of each other meanwhile, the client is served with these
//! messages at least, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{ClientId, Duration, NodeId};
use sedge_mqtt::Message;

use crate::lineage::Given;
use crate::mail::{Handed, SessionStep};
use crate::node::Node;
use crate::node::sessions::claims::session_step;
use crate::reception::shard_of;

/// The time after which the former owner looks again for messages that it has caught. A move seldom takes as long.
pub(in crate::node) const PERIOD: Duration = Duration::from_millis(100);
/// Messages of one session that are taken ahead, as many as are caught; more are dropped, and counted unless they come again with the rest.
const MAX_MESSAGES: usize = 100_000;
/// Sessions for which something is kept; the one with the highest client id is forgotten first, and its messages come again with the rest.
const MAX_SESSIONS: usize = 10_000;

/// Bit of the epoch in mail with what is sent ahead, which no owner's has. The rest is the epoch under which the session was given away.
const AHEAD: u64 = 1 << 62;

/// Of what is sent ahead, under which epoch its session was given away.
pub(in crate::node) const fn sent_ahead(epoch: u64) -> Option<u64> {
    if epoch & AHEAD == 0 { None } else { Some(epoch & !AHEAD) }
}

/// See the module. By client that is claimed here.
#[derive(Debug, Default)]
pub(in crate::node) struct Ahead(BTreeMap<ClientId, Vec<Arc<Message>>>);

impl Ahead {
    /// Returns how many were dropped.
    fn push(&mut self, client: &ClientId, messages: &[Arc<Message>]) -> usize {
        let known = self.0.entry(client.clone()).or_default();
        let room = MAX_MESSAGES.saturating_sub(known.len());
        known.extend(messages.iter().take(room).map(Arc::clone));
        let forgotten = if self.0.len() > MAX_SESSIONS { self.0.pop_last() } else { None };
        messages.len().saturating_sub(room) + forgotten.map_or(0, |(_, messages)| messages.len())
    }

    /// Messages that have come for the session.
    pub(in crate::node) fn take(&mut self, client: &ClientId) -> Vec<Arc<Message>> {
        self.0.remove(client).unwrap_or_default()
    }
}

impl Node {
    /// Looks what was caught for a session that was given away and not released.
    pub(in crate::node) fn look_ahead(&mut self, handed: Handed) {
        let shard = shard_of(&handed.client, self.config.shards);
        self.tell_shard(shard, session_step(SessionStep::Look(handed)));
    }

    /// The shard says what it has caught since it was asked last.
    pub(in crate::node) fn caught_ahead(&mut self, handed: &Handed, messages: &[Arc<Message>]) {
        let Handed { client, epoch } = handed;
        let to = self.handed.waits(client, *epoch).filter(|to| self.ring.contains(to) && !self.links.is_older(*to));
        if let Some(to) = to.filter(|_| !messages.is_empty()) {
            self.send_leftovers(to, client, *epoch | AHEAD, messages);
        }
    }

    /// A former owner sends something ahead. It is nothing for a client that is served already: it comes with the rest, too.
    pub(in crate::node) fn comes_ahead(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        messages: &[Arc<Message>],
    ) {
        if self.claims.awaits_leftovers(client, Given { from, epoch }) {
            self.claims.ahead.push(client, messages);
        } else {
            self.reunion_gets(from, client, epoch, messages);
        }
    }

    /// The rest has come before the client can be served with it.
    pub(in crate::node) fn keep_rest(&mut self, client: &ClientId, messages: &[Arc<Message>]) {
        self.counters.leftovers_discarded += self.claims.ahead.push(client, messages) as u64;
    }

    /// A client is served without the rest: the session has had what came ahead.
    pub(in crate::node) fn serve_ahead(&mut self, client: &ClientId) -> Vec<Arc<Message>> {
        let messages = self.claims.ahead.take(client);
        self.had.gets_caught(client, messages.iter().map(|message| message.id));
        messages
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, NodeId, ShardId};
    use sedge_mqtt::{MessageId, QoS};

    use super::*;
    use crate::testing::message;

    fn some(count: usize) -> Vec<Arc<Message>> {
        let id = MessageId { node: NodeId::new(1), incarnation: Incarnation::new(1), shard: ShardId(0), seq: 1 };
        vec![message(id, QoS::AtLeastOnce); count]
    }

    /// MQ-11
    #[test]
    fn what_is_kept_ahead_has_a_limit_and_what_is_dropped_is_counted() {
        let (mut ahead, client) = (Ahead::default(), ClientId::new("c"));
        assert_eq!(ahead.push(&client, &some(MAX_MESSAGES - 1)), 0);
        assert_eq!(ahead.push(&client, &some(3)), 2);
        assert_eq!(ahead.take(&client).len(), MAX_MESSAGES);
        assert!(ahead.take(&client).is_empty());
        let clients = (0..=MAX_SESSIONS).map(|number| ClientId::new(&format!("{number:06}")));
        assert_eq!(clients.map(|client| ahead.push(&client, &some(1))).sum::<usize>(), 1);
    }
}
