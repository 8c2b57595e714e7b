//! MQTT 5.0 properties (section 2.2.2.2): one table says what each is and where it may stand.

use bytes::Bytes;

use super::reader::Reader;
use super::sink::Sink;
use crate::{DecodeError, PacketKind, UserProperties, Utf8};

/// A set of places where a property may stand.
type Places = u32;

const fn place(kind: PacketKind) -> Places {
    1 << kind.as_u8()
}

/// The will in a CONNECT.
pub(super) const WILL: Places = 1;
pub(super) const CONNECT: Places = place(PacketKind::Connect);
pub(super) const CONNACK: Places = place(PacketKind::ConnAck);
pub(super) const PUBLISH: Places = place(PacketKind::Publish);
/// PUBACK, PUBREC, PUBREL and PUBCOMP.
pub(super) const ACK: Places =
    place(PacketKind::PubAck) | place(PacketKind::PubRec) | place(PacketKind::PubRel) | place(PacketKind::PubComp);
pub(super) const SUBSCRIBE: Places = place(PacketKind::Subscribe);
pub(super) const SUBACK: Places = place(PacketKind::SubAck);
pub(super) const UNSUBSCRIBE: Places = place(PacketKind::Unsubscribe);
pub(super) const UNSUBACK: Places = place(PacketKind::UnsubAck);
pub(super) const DISCONNECT: Places = place(PacketKind::Disconnect);
pub(super) const AUTH: Places = place(PacketKind::Auth);
const ANSWERS: Places = CONNACK | ACK | SUBACK | UNSUBACK | DISCONNECT | AUTH;
const ALL: Places = ANSWERS | CONNECT | WILL | PUBLISH | SUBSCRIBE | UNSUBSCRIBE;

/// Data type of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One byte, 0 or 1.
    Bool,
    U16,
    /// Two bytes, not 0.
    NonZeroU16,
    U32,
    /// Four bytes, not 0.
    NonZeroU32,
    /// Variable byte integer, not 0.
    NonZeroVarInt,
    String,
    Binary,
    StringPair,
}

/// Value of a property.
#[derive(Debug)]
pub(super) enum Value {
    Bool(bool),
    U16(u16),
    U32(u32),
    String(Utf8),
    Binary(Bytes),
    Pair(Utf8, Utf8),
}

struct Spec {
    property: Property,
    kind: Kind,
    places: Places,
}

macro_rules! properties {
    ($($name:ident = $id:literal $kind:ident $places:expr,)*) => {
        /// A property; the number is its identifier.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Property {
            $($name = $id,)*
        }

        const TABLE: &[Spec] = &[$(Spec { property: Property::$name, kind: Kind::$kind, places: $places },)*];
    };
}

properties! {
    PayloadIsUtf8 = 0x01 Bool PUBLISH | WILL,
    MessageExpiry = 0x02 U32 PUBLISH | WILL,
    ContentType = 0x03 String PUBLISH | WILL,
    ResponseTopic = 0x08 String PUBLISH | WILL,
    CorrelationData = 0x09 Binary PUBLISH | WILL,
    SubscriptionId = 0x0b NonZeroVarInt PUBLISH | SUBSCRIBE,
    SessionExpiry = 0x11 U32 CONNECT | CONNACK | DISCONNECT,
    AssignedClientId = 0x12 String CONNACK,
    ServerKeepAlive = 0x13 U16 CONNACK,
    AuthenticationMethod = 0x15 String CONNECT | CONNACK | AUTH,
    AuthenticationData = 0x16 Binary CONNECT | CONNACK | AUTH,
    RequestProblemInformation = 0x17 Bool CONNECT,
    WillDelay = 0x18 U32 WILL,
    RequestResponseInformation = 0x19 Bool CONNECT,
    ResponseInformation = 0x1a String CONNACK,
    ServerReference = 0x1c String CONNACK | DISCONNECT,
    ReasonString = 0x1f String ANSWERS,
    ReceiveMaximum = 0x21 NonZeroU16 CONNECT | CONNACK,
    TopicAliasMaximum = 0x22 U16 CONNECT | CONNACK,
    TopicAlias = 0x23 NonZeroU16 PUBLISH,
    MaximumQoS = 0x24 Bool CONNACK,
    RetainAvailable = 0x25 Bool CONNACK,
    User = 0x26 StringPair ALL,
    MaximumPacketSize = 0x27 NonZeroU32 CONNECT | CONNACK,
    WildcardSubscriptionAvailable = 0x28 Bool CONNACK,
    SubscriptionIdsAvailable = 0x29 Bool CONNACK,
    SharedSubscriptionAvailable = 0x2a Bool CONNACK,
}

impl Property {
    const fn bit(self) -> u64 {
        1 << self as u8
    }

    fn may_repeat(self, at: Places) -> bool {
        self == Self::User || (self == Self::SubscriptionId && at == PUBLISH)
    }
}

/// Reads a block of properties that stands at `at` and hands each to `set`. Says whether there were any.
pub(super) fn read(reader: &mut Reader, at: Places, mut set: impl FnMut(Property, Value)) -> Result<bool, DecodeError> {
    let len = usize::try_from(reader.var_int()?).unwrap_or(usize::MAX);
    let mut block = Reader::new(reader.take(len)?);
    let mut seen = 0;
    while !block.is_empty() {
        let id = block.var_int()?;
        let spec = TABLE.iter().find(|spec| spec.property as u32 == id && spec.places & at != 0);
        let spec = spec.ok_or(DecodeError::Malformed("a property that does not belong to this packet"))?;
        if seen & spec.property.bit() != 0 && !spec.property.may_repeat(at) {
            return Err(DecodeError::Protocol("a property occurs twice"));
        }
        seen |= spec.property.bit();
        set(spec.property, read_value(&mut block, spec)?);
    }
    Ok(seen != 0)
}

fn read_value(block: &mut Reader, spec: &Spec) -> Result<Value, DecodeError> {
    let value = match spec.kind {
        Kind::Bool => match block.u8()? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            _ => return Err(DecodeError::Protocol("a property that is neither 0 nor 1")),
        },
        Kind::U16 | Kind::NonZeroU16 => Value::U16(block.u16()?),
        Kind::U32 | Kind::NonZeroU32 => Value::U32(block.u32()?),
        Kind::NonZeroVarInt => Value::U32(block.var_int()?),
        Kind::String => Value::String(block.string()?),
        Kind::Binary => Value::Binary(block.binary()?),
        Kind::StringPair => Value::Pair(block.string()?, block.string()?),
    };
    let zero = matches!(value, Value::U16(0) | Value::U32(0));
    if zero && matches!(spec.kind, Kind::NonZeroU16 | Kind::NonZeroU32 | Kind::NonZeroVarInt) {
        let other = DecodeError::Protocol("a property that may not be 0 is 0");
        return Err(if spec.property == Property::TopicAlias { DecodeError::TopicAliasInvalid } else { other });
    }
    Ok(value)
}

/// A response topic has at least one character and no wildcard (MQTT 5.0 section 3.3.2.3.5).
pub(super) fn check_response_topic(topic: Option<&Utf8>) -> Result<(), DecodeError> {
    match topic {
        Some(topic) if topic.is_empty() => Err(DecodeError::Protocol("an empty response topic")),
        Some(topic) if topic.as_bytes().iter().any(|&byte| byte == b'+' || byte == b'#') => {
            Err(DecodeError::Protocol("a wildcard in the response topic"))
        }
        _ => Ok(()),
    }
}

/// Writes single properties; an absent one writes nothing.
pub(super) trait PropertySink: Sink {
    fn bool_property(&mut self, property: Property, value: Option<bool>) {
        if let Some(value) = value {
            self.u8(property as u8);
            self.u8(u8::from(value));
        }
    }

    fn u16_property(&mut self, property: Property, value: Option<u16>) {
        if let Some(value) = value {
            self.u8(property as u8);
            self.u16(value);
        }
    }

    fn u32_property(&mut self, property: Property, value: Option<u32>) {
        if let Some(value) = value {
            self.u8(property as u8);
            self.u32(value);
        }
    }

    fn subscription_id(&mut self, id: u32) {
        self.u8(Property::SubscriptionId as u8);
        self.var_int(usize::try_from(id).unwrap_or(usize::MAX));
    }

    fn string_property(&mut self, property: Property, value: Option<&Utf8>) {
        self.binary_property(property, value.map(Utf8::as_bytes));
    }

    fn binary_property(&mut self, property: Property, value: Option<&Bytes>) {
        if let Some(value) = value {
            self.u8(property as u8);
            self.binary(value);
        }
    }

    fn user_properties(&mut self, properties: &UserProperties) {
        for (name, value) in properties {
            self.user_property(name, value.as_bytes());
        }
    }

    fn user_property(&mut self, name: &str, value: &[u8]) {
        self.u8(Property::User as u8);
        self.binary(name.as_bytes());
        self.binary(value);
    }
}

impl<S: Sink> PropertySink for S {}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-14
    #[test]
    fn the_table_is_that_of_the_standard() {
        assert_eq!(TABLE.len(), 27);
        assert!(TABLE.is_sorted_by_key(|spec| spec.property as u8));
        let at = |place: Places| TABLE.iter().filter(|spec| spec.places & place != 0).count();
        assert_eq!(at(CONNECT), 9);
        assert_eq!(at(CONNACK), 17);
        assert_eq!(at(PUBLISH), 8);
        assert_eq!(at(WILL), 7);
        assert_eq!(at(place(PacketKind::PubRel)), 2);
        assert_eq!(at(SUBSCRIBE), 2);
        assert_eq!(at(SUBACK), 2);
        assert_eq!(at(UNSUBSCRIBE), 1);
        assert_eq!(at(UNSUBACK), 2);
        assert_eq!(at(DISCONNECT), 4);
        assert_eq!(at(AUTH), 4);
    }
}
