//! Answers that fit the receiver's maximum packet size.

use super::encoded_len;
use crate::{Packet, UserProperties, Utf8, Version};

/// Makes `packet` no larger than `max` bytes by leaving out user properties, then the reason string, where the standard wants
/// that (MQTT 5.0 sections 3.2.2.3.9 and 3.2.2.3.10 and their likes). Says whether it fits; if not, nothing is to be sent.
/// A PUBLISH is never changed: its user properties belong to the publisher.
pub fn trim_to(packet: &mut Packet, version: Version, max: usize) -> bool {
    if encoded_len(packet, version) <= max {
        return true;
    }
    if let Some((_, user)) = explanation(packet) {
        *user = Vec::new();
        if encoded_len(packet, version) <= max {
            return true;
        }
    }
    if let Some((reason_string, _)) = explanation(packet) {
        *reason_string = None;
    }
    encoded_len(packet, version) <= max
}

/// The reason string and user properties of a packet, which the sender may leave out.
fn explanation(packet: &mut Packet) -> Option<(&mut Option<Utf8>, &mut UserProperties)> {
    match packet {
        Packet::ConnAck(packet) => Some((&mut packet.properties.reason_string, &mut packet.properties.user)),
        Packet::PubAck(packet) | Packet::PubRec(packet) | Packet::PubRel(packet) | Packet::PubComp(packet) => {
            packet.properties.as_deref_mut().map(|(reason_string, user)| (reason_string, user))
        }
        Packet::SubAck(packet) => Some((&mut packet.reason_string, &mut packet.user)),
        Packet::UnsubAck(packet) => Some((&mut packet.reason_string, &mut packet.user)),
        Packet::Disconnect(packet) => Some((&mut packet.reason_string, &mut packet.user)),
        Packet::Auth(packet) => Some((&mut packet.reason_string, &mut packet.user)),
        Packet::Connect(_)
        | Packet::Publish(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::PingReq
        | Packet::PingResp => None,
    }
}
