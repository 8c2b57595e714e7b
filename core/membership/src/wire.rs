//! The datagram format, version 1. All numbers are big-endian.
//!
//! ```text
//! datagram  0x5E | version = 1 | kind u8 | source member | life u16 | destination member | body | updates
//!
//! kind, body    0 ping           probe u8
//!               1 ack            probe u8
//!               2 ping request   target member | probe u8
//!               3 indirect ping  origin member | probe u8
//!               4 indirect ack   target member | probe u8
//!               5 forwarded ack  origin member | probe u8
//!               6 announce       (without updates; the destination may be node 0: whoever listens there)
//!               7 feed
//!               8 gossip
//!               9 turn undead    (without updates)
//!
//! updates   count u16 | count times ( member | life u16 | state u8: 0 alive, 1 suspect, 2 down )
//!
//! member    node u64 | incarnation u64 | generation u32 | flags u8 | swim address | link address
//!           flags  1 departed    2 swim is IPv6    4 link is IPv6    8 link has the address of swim, only its port follows
//!           address  4 or 16 bytes, then port u16
//! ```
//!
//! `life` counts the suspicions that a member has refuted (SWIM section 4.2 calls it incarnation number). Decoding is strict: bytes that
//! another encoder of this version would not have written are refused, and nothing is allocated from an unchecked count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Message, State};
use sedge_base::{Incarnation, NodeId};

use crate::Member;

const MAGIC: u8 = 0x5E;
/// Version of the format.
pub const VERSION: u8 = 1;
/// Shortest member: all fixed fields, IPv4, one address for both.
const MIN_MEMBER: usize = 8 + 8 + 4 + 1 + 6 + 2;
const MAX_MEMBER: usize = 8 + 8 + 4 + 1 + 18 + 18;

const DEPARTED: u8 = 1;
const SWIM_V6: u8 = 2;
const LINK_V6: u8 = 4;
const SAME_ADDRESS: u8 = 8;

/// Why bytes are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end too early.
    #[error("the datagram ends too early")]
    Truncated,
    /// Bytes are left over.
    #[error("bytes behind the end")]
    Trailing,
    /// Not a membership datagram at all.
    #[error("not a membership datagram")]
    Magic,
    /// Another version of the format.
    #[error("format version {0} is not supported")]
    Version(u8),
    /// A kind, flag or state that this version does not have, or an address written in an unusual way.
    #[error("{0} has a value that cannot be")]
    Value(&'static str),
    /// No room left to write.
    #[error("the datagram is full")]
    Full,
}

/// Whether these bytes, which nobody has proven to be a node's, have the form of a datagram of this version.
pub fn is_datagram(bytes: &[u8]) -> bool {
    Datagram::decode(bytes).is_ok()
}

/// A datagram, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) header: Header<Member>,
    pub(crate) updates: Vec<foca::Member<Member>>,
}

impl Datagram {
    /// Reads a whole datagram.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, WireError> {
        let input = &mut bytes;
        let header = get_header(input)?;
        let mut updates = Vec::new();
        if carries_updates(&header.message) {
            let count = usize::from(input.try_get_u16().ok().ok_or(WireError::Truncated)?);
            if count.saturating_mul(MIN_MEMBER) > input.len() {
                return Err(WireError::Truncated);
            }
            updates.reserve(count);
            for _ in 0..count {
                updates.push(get_update(input)?);
            }
        }
        if !input.is_empty() {
            return Err(WireError::Trailing);
        }
        Ok(Self { header, updates })
    }

    /// Writes the datagram.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_header(&self.header, out)?;
        if carries_updates(&self.header.message) {
            out.put_u16(u16::try_from(self.updates.len()).ok().ok_or(WireError::Full)?);
            for update in &self.updates {
                put_update(update, out)?;
            }
        }
        Ok(())
    }
}

fn carries_updates(message: &Message<Member>) -> bool {
    !matches!(message, Message::Announce | Message::TurnUndead)
}

fn put_member(member: &Member, out: &mut impl BufMut) {
    let same = member.swim.ip() == member.link.ip();
    let mut flags = 0;
    for (flag, set) in [
        (DEPARTED, member.departed),
        (SWIM_V6, member.swim.is_ipv6()),
        (LINK_V6, !same && member.link.is_ipv6()),
        (SAME_ADDRESS, same),
    ] {
        if set {
            flags |= flag;
        }
    }
    out.put_u64(member.node.get());
    out.put_u64(member.incarnation.get());
    out.put_u32(member.generation);
    out.put_u8(flags);
    put_ip(member.swim.ip(), out);
    out.put_u16(member.swim.port());
    if !same {
        put_ip(member.link.ip(), out);
    }
    out.put_u16(member.link.port());
}

fn put_ip(ip: IpAddr, out: &mut impl BufMut) {
    match ip {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
}

fn get_member(input: &mut impl Buf) -> Result<Member, WireError> {
    if input.remaining() < MIN_MEMBER {
        return Err(WireError::Truncated);
    }
    let node = NodeId::new(input.get_u64());
    let incarnation = Incarnation::new(input.get_u64());
    let generation = input.get_u32();
    let flags = input.get_u8();
    let same = flags & SAME_ADDRESS != 0;
    if flags & !(DEPARTED | SWIM_V6 | LINK_V6 | SAME_ADDRESS) != 0 || (same && flags & LINK_V6 != 0) {
        return Err(WireError::Value("flags"));
    }
    let swim = SocketAddr::new(get_ip(flags & SWIM_V6 != 0, input)?, get_u16(input)?);
    let link_ip = if same { swim.ip() } else { get_ip(flags & LINK_V6 != 0, input)? };
    if !same && link_ip == swim.ip() {
        return Err(WireError::Value("link address"));
    }
    let link = SocketAddr::new(link_ip, get_u16(input)?);
    Ok(Member { node, incarnation, swim, link, generation, departed: flags & DEPARTED != 0 })
}

fn get_known(input: &mut impl Buf) -> Result<Member, WireError> {
    let member = get_member(input)?;
    if member.is_anyone() { Err(WireError::Value("node")) } else { Ok(member) }
}

fn get_ip(v6: bool, input: &mut impl Buf) -> Result<IpAddr, WireError> {
    if !v6 {
        return Ok(IpAddr::V4(Ipv4Addr::from_bits(input.try_get_u32().ok().ok_or(WireError::Truncated)?)));
    }
    let ip = Ipv6Addr::from_bits(input.try_get_u128().ok().ok_or(WireError::Truncated)?);
    if ip.to_ipv4_mapped().is_some() { Err(WireError::Value("address")) } else { Ok(IpAddr::V6(ip)) }
}

fn get_u16(input: &mut impl Buf) -> Result<u16, WireError> {
    input.try_get_u16().ok().ok_or(WireError::Truncated)
}

fn get_u8(input: &mut impl Buf) -> Result<u8, WireError> {
    input.try_get_u8().ok().ok_or(WireError::Truncated)
}

fn put_header(header: &Header<Member>, out: &mut impl BufMut) -> Result<(), WireError> {
    let (kind, peer, probe) = match &header.message {
        Message::Ping(probe) => (0, None, Some(*probe)),
        Message::Ack(probe) => (1, None, Some(*probe)),
        Message::PingReq { target, probe_number } => (2, Some(target), Some(*probe_number)),
        Message::IndirectPing { origin, probe_number } => (3, Some(origin), Some(*probe_number)),
        Message::IndirectAck { target, probe_number } => (4, Some(target), Some(*probe_number)),
        Message::ForwardedAck { origin, probe_number } => (5, Some(origin), Some(*probe_number)),
        Message::Announce => (6, None, None),
        Message::Feed => (7, None, None),
        Message::Gossip => (8, None, None),
        Message::TurnUndead => (9, None, None),
        // Custom broadcasts are not in use.
        Message::Broadcast => return Err(WireError::Value("kind")),
    };
    if out.remaining_mut() < 3 + 2 + 1 + 3 * MAX_MEMBER {
        return Err(WireError::Full);
    }
    out.put_slice(&[MAGIC, VERSION, kind]);
    put_member(&header.src, out);
    out.put_u16(header.src_incarnation);
    put_member(&header.dst, out);
    if let Some(peer) = peer {
        put_member(peer, out);
    }
    if let Some(probe) = probe {
        out.put_u8(probe);
    }
    Ok(())
}

fn get_header(input: &mut impl Buf) -> Result<Header<Member>, WireError> {
    if get_u8(input)? != MAGIC {
        return Err(WireError::Magic);
    }
    match get_u8(input)? {
        VERSION => {}
        other => return Err(WireError::Version(other)),
    }
    let kind = get_u8(input)?;
    let src = get_known(input)?;
    let src_incarnation = get_u16(input)?;
    let dst = get_member(input)?;
    let message = match kind {
        0 => Message::Ping(get_u8(input)?),
        1 => Message::Ack(get_u8(input)?),
        2 => Message::PingReq { target: get_known(input)?, probe_number: get_u8(input)? },
        3 => Message::IndirectPing { origin: get_known(input)?, probe_number: get_u8(input)? },
        4 => Message::IndirectAck { target: get_known(input)?, probe_number: get_u8(input)? },
        5 => Message::ForwardedAck { origin: get_known(input)?, probe_number: get_u8(input)? },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        9 => Message::TurnUndead,
        _ => return Err(WireError::Value("kind")),
    };
    if dst.is_anyone() && message != Message::Announce {
        return Err(WireError::Value("destination"));
    }
    Ok(Header { src, src_incarnation, dst, message })
}

fn put_update(update: &foca::Member<Member>, out: &mut impl BufMut) -> Result<(), WireError> {
    if out.remaining_mut() < MAX_MEMBER + 3 {
        return Err(WireError::Full);
    }
    put_member(update.id(), out);
    out.put_u16(update.incarnation());
    out.put_u8(match update.state() {
        State::Alive => 0,
        State::Suspect => 1,
        State::Down => 2,
    });
    Ok(())
}

fn get_update(input: &mut impl Buf) -> Result<foca::Member<Member>, WireError> {
    let member = get_known(input)?;
    let life = get_u16(input)?;
    let state = match get_u8(input)? {
        0 => State::Alive,
        1 => State::Suspect,
        2 => State::Down,
        _ => return Err(WireError::Value("state")),
    };
    Ok(foca::Member::new(member, life, state))
}

/// The format as `foca` wants it.
pub(crate) struct WireCodec {
    /// Announcements to whoever listens here are for this node.
    pub(crate) me: NodeId,
}

impl Codec<Member> for WireCodec {
    type Error = WireError;

    fn encode_header(&mut self, header: &Header<Member>, mut buf: impl BufMut) -> Result<(), WireError> {
        put_header(header, &mut buf)
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Member>, WireError> {
        let mut header = get_header(&mut buf)?;
        if header.message == Message::Announce && header.dst.is_anyone() {
            header.dst.node = self.me;
        }
        Ok(header)
    }

    fn encode_member(&mut self, member: &foca::Member<Member>, mut buf: impl BufMut) -> Result<(), WireError> {
        put_update(member, &mut buf)
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<foca::Member<Member>, WireError> {
        get_update(&mut buf)
    }
}

#[cfg(test)]
mod tests;
