//! Outgoing mail of one thread: collected during a turn, posted at its end, one batch for each receiver.
//!
//! With a journal mail waits until the journal has what it rests on. Publications with QoS 0 rest on nothing and pass it. Those with
//! the retain flag do not on their way to the node, where they may not overtake a retained message of another QoS, and what follows
//! them waits behind them.

use sedge_base::ShardId;
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_mqtt::QoS;

use super::mailbox::Room;
use super::{Letter, Shared, WorkerStats};

/// See the module.
pub(crate) struct Office {
    me: usize,
    batches: Vec<Vec<Letter>>,
    /// Letters that wait for no journal; only used if the others wait for one.
    ahead: Vec<Vec<Letter>>,
    /// For each receiver the batch of the journal for which mail waits that no other mail may pass.
    fences: Vec<u64>,
    /// Batches of the journal up to this one are kept; none without a journal.
    kept: Option<u64>,
    /// Receivers whose mailbox was full.
    full: Vec<bool>,
}

impl Office {
    pub(crate) fn new(me: ShardId, shards: usize) -> Self {
        let batches = || (0..shards).map(|_| Vec::new()).collect();
        let (fences, full) = (vec![0; shards], vec![false; shards]);
        Self { me: usize::from(me.0), batches: batches(), ahead: batches(), fences, kept: None, full }
    }

    /// Mail waits for a journal from now on, of which the batches up to `kept` are kept.
    pub(crate) fn note_kept(&mut self, kept: u64) {
        self.kept = Some(kept);
    }

    /// Keeps a letter for the end of the turn.
    pub(crate) fn put(&mut self, to: ShardId, letter: Letter) {
        let to = usize::from(to.0);
        let haste = self.kept.map(|kept| (kept, haste(&letter)));
        let fence = self.fences.get_mut(to);
        let batches = match (haste, fence) {
            (Some((kept, Haste::Passes)), Some(fence)) if *fence <= kept => &mut self.ahead,
            (Some((_, Haste::Passes | Haste::Bars)), Some(fence)) => {
                *fence = u64::MAX;
                &mut self.batches
            }
            _ => &mut self.batches,
        };
        if let Some(batch) = batches.get_mut(to) {
            batch.push(letter);
        } else {
            tracing::error!(shard = to, "mail for a shard that does not exist");
        }
    }

    /// Whether there is anything to post.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.iter().chain(&self.ahead).all(Vec::is_empty)
    }

    /// Whether there is anything that has to wait for a journal.
    pub(crate) fn has_to_wait(&self) -> bool {
        !self.batches.iter().all(Vec::is_empty)
    }

    /// Posts what waits for no journal.
    pub(crate) fn post_ahead(&mut self, shared: &Shared, stats: &mut WorkerStats) {
        std::mem::swap(&mut self.batches, &mut self.ahead);
        self.post(shared, stats);
        std::mem::swap(&mut self.batches, &mut self.ahead);
    }

    /// Takes out what waits for batch `sequence` of the journal, one batch of mail for each receiver; `mark` gives what to put behind
    /// one with publications.
    pub(crate) fn take(&mut self, sequence: u64, mut mark: impl FnMut(usize) -> Letter) -> Vec<Vec<Letter>> {
        for fence in self.fences.iter_mut().filter(|fence| **fence == u64::MAX) {
            *fence = sequence;
        }
        let mut taken: Vec<_> = self.batches.iter_mut().map(std::mem::take).collect();
        for (to, batch) in taken.iter_mut().enumerate() {
            let publishes = |letter: &Letter| matches!(letter, Letter::Shard(ToShard::Plain(_) | ToShard::Share(_)));
            if batch.iter().any(publishes) {
                batch.push(mark(to));
            }
        }
        taken
    }

    /// Posts what [`Office::take`] took, behind which nothing was put yet.
    pub(crate) fn post_taken(&mut self, taken: Vec<Vec<Letter>>, shared: &Shared, stats: &mut WorkerStats) {
        let later = std::mem::replace(&mut self.batches, taken);
        self.post(shared, stats);
        self.batches = later;
    }

    /// Posts everything.
    pub(crate) fn post(&mut self, shared: &Shared, stats: &mut WorkerStats) {
        for ((batch, full), mailbox) in self.batches.iter_mut().zip(&mut self.full).zip(&shared.boxes) {
            if batch.is_empty() {
                continue;
            }
            stats.letters += batch.len() as u64;
            stats.batches += 1;
            if mailbox.post(batch, self.me) == Room::No && !*full {
                *full = true;
                stats.mailbox_full += 1;
            }
        }
    }

    /// Whether some receiver cannot follow, so that nothing more is to be read from clients. Looks again at those that could
    /// not; this thread is woken when that changes.
    pub(crate) fn is_jammed(&mut self, shared: &Shared) -> bool {
        for (full, mailbox) in self.full.iter_mut().zip(&shared.boxes) {
            *full = *full && mailbox.room(self.me) == Room::No;
        }
        self.full.contains(&true)
    }
}

/// How a letter stands to a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    /// It waits.
    Waits,
    /// It waits, and none that could pass may pass it.
    Bars,
    /// It need not wait.
    Passes,
}

fn haste(letter: &Letter) -> Haste {
    let (message, for_node) = if let Letter::Shard(ToShard::Plain(message)) = letter {
        (message, false)
    } else if let Letter::Shard(ToShard::Share(deliver)) = letter {
        (&deliver.message, false)
    } else if let Letter::Node(_, ToNode::Publish(publish)) = letter {
        (&publish.message, true)
    } else {
        return Haste::Waits;
    };
    match (message.qos, for_node && message.retain) {
        (QoS::AtMostOnce, false) => Haste::Passes,
        (QoS::AtMostOnce, true) => Haste::Bars,
        (QoS::AtLeastOnce | QoS::ExactlyOnce, _) => Haste::Waits,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sedge_base::{Incarnation, NodeId};
    use sedge_cluster::mail::Publish;
    use sedge_mqtt::{Message, MessageId, ReadAt, Stamp, TopicName};

    use super::*;

    fn message(seq: u64, qos: QoS, retain: bool) -> Arc<Message> {
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
        Arc::new(Message {
            id: MessageId { node, incarnation, shard: ShardId(1), seq },
            topic: TopicName::new("t").unwrap_or_else(|_| unreachable!("a topic name")),
            payload: Bytes::new(),
            qos,
            retain,
            properties: None,
            stamp: Stamp { millis: seq, counter: 0, node, shard: ShardId(1) },
            expires_at: None,
            publisher: None,
            read_at: ReadAt::default(),
        })
    }

    fn to_node(seq: u64, qos: QoS, retain: bool) -> Letter {
        let publish =
            Publish { message: message(seq, qos, retain), ticket: None, remote: true, matched: false, groups: None };
        Letter::Node(ShardId(1), ToNode::Publish(publish))
    }

    fn numbers(letters: &[Letter]) -> Vec<u64> {
        let number = |letter: &Letter| {
            if let Letter::Shard(ToShard::Plain(message)) | Letter::Node(_, ToNode::Publish(Publish { message, .. })) =
                letter
            {
                return Some(message.id.seq);
            }
            None
        };
        letters.iter().filter_map(number).collect()
    }

    /// MQ-10: messages of the same QoS keep their order, and none of QoS 0 waits for a journal.
    #[test]
    fn qos_0_passes_mail_that_waits_but_no_retained_message() {
        let mut office = Office::new(ShardId(1), 2);
        office.note_kept(4);
        office.put(ShardId(0), to_node(1, QoS::AtLeastOnce, false));
        office.put(ShardId(0), to_node(2, QoS::AtMostOnce, false));
        office.put(ShardId(0), Letter::Shard(ToShard::Plain(message(3, QoS::AtMostOnce, true))));
        assert_eq!((numbers(&office.batches[0]), numbers(&office.ahead[0])), (vec![1], vec![2, 3]));
        office.put(ShardId(0), to_node(4, QoS::AtMostOnce, true));
        office.put(ShardId(0), to_node(5, QoS::AtMostOnce, false));
        assert_eq!(numbers(&office.ahead[0]), [2, 3]);
        assert_eq!(numbers(&office.take(5, |_| Letter::Gone)[0]), [1, 4, 5]);
        office.put(ShardId(0), to_node(6, QoS::AtMostOnce, false));
        assert_eq!(numbers(&office.take(6, |_| Letter::Gone)[0]), [6]);
        office.note_kept(5);
        office.put(ShardId(0), to_node(7, QoS::AtMostOnce, false));
        assert_eq!(numbers(&office.take(7, |_| Letter::Gone)[0]), [7], "behind 6, which waits");
        office.note_kept(7);
        office.put(ShardId(0), to_node(8, QoS::AtMostOnce, false));
        assert_eq!(numbers(&office.ahead[0]), [2, 3, 8]);
        assert!(!office.has_to_wait() && !office.is_empty());
    }
}
