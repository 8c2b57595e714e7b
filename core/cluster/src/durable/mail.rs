//! Mail of one thread for the others: collected during a turn, one batch for each receiver.
//!
//! With a journal mail waits until the journal has what it rests on. Publications with QoS 0 rest on nothing and pass it. Those with
//! the retain flag do not on their way to the node, where they may not overtake a retained message of another QoS, and what follows
//! them waits behind them.

use sedge_base::ShardId;
use sedge_mqtt::{Message, QoS};

use crate::mail::{ToNode, ToShard};

/// How a piece of mail stands to a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// It waits.
    Waits,
    /// It waits, and none that could pass may pass it.
    Bars,
    /// It need not wait.
    Passes,
}

/// The mail of one thread for the others. `M` is a piece of mail.
#[derive(Debug)]
pub struct OutgoingMail<M> {
    batches: Vec<Vec<M>>,
    /// Mail that waits for no journal; only used if the others wait for one.
    ahead: Vec<Vec<M>>,
    /// For each receiver the batch of the journal for which mail waits that no other mail may pass.
    fences: Vec<u64>,
    /// Batches of the journal up to this one are kept; none without a journal.
    kept: Option<u64>,
}

impl<M> OutgoingMail<M> {
    /// Mail for so many threads.
    pub fn new(threads: usize) -> Self {
        let batches = || (0..threads).map(|_| Vec::new()).collect();
        Self { batches: batches(), ahead: batches(), fences: vec![0; threads], kept: None }
    }

    /// Mail waits for a journal from now on, of which the batches up to `kept` are kept.
    pub fn note_kept(&mut self, kept: u64) {
        self.kept = Some(kept);
    }

    /// Keeps a piece of mail for the end of the turn; an unknown receiver gives it back.
    pub fn put(&mut self, to: ShardId, mail: M, haste: impl FnOnce(&M) -> Haste) -> Result<(), M> {
        let to = usize::from(to.0);
        let haste = self.kept.map(|kept| (kept, haste(&mail)));
        let fence = self.fences.get_mut(to);
        let batches = match (haste, fence) {
            (Some((kept, Haste::Passes)), Some(fence)) if *fence <= kept => &mut self.ahead,
            (Some((_, Haste::Passes | Haste::Bars)), Some(fence)) => {
                *fence = u64::MAX;
                &mut self.batches
            }
            _ => &mut self.batches,
        };
        match batches.get_mut(to) {
            Some(batch) => batch.push(mail),
            None => return Err(mail),
        }
        Ok(())
    }

    /// Whether there is anything to post.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().chain(&self.ahead).all(Vec::is_empty)
    }

    /// Whether there is anything that has to wait for a journal.
    pub fn has_to_wait(&self) -> bool {
        !self.batches.iter().all(Vec::is_empty)
    }

    /// The mail that may be posted at once: all mail without a journal, and with one the mail that waits for no journal. The caller empties the
    /// batches, which keep their room.
    pub fn free(&mut self) -> &mut [Vec<M>] {
        if self.kept.is_some() { &mut self.ahead } else { &mut self.batches }
    }

    /// Takes out what waits for batch `sequence` of the journal, one batch of mail for each receiver; behind a batch with mail that `publishes`
    /// comes the `mark` of its receiver.
    pub fn take(
        &mut self,
        sequence: u64,
        publishes: impl Fn(&M) -> bool,
        mut mark: impl FnMut(usize) -> M,
    ) -> Vec<Vec<M>> {
        for fence in self.fences.iter_mut().filter(|fence| **fence == u64::MAX) {
            *fence = sequence;
        }
        let mut taken: Vec<_> = self.batches.iter_mut().map(core::mem::take).collect();
        for (to, batch) in taken.iter_mut().enumerate() {
            if batch.iter().any(&publishes) {
                batch.push(mark(to));
            }
        }
        taken
    }
}

/// Whether mail to a shard is a publication, so that a mark goes behind it.
pub const fn is_publication(mail: &ToShard) -> bool {
    matches!(mail, ToShard::Plain(_) | ToShard::Share(_))
}

/// How mail to a shard stands to a journal.
pub fn haste_to_shard(mail: &ToShard) -> Haste {
    if let ToShard::Plain(message) = mail {
        haste(message, false)
    } else if let ToShard::Share(deliver) = mail {
        haste(&deliver.message, false)
    } else {
        Haste::Waits
    }
}

/// How mail to the node stands to a journal.
pub fn haste_to_node(mail: &ToNode) -> Haste {
    if let ToNode::Publish(publish) = mail { haste(&publish.message, true) } else { Haste::Waits }
}

fn haste(message: &Message, for_node: bool) -> Haste {
    match (message.qos, for_node && message.retain) {
        (QoS::AtMostOnce, false) => Haste::Passes,
        (QoS::AtMostOnce, true) => Haste::Bars,
        (QoS::AtLeastOnce | QoS::ExactlyOnce, _) => Haste::Waits,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sedge_base::{Incarnation, NodeId};
    use sedge_mqtt::MessageId;

    use super::*;
    use crate::mail::Publish;
    use crate::testing;

    fn message(seq: u64, qos: QoS, retain: bool) -> Arc<Message> {
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
        let message = testing::message(MessageId { node, incarnation, shard: ShardId(1), seq }, qos);
        Arc::new(Message { retain, ..Message::clone(&message) })
    }

    fn put(mail: &mut OutgoingMail<u64>, seq: u64, qos: QoS, retain: bool) {
        let message = message(seq, qos, retain);
        let publish = Publish { message, ticket: None, remote: true, matched: false, groups: None };
        let haste = haste_to_node(&ToNode::Publish(publish));
        assert_eq!(mail.put(ShardId(0), seq, |_| haste), Ok(()));
    }

    fn taken(mail: &mut OutgoingMail<u64>, sequence: u64) -> Vec<u64> {
        mail.take(sequence, |_| false, |_| 0).remove(0)
    }

    /// MQ-10: messages of the same QoS keep their order, and none of QoS 0 waits for a journal.
    #[test]
    fn qos_0_passes_mail_that_waits_but_no_retained_message() {
        let mut mail = OutgoingMail::new(2);
        mail.note_kept(4);
        put(&mut mail, 1, QoS::AtLeastOnce, false);
        put(&mut mail, 2, QoS::AtMostOnce, false);
        let haste = haste_to_shard(&ToShard::Plain(message(3, QoS::AtMostOnce, true)));
        assert_eq!(mail.put(ShardId(0), 3, |_| haste), Ok(()));
        assert_eq!((mail.batches[0].clone(), mail.free()[0].clone()), (vec![1], vec![2, 3]));
        put(&mut mail, 4, QoS::AtMostOnce, true);
        put(&mut mail, 5, QoS::AtMostOnce, false);
        assert_eq!(mail.free()[0], [2, 3]);
        assert_eq!(taken(&mut mail, 5), [1, 4, 5]);
        put(&mut mail, 6, QoS::AtMostOnce, false);
        assert_eq!(taken(&mut mail, 6), [6]);
        mail.note_kept(5);
        put(&mut mail, 7, QoS::AtMostOnce, false);
        assert_eq!(taken(&mut mail, 7), [7], "behind 6, which waits");
        mail.note_kept(7);
        put(&mut mail, 8, QoS::AtMostOnce, false);
        assert_eq!(mail.free()[0], [2, 3, 8]);
        assert!(!mail.has_to_wait() && !mail.is_empty());
        assert_eq!(mail.put(ShardId(2), 9, |_| Haste::Waits), Err(9), "there is no such thread");
    }

    /// A mark goes only behind publications.
    #[test]
    fn marks_follow_publications() {
        let mut mail = OutgoingMail::new(2);
        mail.note_kept(0);
        for (to, number) in [(0, 1), (1, 2), (1, 3)] {
            assert_eq!(mail.put(ShardId(to), number, |_| Haste::Waits), Ok(()));
        }
        assert_eq!(mail.take(1, |number| *number == 2, |_| 100), [vec![1], vec![2, 3, 100]]);
    }
}
