//! TCP segments out of captured IP packets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

const TCP: u8 = 6;
/// Extension headers of IPv6 that are passed over: hop-by-hop, routing, destination options.
const PASSED_OVER: [u8; 3] = [0, 43, 60];
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// A piece of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// Number of the first byte.
    pub seq: u32,
    /// The direction begins.
    pub syn: bool,
    /// The direction ends behind these bytes.
    pub fin: bool,
    /// The connection ends.
    pub rst: bool,
    /// The bytes.
    pub payload: Bytes,
}

/// Reason why a captured packet is no whole TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// Another protocol.
    Other,
    /// A part of one: the network has cut it.
    Fragment,
    /// The packet is cut short, or makes no sense.
    Malformed,
}

impl Segment {
    /// Reads an IP packet. The length in its header is checked against the bytes that are there.
    pub fn read(packet: &Bytes) -> Result<Self, SegmentError> {
        let (ips, tcp) = match byte(packet, 0)? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return Err(SegmentError::Other),
        };
        let header = usize::from(byte(&tcp, 12)? >> 4) * 4;
        if header < 20 || header > tcp.len() {
            return Err(SegmentError::Malformed);
        }
        let flags = byte(&tcp, 13)?;
        Ok(Self {
            from: SocketAddr::new(ips.0, short(&tcp, 0)?),
            to: SocketAddr::new(ips.1, short(&tcp, 2)?),
            seq: u32::from_be_bytes(array(&tcp, 4)?),
            syn: flags & SYN > 0,
            fin: flags & FIN > 0,
            rst: flags & RST > 0,
            payload: tcp.slice(header..),
        })
    }
}

fn byte(from: &[u8], at: usize) -> Result<u8, SegmentError> {
    from.get(at).copied().ok_or(SegmentError::Malformed)
}

fn array<const N: usize>(from: &[u8], at: usize) -> Result<[u8; N], SegmentError> {
    from.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(SegmentError::Malformed)
}

fn short(from: &[u8], at: usize) -> Result<u16, SegmentError> {
    array(from, at).map(u16::from_be_bytes)
}

/// The bytes from `start` to `end`.
fn part(of: &Bytes, start: usize, end: usize) -> Result<Bytes, SegmentError> {
    if start > end || end > of.len() {
        return Err(SegmentError::Malformed);
    }
    Ok(of.slice(start..end))
}

fn ipv4(packet: &Bytes) -> Result<((IpAddr, IpAddr), Bytes), SegmentError> {
    let header = usize::from(byte(packet, 0)? & 15) * 4;
    let length = usize::from(short(packet, 2)?);
    // The kernel hands large segments on whole, and says 0 where the length does not fit.
    let end = if length == 0 { packet.len() } else { length };
    if header < 20 {
        return Err(SegmentError::Malformed);
    }
    if byte(packet, 9)? != TCP {
        return Err(SegmentError::Other);
    }
    // More fragments follow, or others came before.
    if short(packet, 6)? & 0x3fff > 0 {
        return Err(SegmentError::Fragment);
    }
    let ip = |at| array(packet, at).map(|bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes)));
    Ok(((ip(12)?, ip(16)?), part(packet, header, end)?))
}

fn ipv6(packet: &Bytes) -> Result<((IpAddr, IpAddr), Bytes), SegmentError> {
    let length = usize::from(short(packet, 4)?);
    let end = if length == 0 { packet.len() } else { 40 + length };
    let ip = |at| array(packet, at).map(|bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)));
    let (mut next, mut start) = (byte(packet, 6)?, 40);
    while PASSED_OVER.contains(&next) {
        next = byte(packet, start)?;
        start += 8 + 8 * usize::from(byte(packet, start + 1)?);
    }
    match next {
        TCP => Ok(((ip(8)?, ip(24)?), part(packet, start, end)?)),
        44 => Err(SegmentError::Fragment),
        _ => Err(SegmentError::Other),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The IP packet of a segment.
    pub(crate) fn packet(segment: &Segment) -> Bytes {
        let mut tcp = Vec::new();
        tcp.extend(segment.from.port().to_be_bytes());
        tcp.extend(segment.to.port().to_be_bytes());
        tcp.extend(segment.seq.to_be_bytes());
        tcp.extend([0; 4]);
        let flags = [(segment.fin, FIN), (segment.syn, SYN), (segment.rst, RST)];
        let flags = flags.into_iter().map(|(is_set, flag)| u8::from(is_set) * flag).sum::<u8>();
        // An option of four bytes.
        tcp.extend([6 << 4, flags, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
        tcp.extend(&segment.payload);
        let mut ip = Vec::new();
        match (segment.from.ip(), segment.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ip.extend([0x45, 0]);
                ip.extend(u16::try_from(20 + tcp.len()).unwrap().to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ip.extend([0x60, 0, 0, 0]);
                ip.extend(u16::try_from(8 + tcp.len()).unwrap().to_be_bytes());
                ip.extend([60, 64]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                ip.extend([TCP, 0, 1, 4, 0, 0, 0, 0]);
            }
            _ => panic!("two families"),
        }
        // A network card pads short frames.
        ip.into_iter().chain(tcp).chain([0; 6]).collect::<Vec<u8>>().into()
    }

    proptest! {
        /// FT-03
        #[test]
        fn segments_come_out_as_they_went_in(seq in any::<u32>(), flags in any::<[bool; 3]>(), payload in any::<Vec<u8>>(), six in any::<bool>()) {
            let (from, to) = if six { ("[fe80::1]:40000", "[::1]:1883") } else { ("10.0.0.9:40000", "127.0.0.1:1883") };
            let [syn, fin, rst] = flags;
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let segment = Segment { from, to, seq, syn, fin, rst, payload: payload.into() };
            prop_assert_eq!(Segment::read(&packet(&segment)), Ok(segment));
        }

        #[test]
        fn noise_does_no_harm(bytes in any::<Vec<u8>>(), first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()]) {
            let mut bytes = bytes;
            bytes.insert(0, first);
            let _ = Segment::read(&bytes.into());
        }
    }

    #[test]
    fn fragments_and_other_protocols_are_told_apart() {
        let segment = Segment {
            from: "10.0.0.9:4".parse().unwrap(),
            to: "10.0.0.1:5".parse().unwrap(),
            seq: 1,
            syn: false,
            fin: false,
            rst: false,
            payload: Bytes::from_static(b"x"),
        };
        let with = |at: usize, byte: u8| {
            let mut bytes = packet(&segment).to_vec();
            bytes[at] = byte;
            Segment::read(&bytes.into())
        };
        assert_eq!(with(6, 0x20), Err(SegmentError::Fragment));
        assert_eq!(with(7, 1), Err(SegmentError::Fragment));
        assert_eq!(with(9, 17), Err(SegmentError::Other));
        assert_eq!(with(3, 200), Err(SegmentError::Malformed));
        assert_eq!(with(0, 0x41), Err(SegmentError::Malformed));
    }
}
