//! Properties that hold for any packets and any bytes.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::{any_packet, as_old};
use super::{Side, decoder, encode};
use crate::{Packet, Version, trim_to};

fn any_side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

fn any_stream() -> impl Strategy<Value = (Side, Vec<Packet>)> {
    any_side().prop_flat_map(|side| (Just(side), vec(any_packet(side), 1..6)))
}

/// Decodes `bytes` in pieces of the given sizes, over and over.
fn decode_pieces(side: Side, version: Version, mut bytes: Bytes, sizes: &[usize]) -> Vec<Packet> {
    let mut decoder = decoder(side, version);
    let mut packets = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        decoder.feed(bytes.split_to((*size).min(bytes.len())));
        while let Some(packet) = decoder.next().unwrap() {
            packets.push(packet);
            // A CONNECT would change it.
            decoder.set_version(version);
        }
    }
    assert_eq!(decoder.buffered(), 0);
    packets
}

proptest! {
    /// MQ-12, MQ-14
    #[test]
    fn packets_of_5_survive_any_split((side, packets) in any_stream(), sizes in vec(1_usize..40, 1..8)) {
        let mut bytes = BytesMut::new();
        for packet in &packets {
            bytes.extend_from_slice(&encode(packet, Version::V5));
        }
        prop_assert_eq!(decode_pieces(side, Version::V5, bytes.freeze(), &sizes), packets);
    }

    /// MQ-01, MQ-12
    #[test]
    fn packets_of_311_survive_any_split((side, packets) in any_stream(), sizes in vec(1_usize..40, 1..8)) {
        let mut bytes = BytesMut::new();
        let mut expected = Vec::new();
        for packet in packets {
            if let Some(old) = as_old(side, packet.clone()) {
                // A CONNECT goes by its own version; everything else is cut down by the encoder.
                let source = if matches!(packet, Packet::Connect(_)) { &old } else { &packet };
                bytes.extend_from_slice(&encode(source, Version::V311));
                expected.push(old);
            }
        }
        prop_assert_eq!(decode_pieces(side, Version::V311, bytes.freeze(), &sizes), expected);
    }

    /// MQ-12
    #[test]
    fn any_bytes_are_decoded_or_refused(data in vec(any::<u8>(), 0..200)) {
        crate::fuzz::decode(&data);
    }

    /// MQ-12: a damaged packet is refused or read as another, but breaks nothing.
    #[test]
    fn damaged_packets_are_decoded_or_refused(
        (side, packets) in any_stream(),
        old in any::<bool>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in any::<u8>(),
    ) {
        let version = if old { Version::V311 } else { Version::V5 };
        let mode = u8::from(side == Side::Server) | u8::from(!old) << 1;
        let mut data = vec![mode, sizes];
        for packet in &packets {
            data.extend_from_slice(&encode(packet, version));
        }
        for (at, byte) in damage {
            let at = 2 + at.index(data.len() - 1);
            if let Some(place) = data.get_mut(at) {
                *place = byte;
            }
        }
        crate::fuzz::decode(&data);
    }

    /// MQ-14
    #[test]
    fn trimming_reaches_the_limit_or_says_so(packet in any_packet(Side::Server), max in 0_usize..100) {
        let mut trimmed = packet.clone();
        let fits = trim_to(&mut trimmed, Version::V5, max);
        prop_assert_eq!(fits, encode(&trimmed, Version::V5).len() <= max);
        prop_assert_eq!(trimmed.kind(), packet.kind());
    }
}
