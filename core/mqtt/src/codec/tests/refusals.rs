//! Packets that are refused, and the reason code of each refusal.

use super::Side::{self, Client, Server};
use super::{decode, decoder};
use crate::ReasonCode::{self, MalformedPacket, ProtocolError, TopicAliasInvalid, UnsupportedProtocolVersion};
use crate::Version::{V5, V311};
use crate::{Decoder, Version};

/// Writes the remaining length between type and body.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first, u8::try_from(body.len()).unwrap()];
    bytes.extend_from_slice(body);
    bytes
}

#[track_caller]
fn refused(side: Side, version: Version, bytes: &[u8], reason: ReasonCode) {
    let error = decode(side, version, bytes).expect_err("refused");
    assert_eq!(error.reason_code(), reason, "{error}");
}

/// MQ-12
#[test]
fn fixed_headers() {
    for version in [V311, V5] {
        refused(Client, version, b"\x00\x00", MalformedPacket);
        for first in [0x11, 0x41, 0x51, 0x60, 0x63, 0x71, 0x80, 0xa0, 0xc1, 0xe1] {
            refused(Client, version, &[first, 0], MalformedPacket);
        }
        for first in [0x21, 0x91, 0xb1, 0xd1] {
            refused(Server, version, &[first, 0], MalformedPacket);
        }
        refused(Client, version, b"\xc0\x80\x80\x80\x80\x00", MalformedPacket);
        refused(Client, version, b"\xc0\x01\x00", MalformedPacket);
        refused(Client, version, b"\x36\x05\x00\x01a\x00\x01", MalformedPacket);
        refused(Client, version, b"\x38\x04\x00\x01a\x00", MalformedPacket);
        for first in [0x20, 0x90, 0xb0, 0xd0] {
            refused(Client, version, &[first, 0], ProtocolError);
        }
        for first in [0x10, 0x82, 0xa2, 0xc0] {
            refused(Server, version, &[first, 0], ProtocolError);
        }
    }
    refused(Client, V5, b"\xc0\x80\x00", MalformedPacket);
    assert!(decode(Client, V311, b"\xc0\x80\x00").is_ok());
    refused(Client, V311, b"\xf0\x00", ProtocolError);
    refused(Server, V311, b"\xe0\x00", ProtocolError);
}

/// MQ-01, MQ-12
#[test]
fn versions() {
    for body in [
        &b"\x00\x04MQTT\x03\x02\x00\x00\x00\x00"[..],
        b"\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00",
        b"\x00\x04mqtt\x04\x02",
    ] {
        refused(Client, V5, &packet(0x10, body), UnsupportedProtocolVersion);
    }
    assert_eq!(UnsupportedProtocolVersion.v311_connect_code(), 1);
    let padded = b"\x10\x8d\x00\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00";
    refused(Client, V5, padded, MalformedPacket);
}

/// MQ-12
#[test]
fn connects() {
    let connect = |level: u8, flags: u8, rest: &[u8]| {
        let mut body = b"\x00\x04MQTT".to_vec();
        body.extend_from_slice(&[level, flags, 0, 0]);
        body.extend_from_slice(rest);
        packet(0x10, &body)
    };
    refused(Client, V5, &connect(4, 0x03, b"\x00\x00"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x42, b"\x00\x00\x00\x01p"), MalformedPacket);
    for flags in [0x0a, 0x12, 0x22] {
        refused(Client, V5, &connect(4, flags, b"\x00\x00"), MalformedPacket);
    }
    refused(Client, V5, &connect(4, 0x1e, b"\x00\x00\x00\x01w\x00\x00"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x06, b"\x00\x00\x00\x01#\x00\x00"), ReasonCode::TopicNameInvalid);
    refused(Client, V5, &connect(4, 0x06, b"\x00\x00\x00\x00\x00\x00"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x02, b"\x00\x00\x00"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x02, b"\x00\x01\xff"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x02, b"\x00\x01\x00"), MalformedPacket);
    refused(Client, V5, &connect(4, 0x02, b"\x00\x05a"), MalformedPacket);
    assert!(decode(Client, V5, &connect(4, 0x00, b"\x00\x00")).is_ok(), "left to the broker");
    for (properties, reason) in [
        (&b"\x03\x21\x00\x00"[..], ProtocolError),
        (b"\x05\x27\x00\x00\x00\x00", ProtocolError),
        (b"\x02\x17\x02", ProtocolError),
        (b"\x02\x19\xff", ProtocolError),
        (b"\x06\x21\x00\x01\x21\x00\x01", ProtocolError),
        (b"\x04\x16\x00\x01d", ProtocolError),
        (b"\x03\x23\x00\x01", MalformedPacket),
        (b"\x05\x18\x00\x00\x00\x01", MalformedPacket),
        (b"\x02\x7f\x00", MalformedPacket),
        (b"\x03\x97\x00\x01", MalformedPacket),
        (b"\x02\x21\x00", MalformedPacket),
        (b"\x7f\x17\x01", MalformedPacket),
    ] {
        let mut rest = properties.to_vec();
        rest.extend_from_slice(b"\x00\x00");
        refused(Client, V5, &connect(5, 0x02, &rest), reason);
    }
    refused(Client, V5, &connect(5, 0x06, b"\x00\x00\x00\x02\x01\x02\x00\x01w\x00\x00"), ProtocolError);
    refused(Client, V5, &connect(5, 0x06, b"\x00\x00\x00\x04\x08\x00\x01#\x00\x01w\x00\x00"), ProtocolError);
}

/// MQ-12
#[test]
fn connacks() {
    for version in [V311, V5] {
        refused(Server, version, b"\x20\x03\x02\x00\x00", MalformedPacket);
    }
    refused(Server, V311, b"\x20\x02\x00\x06", MalformedPacket);
    refused(Server, V311, b"\x20\x02\x01\x05", ProtocolError);
    refused(Server, V5, b"\x20\x03\x00\x05\x00", MalformedPacket);
    refused(Server, V5, b"\x20\x03\x00\x10\x00", ProtocolError);
    refused(Server, V5, b"\x20\x05\x00\x00\x02\x24\x02", ProtocolError);
}

/// MQ-12
#[test]
fn publishes() {
    for version in [V311, V5] {
        refused(Client, version, b"\x30\x06\x00\x03a/#\x00", ReasonCode::TopicNameInvalid);
        refused(Client, version, b"\x32\x06\x00\x01a\x00\x00\x00", ProtocolError);
        refused(Client, version, b"\x30\x01\x00", MalformedPacket);
    }
    refused(Client, V311, b"\x30\x02\x00\x00", MalformedPacket);
    refused(Client, V5, b"\x30\x03\x00\x00\x00", ProtocolError);
    for (properties, reason) in [
        (&b"\x03\x23\x00\x00"[..], TopicAliasInvalid),
        (b"\x02\x0b\x01", ProtocolError),
        (b"\x02\x0b\x00", ProtocolError),
        (b"\x02\x01\x02", ProtocolError),
        (b"\x04\x08\x00\x01+", ProtocolError),
        (b"\x03\x08\x00\x00", ProtocolError),
        (b"\x06\x23\x00\x01\x23\x00\x01", ProtocolError),
        (b"\x05\x11\x00\x00\x00\x01", MalformedPacket),
        (b"\x03\x0b\x81\x00", MalformedPacket),
    ] {
        let mut body = b"\x00\x01a".to_vec();
        body.extend_from_slice(properties);
        refused(Client, V5, &packet(0x30, &body), reason);
    }
    refused(Server, V5, b"\x30\x06\x00\x01a\x02\x0b\x00", ProtocolError);
    assert!(decode(Server, V5, b"\x30\x08\x00\x01a\x04\x0b\x01\x0b\x01").is_ok());
}

/// MQ-12
#[test]
fn acknowledgements() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        refused(Client, V311, &[first, 2, 0, 0], ProtocolError);
        refused(Client, V311, &[first, 1, 0], MalformedPacket);
        refused(Client, V311, &[first, 3, 0, 1, 0], MalformedPacket);
        refused(Client, V5, &[first, 3, 0, 1, 0x04], ProtocolError);
        refused(Client, V5, &[first, 3, 0, 1, 0x03], MalformedPacket);
        refused(Client, V5, &[first, 5, 0, 1, 0, 0, 0], MalformedPacket);
    }
}

/// MQ-12
#[test]
fn subscribes() {
    for version in [V311, V5] {
        refused(Client, version, b"\x82\x03\x00\x00\x00", ProtocolError);
    }
    refused(Client, V311, b"\x82\x02\x00\x01", ProtocolError);
    refused(Client, V5, b"\x82\x03\x00\x01\x00", ProtocolError);
    refused(Client, V311, b"\xa2\x02\x00\x01", ProtocolError);
    refused(Client, V5, b"\xa2\x03\x00\x01\x00", ProtocolError);
    for (options, reason) in [(0x03, ProtocolError), (0x04, MalformedPacket), (0x80, MalformedPacket)] {
        refused(Client, V311, &[0x82, 6, 0, 1, 0, 1, b'a', options], reason);
    }
    for (options, reason) in [(0x03, ProtocolError), (0x30, ProtocolError), (0x40, MalformedPacket)] {
        refused(Client, V5, &[0x82, 7, 0, 1, 0, 0, 1, b'a', options], reason);
    }
    refused(Client, V5, b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x04", ProtocolError);
    refused(Client, V5, b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01a\x00", ProtocolError);
    refused(Client, V5, b"\x82\x08\x00\x01\x00\x00\x02a#\x00", ReasonCode::TopicFilterInvalid);
    refused(Client, V5, b"\xa2\x05\x00\x01\x00\x00\x00", MalformedPacket);
    refused(Client, V5, b"\x82\x06\x00\x01\x00\x00\x01a", MalformedPacket);
    refused(Server, V311, b"\x90\x03\x00\x01\x03", MalformedPacket);
    refused(Server, V311, b"\x90\x03\x00\x01\x87", MalformedPacket);
    refused(Server, V311, b"\x90\x02\x00\x01", ProtocolError);
    refused(Server, V5, b"\x90\x04\x00\x01\x00\x11", ProtocolError);
    refused(Server, V311, b"\xb0\x03\x00\x01\x00", MalformedPacket);
}

/// MQ-12
#[test]
fn endings() {
    refused(Client, V311, b"\xe0\x01\x00", MalformedPacket);
    refused(Client, V5, b"\xe0\x01\x01", ProtocolError);
    refused(Client, V5, b"\xe0\x06\x00\x04\x1c\x00\x01n", ProtocolError);
    refused(Server, V5, b"\xe0\x07\x00\x05\x11\x00\x00\x00\x01", ProtocolError);
    refused(Client, V5, b"\xf0\x00", ProtocolError);
    refused(Client, V5, b"\xf0\x02\x18\x00", ProtocolError);
    refused(Server, V5, b"\xf0\x06\x19\x04\x15\x00\x01m", ProtocolError);
    refused(Server, V5, b"\xf0\x05\x18\x03\x16\x00\x00", ProtocolError);
}

/// MQ-12
#[test]
fn a_large_packet_is_refused_before_it_comes() {
    let mut decoder = Decoder::server(100);
    decoder.feed(bytes::Bytes::from_static(b"\x30\x63"));
    let error = decoder.next().expect_err("refused");
    assert_eq!(error.reason_code(), ReasonCode::PacketTooLarge);
    assert_eq!(error.to_string(), "packet of 101 bytes where 100 are allowed");
    decoder.feed(bytes::Bytes::from_static(b"\xc0\x00"));
    assert_eq!((decoder.next(), decoder.buffered()), (Err(error), 0));
    let mut decoder = Decoder::server(100);
    decoder.feed(bytes::Bytes::from_static(b"\x30\x62"));
    assert_eq!(decoder.next(), Ok(None));
}

/// MQ-12
#[test]
fn a_wrong_first_byte_is_refused_at_once() {
    let mut decoder = decoder(Client, V5);
    decoder.feed(bytes::Bytes::from_static(b"\x36"));
    assert!(decoder.next().is_err());
}
