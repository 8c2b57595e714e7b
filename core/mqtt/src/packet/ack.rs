//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH.

use bytes::Bytes;

use super::{PacketId, UserProperties};
use crate::{ReasonCode, Utf8};

/// PUBACK, PUBREC, PUBREL or PUBCOMP (MQTT 5.0 sections 3.4 to 3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Packet identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// Always [`ReasonCode::Success`] in 3.1.1.
    pub reason: ReasonCode,
    /// Reason string and user properties; `None` where there are none, which costs nothing.
    pub properties: Option<Box<(Option<Utf8>, UserProperties)>>,
}

impl Ack {
    /// A plain acknowledgement with this reason.
    pub const fn new(packet_id: PacketId, reason: ReasonCode) -> Self {
        Self { packet_id, reason, properties: None }
    }
}

/// DISCONNECT (MQTT 5.0 section 3.14). In 3.1.1 it comes from the client only and carries nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Why.
    pub reason: ReasonCode,
    /// New session expiry in seconds; client to server only.
    pub session_expiry: Option<u32>,
    /// Words for a person reading a log.
    pub reason_string: Option<Utf8>,
    /// User properties.
    pub user: UserProperties,
    /// Another server to use; server to client only.
    pub server_reference: Option<Utf8>,
}

impl Disconnect {
    /// A plain DISCONNECT with this reason.
    pub const fn new(reason: ReasonCode) -> Self {
        Self { reason, session_expiry: None, reason_string: None, user: Vec::new(), server_reference: None }
    }
}

/// AUTH (MQTT 5.0 section 3.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Success, continue or re-authenticate.
    pub reason: ReasonCode,
    /// Name of the method.
    pub method: Option<Utf8>,
    /// Data of the method.
    pub data: Option<Bytes>,
    /// Words for a person reading a log.
    pub reason_string: Option<Utf8>,
    /// User properties.
    pub user: UserProperties,
}
