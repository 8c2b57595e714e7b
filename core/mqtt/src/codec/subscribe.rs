//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK (MQTT 5.0 sections 3.8 to 3.11).

use super::ack::{Explanation, read_explanation};
use super::property::{self, Property, PropertySink, Value};
use super::reader::Reader;
use super::reason;
use super::sink::{Sink, Wire};
use crate::{
    DecodeError, PacketKind, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscriptionOptions,
    SubscriptionRequest, UnsubAck, Unsubscribe, UserProperties, Version,
};

pub(super) fn read_subscribe(reader: &mut Reader, version: Version) -> Result<Subscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let (mut subscription_id, mut user) = (None, Vec::new());
    if version == Version::V5 {
        property::read(reader, property::SUBSCRIBE, |property, value| match (property, value) {
            (Property::SubscriptionId, Value::U32(value)) => subscription_id = Some(value),
            (Property::User, Value::Pair(name, value)) => user.push((name, value)),
            _ => {}
        })?;
    }
    let mut requests = Vec::new();
    while !reader.is_empty() {
        let filter = reader.topic_filter()?;
        let options = read_options(reader.u8()?, version)?;
        if options.no_local && filter.share_group().is_some() {
            return Err(DecodeError::Protocol("No Local on a shared subscription"));
        }
        requests.push(SubscriptionRequest { filter, options });
    }
    if requests.is_empty() {
        return Err(DecodeError::Protocol("a SUBSCRIBE without topic filter"));
    }
    Ok(Subscribe { packet_id, requests, subscription_id, user })
}

fn read_options(byte: u8, version: Version) -> Result<SubscriptionOptions, DecodeError> {
    let reserved = if version == Version::V5 { 0xc0 } else { 0xfc };
    if byte & reserved != 0 {
        return Err(DecodeError::Malformed("reserved bits of the subscription options are set"));
    }
    let qos = QoS::from_u8(byte & 3).ok_or(DecodeError::Protocol("a subscription of quality of service 3"))?;
    let retain_handling = match byte >> 4 & 3 {
        0 => RetainHandling::Send,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(DecodeError::Protocol("retain handling 3")),
    };
    Ok(SubscriptionOptions { qos, no_local: byte & 4 != 0, retain_as_published: byte & 8 != 0, retain_handling })
}

pub(super) fn read_suback(reader: &mut Reader, version: Version) -> Result<SubAck, DecodeError> {
    let packet_id = reader.packet_id()?;
    let (reason_string, user) =
        if version == Version::V5 { read_explanation(reader, property::SUBACK)? } else { (None, Vec::new()) };
    let reasons = read_reasons(reader, PacketKind::SubAck)?;
    let old = |reason: &ReasonCode| !reason.is_error() || *reason == ReasonCode::UnspecifiedError;
    if version == Version::V311 && !reasons.iter().all(old) {
        return Err(DecodeError::Malformed("a reserved return code"));
    }
    Ok(SubAck { packet_id, reasons, reason_string, user })
}

fn read_reasons(reader: &mut Reader, kind: PacketKind) -> Result<Vec<ReasonCode>, DecodeError> {
    let mut reasons = Vec::new();
    while !reader.is_empty() {
        reasons.push(reason(reader.u8()?, kind)?);
    }
    if reasons.is_empty() {
        return Err(DecodeError::Protocol("an answer without reason codes"));
    }
    Ok(reasons)
}

pub(super) fn read_unsubscribe(reader: &mut Reader, version: Version) -> Result<Unsubscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let user = if version == Version::V5 { read_explanation(reader, property::UNSUBSCRIBE)?.1 } else { Vec::new() };
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.topic_filter()?);
    }
    if filters.is_empty() {
        return Err(DecodeError::Protocol("an UNSUBSCRIBE without topic filter"));
    }
    Ok(Unsubscribe { packet_id, filters, user })
}

pub(super) fn read_unsuback(reader: &mut Reader, version: Version) -> Result<UnsubAck, DecodeError> {
    let packet_id = reader.packet_id()?;
    if version == Version::V311 {
        return Ok(UnsubAck { packet_id, reasons: Vec::new(), reason_string: None, user: Vec::new() });
    }
    let (reason_string, user) = read_explanation(reader, property::UNSUBACK)?;
    let reasons = read_reasons(reader, PacketKind::UnsubAck)?;
    Ok(UnsubAck { packet_id, reasons, reason_string, user })
}

impl Wire for Subscribe {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u16(self.packet_id.get());
        if version == Version::V5 {
            out.properties(&SubscribeProperties(self.subscription_id, &self.user));
        }
        for request in &self.requests {
            out.binary(request.filter.as_utf8().as_bytes());
            out.u8(options_of(request.options, version));
        }
    }
}

struct SubscribeProperties<'a>(Option<u32>, &'a UserProperties);

impl Wire for SubscribeProperties<'_> {
    fn write(&self, _: Version, out: &mut impl Sink) {
        if let Some(id) = self.0 {
            out.subscription_id(id);
        }
        out.user_properties(self.1);
    }
}

fn options_of(options: SubscriptionOptions, version: Version) -> u8 {
    let qos = options.qos.as_u8();
    if version == Version::V311 {
        return qos;
    }
    let flags = u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3;
    qos | flags | (options.retain_handling as u8) << 4
}

impl Wire for SubAck {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u16(self.packet_id.get());
        if version == Version::V5 {
            out.properties(&Explanation(self.reason_string.as_ref(), &self.user));
        }
        for reason in &self.reasons {
            let old = version == Version::V311 && reason.is_error();
            out.u8(if old { ReasonCode::UnspecifiedError } else { *reason }.as_u8());
        }
    }
}

impl Wire for Unsubscribe {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u16(self.packet_id.get());
        if version == Version::V5 {
            out.properties(&Explanation(None, &self.user));
        }
        for filter in &self.filters {
            out.binary(filter.as_utf8().as_bytes());
        }
    }
}

impl Wire for UnsubAck {
    fn write(&self, version: Version, out: &mut impl Sink) {
        out.u16(self.packet_id.get());
        if version == Version::V5 {
            out.properties(&Explanation(self.reason_string.as_ref(), &self.user));
            for reason in &self.reasons {
                out.u8(reason.as_u8());
            }
        }
    }
}
