//! The fixed header (MQTT 5.0 section 2.1).

use super::{publish, varint};
use crate::{DecodeError, PacketKind, Version};

/// The fixed header: the first two to five bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: PacketKind,
    pub(super) flags: u8,
    /// Bytes of the header itself.
    pub(super) len: usize,
    /// Bytes behind the header.
    pub(super) remaining: u32,
    /// Whether the remaining length takes more bytes than it needs: 5.0 forbids that, 3.1.1 leaves it open.
    pub(super) padded: bool,
}

impl Header {
    /// Reads and checks the header at the front of `bytes`; `None` if more bytes are needed.
    pub(super) fn read(bytes: &[u8], version: Version, from_client: bool) -> Result<Option<Self>, DecodeError> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let (kind, flags) = (first >> 4, first & 0x0f);
        let kind = PacketKind::from_u8(kind).ok_or(DecodeError::Malformed("packet type 0"))?;
        check_direction(kind, version, from_client)?;
        check_flags(kind, flags)?;
        let Some(remaining) = varint::read(rest)? else { return Ok(None) };
        let (len, remaining, padded) = (1 + remaining.len, remaining.value, remaining.padded);
        Ok(Some(Self { kind, flags, len, remaining, padded }))
    }

    /// Bytes of the whole packet.
    pub(super) fn total(&self) -> usize {
        usize::try_from(self.remaining).unwrap_or(usize::MAX).saturating_add(self.len)
    }
}

fn check_direction(kind: PacketKind, version: Version, from_client: bool) -> Result<(), DecodeError> {
    use PacketKind as Kind;
    let legal = match kind {
        Kind::Connect | Kind::Subscribe | Kind::Unsubscribe | Kind::PingReq => from_client,
        Kind::ConnAck | Kind::SubAck | Kind::UnsubAck | Kind::PingResp => !from_client,
        Kind::Publish | Kind::PubAck | Kind::PubRec | Kind::PubRel | Kind::PubComp => true,
        Kind::Disconnect => from_client || version == Version::V5,
        Kind::Auth => version == Version::V5,
    };
    if legal { Ok(()) } else { Err(DecodeError::Protocol("a packet that this side does not send")) }
}

fn check_flags(kind: PacketKind, flags: u8) -> Result<(), DecodeError> {
    if kind == PacketKind::Publish {
        return publish::check_flags(flags).map(drop);
    }
    if flags == fixed_flags(kind) { Ok(()) } else { Err(DecodeError::Malformed("reserved flags of the fixed header")) }
}

/// The flags of every packet but PUBLISH (MQTT 5.0 section 2.1.3).
pub(super) fn fixed_flags(kind: PacketKind) -> u8 {
    if matches!(kind, PacketKind::PubRel | PacketKind::Subscribe | PacketKind::Unsubscribe) { 2 } else { 0 }
}
