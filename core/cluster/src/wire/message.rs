//! A message: its facts, then an MQTT 5.0 PUBLISH.

use std::sync::Arc;

use sedge_base::{Incarnation, NodeId, ShardId, Timestamp};
use sedge_mqtt::{
    Decoder, Delivery, Message, MessageId, Packet, PacketId, QoS, ReadAt, Stamp, Version, encode_publish, publish_len,
};

use super::{Reader, Result, WireError, Writer};

/// Largest PUBLISH within mail: the largest packet of the protocol.
const MAX_PUBLISH_BYTES: u32 = 268_435_460;

/// Appends a message.
pub(crate) fn write_message(out: &mut Writer, message: &Message) {
    write_id(out, &message.id);
    write_stamp(out, &message.stamp);
    out.option(message.expires_at, |out, at| out.u64(at.as_millis()));
    out.option(message.publisher.as_ref(), Writer::client);
    let packet_id = (message.qos > QoS::AtMostOnce).then_some(PacketId::MIN);
    let delivery = Delivery { qos: message.qos, retain: message.retain, packet_id, ..Delivery::default() };
    out.count(publish_len(message, &delivery, Version::V5));
    encode_publish(message, &delivery, Version::V5, &mut out.0);
}

/// About as many bytes as the message takes; never fewer than its payload.
pub(crate) fn message_len(message: &Message) -> usize {
    128 + message.topic.as_bytes().len() + message.payload.len()
}

/// Reads what [`write_message`] has written.
pub(crate) fn read_message(from: &mut Reader) -> Result<Arc<Message>> {
    let id = read_id(from)?;
    let stamp = read_stamp(from)?;
    let expires_at = from.option(Reader::u64)?.map(Timestamp::from_millis);
    let publisher = from.option(Reader::client)?;
    let mut decoder = Decoder::client(MAX_PUBLISH_BYTES);
    decoder.feed(from.bytes()?);
    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { return Err(WireError("not a PUBLISH")) };
    if decoder.buffered() > 0 {
        return Err(WireError("more than a PUBLISH"));
    }
    if publish.dup || publish.packet_id.is_some_and(|id| id != PacketId::MIN) {
        return Err(WireError("a PUBLISH of some connection"));
    }
    let topic = publish.topic.ok_or(WireError("a PUBLISH without topic"))?;
    let (payload, qos, retain) = (publish.payload, publish.qos, publish.retain);
    let properties = publish.properties;
    // Properties of a delivery are no part of a message: they would be lost when the message is written again.
    if properties.as_deref().is_some_and(|properties| {
        properties.message_expiry.is_some()
            || properties.topic_alias.is_some()
            || !properties.subscription_ids.is_empty()
    }) {
        return Err(WireError("a property that mail does not use"));
    }
    Ok(Arc::new(Message {
        id,
        topic,
        payload,
        qos,
        retain,
        properties,
        stamp,
        expires_at,
        publisher,
        read_at: ReadAt::default(),
    }))
}

pub(super) fn write_id(out: &mut Writer, id: &MessageId) {
    let mut bytes = [0; 26];
    bytes[..8].copy_from_slice(&id.node.get().to_be_bytes());
    bytes[8..16].copy_from_slice(&id.incarnation.get().to_be_bytes());
    bytes[16..18].copy_from_slice(&id.shard.0.to_be_bytes());
    bytes[18..].copy_from_slice(&id.seq.to_be_bytes());
    out.fixed(&bytes);
}

fn write_stamp(out: &mut Writer, stamp: &Stamp) {
    let mut bytes = [0; 22];
    bytes[..8].copy_from_slice(&stamp.millis.to_be_bytes());
    bytes[8..12].copy_from_slice(&stamp.counter.to_be_bytes());
    bytes[12..20].copy_from_slice(&stamp.node.get().to_be_bytes());
    bytes[20..].copy_from_slice(&stamp.shard.0.to_be_bytes());
    out.fixed(&bytes);
}

pub(super) fn read_id(from: &mut Reader) -> Result<MessageId> {
    let (node, incarnation) = (NodeId::new(from.u64()?), Incarnation::new(from.u64()?));
    Ok(MessageId { node, incarnation, shard: ShardId(from.u16()?), seq: from.u64()? })
}

fn read_stamp(from: &mut Reader) -> Result<Stamp> {
    let (millis, counter) = (from.u64()?, from.u32()?);
    Ok(Stamp { millis, counter, node: from.node()?, shard: ShardId(from.u16()?) })
}
