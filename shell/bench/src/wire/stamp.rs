//! Stamp at the beginning of every payload.

/// Bytes of a stamp.
pub(crate) const STAMP_BYTES: usize = 24;

/// The beginning of every payload: which message this is and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Number of the run: what an earlier run left in the broker is not counted.
    pub(crate) run: u32,
    /// Publisher and topic.
    pub(crate) stream: u32,
    /// Number of the message within its stream, from 0.
    pub(crate) sequence: u64,
    /// When the message was sent, or in the open loop should have been, in ns of the run's clock.
    pub(crate) sent: u64,
}

impl Stamp {
    /// The stamp as bytes.
    pub(crate) fn to_bytes(self) -> [u8; STAMP_BYTES] {
        // Whole words: this is done for every message that is sent.
        let name = u64::from(self.run) << 32 | u64::from(self.stream);
        let words = [name.to_be_bytes(), self.sequence.to_be_bytes(), self.sent.to_be_bytes()];
        let mut bytes = [0; STAMP_BYTES];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// Reads the stamp at the beginning of a payload.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (run, rest) = payload.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (sent, _) = rest.split_first_chunk()?;
        Some(Self {
            run: u32::from_be_bytes(*run),
            stream: u32::from_be_bytes(*stream),
            sequence: u64::from_be_bytes(*sequence),
            sent: u64::from_be_bytes(*sent),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { run: 7, stream: 36_000, sequence: 1 << 40, sent: u64::MAX - 1 };
        let mut bytes = stamp.to_bytes().to_vec();
        bytes.extend_from_slice(b"filler");
        assert_eq!(Stamp::read(&bytes), Some(stamp));
        assert_eq!(bytes.get(..STAMP_BYTES - 1).and_then(Stamp::read), None);
    }
}
