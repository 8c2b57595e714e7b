//! Bytes from and to sockets: reads into a buffer that all connections of a thread share, vectored writes.

use std::io::{ErrorKind, IoSlice, Read, Write};

use bytes::BytesMut;
use sedge_base::{Duration, Outbox};

/// Size of the shared read buffer.
const CHUNK_BYTES: usize = 64 * 1024;
/// A read is offered at least this much room; a buffer with less room left is given up.
const READ_BYTES_MIN: usize = 16 * 1024;
/// Pieces in one vectored write.
const WRITE_SLICES_MAX: usize = 64;

/// A read is offered no less than this, however long it takes to handle what comes.
const OFFER_BYTES_MIN: usize = 64;
/// Shortest and longest time that the handling of one read's bytes should take.
const HANDLING: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(4));

/// The read buffer of a thread. Idle connections hold no memory: bytes that were read are split off the front.
#[derive(Debug)]
pub(crate) struct Chunk {
    room: BytesMut,
    /// Most bytes of one read: few small messages can be work for thousands of subscribers.
    offer: usize,
}

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Bytes, and whether there may be more.
    Bytes(BytesMut, bool),
    /// Nothing for now.
    Nothing,
    /// The other side has said its last word.
    End,
    /// The connection is broken.
    Broken,
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Self { room: BytesMut::new(), offer: CHUNK_BYTES }
    }

    /// One read.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> Arrival {
        self.make_room();
        let offer = self.offer.min(self.room.len());
        let room = self.room.get_mut(..offer).unwrap_or_default();
        loop {
            return match from.read(room) {
                Ok(0) => Arrival::End,
                // A short read has emptied the socket: the next edge tells of more.
                Ok(read) => Arrival::Bytes(self.room.split_to(read), read == offer),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Arrival::Nothing,
                Err(_) => Arrival::Broken,
            };
        }
    }

    /// Reads and forgets; for connections that are being closed.
    pub(crate) fn discard(&mut self, from: &mut impl Read) -> Arrival {
        self.make_room();
        match from.read(&mut self.room) {
            Ok(0) => Arrival::End,
            Ok(read) => Arrival::Bytes(BytesMut::new(), read == self.room.len()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Arrival::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => Arrival::Bytes(BytesMut::new(), true),
            Err(_) => Arrival::Broken,
        }
    }

    /// So long it took to handle what a read has brought: the next one is offered half as much, or twice if this one was full.
    pub(crate) fn pace(&mut self, read: usize, took: Duration) {
        let (short, long) = HANDLING;
        if took > long {
            self.offer = (self.offer / 2).max(OFFER_BYTES_MIN);
        } else if took < short && read >= self.offer && self.offer < CHUNK_BYTES {
            self.offer *= 2;
        }
    }

    /// Gives up what is left of a buffer if that is little. Its memory is used again if nobody holds any of it, for it is in the
    /// processor's cache.
    fn make_room(&mut self) {
        if self.room.len() >= READ_BYTES_MIN {
            return;
        }
        self.room.clear();
        if !self.room.try_reclaim(CHUNK_BYTES) {
            self.room = BytesMut::with_capacity(CHUNK_BYTES);
        }
        self.room.resize(CHUNK_BYTES, 0);
    }
}

/// Result of a write.
#[derive(Debug)]
pub(crate) enum Departure {
    /// So many bytes were taken, and whether the socket takes more.
    Written(usize, bool),
    /// The connection is broken.
    Broken,
}

/// One vectored write of at most the first `limit` bytes of `outbox`, which is not advanced.
pub(crate) fn write(to: &mut impl Write, outbox: &Outbox, limit: usize) -> Departure {
    let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let filled = outbox.io_slices_up_to(limit, &mut slices);
    let slices = &slices[..filled];
    let offered: usize = slices.iter().map(|slice| slice.len()).sum();
    if offered == 0 {
        return Departure::Written(0, true);
    }
    loop {
        return match to.write_vectored(slices) {
            Ok(written) => Departure::Written(written, written == offered),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Departure::Written(0, false),
            Err(_) => Departure::Broken,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_shares_the_buffer_and_is_told_apart_from_the_end() {
        let mut chunk = Chunk::new();
        let source = vec![7; CHUNK_BYTES + 5];
        let mut source = &source[..];
        let Arrival::Bytes(first, true) = chunk.read(&mut source) else { panic!("a full read") };
        assert_eq!(first.len(), CHUNK_BYTES);
        let Arrival::Bytes(second, false) = chunk.read(&mut source) else { panic!("a short read") };
        assert_eq!(second.len(), 5);
        assert!(matches!(chunk.read(&mut source), Arrival::End));
    }

    /// MQ-09
    #[test]
    fn what_takes_long_comes_in_small_pieces() {
        let source = vec![7; CHUNK_BYTES];
        let mut chunk = Chunk::new();
        let read = |chunk: &mut Chunk| {
            let Arrival::Bytes(bytes, true) = chunk.read(&mut &source[..]) else { panic!("a full read") };
            bytes.len()
        };
        assert_eq!(read(&mut chunk), CHUNK_BYTES);
        (0..20).for_each(|_| chunk.pace(10, Duration::from_millis(50)));
        assert_eq!(read(&mut chunk), OFFER_BYTES_MIN);
        (0..20).for_each(|_| chunk.pace(10, Duration::from_micros(50)));
        assert_eq!(read(&mut chunk), OFFER_BYTES_MIN, "little says nothing of much");
        (0..20).for_each(|_| chunk.pace(CHUNK_BYTES, Duration::from_micros(50)));
        assert!(read(&mut chunk) >= READ_BYTES_MIN);
    }

    #[test]
    fn a_write_says_whether_everything_was_taken() {
        let mut outbox = Outbox::new();
        outbox.extend_from_slice(b"abcdef");
        let mut room = [0; 4];
        assert!(matches!(write(&mut &mut room[..], &outbox, usize::MAX), Departure::Written(4, false)));
        assert!(matches!(write(&mut &mut room[..], &outbox, 3), Departure::Written(3, true)));
        outbox.advance(4);
        assert!(matches!(write(&mut &mut room[..], &outbox, usize::MAX), Departure::Written(2, true)));
        assert!(matches!(write(&mut &mut room[..], &Outbox::new(), usize::MAX), Departure::Written(0, true)));
    }
}
