//! How nodes write what they tell each other in control frames. Strict and bounded: mail that is not read completely and exactly is
//! an error, and no length is believed before that many bytes are there. Numbers are big-endian; texts and byte strings have a
//! length of 32 bits before them. The version is that of the link protocol. The encoders below are the format.

mod carry;
mod directory;
mod message;
mod node;
mod record;
mod relay;
mod replica;
mod retained;
mod session;
#[cfg(test)]
mod tests;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sedge_base::{ClientId, NodeId};
use sedge_mqtt::{TopicFilter, TopicName, Utf8};

pub(crate) use carry::{CarryMail, CarryWord};
pub(crate) use directory::DirectoryMail;
pub(crate) use message::{message_len, read_message, write_message};
pub(crate) use node::NodeMail;
pub(crate) use record::{Entry, Remembered, SafeAt, read_entries, write_broker_entry, write_entry};
pub(crate) use relay::RelayMail;
pub(crate) use replica::{ReplicaMail, Stray};
pub(crate) use retained::RetainedMail;
pub(crate) use session::{SessionMail, read_session, write_session};

/// Why bytes are no mail of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed mail: {0}")]
pub(crate) struct WireError(pub &'static str);

impl WireError {
    /// A kind of mail that this version does not know.
    pub(crate) const UNKNOWN: Self = Self("a kind that is not known");
}

type Result<T> = core::result::Result<T, WireError>;

/// Reads fields from the front of some bytes.
#[derive(Debug)]
pub(crate) struct Reader(Bytes);

impl Reader {
    pub(crate) const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    fn need(&self, bytes: usize) -> Result<()> {
        if self.0.len() < bytes { Err(WireError("too short")) } else { Ok(()) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError("neither yes nor no")),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(crate) fn node(&mut self) -> Result<NodeId> {
        self.u64().map(NodeId::new)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        let length = self.u32()?;
        let length = usize::try_from(length).ok().ok_or(WireError("too long"))?;
        self.need(length)?;
        Ok(self.0.split_to(length))
    }

    pub(crate) fn utf8(&mut self) -> Result<Utf8> {
        Utf8::from_bytes(self.bytes()?).ok().ok_or(WireError("not an MQTT string"))
    }

    pub(crate) fn client(&mut self) -> Result<ClientId> {
        Ok(ClientId::new(self.utf8()?.as_str()))
    }

    pub(crate) fn topic(&mut self) -> Result<TopicName> {
        TopicName::try_from(self.utf8()?).ok().ok_or(WireError("not a topic name"))
    }

    pub(crate) fn filter(&mut self) -> Result<TopicFilter> {
        TopicFilter::try_from(self.utf8()?).ok().ok_or(WireError("not a topic filter"))
    }

    /// A value that may be missing.
    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list; memory grows with what is really there.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError("too long")) }
    }
}

/// Appends fields to a buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer(BytesMut);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.put_u8(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.0.put_u8(u8::from(value));
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.put_u16(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.put_u32(value);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.put_u64(value);
    }

    pub(crate) fn node(&mut self, node: NodeId) {
        self.0.put_u64(node.get());
    }

    /// Bytes of a number that everybody knows.
    fn fixed<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn client(&mut self, client: &ClientId) {
        self.text(client.as_str());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        for item in items {
            write(self, item);
        }
    }

    fn count(&mut self, count: usize) {
        self.0.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}
