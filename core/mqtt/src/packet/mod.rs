//! The control packets of MQTT 3.1.1 and 5.0 as values. One type serves both versions: fields that 3.1.1 lacks are empty or zero.

mod ack;
mod connect;
mod kind;
mod publish;
mod subscribe;

pub use ack::{Ack, Auth, Disconnect};
pub use connect::{ConnAck, ConnAckProperties, Connect, ConnectProperties, Will, WillProperties};
pub use kind::PacketKind;
pub use publish::{Publish, PublishProperties};
pub use subscribe::{
    RetainHandling, SubAck, Subscribe, SubscriptionOptions, SubscriptionRequest, UnsubAck, Unsubscribe,
};

use crate::Utf8;

/// User properties (MQTT 5.0 section 3.1.2.11.8): any number, order kept, names may repeat.
pub type UserProperties = Vec<(Utf8, Utf8)>;

fn detached(properties: &UserProperties) -> UserProperties {
    properties.iter().map(|(name, value)| (name.detached(), value.detached())).collect()
}

/// Protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1.1 (protocol level 4).
    V311,
    /// MQTT 5.0 (protocol level 5).
    V5,
}

impl Version {
    /// The protocol level in CONNECT (MQTT 5.0 section 3.1.2.2).
    pub const fn level(self) -> u8 {
        match self {
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }
}

/// Quality of service (MQTT 5.0 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// Sent once, not acknowledged.
    #[default]
    AtMostOnce = 0,
    /// Sent until acknowledged.
    AtLeastOnce = 1,
    /// Acknowledged in two steps, delivered once.
    ExactlyOnce = 2,
}

impl QoS {
    /// 0, 1 or 2.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The quality of service with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// A non-zero packet identifier (MQTT 5.0 section 2.2.1).
pub type PacketId = core::num::NonZeroU16;

/// Any control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Client to server: opens the conversation.
    Connect(Box<Connect>),
    /// Server to client: answers CONNECT.
    ConnAck(Box<ConnAck>),
    /// An application message.
    Publish(Publish),
    /// Answers a QoS 1 PUBLISH.
    PubAck(Ack),
    /// First answer to a QoS 2 PUBLISH.
    PubRec(Ack),
    /// Answers PUBREC.
    PubRel(Ack),
    /// Answers PUBREL.
    PubComp(Ack),
    /// Client to server: asks for topic filters.
    Subscribe(Subscribe),
    /// Answers SUBSCRIBE.
    SubAck(SubAck),
    /// Client to server: gives topic filters up.
    Unsubscribe(Unsubscribe),
    /// Answers UNSUBSCRIBE.
    UnsubAck(UnsubAck),
    /// Client to server: are you there?
    PingReq,
    /// Answers PINGREQ.
    PingResp,
    /// Ends the conversation; from the server in MQTT 5.0 only.
    Disconnect(Disconnect),
    /// MQTT 5.0 only: extended authentication.
    Auth(Auth),
}
