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
#[derive(Debug, Default)]
pub struct Outbox {
    sealed: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
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

    /// Fills `slices` with what waits, in order, for one vectored write; returns how many were filled.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.io_slices_up_to(usize::MAX, slices)
    }

    /// As [`Outbox::io_slices`] for the first `limit` bytes.
    pub fn io_slices_up_to<'a>(&'a self, mut limit: usize, slices: &mut [IoSlice<'a>]) -> usize {
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

    /// Takes everything that waits, in order.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.seal();
        self.bytes = 0;
        std::mem::take(&mut self.sealed).into()
    }

    /// Forgets the first `written` bytes; memory is given back when nothing is left.
    pub fn advance(&mut self, written: usize) {
        self.forget(written);
        if self.bytes == 0 {
            *self = Self::default();
        }
    }

    /// The same, but the memory goes to `pool`.
    pub fn advance_into(&mut self, written: usize, pool: &mut BufferPool) {
        self.forget(written);
        if self.bytes == 0 {
            pool.give(std::mem::take(self).tail);
        }
    }

    fn forget(&mut self, written: usize) {
        let mut left = written.min(self.bytes);
        self.bytes -= left;
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

    #[test]
    fn take_leaves_nothing_behind() {
        let mut outbox = Outbox::new();
        outbox.extend_from_slice(b"ab");
        assert_eq!(outbox.take(), [Bytes::from_static(b"ab")]);
        assert!(outbox.is_empty());
    }
}
