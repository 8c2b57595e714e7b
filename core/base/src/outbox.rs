//! Bytes on their way to one peer: small pieces are coalesced, large ones shared.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::BufferPool;

/// From this size on, a piece is shared instead of copied behind the others.
const SHARE_FROM_BYTES: usize = 4 * 1024;
/// The coalescing buffer grows to twice its size, by at most so much: little is held in vain.
const GROWTH_BYTES_MAX: usize = 32 * 1024;
/// A coalescing buffer that is full and as large as this is left as it is, and another begun: nothing large is ever copied, and buffers of many
/// outboxes that grow together have one size, so that the allocator fills its gaps (a thousand slow readers: up to 10 MiB less of 128).
const SEAL_FROM_BYTES: usize = 32 * 1024;
/// Room that one piece is likely to need.
const ROOM_BYTES: usize = 256;

/// The bytes that a connection still has to write. Holds no memory while empty.
///
/// The owner may hold back bytes that depend on something not safe yet: [`Outbox::hold`]. Held bytes count as waiting, but the writer
/// does not see them.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Pieces that leave before the tail; few outboxes have any, so that the list is boxed.
    sealed: Option<Box<Sealed>>,
    tail: BytesMut,
    bytes: usize,
    /// Bytes of the first piece that have left: their memory is still there.
    spent: usize,
    held: Option<Box<Held>>,
}

/// Pieces that nothing is appended to.
#[derive(Debug, Default)]
struct Sealed(VecDeque<Bytes>);

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
        self.append_about(ROOM_BYTES, encode);
    }

    /// The same for what needs about so much `room`.
    pub fn append_about(&mut self, room: usize, encode: impl FnOnce(&mut BytesMut)) {
        self.grow(room);
        let before = self.tail.len();
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
        if !self.tail.is_empty() {
            // A copy of its own: small, or memory of the buffer would stay behind when it has left.
            let copy = Bytes::copy_from_slice(&self.tail);
            self.tail.clear();
            if self.spent > 0 && !self.has_sealed() {
                (self.tail, self.spent) = (BytesMut::new(), 0);
            }
            self.push_sealed(copy);
        }
        self.bytes += piece.len();
        self.push_sealed(piece);
    }

    /// Gives an outbox a buffer to write into where it has none, or one that is full and not to grow any more.
    pub fn lend(&mut self, pool: &mut BufferPool) {
        if self.is_full(ROOM_BYTES) {
            self.seal();
        }
        if self.tail.capacity() == 0 {
            self.tail = pool.take();
        }
    }

    /// How many bytes wait.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// How many bytes of memory are held for what waits: room that is not used yet, and of the first piece what has left, too.
    pub fn footprint(&self) -> usize {
        self.bytes + self.spent + (self.tail.capacity() - self.tail.len())
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
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.0);
        let pieces = sealed.map(|piece| &piece[..]).chain(Some(&self.tail[..]));
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

    /// A copy of everything that waits, in order, also of what is kept back.
    pub fn to_vec(&self) -> Vec<u8> {
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.0);
        sealed.map(|piece| &piece[..]).chain([&self.tail[..]]).collect::<Vec<_>>().concat()
    }

    /// Takes everything that waits, in order, also what is kept back.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.seal();
        self.note_gone(self.bytes);
        (self.bytes, self.spent) = (0, 0);
        self.sealed.take().map(|sealed| sealed.0.into()).unwrap_or_default()
    }

    /// Forgets the first `written` bytes; memory is given back when nothing is left.
    pub fn advance(&mut self, written: usize) {
        self.forget(written, None);
        if self.bytes == 0 {
            (self.sealed, self.tail) = (None, BytesMut::new());
        }
    }

    /// The same, but the memory goes to `pool`.
    pub fn advance_into(&mut self, written: usize, pool: &mut BufferPool) {
        self.forget(written, Some(pool));
        if self.bytes == 0 {
            self.sealed = None;
            pool.give(std::mem::take(&mut self.tail));
        }
    }

    fn forget(&mut self, written: usize, mut pool: Option<&mut BufferPool>) {
        let mut left = written.min(self.bytes);
        self.bytes -= left;
        self.note_gone(left);
        while left > 0 {
            let Some(first) = self.sealed.as_mut().and_then(|sealed| sealed.0.front_mut()) else {
                self.tail.advance(left.min(self.tail.len()));
                self.spent += left;
                break;
            };
            let step = left.min(first.len());
            first.advance(step);
            self.spent += step;
            left -= step;
            if first.is_empty() {
                let gone = self.sealed.as_mut().and_then(|sealed| sealed.0.pop_front());
                self.spent = 0;
                if let (Some(pool), Some(Ok(buffer))) = (&mut pool, gone.map(Bytes::try_into_mut)) {
                    pool.give(buffer);
                }
            }
        }
        if self.bytes == 0 {
            self.spent = 0;
        }
    }

    fn note_gone(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held {
            held.gone += bytes as u64;
        }
    }

    /// Makes room for `room` more bytes in a coalescing buffer that is in use. Free memory is never more than the used bytes and the room asked for.
    fn grow(&mut self, room: usize) {
        if self.is_full(room) {
            self.seal();
        }
        let used = self.tail.len();
        if self.tail.capacity() - used >= room || (used == 0 && !self.has_sealed()) {
            return;
        }
        let growth = if used == 0 { self.bytes } else { used };
        let mut larger = BytesMut::with_capacity(used + room + growth.min(GROWTH_BYTES_MAX));
        larger.extend_from_slice(&self.tail);
        self.tail = larger;
        if !self.has_sealed() {
            self.spent = 0;
        }
    }

    /// Whether the coalescing buffer has less than `room` left and does not grow any more.
    fn is_full(&self, room: usize) -> bool {
        self.tail.len() >= SEAL_FROM_BYTES && self.tail.capacity() - self.tail.len() < room
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let full = std::mem::take(&mut self.tail).freeze();
            self.push_sealed(full);
        }
    }

    fn push_sealed(&mut self, piece: Bytes) {
        self.sealed.get_or_insert_default().0.push_back(piece);
    }

    fn has_sealed(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| !sealed.0.is_empty())
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

    fn pieces(outbox: &Outbox) -> impl Iterator<Item = &Bytes> {
        outbox.sealed.iter().flat_map(|sealed| &sealed.0)
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

    /// MQ-09: whatever goes in and out, no more memory is held than twice what waits, but for one buffer; and it is counted.
    #[test]
    fn little_is_held_in_vain() {
        let mut outbox = Outbox::new();
        let large = Bytes::from(vec![7; 2 * SHARE_FROM_BYTES]);
        for number in 0..10_000_usize {
            match number % 50 {
                0 => outbox.push(large.clone()),
                1 => outbox.append_about(3_000, |out| out.extend_from_slice(&[1; 3_000])),
                length => outbox.extend_from_slice(&[2; 1_000][..20 * length]),
            }
            let capacity = outbox.tail.capacity() + pieces(&outbox).map(Bytes::len).sum::<usize>();
            assert_eq!(outbox.footprint() - outbox.spent, capacity);
            assert!(outbox.footprint() <= 2 * outbox.len() + SEAL_FROM_BYTES + GROWTH_BYTES_MAX, "{outbox:?}");
            if number % 3 == 0 {
                outbox.advance(700);
            }
        }
        assert!(outbox.len() > 10 * SEAL_FROM_BYTES && pieces(&outbox).count() > 10, "{} bytes", outbox.len());
        outbox.advance(usize::MAX);
        assert_eq!(outbox.footprint(), 0);
    }

    #[test]
    fn full_buffers_come_back_to_the_pool() {
        let mut pool = BufferPool::new(1024 * 1024);
        let mut outbox = Outbox::new();
        for _ in 0..200 {
            outbox.lend(&mut pool);
            outbox.extend_from_slice(&[1; 1_000]);
        }
        let sealed = pieces(&outbox).count();
        assert!(sealed >= 2);
        outbox.advance_into(usize::MAX, &mut pool);
        assert!((0..=sealed).all(|_| pool.take().capacity() >= SEAL_FROM_BYTES / 2));
        assert_eq!(pool.take().capacity(), 0);
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
