//! The types of control packets.

use super::Packet;

/// Type of a control packet (MQTT 5.0 section 2.1.2); the number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// CONNECT.
    Connect = 1,
    /// CONNACK.
    ConnAck = 2,
    /// PUBLISH.
    Publish = 3,
    /// PUBACK.
    PubAck = 4,
    /// PUBREC.
    PubRec = 5,
    /// PUBREL.
    PubRel = 6,
    /// PUBCOMP.
    PubComp = 7,
    /// SUBSCRIBE.
    Subscribe = 8,
    /// SUBACK.
    SubAck = 9,
    /// UNSUBSCRIBE.
    Unsubscribe = 10,
    /// UNSUBACK.
    UnsubAck = 11,
    /// PINGREQ.
    PingReq = 12,
    /// PINGRESP.
    PingResp = 13,
    /// DISCONNECT.
    Disconnect = 14,
    /// AUTH; MQTT 5.0 only.
    Auth = 15,
}

impl PacketKind {
    /// The kind with this number, 1 to 15.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The number on the wire.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

impl Packet {
    /// The type of this packet.
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Connect(_) => PacketKind::Connect,
            Self::ConnAck(_) => PacketKind::ConnAck,
            Self::Publish(_) => PacketKind::Publish,
            Self::PubAck(_) => PacketKind::PubAck,
            Self::PubRec(_) => PacketKind::PubRec,
            Self::PubRel(_) => PacketKind::PubRel,
            Self::PubComp(_) => PacketKind::PubComp,
            Self::Subscribe(_) => PacketKind::Subscribe,
            Self::SubAck(_) => PacketKind::SubAck,
            Self::Unsubscribe(_) => PacketKind::Unsubscribe,
            Self::UnsubAck(_) => PacketKind::UnsubAck,
            Self::PingReq => PacketKind::PingReq,
            Self::PingResp => PacketKind::PingResp,
            Self::Disconnect(_) => PacketKind::Disconnect,
            Self::Auth(_) => PacketKind::Auth,
        }
    }
}
