//! Nothing leaves a thread before the batch on which it depends is kept.
//!
//! At the end of a turn everything that is about to leave (bytes for clients and links, mail for other threads) gets the number of
//! that turn. It leaves when the thread's own journal has the turn's batch, and, because an acknowledgement may be among it, when
//! every thread that was sent a publication until then has that in its journal, too.

use std::collections::VecDeque;

use sedge_base::{ConnId, ShardId};

use crate::LinkId;

/// Output that waits for the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The bytes of a client's outbox up to this position.
    Client(ConnId, u64),
    /// The bytes of a link's outbox up to this position.
    Link(LinkId, u64),
}

/// A turn that is over.
#[derive(Debug)]
struct Turn {
    number: u64,
    /// The batch that has to be kept.
    sequence: u64,
    /// For each thread the last mark that it has to have answered.
    marks: Vec<u64>,
}

/// The gate of one thread: it holds output back until the journals have the batches on which the output depends. `M` is a piece of mail for
/// another thread.
#[derive(Debug)]
pub struct DurableGate<M> {
    turn: u64,
    turns: VecDeque<Turn>,
    held: VecDeque<(u64, Held)>,
    /// Mail waits for this thread's own journal only.
    letters: VecDeque<(u64, Vec<Vec<M>>)>,
    letters_held: usize,
    /// Marks in the mail of others that are answered once the batch is kept.
    answers: VecDeque<(u64, ShardId, u64)>,
    /// The last mark sent to each thread.
    marks: Vec<u64>,
}

impl<M> DurableGate<M> {
    /// The gate of one of so many threads.
    pub fn new(shards: usize) -> Self {
        Self {
            turn: 0,
            turns: VecDeque::new(),
            held: VecDeque::new(),
            letters: VecDeque::new(),
            letters_held: 0,
            answers: VecDeque::new(),
            marks: vec![0; shards],
        }
    }

    /// A publication goes to this thread: the mark to be put behind it.
    pub fn next_mark(&mut self, to: usize) -> u64 {
        let Some(mark) = self.marks.get_mut(to) else { return 0 };
        *mark += 1;
        *mark
    }

    /// A mark has come, and everything before it has had its effect: it is answered when batch `sequence` is kept.
    pub fn note_mark(&mut self, sequence: u64, from: ShardId, mark: u64) {
        self.answers.push_back((sequence, from, mark));
    }

    /// Ends a turn whose batch has this number, with what is about to leave.
    pub fn end_turn(&mut self, sequence: u64, held: impl Iterator<Item = Held>) {
        self.turn += 1;
        let number = self.turn;
        let before = self.held.len();
        self.held.extend(held.map(|held| (number, held)));
        if self.held.len() > before {
            self.turns.push_back(Turn { number, sequence, marks: self.marks.clone() });
        }
    }

    /// Keeps mail back until batch `sequence` is kept.
    pub fn hold_letters(&mut self, sequence: u64, letters: Vec<Vec<M>>) {
        self.letters_held += letters.iter().map(Vec::len).sum::<usize>();
        self.letters.push_back((sequence, letters));
    }

    /// How much mail is kept back.
    pub const fn letters(&self) -> usize {
        self.letters_held
    }

    /// Mail that may leave now that the batches up to `kept` are kept.
    pub fn next_letters(&mut self, kept: u64) -> Option<Vec<Vec<M>>> {
        let (_, letters) = self.letters.pop_front_if(|(sequence, _)| *sequence <= kept)?;
        self.letters_held -= letters.iter().map(Vec::len).sum::<usize>();
        Some(letters)
    }

    /// A mark that may be answered now that the batches up to `kept` are kept.
    pub fn next_answer(&mut self, kept: u64) -> Option<(ShardId, u64)> {
        self.answers.pop_front_if(|(sequence, ..)| *sequence <= kept).map(|(_, from, mark)| (from, mark))
    }

    /// Something that may leave now that the batches up to `kept` are kept and the other threads have answered marks as
    /// `answered` says.
    pub fn next_held(&mut self, kept: u64, answered: impl Fn(usize) -> u64) -> Option<Held> {
        loop {
            let turn = self.turns.front()?;
            let is_answered = |(thread, mark): (usize, &u64)| *mark == 0 || answered(thread) >= *mark;
            if turn.sequence > kept || !turn.marks.iter().enumerate().all(is_answered) {
                return None;
            }
            let number = turn.number;
            if let Some((_, held)) = self.held.pop_front_if(|(turn, _)| *turn == number) {
                return Some(held);
            }
            self.turns.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u64) -> Held {
        Held::Client(ConnId(number), 0)
    }

    fn released(gate: &mut DurableGate<&str>, kept: u64, answered: [u64; 2]) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some(held) = gate.next_held(kept, |thread| answered[thread]) {
            found.push(match held {
                Held::Client(ConnId(number), _) | Held::Link(LinkId(number), _) => number,
            });
        }
        found
    }

    /// MQ-05: an acknowledgement waits for every journal that has to have the publication.
    #[test]
    fn what_is_held_leaves_in_order_of_turns_when_all_journals_have_it() {
        let mut gate = DurableGate::new(2);
        gate.end_turn(1, [client(1)].into_iter());
        assert_eq!(gate.next_mark(1), 1);
        gate.end_turn(2, [client(2), client(3)].into_iter());
        gate.end_turn(2, std::iter::empty());
        gate.end_turn(3, [client(4)].into_iter());
        assert_eq!(released(&mut gate, 0, [0, 9]), <[u64; 0]>::default());
        assert_eq!(released(&mut gate, 3, [0, 0]), [1]);
        assert_eq!(released(&mut gate, 2, [0, 1]), [2, 3]);
        assert_eq!(released(&mut gate, 3, [0, 1]), [4]);
    }

    #[test]
    fn mail_and_answers_wait_for_the_own_journal_only() {
        let mut gate = DurableGate::new(2);
        gate.next_mark(1);
        gate.hold_letters(2, vec![vec!["mail"]]);
        gate.note_mark(2, ShardId(1), 7);
        assert!(gate.next_letters(1).is_none() && gate.next_answer(1).is_none() && gate.letters() == 1);
        assert!(gate.next_letters(2).is_some());
        assert_eq!(gate.next_answer(2), Some((ShardId(1), 7)));
        assert_eq!(gate.letters(), 0);
    }
}
