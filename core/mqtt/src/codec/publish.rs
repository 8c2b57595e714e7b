//! PUBLISH (MQTT 5.0 section 3.3).

use super::Delivery;
use super::property::{self, Property, PropertySink, Value};
use super::reader::Reader;
use super::sink::{Sink, Wire};
use crate::{DecodeError, Message, PacketId, Publish, PublishProperties, QoS, Version};

const RETAIN: u8 = 1;
const DUP: u8 = 8;

/// Checks the flags of the fixed header, before the rest has arrived.
pub(super) fn check_flags(flags: u8) -> Result<QoS, DecodeError> {
    let qos = QoS::from_u8((flags >> 1) & 3).ok_or(DecodeError::Malformed("quality of service 3"))?;
    if flags & DUP != 0 && qos == QoS::AtMostOnce {
        return Err(DecodeError::Malformed("a repetition of quality of service 0"));
    }
    Ok(qos)
}

pub(super) fn read(mut reader: Reader, flags: u8, version: Version, from_client: bool) -> Result<Publish, DecodeError> {
    let qos = check_flags(flags)?;
    let topic = reader.string()?;
    let packet_id = if qos == QoS::AtMostOnce { None } else { Some(reader.packet_id()?) };
    let properties = if version == Version::V5 { read_properties(&mut reader, from_client)? } else { None };
    let has_alias = properties.as_ref().is_some_and(|properties| properties.topic_alias.is_some());
    let topic = match topic.is_empty() {
        true if has_alias => None,
        true if version == Version::V5 => return Err(DecodeError::Protocol("neither topic name nor topic alias")),
        _ => Some(topic.try_into()?),
    };
    let (dup, retain) = (flags & DUP != 0, flags & RETAIN != 0);
    Ok(Publish { dup, qos, retain, topic, packet_id, payload: reader.rest(), properties })
}

fn read_properties(reader: &mut Reader, from_client: bool) -> Result<Option<Box<PublishProperties>>, DecodeError> {
    let mut found = None;
    property::read(reader, property::PUBLISH, |property, value| {
        set_property(found.get_or_insert_with(Box::default), property, value);
    })?;
    let Some(found) = found else { return Ok(None) };
    if from_client && !found.subscription_ids.is_empty() {
        return Err(DecodeError::Protocol("a subscription identifier in a PUBLISH of a client"));
    }
    property::check_response_topic(found.response_topic.as_ref())?;
    Ok(Some(found))
}

fn set_property(found: &mut PublishProperties, property: Property, value: Value) {
    match (property, value) {
        (Property::PayloadIsUtf8, Value::Bool(value)) => found.payload_is_utf8 = Some(value),
        (Property::MessageExpiry, Value::U32(value)) => found.message_expiry = Some(value),
        (Property::TopicAlias, Value::U16(value)) => found.topic_alias = Some(value),
        (Property::ResponseTopic, Value::String(value)) => found.response_topic = Some(value),
        (Property::CorrelationData, Value::Binary(value)) => found.correlation_data = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        (Property::SubscriptionId, Value::U32(value)) => found.subscription_ids.push(value),
        (Property::ContentType, Value::String(value)) => found.content_type = Some(value),
        _ => {}
    }
}

/// A 5.0 PUBLISH of quality of service 0 that a broker makes itself, for another broker.
#[derive(Clone, Copy, Debug)]
pub struct PublishParts<'a> {
    /// Where it goes: text without wildcards.
    pub topic: &'a [u8],
    /// The retain flag.
    pub retain: bool,
    /// User properties that come before those of `properties`: names and UTF-8 values.
    pub first: &'a [(&'a str, &'a [u8])],
    /// Further properties; topic alias, message expiry and subscription identifiers are left out.
    pub properties: Option<&'a PublishProperties>,
    /// Bytes of the payload that the caller sends behind it.
    pub payload_len: usize,
}

/// A PUBLISH without its payload, from whichever parts it is made of.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) flags: u8,
    topic: &'a [u8],
    packet_id: Option<PacketId>,
    alias: Option<u16>,
    expiry: Option<u32>,
    subscription_ids: &'a [u32],
    /// User properties that come before those of `properties`.
    first: &'a [(&'a str, &'a [u8])],
    /// The other properties.
    properties: Option<&'a PublishProperties>,
}

fn flags_of(dup: bool, qos: QoS, retain: bool) -> u8 {
    let dup = if dup && qos != QoS::AtMostOnce { DUP } else { 0 };
    dup | qos.as_u8() << 1 | u8::from(retain)
}

impl<'a> Head<'a> {
    pub(super) fn of_publish(publish: &'a Publish) -> Self {
        let properties = publish.properties.as_deref();
        Self {
            flags: flags_of(publish.dup, publish.qos, publish.retain),
            topic: publish.topic.as_ref().map_or(&[], |topic| topic.as_bytes()),
            packet_id: publish.packet_id,
            alias: properties.and_then(|properties| properties.topic_alias),
            expiry: properties.and_then(|properties| properties.message_expiry),
            subscription_ids: properties.map_or(&[], |properties| &properties.subscription_ids),
            first: &[],
            properties,
        }
    }

    pub(super) fn of_delivery(message: &'a Message, delivery: &'a Delivery, version: Version) -> Self {
        let alias = delivery.topic_alias.filter(|_| version == Version::V5);
        let omit_topic = alias.is_some_and(|alias| alias.omit_topic);
        Self {
            flags: flags_of(delivery.dup, delivery.qos, delivery.retain),
            topic: if omit_topic { &[] } else { message.topic.as_bytes() },
            packet_id: delivery.packet_id,
            alias: alias.map(|alias| alias.alias.get()),
            expiry: delivery.message_expiry,
            subscription_ids: &delivery.subscription_ids,
            first: &[],
            properties: message.properties.as_deref(),
        }
    }

    pub(super) fn of_parts(parts: &PublishParts<'a>) -> Self {
        Self {
            flags: flags_of(false, QoS::AtMostOnce, parts.retain),
            topic: parts.topic,
            packet_id: None,
            alias: None,
            expiry: None,
            subscription_ids: &[],
            first: parts.first,
            properties: parts.properties,
        }
    }
}

impl Wire for Head<'_> {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.binary(self.topic);
        // The flags decide whether the receiver looks for an identifier; without one it would misread all that follows.
        if self.flags & 0x06 != 0 {
            out.u16(self.packet_id.map_or(0, PacketId::get));
        }
        if version == Version::V5 {
            out.properties(&HeadProperties(self));
        }
    }
}

struct HeadProperties<'a>(&'a Head<'a>);

impl Wire for HeadProperties<'_> {
    fn write(&self, _: Version, out: &mut impl Sink) {
        let head = self.0;
        out.u32_property(Property::MessageExpiry, head.expiry);
        out.u16_property(Property::TopicAlias, head.alias);
        for &id in head.subscription_ids {
            out.subscription_id(id);
        }
        for (name, value) in head.first {
            out.user_property(name, value);
        }
        let Some(rest) = head.properties else { return };
        out.bool_property(Property::PayloadIsUtf8, rest.payload_is_utf8);
        out.string_property(Property::ResponseTopic, rest.response_topic.as_ref());
        out.binary_property(Property::CorrelationData, rest.correlation_data.as_ref());
        out.user_properties(&rest.user);
        out.string_property(Property::ContentType, rest.content_type.as_ref());
    }
}
