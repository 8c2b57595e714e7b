//! A queue that says no.

use std::collections::VecDeque;

/// The queue was at its limit; the item comes back.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// First in, first out, never more than `limit` items.
#[derive(Clone, Debug)]
pub struct BoundedQueue<T> {
    items: VecDeque<T>,
    limit: usize,
}

impl<T> BoundedQueue<T> {
    /// An empty queue for at most `limit` items. Holds no memory until used.
    pub const fn new(limit: usize) -> Self {
        Self { items: VecDeque::new(), limit }
    }

    /// Appends `item`, or gives it back when the queue is full.
    pub fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if self.items.len() >= self.limit {
            return Err(Full(item));
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Appends `item`; when the queue is full its oldest item makes room and is returned.
    pub fn push_evicting(&mut self, item: T) -> Option<T> {
        let evicted = if self.items.len() >= self.limit { self.items.pop_front() } else { None };
        if self.limit == 0 {
            return Some(item);
        }
        self.items.push_back(item);
        evicted
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.items.pop_front();
        if self.items.is_empty() {
            self.items = VecDeque::new();
        }
        item
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The most items that may wait.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The items, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let mut queue = BoundedQueue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(Full(3)));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn an_evicting_push_drops_the_oldest() {
        let mut queue = BoundedQueue::new(2);
        assert_eq!(queue.push_evicting(1), None);
        assert_eq!(queue.push_evicting(2), None);
        assert_eq!(queue.push_evicting(3), Some(1));
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(BoundedQueue::new(0).push_evicting(9), Some(9));
    }
}
