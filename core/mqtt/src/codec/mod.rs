//! Packets to bytes and back (MQTT 3.1.1 and MQTT 5.0, sections 2 and 3 of both).

mod ack;
mod connack;
mod connect;
mod decoder;
mod delivery;
mod encode;
mod header;
mod property;
mod publish;
mod reader;
mod sink;
mod subscribe;
mod trim;
mod varint;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use delivery::{Delivery, TopicAlias};
pub use encode::{encode, encode_publish, encode_publish_head, encode_publish_parts, encoded_len, publish_len};
pub use publish::PublishParts;
pub use trim::trim_to;

use crate::{DecodeError, PacketKind, ReasonCode};

/// The reason code with this number, if it may stand in a packet of this kind.
fn reason(code: u8, kind: PacketKind) -> Result<ReasonCode, DecodeError> {
    let reason = ReasonCode::from_u8(code).ok_or(DecodeError::Malformed("an unknown reason code"))?;
    if reason.valid_for(kind) {
        Ok(reason)
    } else {
        Err(DecodeError::Protocol("a reason code that does not belong to this packet"))
    }
}
