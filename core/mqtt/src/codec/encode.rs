//! Packets to bytes.

use bytes::BytesMut;

use super::Delivery;
use crate::{Message, Packet, Version};

/// Appends `packet` to `out`.
pub fn encode(_packet: &Packet, _version: Version, _out: &mut BytesMut) {}

/// Bytes that [`encode`] appends.
pub fn encoded_len(_packet: &Packet, _version: Version) -> usize {
    0
}

/// Appends the PUBLISH that delivers `message` as `delivery` says.
pub fn encode_publish(_message: &Message, _delivery: &Delivery, _version: Version, _out: &mut BytesMut) {}

/// As [`encode_publish`], but without the payload: the caller sends `message.payload` behind it.
pub fn encode_publish_head(_message: &Message, _delivery: &Delivery, _version: Version, _out: &mut BytesMut) {}

/// Bytes that [`encode_publish`] appends.
pub fn publish_len(_message: &Message, _delivery: &Delivery, _version: Version) -> usize {
    0
}

/// Makes `packet` no larger than `max` bytes by leaving out user properties, then the reason string, where the standard allows
/// it (MQTT 5.0 section 3.1.2.11.4); says whether it fits.
pub fn trim_to(packet: &mut Packet, version: Version, max: usize) -> bool {
    encoded_len(packet, version) <= max
}
