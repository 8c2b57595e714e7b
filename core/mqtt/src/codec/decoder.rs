//! The stream of one connection, cut into packets.

use bytes::{Buf, Bytes, BytesMut};

use super::header::Header;
use super::reader::Reader;
use super::{ack, connack, connect, publish, subscribe, varint};
use crate::{DecodeError, Packet, PacketKind, Version};

/// Cuts what one peer sends into packets, however the stream is split. Holds no heap memory at a packet boundary.
///
/// A packet that lies within one fed piece is read in place: its strings and payload are views into that piece. A packet
/// that spans pieces is gathered in a buffer that grows as bytes arrive, never by what a header only announces. The size
/// of a packet is checked against the limit as soon as its fixed header is there.
///
/// ```
/// use bytes::Bytes;
/// use sedge_mqtt::{Decoder, Packet};
///
/// let mut decoder = Decoder::server(1_024);
/// decoder.feed(Bytes::from_static(&[0xc0, 0x00, 0xe0]));
/// assert_eq!(decoder.next(), Ok(Some(Packet::PingReq)));
/// assert_eq!(decoder.next(), Ok(None));
/// assert_eq!(decoder.buffered(), 1);
/// ```
#[derive(Debug)]
pub struct Decoder {
    /// Bytes that were fed and not yet looked at; empty between calls unless the caller stopped early.
    chunk: Bytes,
    /// The beginning of a packet that is not complete yet.
    partial: BytesMut,
    max_packet_bytes: u32,
    version: Version,
    from_client: bool,
    is_lenient: bool,
    /// Boxed, as few connections ever have it.
    failed: Option<Box<DecodeError>>,
}

impl Decoder {
    /// A decoder for a server: takes what clients send, packets of at most `max_packet_bytes` bytes, header included.
    pub fn server(max_packet_bytes: u32) -> Self {
        Self::new(true, max_packet_bytes)
    }

    /// A decoder for a client: takes what servers send, packets of at most `max_packet_bytes` bytes, header included.
    pub fn client(max_packet_bytes: u32) -> Self {
        Self::new(false, max_packet_bytes)
    }

    fn new(from_client: bool, max_packet_bytes: u32) -> Self {
        let (chunk, partial) = (Bytes::new(), BytesMut::new());
        Self { chunk, partial, max_packet_bytes, version: Version::V5, from_client, is_lenient: false, failed: None }
    }

    /// Takes reason codes in PUBACK, PUBREC, PUBREL and PUBCOMP that the standard does not list for them (MQTT 5.0 section 2.4): those
    /// below 0x80 as Success, the others as Unspecified Error. For brokers that cannot be mended (spec `interworking.md`, IL-05).
    #[must_use]
    pub const fn lenient(mut self) -> Self {
        self.is_lenient = true;
        self
    }

    /// Sets the version of the packets to come. A CONNECT sets it by itself; before that it is 5.0.
    pub const fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The version of the packets to come.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Sets the largest packet in bytes, header included. Holds at once, also for a packet of which a part has come.
    pub const fn set_max_packet_bytes(&mut self, max_packet_bytes: u32) {
        self.max_packet_bytes = max_packet_bytes;
    }

    /// Hands in the next bytes of the stream. Call [`Decoder::next`] until it has nothing more before the next `feed`:
    /// bytes not looked at by then are copied. After an error the bytes are dropped.
    pub fn feed(&mut self, bytes: Bytes) {
        if self.failed.is_some() {
            return;
        }
        if self.chunk.is_empty() {
            self.chunk = bytes;
            return;
        }
        let mut joined = BytesMut::with_capacity(self.chunk.len() + bytes.len());
        joined.extend_from_slice(&self.chunk);
        joined.extend_from_slice(&bytes);
        self.chunk = joined.freeze();
    }

    /// The next whole packet, `None` if more bytes are needed. After an error the stream is beyond repair: the same error
    /// comes again.
    #[expect(clippy::should_implement_trait, reason = "no iterator: after nothing there may come more")]
    pub fn next(&mut self) -> Result<Option<Packet>, DecodeError> {
        if let Some(error) = &self.failed {
            return Err(**error);
        }
        let result = self.next_packet();
        if let Err(error) = &result {
            self.failed = Some(Box::new(*error));
            self.partial = BytesMut::new();
            self.chunk = Bytes::new();
        }
        result
    }

    /// Bytes that were fed and belong to no packet yet returned. After `next` had nothing more, less than the largest packet.
    pub fn buffered(&self) -> usize {
        self.chunk.len() + self.partial.len()
    }

    #[cfg(test)]
    pub(super) fn partial_capacity(&self) -> usize {
        self.partial.capacity()
    }

    fn next_packet(&mut self) -> Result<Option<Packet>, DecodeError> {
        let Some((header, body)) = self.next_body()? else { return Ok(None) };
        let packet = read_packet(header, body, self.version, (self.from_client, self.is_lenient))?;
        if let Packet::Connect(connect) = &packet {
            self.version = connect.version;
        }
        if header.padded && self.version == Version::V5 {
            return Err(varint::PADDED);
        }
        Ok(Some(packet))
    }

    fn next_body(&mut self) -> Result<Option<(Header, Bytes)>, DecodeError> {
        if self.partial.is_empty() {
            if let Some(header) = self.check_header(&self.chunk)?
                && header.total() <= self.chunk.len()
            {
                let mut packet = self.chunk.split_to(header.total());
                self.forget_empty_chunk();
                packet.advance(header.len);
                return Ok(Some((header, packet)));
            }
            if self.chunk.is_empty() {
                return Ok(None);
            }
        }
        self.gather()
    }

    /// Moves bytes from the chunk to the partial packet until that is whole.
    fn gather(&mut self) -> Result<Option<(Header, Bytes)>, DecodeError> {
        loop {
            let header = self.check_header(&self.partial)?;
            let missing = header.map_or(1, |header| header.total() - self.partial.len());
            if let (Some(header), 0) = (header, missing) {
                let mut packet = std::mem::take(&mut self.partial).freeze();
                self.forget_empty_chunk();
                packet.advance(header.len);
                return Ok(Some((header, packet)));
            }
            let step = missing.min(self.chunk.len());
            if step == 0 {
                self.forget_empty_chunk();
                return Ok(None);
            }
            let bytes = self.chunk.split_to(step);
            self.partial.extend_from_slice(&bytes);
        }
    }

    fn check_header(&self, bytes: &[u8]) -> Result<Option<Header>, DecodeError> {
        let Some(header) = Header::read(bytes, self.version, self.from_client)? else { return Ok(None) };
        let size = u32::try_from(header.total()).unwrap_or(u32::MAX);
        if size > self.max_packet_bytes {
            return Err(DecodeError::PacketTooLarge { size, limit: self.max_packet_bytes });
        }
        Ok(Some(header))
    }

    /// An empty view would keep the buffer behind it alive.
    fn forget_empty_chunk(&mut self) {
        if self.chunk.is_empty() {
            self.chunk = Bytes::new();
        }
    }
}

fn read_packet(
    header: Header,
    body: Bytes,
    version: Version,
    (from_client, is_lenient): (bool, bool),
) -> Result<Packet, DecodeError> {
    use PacketKind as Kind;
    let mut reader = Reader::new(body);
    let r = &mut reader;
    let packet = match header.kind {
        Kind::Publish => return publish::read(reader, header.flags, version, from_client).map(Packet::Publish),
        Kind::Connect => Packet::Connect(Box::new(connect::read(r)?)),
        Kind::ConnAck => Packet::ConnAck(Box::new(connack::read(r, version)?)),
        Kind::PubAck => Packet::PubAck(ack::read(r, header.kind, version, is_lenient)?),
        Kind::PubRec => Packet::PubRec(ack::read(r, header.kind, version, is_lenient)?),
        Kind::PubRel => Packet::PubRel(ack::read(r, header.kind, version, is_lenient)?),
        Kind::PubComp => Packet::PubComp(ack::read(r, header.kind, version, is_lenient)?),
        Kind::Subscribe => Packet::Subscribe(subscribe::read_subscribe(r, version)?),
        Kind::SubAck => Packet::SubAck(subscribe::read_suback(r, version)?),
        Kind::Unsubscribe => Packet::Unsubscribe(subscribe::read_unsubscribe(r, version)?),
        Kind::UnsubAck => Packet::UnsubAck(subscribe::read_unsuback(r, version)?),
        Kind::PingReq => Packet::PingReq,
        Kind::PingResp => Packet::PingResp,
        Kind::Disconnect => Packet::Disconnect(ack::read_disconnect(r, version, from_client)?),
        Kind::Auth => Packet::Auth(ack::read_auth(r, from_client)?),
    };
    reader.finish()?;
    Ok(packet)
}
