//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH (MQTT 5.0 sections 3.4 to 3.7, 3.14 and 3.15).

use super::property::{self, Property, PropertySink, Value};
use super::reader::Reader;
use super::reason;
use super::sink::{Sink, Wire};
use crate::{Ack, Auth, DecodeError, Disconnect, PacketKind, ReasonCode, UserProperties, Utf8, Version};

/// With `is_lenient` a reason code that this kind of packet does not have is Success or Unspecified Error.
pub(super) fn read(
    reader: &mut Reader,
    kind: PacketKind,
    version: Version,
    is_lenient: bool,
) -> Result<Ack, DecodeError> {
    let mut ack = Ack::new(reader.packet_id()?, ReasonCode::Success);
    if version == Version::V311 || reader.is_empty() {
        return Ok(ack);
    }
    let code = reader.u8()?;
    ack.reason = match reason(code, kind) {
        Err(_) if is_lenient && code < 0x80 => ReasonCode::Success,
        Err(_) if is_lenient => ReasonCode::UnspecifiedError,
        known => known?,
    };
    if reader.is_empty() {
        return Ok(ack);
    }
    let (reason_string, user) = read_explanation(reader, property::ACK)?;
    if reason_string.is_some() || !user.is_empty() {
        ack.properties = Some(Box::new((reason_string, user)));
    }
    Ok(ack)
}

/// Reads properties of a packet that has only a reason string and user properties.
pub(super) fn read_explanation(reader: &mut Reader, at: u32) -> Result<(Option<Utf8>, UserProperties), DecodeError> {
    let (mut reason_string, mut user) = (None, Vec::new());
    property::read(reader, at, |property, value| match (property, value) {
        (Property::ReasonString, Value::String(value)) => reason_string = Some(value),
        (Property::User, Value::Pair(name, value)) => user.push((name, value)),
        _ => {}
    })?;
    Ok((reason_string, user))
}

pub(super) fn read_disconnect(
    reader: &mut Reader,
    version: Version,
    from_client: bool,
) -> Result<Disconnect, DecodeError> {
    let mut found = Disconnect::new(ReasonCode::Success);
    if version == Version::V311 || reader.is_empty() {
        return Ok(found);
    }
    found.reason = reason(reader.u8()?, PacketKind::Disconnect)?;
    if reader.is_empty() {
        return Ok(found);
    }
    property::read(reader, property::DISCONNECT, |property, value| match (property, value) {
        (Property::SessionExpiry, Value::U32(value)) => found.session_expiry = Some(value),
        (Property::ReasonString, Value::String(value)) => found.reason_string = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        (Property::ServerReference, Value::String(value)) => found.server_reference = Some(value),
        _ => {}
    })?;
    if from_client && found.server_reference.is_some() {
        return Err(DecodeError::Protocol("a server reference from a client"));
    }
    if !from_client && found.session_expiry.is_some() {
        return Err(DecodeError::Protocol("a session expiry from a server"));
    }
    Ok(found)
}

pub(super) fn read_auth(reader: &mut Reader, from_client: bool) -> Result<Auth, DecodeError> {
    let reason = if reader.is_empty() { ReasonCode::Success } else { reason(reader.u8()?, PacketKind::Auth)? };
    let foreign = if from_client { ReasonCode::Success } else { ReasonCode::ReAuthenticate };
    if reason == foreign {
        return Err(DecodeError::Protocol("a reason code of the other side"));
    }
    let mut found = Auth { reason, method: None, data: None, reason_string: None, user: Vec::new() };
    if reason == ReasonCode::Success && reader.is_empty() {
        return Ok(found);
    }
    property::read(reader, property::AUTH, |property, value| match (property, value) {
        (Property::AuthenticationMethod, Value::String(value)) => found.method = Some(value),
        (Property::AuthenticationData, Value::Binary(value)) => found.data = Some(value),
        (Property::ReasonString, Value::String(value)) => found.reason_string = Some(value),
        (Property::User, Value::Pair(name, value)) => found.user.push((name, value)),
        _ => {}
    })?;
    if found.method.is_none() {
        return Err(DecodeError::Protocol("an AUTH without a method"));
    }
    Ok(found)
}

/// A reason string and user properties.
pub(super) struct Explanation<'a>(pub(super) Option<&'a Utf8>, pub(super) &'a UserProperties);

impl Wire for Explanation<'_> {
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.string_property(Property::ReasonString, self.0);
        out.user_properties(self.1);
    }
}

impl Wire for Ack {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u16(self.packet_id.get());
        if version == Version::V311 {
            return;
        }
        let properties = self.properties.as_deref().filter(|(reason, user)| reason.is_some() || !user.is_empty());
        if properties.is_some() || self.reason != ReasonCode::Success {
            out.u8(self.reason.as_u8());
        }
        if let Some((reason_string, user)) = properties {
            out.properties(&Explanation(reason_string.as_ref(), user));
        }
    }
}

impl Wire for Disconnect {
    fn write(&self, version: Version, out: &mut impl Sink) {
        if version == Version::V311 {
            return;
        }
        let block = DisconnectProperties(self);
        let has_properties = block.wire_len(version) > 0;
        if has_properties || self.reason != ReasonCode::Success {
            out.u8(self.reason.as_u8());
        }
        if has_properties {
            out.properties(&block);
        }
    }
}

struct DisconnectProperties<'a>(&'a Disconnect);

impl Wire for DisconnectProperties<'_> {
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.u32_property(Property::SessionExpiry, self.0.session_expiry);
        out.string_property(Property::ReasonString, self.0.reason_string.as_ref());
        out.user_properties(&self.0.user);
        out.string_property(Property::ServerReference, self.0.server_reference.as_ref());
    }
}

impl Wire for Auth {
    fn write(&self, version: Version, out: &mut impl Sink) {
        let block = AuthProperties(self);
        if self.reason == ReasonCode::Success && block.wire_len(version) == 0 {
            return;
        }
        out.u8(self.reason.as_u8());
        out.properties(&block);
    }
}

struct AuthProperties<'a>(&'a Auth);

impl Wire for AuthProperties<'_> {
    fn write(&self, _: Version, out: &mut impl Sink) {
        out.string_property(Property::AuthenticationMethod, self.0.method.as_ref());
        out.binary_property(Property::AuthenticationData, self.0.data.as_ref());
        out.string_property(Property::ReasonString, self.0.reason_string.as_ref());
        out.user_properties(&self.0.user);
    }
}
