//! A bounded queue in which sources take turns: a source that brings much delays its own entries and not those of others.

use std::collections::{BTreeMap, VecDeque};

/// See the module.
pub(super) struct Turns<T> {
    max: usize,
    len: usize,
    /// The waiting entries of each source, oldest first; never empty.
    waiting: BTreeMap<Box<str>, VecDeque<T>>,
    /// The sources that wait, each once: the first has its turn next.
    order: VecDeque<Box<str>>,
}

/// Whether there was room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waits<T> {
    /// All wait.
    All,
    /// This entry has to go: the newcomer, or the last one of the source that has most.
    AllBut(T),
}

impl<T> Turns<T> {
    /// A queue for `max` of all sources together.
    pub(super) const fn new(max: usize) -> Self {
        Self { max, len: 0, waiting: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Puts one in the queue of its source.
    pub(super) fn push(&mut self, source: Box<str>, item: T) -> Waits<T> {
        let mut gone = None;
        if self.len >= self.max {
            let own = self.waiting.get(&source).map_or(0, VecDeque::len);
            let most = self.waiting.iter().max_by_key(|(_, waiting)| waiting.len());
            // With one more the newcomer's source would have as many as any: it is the one that has too many.
            let Some(most) = most.filter(|(_, waiting)| waiting.len() > own + 1).map(|(most, _)| most.clone()) else {
                return Waits::AllBut(item);
            };
            gone = self.waiting.get_mut(&most).and_then(VecDeque::pop_back);
            self.len -= usize::from(gone.is_some());
        }
        let waiting = self.waiting.entry(source).or_insert_with_key(|source| {
            self.order.push_back(source.clone());
            VecDeque::new()
        });
        waiting.push_back(item);
        self.len += 1;
        gone.map_or(Waits::All, Waits::AllBut)
    }

    /// The oldest one of the source whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let source = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&source)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.order.push_back(source);
        }
        self.len -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(max: usize, sources: &[(&str, u32)]) -> Turns<u32> {
        let mut turns = Turns::new(max);
        for &(source, number) in sources {
            assert_eq!(turns.push(source.into(), number), Waits::All);
        }
        turns
    }

    /// FT-35: a flood from one address.
    #[test]
    fn a_source_waits_for_one_of_each_other() {
        let mut turns = filled(1_000, &[]);
        for number in 0..500 {
            turns.push("flood".into(), number);
        }
        turns.push("user".into(), 1_000);
        turns.push("user".into(), 1_001);
        turns.push("other".into(), 2_000);
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order[..6], [0, 1_000, 2_000, 1, 1_001, 2]);
        assert_eq!((order.len(), turns.len()), (503, 0));
        assert!(order[5..].is_sorted(), "within a source the oldest is first");
    }

    #[test]
    fn in_a_full_queue_the_source_with_most_makes_room() {
        let mut turns = filled(4, &[("flood", 0), ("flood", 1), ("flood", 2), ("flood", 3)]);
        assert_eq!(turns.push("flood".into(), 4), Waits::AllBut(4), "it does not push itself out");
        assert_eq!(turns.push("user".into(), 10), Waits::AllBut(3));
        assert_eq!(turns.push("user".into(), 11), Waits::AllBut(2));
        assert_eq!(turns.push("user".into(), 12), Waits::AllBut(12), "each has half");
        assert_eq!(turns.push("other".into(), 20), Waits::AllBut(11), "of equals it is the last in order");
        assert_eq!(turns.len(), 4);
        assert_eq!(std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>(), [0, 10, 20, 1]);
    }
}
