//! The stream of one connection, cut into packets.

use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Packet, Version};

/// Cuts what one peer sends into packets, however the stream is split. Holds no heap memory at a packet boundary.
#[derive(Debug)]
pub struct Decoder {
    chunk: Bytes,
    partial: BytesMut,
    max_packet_bytes: u32,
    version: Version,
    from_client: bool,
}

impl Decoder {
    /// A decoder for a server: takes what clients send, packets of at most `max_packet_bytes` bytes.
    pub fn server(max_packet_bytes: u32) -> Self {
        Self::new(true, max_packet_bytes)
    }

    /// A decoder for a client: takes what servers send, packets of at most `max_packet_bytes` bytes.
    pub fn client(max_packet_bytes: u32) -> Self {
        Self::new(false, max_packet_bytes)
    }

    fn new(from_client: bool, max_packet_bytes: u32) -> Self {
        let (chunk, partial) = (Bytes::new(), BytesMut::new());
        Self { chunk, partial, max_packet_bytes, version: Version::V5, from_client }
    }

    /// Sets the version of the packets to come. A CONNECT sets it by itself; before that it is 5.0.
    pub const fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the largest packet in bytes, the whole packet counted, from the next packet on.
    pub const fn set_max_packet_bytes(&mut self, max_packet_bytes: u32) {
        self.max_packet_bytes = max_packet_bytes;
    }

    /// Hands in the next bytes of the stream. Call [`Decoder::next`] until it has nothing more before the next `feed`.
    pub fn feed(&mut self, bytes: Bytes) {
        self.chunk = bytes;
    }

    /// The next whole packet, `None` if more bytes are needed. After an error the stream is beyond repair.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: more may come after nothing")]
    pub fn next(&mut self) -> Result<Option<Packet>, DecodeError> {
        Ok(None)
    }

    /// Bytes that were fed and belong to no packet yet returned.
    pub fn buffered(&self) -> usize {
        self.chunk.len() + self.partial.len()
    }
}
