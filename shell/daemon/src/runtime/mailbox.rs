//! Mail from thread to thread: a batch at a time, one lock and at most one wake-up each.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From this many waiting letters on, a mailbox is full: whoever sends on reads no more from clients until it was emptied.
/// Nothing is dropped, so that the most that can wait is this plus what each sender makes of one turn.
pub(crate) const MAILBOX_LETTERS_MAX: usize = 16 * 1024;
/// A buffer that has grown beyond this for a burst is given back once there is much less again.
const BUFFER_LETTERS_KEPT: usize = 4 * 1024;

/// Wakes a sleeping thread, which looks into its mailbox then.
pub(crate) trait Wake: Send + Sync {
    /// Wakes the thread.
    fn wake(&self) -> io::Result<()>;
}

impl Wake for mio::Waker {
    fn wake(&self) -> io::Result<()> {
        Self::wake(self)
    }
}

/// Letters for one thread.
pub(crate) struct Mailbox<T, W = mio::Waker> {
    state: Mutex<State<T>>,
    waker: W,
}

struct State<T> {
    letters: Vec<T>,
    sleeping: bool,
    /// The owner has ended.
    closed: bool,
    /// With so many letters it is full: with none as long as the owner has not read what it took last.
    full_from: usize,
    /// The owner is to take one more turn before it sleeps.
    nudged: bool,
    /// Senders that found the mailbox full and want to know when it is not any more.
    waiting: Vec<usize>,
}

impl<T> State<T> {
    fn is_full(&self) -> bool {
        self.letters.len() >= self.full_from
    }
}

/// How a mailbox is after mail was put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room.
    Yes,
    /// It is full; the sender is woken when it was emptied.
    No,
}

impl<T, W: Wake> Mailbox<T, W> {
    pub(crate) fn new(waker: W) -> Self {
        let state = State {
            letters: Vec::new(),
            sleeping: false,
            closed: false,
            full_from: MAILBOX_LETTERS_MAX,
            nudged: false,
            waiting: Vec::new(),
        };
        Self { state: Mutex::new(state), waker }
    }

    /// Puts a batch in, in order. `sender` is the number of the mailbox that is woken when this one, now full, was emptied.
    pub(crate) fn post(&self, batch: &mut Vec<T>, sender: usize) -> Room {
        let mut state = self.lock();
        if state.closed {
            batch.clear();
        } else if state.letters.is_empty() {
            std::mem::swap(&mut state.letters, batch);
        } else {
            state.letters.append(batch);
        }
        let full = state.is_full();
        if full && !state.waiting.contains(&sender) {
            state.waiting.push(sender);
        }
        self.rouse(state);
        if full { Room::No } else { Room::Yes }
    }

    /// Puts one letter in that comes from no shard.
    pub(crate) fn post_one(&self, letter: T) {
        let mut state = self.lock();
        if !state.closed {
            state.letters.push(letter);
        }
        self.rouse(state);
    }

    /// Nobody will read these letters any more, nor those that come: they are dropped, so that whoever waits for an answer knows.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        (state.closed, state.full_from) = (true, MAILBOX_LETTERS_MAX);
        let letters = std::mem::take(&mut state.letters);
        drop(state);
        drop(letters);
    }

    /// Whether there is room; if not, `sender` is woken when there is.
    pub(crate) fn room(&self, sender: usize) -> Room {
        let mut state = self.lock();
        if !state.is_full() {
            return Room::Yes;
        }
        if !state.waiting.contains(&sender) {
            state.waiting.push(sender);
        }
        Room::No
    }

    /// Takes all letters into the empty `letters`; returns the senders that want to be woken now.
    pub(crate) fn take(&self, letters: &mut Vec<T>) -> Vec<usize> {
        debug_assert!(letters.is_empty());
        let mut state = self.lock();
        (state.sleeping, state.full_from) = (false, MAILBOX_LETTERS_MAX);
        if state.letters.is_empty() {
            return std::mem::take(&mut state.waiting);
        }
        if letters.capacity() > BUFFER_LETTERS_KEPT && state.letters.len() < BUFFER_LETTERS_KEPT / 4 {
            *letters = Vec::new();
        }
        std::mem::swap(&mut state.letters, letters);
        std::mem::take(&mut state.waiting)
    }

    /// The owner had no time for all that it has taken: as long as it has not taken more, the mailbox counts as full, so that nothing waits
    /// long behind what others send faster than it reads.
    pub(crate) fn fall_behind(&self) {
        self.lock().full_from = 0;
    }

    /// Whether the owner may sleep: nothing waits, and whoever posts or nudges next will wake it.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut state = self.lock();
        let nudged = std::mem::replace(&mut state.nudged, false);
        state.sleeping = state.letters.is_empty() && !nudged;
        state.sleeping
    }

    /// Makes the owner take a turn although there is no letter.
    pub(crate) fn nudge(&self) {
        let mut state = self.lock();
        // It may be on its way to bed, having seen what is not so any more.
        state.nudged = true;
        self.rouse(state);
    }

    /// How many letters wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().letters.len()
    }

    fn rouse(&self, mut state: MutexGuard<'_, State<T>>) {
        let asleep = std::mem::replace(&mut state.sleeping, false);
        drop(state);
        if asleep && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a shard");
        }
    }

    /// A panic ends the process, so that nobody ever sees what a poisoned lock left behind.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(&self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn rings(mailbox: &Mailbox<usize, Bell>) -> usize {
        mailbox.waker.0.load(Ordering::Relaxed)
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let mailbox = Mailbox::new(Bell::default());
        mailbox.post_one(1);
        assert_eq!(rings(&mailbox), 0);
        assert!(!mailbox.may_sleep());
        let mut letters = Vec::new();
        mailbox.take(&mut letters);
        assert_eq!(letters, [1]);
        assert!(mailbox.may_sleep());
        mailbox.post(&mut vec![2, 3], 1);
        mailbox.post_one(4);
        assert_eq!(rings(&mailbox), 1);
        letters.clear();
        mailbox.take(&mut letters);
        assert_eq!(letters, [2, 3, 4]);
    }

    #[test]
    fn a_nudge_between_a_look_and_sleep_is_not_lost() {
        let mailbox = Mailbox::<usize, Bell>::new(Bell::default());
        mailbox.nudge();
        assert!(!mailbox.may_sleep());
        assert!(mailbox.may_sleep());
        mailbox.nudge();
        assert_eq!(rings(&mailbox), 1);
    }

    #[test]
    fn who_waits_for_an_answer_from_one_that_has_ended_is_told() {
        let mailbox = Mailbox::<_, Bell>::new(Bell::default());
        let (before, answered_before) = std::sync::mpsc::channel::<()>();
        let (after, answered_after) = std::sync::mpsc::channel::<()>();
        mailbox.post_one(before);
        mailbox.close();
        mailbox.post_one(after.clone());
        assert_eq!(mailbox.post(&mut vec![after], 1), Room::Yes);
        assert!(answered_before.recv().is_err() && answered_after.recv().is_err());
        assert_eq!(mailbox.len(), 0);
    }

    /// MQ-09
    #[test]
    fn who_falls_behind_has_no_room_until_more_is_taken() {
        let mailbox = Mailbox::new(Bell::default());
        assert_eq!(mailbox.post(&mut vec![1, 2], 7), Room::Yes);
        let mut letters = Vec::new();
        assert!(mailbox.take(&mut letters).is_empty());
        mailbox.fall_behind();
        assert_eq!((mailbox.post(&mut vec![3], 7), mailbox.room(8)), (Room::No, Room::No));
        letters.clear();
        assert_eq!(mailbox.take(&mut letters), [7, 8]);
        assert_eq!((letters.as_slice(), mailbox.room(7)), (&[3][..], Room::Yes));
        mailbox.fall_behind();
        assert_eq!(mailbox.room(7), Room::No);
        letters.clear();
        assert_eq!(mailbox.take(&mut letters), [7], "also where nothing has come");
    }

    #[test]
    fn a_full_mailbox_drops_nothing_and_remembers_who_waits() {
        let mailbox = Mailbox::new(Bell::default());
        assert_eq!(mailbox.post(&mut (0..MAILBOX_LETTERS_MAX - 1).collect(), 1), Room::Yes);
        assert_eq!(mailbox.room(1), Room::Yes);
        assert_eq!(mailbox.post(&mut vec![7], 1), Room::No);
        assert_eq!(mailbox.post(&mut vec![8], 1), Room::No);
        assert_eq!(mailbox.room(2), Room::No);
        let mut letters = Vec::new();
        assert_eq!(mailbox.take(&mut letters), [1, 2]);
        assert_eq!(letters.len(), MAILBOX_LETTERS_MAX + 1);
        assert_eq!(letters.last(), Some(&8));
        assert_eq!((mailbox.room(1), mailbox.len()), (Room::Yes, 0));
    }
}
