//! Where fields are written: to a buffer, or to a counter that says how large the buffer has to be. One description of each
//! packet serves both, so that they cannot disagree.

use bytes::{BufMut, BytesMut};

use super::varint;
use crate::{Version, utf8::MAX_STRING_BYTES};

/// Takes bytes.
pub(super) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Writes a variable byte integer; a value that exceeds the format is written as its largest number.
    fn var_int(&mut self, value: usize) {
        let mut rest = u32::try_from(value).unwrap_or(varint::MAX).min(varint::MAX);
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            if rest == 0 {
                return self.u8(low);
            }
            self.u8(low | 0x80);
        }
    }

    /// Writes a string or binary data with its length; bytes that exceed the format are cut off.
    fn binary(&mut self, bytes: &[u8]) {
        let bytes = bytes.get(..MAX_STRING_BYTES).unwrap_or(bytes);
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        self.put(bytes);
    }

    /// Writes a block of properties with its length (MQTT 5.0 section 2.2.2).
    fn properties(&mut self, block: &impl Wire)
    where
        Self: Sized,
    {
        self.var_int(block.wire_len(Version::V5));
        block.write(Version::V5, self);
    }
}

impl Sink for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn u8(&mut self, value: u8) {
        self.put_u8(value);
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
pub(super) struct Counter(usize);

impl Sink for Counter {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn var_int(&mut self, value: usize) {
        self.0 += varint::len(value);
    }
}

/// Something with a place on the wire.
pub(super) trait Wire {
    fn write(&self, version: Version, out: &mut impl Sink);

    /// Bytes that [`Wire::write`] writes.
    fn wire_len(&self, version: Version) -> usize {
        let mut counter = Counter::default();
        self.write(version, &mut counter);
        counter.0
    }
}
