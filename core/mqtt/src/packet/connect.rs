//! CONNECT and CONNACK.

use bytes::Bytes;

use super::{QoS, UserProperties, Version, detached};
use crate::{ReasonCode, TopicName, Utf8};

/// CONNECT (MQTT 5.0 section 3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Protocol version of all that follows on this connection.
    pub version: Version,
    /// The client is another broker's bridge: the highest bit of the protocol level, as Mosquitto sets it (`try_private`).
    pub bridge: bool,
    /// Clean Start (5.0) or Clean Session (3.1.1).
    pub clean_start: bool,
    /// Seconds of silence after which the client will have sent something; 0 for no limit.
    pub keep_alive: u16,
    /// Client identifier; empty asks the server for one.
    pub client_id: Utf8,
    /// Message to be published when the client is lost.
    pub will: Option<Box<Will>>,
    /// User name.
    pub username: Option<Utf8>,
    /// Password.
    pub password: Option<Bytes>,
    /// MQTT 5.0 properties.
    pub properties: ConnectProperties,
}

/// Properties of CONNECT (MQTT 5.0 section 3.1.2.11). `None` where the client sent nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectProperties {
    /// Seconds the session outlives the connection; `u32::MAX` for ever; absent is 0.
    pub session_expiry: Option<u32>,
    /// QoS 1 and 2 publications the client takes unacknowledged; never 0; absent is 65,535.
    pub receive_maximum: Option<u16>,
    /// Largest packet in bytes the client takes; never 0; absent is no limit.
    pub maximum_packet_size: Option<u32>,
    /// Highest topic alias the client takes; absent is 0, none.
    pub topic_alias_maximum: Option<u16>,
    /// Whether the server may send response information.
    pub request_response_information: Option<bool>,
    /// Whether reason strings and user properties may be sent on failures; absent is yes.
    pub request_problem_information: Option<bool>,
    /// User properties.
    pub user: UserProperties,
    /// Name of the extended authentication method.
    pub authentication_method: Option<Utf8>,
    /// Data of the extended authentication.
    pub authentication_data: Option<Bytes>,
}

/// Will message (MQTT 5.0 section 3.1.3.2 to 3.1.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Topic of the will message.
    pub topic: TopicName,
    /// Payload of the will message.
    pub payload: Bytes,
    /// Quality of service of the will message.
    pub qos: QoS,
    /// Whether the will message is retained.
    pub retain: bool,
    /// MQTT 5.0 properties.
    pub properties: WillProperties,
}

/// Properties of a will (MQTT 5.0 section 3.1.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WillProperties {
    /// Seconds between the loss of the connection and the publication; absent is 0.
    pub delay: Option<u32>,
    /// Whether the payload is UTF-8 text.
    pub payload_is_utf8: Option<bool>,
    /// Seconds the message lives once published.
    pub message_expiry: Option<u32>,
    /// MIME type of the payload.
    pub content_type: Option<Utf8>,
    /// Topic for a response.
    pub response_topic: Option<Utf8>,
    /// Data to recognise the response by.
    pub correlation_data: Option<Bytes>,
    /// User properties.
    pub user: UserProperties,
}

impl Will {
    /// A copy that shares no buffer with anything: a will is kept as long as the connection.
    #[must_use]
    pub fn detached(&self) -> Self {
        let properties = WillProperties {
            delay: self.properties.delay,
            payload_is_utf8: self.properties.payload_is_utf8,
            message_expiry: self.properties.message_expiry,
            content_type: self.properties.content_type.as_ref().map(Utf8::detached),
            response_topic: self.properties.response_topic.as_ref().map(Utf8::detached),
            correlation_data: self.properties.correlation_data.as_deref().map(Bytes::copy_from_slice),
            user: detached(&self.properties.user),
        };
        let payload = Bytes::copy_from_slice(&self.payload);
        Self { topic: self.topic.detached(), payload, qos: self.qos, retain: self.retain, properties }
    }
}

/// CONNACK (MQTT 5.0 section 3.2). In 3.1.1 the reason code is translated into the six return codes on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck {
    /// Whether the server kept a session for this client.
    pub session_present: bool,
    /// Success, or why the connection is refused.
    pub reason: ReasonCode,
    /// MQTT 5.0 properties.
    pub properties: ConnAckProperties,
}

/// Properties of CONNACK (MQTT 5.0 section 3.2.2.3). `None` leaves the property out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnAckProperties {
    /// Session expiry in seconds, where it differs from what the client asked for.
    pub session_expiry: Option<u32>,
    /// QoS 1 and 2 publications the server takes unacknowledged.
    pub receive_maximum: Option<u16>,
    /// Highest quality of service the server takes, if below 2.
    pub maximum_qos: Option<QoS>,
    /// Whether retained messages are available; absent is yes.
    pub retain_available: Option<bool>,
    /// Largest packet in bytes the server takes.
    pub maximum_packet_size: Option<u32>,
    /// Identifier the server chose for the client.
    pub assigned_client_id: Option<Utf8>,
    /// Highest topic alias the server takes.
    pub topic_alias_maximum: Option<u16>,
    /// Words for a person reading a log.
    pub reason_string: Option<Utf8>,
    /// User properties.
    pub user: UserProperties,
    /// Whether wildcard subscriptions are available; absent is yes.
    pub wildcard_subscription_available: Option<bool>,
    /// Whether subscription identifiers are available; absent is yes.
    pub subscription_ids_available: Option<bool>,
    /// Whether shared subscriptions are available; absent is yes.
    pub shared_subscription_available: Option<bool>,
    /// Keep alive in seconds that the client has to use instead of its own.
    pub server_keep_alive: Option<u16>,
    /// Base for response topics.
    pub response_information: Option<Utf8>,
    /// Another server to use.
    pub server_reference: Option<Utf8>,
    /// Name of the extended authentication method.
    pub authentication_method: Option<Utf8>,
    /// Data of the extended authentication.
    pub authentication_data: Option<Bytes>,
}
