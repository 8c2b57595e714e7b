//! CONNACK (MQTT 5.0 section 3.2).

use super::property::{self, Property, PropertySink, Value};
use super::reader::Reader;
use super::reason;
use super::sink::{Sink, Wire};
use crate::{ConnAck, ConnAckProperties, DecodeError, PacketKind, QoS, ReasonCode, Version};

pub(super) fn read(reader: &mut Reader, version: Version) -> Result<ConnAck, DecodeError> {
    let flags = reader.u8()?;
    if flags > 1 {
        return Err(DecodeError::Malformed("reserved flags of CONNACK are set"));
    }
    let code = reader.u8()?;
    let (reason, properties) = match version {
        Version::V311 => {
            let reason = ReasonCode::from_v311_connect_code(code);
            (reason.ok_or(DecodeError::Malformed("a reserved return code"))?, ConnAckProperties::default())
        }
        Version::V5 => (reason(code, PacketKind::ConnAck)?, read_properties(reader)?),
    };
    let session_present = flags == 1;
    if session_present && reason.is_error() {
        return Err(DecodeError::Protocol("a session for a refused connection"));
    }
    Ok(ConnAck { session_present, reason, properties })
}

fn read_properties(reader: &mut Reader) -> Result<ConnAckProperties, DecodeError> {
    let mut found = ConnAckProperties::default();
    property::read(reader, property::CONNACK, |property, value| match (property, value) {
        (Property::SessionExpiry, Value::U32(value)) => found.session_expiry = Some(value),
        (Property::ReceiveMaximum, Value::U16(value)) => found.receive_maximum = Some(value),
        (Property::MaximumQoS, Value::Bool(value)) => found.maximum_qos = QoS::from_u8(u8::from(value)),
        (Property::RetainAvailable, Value::Bool(value)) => found.retain_available = Some(value),
        (Property::MaximumPacketSize, Value::U32(value)) => found.maximum_packet_size = Some(value),
        (Property::AssignedClientId, Value::String(value)) => found.assigned_client_id = Some(value),
        (Property::TopicAliasMaximum, Value::U16(value)) => found.topic_alias_maximum = Some(value),
        (Property::ReasonString, Value::String(value)) => found.reason_string = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        (Property::WildcardSubscriptionAvailable, Value::Bool(value)) => {
            found.wildcard_subscription_available = Some(value);
        }
        (Property::SubscriptionIdsAvailable, Value::Bool(value)) => found.subscription_ids_available = Some(value),
        (Property::SharedSubscriptionAvailable, Value::Bool(value)) => {
            found.shared_subscription_available = Some(value);
        }
        (Property::ServerKeepAlive, Value::U16(value)) => found.server_keep_alive = Some(value),
        (Property::ResponseInformation, Value::String(value)) => found.response_information = Some(value),
        (Property::ServerReference, Value::String(value)) => found.server_reference = Some(value),
        (Property::AuthenticationMethod, Value::String(value)) => found.authentication_method = Some(value),
        (Property::AuthenticationData, Value::Binary(value)) => found.authentication_data = Some(value),
        _ => {}
    })?;
    if found.authentication_data.is_some() && found.authentication_method.is_none() {
        return Err(DecodeError::Protocol("authentication data without a method"));
    }
    Ok(found)
}

impl Wire for ConnAck {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u8(u8::from(self.session_present));
        match version {
            Version::V311 => out.u8(self.reason.v311_connect_code()),
            Version::V5 => {
                out.u8(self.reason.as_u8());
                out.properties(&self.properties);
            }
        }
    }
}

impl Wire for ConnAckProperties {
    fn write(&self, _: Version, out: &mut impl Sink) {
        let maximum_qos = self.maximum_qos.filter(|&qos| qos < QoS::ExactlyOnce);
        out.u32_property(Property::SessionExpiry, self.session_expiry);
        out.u16_property(Property::ReceiveMaximum, self.receive_maximum);
        out.bool_property(Property::MaximumQoS, maximum_qos.map(|qos| qos == QoS::AtLeastOnce));
        out.bool_property(Property::RetainAvailable, self.retain_available);
        out.u32_property(Property::MaximumPacketSize, self.maximum_packet_size);
        out.string_property(Property::AssignedClientId, self.assigned_client_id.as_ref());
        out.u16_property(Property::TopicAliasMaximum, self.topic_alias_maximum);
        out.string_property(Property::ReasonString, self.reason_string.as_ref());
        out.user_properties(&self.user);
        out.bool_property(Property::WildcardSubscriptionAvailable, self.wildcard_subscription_available);
        out.bool_property(Property::SubscriptionIdsAvailable, self.subscription_ids_available);
        out.bool_property(Property::SharedSubscriptionAvailable, self.shared_subscription_available);
        out.u16_property(Property::ServerKeepAlive, self.server_keep_alive);
        out.string_property(Property::ResponseInformation, self.response_information.as_ref());
        out.string_property(Property::ServerReference, self.server_reference.as_ref());
        out.string_property(Property::AuthenticationMethod, self.authentication_method.as_ref());
        out.binary_property(Property::AuthenticationData, self.authentication_data.as_ref());
    }
}
