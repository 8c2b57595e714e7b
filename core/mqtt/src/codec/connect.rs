//! CONNECT (MQTT 5.0 section 3.1).

use super::property::{self, Property, PropertySink, Value};
use super::reader::Reader;
use super::sink::{Sink, Wire};
use crate::{Connect, ConnectProperties, DecodeError, QoS, Version, Will, WillProperties};

const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USERNAME: u8 = 0x80;
/// In the protocol level: a bridge of another broker.
const BRIDGE: u8 = 0x80;

pub(super) fn read(reader: &mut Reader) -> Result<Connect, DecodeError> {
    let (version, bridge) = read_version(reader)?;
    let flags = reader.u8()?;
    check_flags(flags, version)?;
    let keep_alive = reader.u16()?;
    let properties = if version == Version::V5 { read_properties(reader)? } else { ConnectProperties::default() };
    let client_id = reader.string()?;
    let will = if flags & WILL == 0 { None } else { Some(Box::new(read_will(reader, flags, version)?)) };
    let username = if flags & USERNAME == 0 { None } else { Some(reader.string()?) };
    let password = if flags & PASSWORD == 0 { None } else { Some(reader.binary()?) };
    let clean_start = flags & CLEAN_START != 0;
    Ok(Connect { version, bridge, clean_start, keep_alive, client_id, will, username, password, properties })
}

/// The version, and whether the client is a bridge.
fn read_version(reader: &mut Reader) -> Result<(Version, bool), DecodeError> {
    let name = reader.binary()?;
    let level = reader.u8()?;
    let bridge = level & BRIDGE != 0;
    match (&name[..], level & !BRIDGE) {
        (b"MQTT", 4) => Ok((Version::V311, bridge)),
        (b"MQTT", 5) => Ok((Version::V5, bridge)),
        _ => Err(DecodeError::UnsupportedProtocolVersion { level }),
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), DecodeError> {
    if flags & 1 != 0 {
        return Err(DecodeError::Malformed("the reserved flag of CONNECT is set"));
    }
    if flags & WILL == 0 && flags & (0x18 | WILL_RETAIN) != 0 {
        return Err(DecodeError::Malformed("flags for a will that is not there"));
    }
    if version == Version::V311 && flags & USERNAME == 0 && flags & PASSWORD != 0 {
        return Err(DecodeError::Malformed("a password without a user name"));
    }
    Ok(())
}

fn read_properties(reader: &mut Reader) -> Result<ConnectProperties, DecodeError> {
    let mut found = ConnectProperties::default();
    property::read(reader, property::CONNECT, |property, value| match (property, value) {
        (Property::SessionExpiry, Value::U32(value)) => found.session_expiry = Some(value),
        (Property::ReceiveMaximum, Value::U16(value)) => found.receive_maximum = Some(value),
        (Property::MaximumPacketSize, Value::U32(value)) => found.maximum_packet_size = Some(value),
        (Property::TopicAliasMaximum, Value::U16(value)) => found.topic_alias_maximum = Some(value),
        (Property::RequestResponseInformation, Value::Bool(value)) => found.request_response_information = Some(value),
        (Property::RequestProblemInformation, Value::Bool(value)) => found.request_problem_information = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        (Property::AuthenticationMethod, Value::String(value)) => found.authentication_method = Some(value),
        (Property::AuthenticationData, Value::Binary(value)) => found.authentication_data = Some(value),
        _ => {}
    })?;
    if found.authentication_data.is_some() && found.authentication_method.is_none() {
        return Err(DecodeError::Protocol("authentication data without a method"));
    }
    Ok(found)
}

fn read_will(reader: &mut Reader, flags: u8, version: Version) -> Result<Will, DecodeError> {
    let qos = QoS::from_u8((flags >> 3) & 3).ok_or(DecodeError::Malformed("a will of quality of service 3"))?;
    let properties = if version == Version::V5 { read_will_properties(reader)? } else { WillProperties::default() };
    let topic = reader.topic_name()?;
    let payload = reader.binary()?;
    Ok(Will { topic, payload, qos, retain: flags & WILL_RETAIN != 0, properties })
}

fn read_will_properties(reader: &mut Reader) -> Result<WillProperties, DecodeError> {
    let mut found = WillProperties::default();
    property::read(reader, property::WILL, |property, value| match (property, value) {
        (Property::WillDelay, Value::U32(value)) => found.delay = Some(value),
        (Property::PayloadIsUtf8, Value::Bool(value)) => found.payload_is_utf8 = Some(value),
        (Property::MessageExpiry, Value::U32(value)) => found.message_expiry = Some(value),
        (Property::ContentType, Value::String(value)) => found.content_type = Some(value),
        (Property::ResponseTopic, Value::String(value)) => found.response_topic = Some(value),
        (Property::CorrelationData, Value::Binary(value)) => found.correlation_data = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        _ => {}
    })?;
    property::check_response_topic(found.response_topic.as_ref())?;
    Ok(found)
}

impl Wire for Connect {
    /// The version is that of the packet itself.
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.binary(b"MQTT");
        out.u8(self.version.level() | if self.bridge { BRIDGE } else { 0 });
        out.u8(flags_of(self));
        out.u16(self.keep_alive);
        if self.version == Version::V5 {
            out.properties(&self.properties);
        }
        out.binary(self.client_id.as_bytes());
        if let Some(will) = &self.will {
            if self.version == Version::V5 {
                out.properties(&will.properties);
            }
            out.binary(will.topic.as_bytes());
            out.binary(&will.payload);
        }
        if let Some(username) = &self.username {
            out.binary(username.as_bytes());
        }
        if let Some(password) = &self.password {
            out.binary(password);
        }
    }
}

fn flags_of(connect: &Connect) -> u8 {
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let will = connect.will.as_ref().map_or(0, |will| WILL | will.qos.as_u8() << 3 | flag(will.retain, WILL_RETAIN));
    flag(connect.clean_start, CLEAN_START)
        | will
        | flag(connect.password.is_some(), PASSWORD)
        | flag(connect.username.is_some(), USERNAME)
}

impl Wire for ConnectProperties {
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.u32_property(Property::SessionExpiry, self.session_expiry);
        out.u16_property(Property::ReceiveMaximum, self.receive_maximum);
        out.u32_property(Property::MaximumPacketSize, self.maximum_packet_size);
        out.u16_property(Property::TopicAliasMaximum, self.topic_alias_maximum);
        out.bool_property(Property::RequestResponseInformation, self.request_response_information);
        out.bool_property(Property::RequestProblemInformation, self.request_problem_information);
        out.user_properties(&self.user);
        out.string_property(Property::AuthenticationMethod, self.authentication_method.as_ref());
        out.binary_property(Property::AuthenticationData, self.authentication_data.as_ref());
    }
}

impl Wire for WillProperties {
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.u32_property(Property::WillDelay, self.delay);
        out.bool_property(Property::PayloadIsUtf8, self.payload_is_utf8);
        out.u32_property(Property::MessageExpiry, self.message_expiry);
        out.string_property(Property::ContentType, self.content_type.as_ref());
        out.string_property(Property::ResponseTopic, self.response_topic.as_ref());
        out.binary_property(Property::CorrelationData, self.correlation_data.as_ref());
        out.user_properties(&self.user);
    }
}
