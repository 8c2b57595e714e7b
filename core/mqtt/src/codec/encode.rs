//! Packets to bytes.

use bytes::BytesMut;

use super::Delivery;
use super::header::fixed_flags;
use super::publish::{Head, PublishParts};
use super::sink::{Sink, Wire};
use super::varint;
use crate::{Message, Packet, PacketKind, Version};

/// Appends `packet` to `out` as `version` has it; 3.1.1 leaves out what it lacks. A CONNECT goes by its own version.
///
/// The caller guarantees that `packet` is legal: the format has no place for strings and binary data above 65,535 bytes (they
/// are cut off) and packets above 268,435,460 bytes. An AUTH in 3.1.1 writes nothing.
pub fn encode(packet: &Packet, version: Version, out: &mut BytesMut) {
    let Some(body_len) = body_len(packet, version) else { return };
    out.reserve(1 + varint::len(body_len) + body_len);
    let kind = packet.kind();
    let flags = if let Packet::Publish(publish) = packet { Head::of_publish(publish).flags } else { fixed_flags(kind) };
    out.u8(kind.as_u8() << 4 | flags);
    out.var_int(body_len);
    write_body(packet, version, out);
}

/// Bytes that [`encode`] appends.
pub fn encoded_len(packet: &Packet, version: Version) -> usize {
    body_len(packet, version).map_or(0, |len| 1 + varint::len(len) + len)
}

/// Appends the PUBLISH that delivers `message` as `delivery` says.
pub fn encode_publish(message: &Message, delivery: &Delivery, version: Version, out: &mut BytesMut) {
    write_publish_head(message, delivery, version, message.payload.len(), out);
    out.extend_from_slice(&message.payload);
}

/// As [`encode_publish`], but without the payload: the caller sends `message.payload` behind it.
pub fn encode_publish_head(message: &Message, delivery: &Delivery, version: Version, out: &mut BytesMut) {
    write_publish_head(message, delivery, version, 0, out);
}

fn write_publish_head(
    message: &Message,
    delivery: &Delivery,
    version: Version,
    payload_room: usize,
    out: &mut BytesMut,
) {
    let head = Head::of_delivery(message, delivery, version);
    write_head(&head, version, message.payload.len(), payload_room, out);
}

/// Appends a 5.0 PUBLISH made of `parts`, without the payload.
pub fn encode_publish_parts(parts: &PublishParts<'_>, out: &mut BytesMut) {
    write_head(&Head::of_parts(parts), Version::V5, parts.payload_len, 0, out);
}

fn write_head(head: &Head<'_>, version: Version, payload_len: usize, payload_room: usize, out: &mut BytesMut) {
    let head_len = head.wire_len(version);
    let body_len = head_len + payload_len;
    out.reserve(1 + varint::len(body_len) + head_len + payload_room);
    out.u8(PacketKind::Publish.as_u8() << 4 | head.flags);
    out.var_int(body_len);
    head.write(version, out);
}

/// Bytes that [`encode_publish`] appends.
pub fn publish_len(message: &Message, delivery: &Delivery, version: Version) -> usize {
    let body_len = Head::of_delivery(message, delivery, version).wire_len(version) + message.payload.len();
    1 + varint::len(body_len) + body_len
}

fn body_len(packet: &Packet, version: Version) -> Option<usize> {
    Some(match packet {
        Packet::Connect(packet) => packet.wire_len(version),
        Packet::ConnAck(packet) => packet.wire_len(version),
        Packet::Publish(packet) => Head::of_publish(packet).wire_len(version) + packet.payload.len(),
        Packet::PubAck(packet) | Packet::PubRec(packet) | Packet::PubRel(packet) | Packet::PubComp(packet) => {
            packet.wire_len(version)
        }
        Packet::Subscribe(packet) => packet.wire_len(version),
        Packet::SubAck(packet) => packet.wire_len(version),
        Packet::Unsubscribe(packet) => packet.wire_len(version),
        Packet::UnsubAck(packet) => packet.wire_len(version),
        Packet::PingReq | Packet::PingResp => 0,
        Packet::Disconnect(packet) => packet.wire_len(version),
        Packet::Auth(_) if version == Version::V311 => return None,
        Packet::Auth(packet) => packet.wire_len(version),
    })
}

fn write_body(packet: &Packet, version: Version, out: &mut BytesMut) {
    match packet {
        Packet::Connect(packet) => packet.write(version, out),
        Packet::ConnAck(packet) => packet.write(version, out),
        Packet::Publish(packet) => {
            Head::of_publish(packet).write(version, out);
            out.put(&packet.payload);
        }
        Packet::PubAck(packet) | Packet::PubRec(packet) | Packet::PubRel(packet) | Packet::PubComp(packet) => {
            packet.write(version, out);
        }
        Packet::Subscribe(packet) => packet.write(version, out),
        Packet::SubAck(packet) => packet.write(version, out),
        Packet::Unsubscribe(packet) => packet.write(version, out),
        Packet::UnsubAck(packet) => packet.write(version, out),
        Packet::PingReq | Packet::PingResp => {}
        Packet::Disconnect(packet) => packet.write(version, out),
        Packet::Auth(packet) => packet.write(version, out),
    }
}
