//! Bytes on their way to one peer: small pieces are coalesced, large ones shared.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::BufferPool;

/// From this size on, a piece is shared instead of copied behind the others.
const SHARE_FROM_BYTES: usize = 4 * 1024;
/// The coalescing buffer grows to four times its size, by at most so much: a burst finds its room in few steps, and little is
/// held in vain.
const GROWTH_BYTES_MAX: usize = 64 * 1024;
/// Room that one piece is likely to need.
const ROOM_BYTES: usize = 256;

/// What a connection still has to write. Holds no memory while empty.
///
/// Its owner may keep back what depends on something that is not safe yet: [`Outbox::hold`]. What is kept back counts as waiting, but
/// is not shown to whoever writes.
#[derive(Debug, Default)]
pub struct Outbox {
    sealed: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
    held: Option<Box<Held>>,
}

/// Positions in all that was appended since something was first kept back.
#[derive(Debug)]
struct Held {
    /// Bytes up to this one have left.
    gone: u64,
    /// Bytes up to this one may leave.
    allowed: u64,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `encode` append to the coalescing buffer.
    pub fn append(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        self.grow(ROOM_BYTES);
        encode(&mut self.tail);
        self.bytes += self.tail.len() - before;
    }

    /// Appends a copy of `piece`.
    pub fn extend_from_slice(&mut self, piece: &[u8]) {
        self.grow(piece.len());
        self.tail.extend_from_slice(piece);
        self.bytes += piece.len();
    }

    /// Appends `piece`: copied if small, shared if large.
    pub fn push(&mut self, piece: Bytes) {
        if piece.len() < SHARE_FROM_BYTES {
            self.extend_from_slice(&piece);
            return;
        }
        self.seal();
        self.bytes += piece.len();
        self.sealed.push_back(piece);
    }

    /// Gives an empty outbox a buffer to write into; one in use keeps its own.
    pub fn lend(&mut self, pool: &mut BufferPool) {
        if self.tail.capacity() == 0 {
            self.tail = pool.take();
        }
    }

    /// How many bytes wait.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many bytes wait and may leave.
    pub fn ready(&self) -> usize {
        let Some(held) = &self.held else { return self.bytes };
        usize::try_from(held.allowed.saturating_sub(held.gone)).unwrap_or(usize::MAX).min(self.bytes)
    }

    /// The position behind everything that was appended, for [`Outbox::allow`].
    pub fn end(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.gone) + self.bytes as u64
    }

    /// From here on, bytes leave only when [`Outbox::allow`] says so.
    pub fn hold(&mut self) {
        let allowed = self.end();
        self.held.get_or_insert_with(|| Box::new(Held { gone: 0, allowed }));
    }

    /// Lets bytes leave up to this position; nothing changes if none are kept back.
    pub fn allow(&mut self, end: u64) {
        if let Some(held) = &mut self.held {
            held.allowed = held.allowed.max(end);
        }
    }

    /// Lets all bytes leave, those that will be appended, too.
    pub fn let_go(&mut self) {
        self.held = None;
    }

    /// Fills `slices` with what waits and may leave, in order, for one vectored write; returns how many were filled.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.io_slices_up_to(usize::MAX, slices)
    }

    /// As [`Outbox::io_slices`] for the first `limit` bytes.
    pub fn io_slices_up_to<'a>(&'a self, limit: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let mut limit = limit.min(self.ready());
        let pieces = self.sealed.iter().map(|piece| &piece[..]).chain(Some(&self.tail[..]));
        let mut filled = 0;
        for (slot, piece) in slices.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            let piece = piece.get(..limit).unwrap_or(piece);
            if piece.is_empty() {
                break;
            }
            limit -= piece.len();
            *slot = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    /// Takes everything that waits, in order, also what is kept back.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.seal();
        self.note_gone(self.bytes);
        self.bytes = 0;
        std::mem::take(&mut self.sealed).into()
    }

    /// Forgets the first `written` bytes; memory is given back when nothing is left.
    pub fn advance(&mut self, written: usize) {
        self.forget(written);
        if self.bytes == 0 {
            (self.sealed, self.tail) = (VecDeque::new(), BytesMut::new());
        }
    }

    /// The same, but the memory goes to `pool`.
    pub fn advance_into(&mut self, written: usize, pool: &mut BufferPool) {
        self.forget(written);
        if self.bytes == 0 {
            self.sealed = VecDeque::new();
            pool.give(std::mem::take(&mut self.tail));
        }
    }

    fn forget(&mut self, written: usize) {
        let mut left = written.min(self.bytes);
        self.bytes -= left;
        self.note_gone(left);
        while left > 0 {
            let Some(first) = self.sealed.front_mut() else {
                self.tail.advance(left.min(self.tail.len()));
                break;
            };
            let step = left.min(first.len());
            first.advance(step);
            left -= step;
            if first.is_empty() {
                self.sealed.pop_front();
            }
        }
    }

    fn note_gone(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held {
            held.gone += bytes as u64;
        }
    }

    /// Makes the coalescing buffer larger if it is in use and has less than `room` left.
    fn grow(&mut self, room: usize) {
        let used = self.tail.len();
        if used > 0 && self.tail.capacity() - used < room {
            self.tail.reserve(room + (3 * used).min(GROWTH_BYTES_MAX));
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.sealed.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(outbox: &Outbox) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = outbox.io_slices(&mut slices);
        slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn pieces_leave_in_order_whatever_their_size() {
        let mut outbox = Outbox::new();
        let large = Bytes::from(vec![7; SHARE_FROM_BYTES]);
        outbox.extend_from_slice(b"ab");
        outbox.push(large.clone());
        outbox.push(Bytes::from_static(b"cd"));
        outbox.append(|out| out.extend_from_slice(b"e"));
        let mut expected = b"ab".to_vec();
        expected.extend_from_slice(&large);
        expected.extend_from_slice(b"cde");
        assert_eq!(outbox.len(), expected.len());
        assert_eq!(bytes_of(&outbox), expected);
        for step in [1, 5, SHARE_FROM_BYTES - 5, 3] {
            let mut slices = [IoSlice::new(&[]); 16];
            let filled = outbox.io_slices_up_to(step, &mut slices);
            let shown: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            assert_eq!(shown, expected[..step]);
            outbox.advance(step);
            expected.drain(..step);
            assert_eq!(bytes_of(&outbox), expected);
        }
        outbox.advance(usize::MAX);
        assert!(outbox.is_empty());
        assert_eq!(outbox.tail.capacity(), 0);
    }

    /// MQ-05
    #[test]
    fn what_is_kept_back_waits_but_is_not_shown() {
        let mut outbox = Outbox::new();
        outbox.extend_from_slice(b"ab");
        outbox.hold();
        outbox.extend_from_slice(b"cd");
        let middle = outbox.end();
        outbox.extend_from_slice(b"ef");
        assert_eq!((outbox.len(), outbox.ready()), (6, 2));
        assert_eq!(bytes_of(&outbox), b"ab");
        outbox.advance(2);
        assert_eq!((outbox.len(), outbox.ready()), (4, 0));
        outbox.allow(middle);
        assert_eq!(bytes_of(&outbox), b"cd");
        outbox.advance(2);
        outbox.let_go();
        assert_eq!(bytes_of(&outbox), b"ef");
        outbox.advance(2);
        outbox.extend_from_slice(b"g");
        assert_eq!(bytes_of(&outbox), b"g");
    }

    #[test]
    fn take_leaves_nothing_behind() {
        let mut outbox = Outbox::new();
        outbox.extend_from_slice(b"ab");
        assert_eq!(outbox.take(), [Bytes::from_static(b"ab")]);
        assert!(outbox.is_empty());
    }
}
