//! Takes fields off the front of a packet.

use bytes::{Buf, Bytes};

use super::varint;
use crate::{DecodeError, InvalidUtf8, PacketId, TopicFilter, TopicName, Utf8};

const TOO_SHORT: DecodeError = DecodeError::Malformed("the packet ends in the middle of a field");

/// The unread rest of a packet. Strings and payloads taken from it are views into the same buffer.
#[derive(Debug)]
pub(super) struct Reader(Bytes);

impl Reader {
    pub(super) const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes behind the end of the packet")) }
    }

    /// Everything that is left; an empty rest keeps no buffer alive.
    pub(super) fn rest(self) -> Bytes {
        if self.0.is_empty() { Bytes::new() } else { self.0 }
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.0.try_get_u8().ok().ok_or(TOO_SHORT)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.0.try_get_u16().ok().ok_or(TOO_SHORT)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.0.try_get_u32().ok().ok_or(TOO_SHORT)
    }

    /// A variable byte integer of MQTT 5.0, where only the shortest form is legal (section 1.5.5).
    pub(super) fn var_int(&mut self) -> Result<u32, DecodeError> {
        let read = varint::read(&self.0)?.ok_or(TOO_SHORT)?;
        if read.padded {
            return Err(varint::PADDED);
        }
        self.0.advance(read.len);
        Ok(read.value)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.0.len() {
            return Err(TOO_SHORT);
        }
        Ok(self.0.split_to(len))
    }

    pub(super) fn binary(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    pub(super) fn string(&mut self) -> Result<Utf8, DecodeError> {
        Utf8::from_bytes(self.binary()?).map_err(|error| match error {
            InvalidUtf8::IllFormed => DecodeError::Malformed("a string is not well-formed UTF-8"),
            InvalidUtf8::Nul => DecodeError::Malformed("a string holds the character U+0000"),
            InvalidUtf8::TooLong => DecodeError::Malformed("a string is too long"),
        })
    }

    pub(super) fn topic_name(&mut self) -> Result<TopicName, DecodeError> {
        Ok(TopicName::try_from(self.string()?)?)
    }

    pub(super) fn topic_filter(&mut self) -> Result<TopicFilter, DecodeError> {
        Ok(TopicFilter::try_from(self.string()?)?)
    }

    pub(super) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::Protocol("packet identifier 0"))
    }
}
