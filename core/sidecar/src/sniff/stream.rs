//! The bytes of one direction of a TCP connection, put in order.

use std::collections::BTreeMap;

use bytes::Bytes;
use sedge_base::{Duration, Instant};

/// Bytes that wait for earlier ones; beyond, the stream is given up.
const EARLY_BYTES: usize = 1024 * 1024;
/// Bytes that a piece costs at least.
const PIECE_BYTES: usize = 64;
/// Time for which a hole may stand: the receiver has the bytes that the capture has lost, so that nobody sends them again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reason why a stream cannot be followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole;

/// See the module. Numbers on the wire are 32 bits; here they go on.
#[derive(Debug)]
pub(super) struct Stream {
    /// Place of the next byte.
    next: u64,
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
    /// Place where the stream ends.
    end: Option<u64>,
    since: Option<Instant>,
}

impl Stream {
    /// A stream whose first byte has this number.
    pub(super) fn new(first: u32) -> Self {
        let next = u64::from(first) + (1 << 32);
        Self { next, early: BTreeMap::new(), early_bytes: 0, end: None, since: None }
    }

    /// The place that a number means: the one nearest to the next byte.
    fn place(&self, seq: u32) -> u64 {
        let low = u32::try_from(self.next & u64::from(u32::MAX)).unwrap_or(0);
        let ahead = seq.wrapping_sub(low);
        if ahead < 1 << 31 { self.next + u64::from(ahead) } else { self.next - u64::from(low.wrapping_sub(seq)) }
    }

    /// Takes a piece; `fin`: the stream ends behind it.
    pub(super) fn take(&mut self, now: Instant, seq: u32, bytes: &Bytes, fin: bool) -> Result<(), Hole> {
        let start = self.place(seq);
        if fin {
            self.end = Some(start + bytes.len() as u64);
        }
        let have = usize::try_from(self.next.saturating_sub(start)).unwrap_or(usize::MAX);
        if bytes.len() <= have {
            return Ok(());
        }
        let (start, bytes) = (start.max(self.next), bytes.slice(have..));
        if self.early.get(&start).is_none_or(|known| known.len() < bytes.len()) {
            self.early_bytes += bytes.len() + PIECE_BYTES;
            if let Some(known) = self.early.insert(start, bytes) {
                self.early_bytes -= known.len() + PIECE_BYTES;
            }
        }
        let waits = self.early.first_key_value().is_some_and(|(start, _)| *start > self.next);
        if !waits {
            self.since = None;
            return Ok(());
        }
        let since = *self.since.get_or_insert(now);
        if self.early_bytes > EARLY_BYTES || now.since(since) > PATIENCE { Err(Hole) } else { Ok(()) }
    }

    /// The next bytes in order.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        loop {
            let first = self.early.first_entry().filter(|first| *first.key() <= self.next)?;
            let (start, bytes) = first.remove_entry();
            self.early_bytes -= bytes.len() + PIECE_BYTES;
            let have = usize::try_from(self.next - start).unwrap_or(usize::MAX);
            if have < bytes.len() {
                let bytes = bytes.slice(have..);
                self.next += bytes.len() as u64;
                self.since = None;
                return Some(bytes);
            }
        }
    }

    /// Whether all bytes were given out up to the end.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    fn rest(stream: &mut Stream) -> Vec<u8> {
        std::iter::from_fn(|| stream.next()).flatten().collect()
    }

    proptest! {
        /// FT-03: pieces in any order, more than once, overlapping, over the end of the numbers.
        #[test]
        fn whatever_the_order_the_bytes_are_those_that_were_sent(
            first in prop_oneof![any::<u32>(), Just(u32::MAX - 20)],
            length in 1_usize..400,
            cuts in prop::collection::vec((0_usize..400, 1_usize..80), 0..40),
        ) {
            let sent: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut pieces: Vec<(usize, usize)> =
                cuts.into_iter().filter(|(start, _)| *start < length).map(|(start, size)| (start, (start + size).min(length))).collect();
            // All of it once, behind everything else, in pieces of 7 from the back.
            pieces.extend((0..length).step_by(7).rev().map(|start| (start, (start + 7).min(length))));
            let (mut stream, mut got) = (Stream::new(first), Vec::new());
            for (start, end) in pieces {
                let seq = first.wrapping_add(u32::try_from(start).unwrap());
                let piece = Bytes::copy_from_slice(&sent[start..end]);
                prop_assert_eq!(stream.take(NOW, seq, &piece, end == length), Ok(()));
                got.extend(rest(&mut stream));
            }
            prop_assert_eq!(got, sent);
            prop_assert!(stream.has_ended());
            prop_assert_eq!(stream.early_bytes, 0);
        }
    }

    #[test]
    fn a_hole_is_waited_for_and_given_up() {
        let mut stream = Stream::new(1);
        assert_eq!(stream.take(NOW, 3, &Bytes::from_static(b"c"), false), Ok(()));
        assert_eq!(rest(&mut stream), b"");
        assert_eq!(stream.take(NOW + PATIENCE, 4, &Bytes::from_static(b"d"), false), Ok(()));
        assert_eq!(stream.take(NOW + PATIENCE * 2, 4, &Bytes::from_static(b"d"), false), Err(Hole));
        let mut stream = Stream::new(1);
        assert_eq!(stream.take(NOW, 3, &vec![0; EARLY_BYTES].into(), false), Err(Hole));
    }
}
