//! Refusals for the log: which client was refused what, why, and which key of the configuration decides.

use sedge_base::{ClientId, ConnId};
use sedge_mqtt::{LooksLike, ReasonCode};

use crate::session::SessionKey;
use crate::{Broker, Event, Output};

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The connection.
    pub conn: ConnId,
    /// Its address.
    pub peer: String,
    /// The client id, if it said one.
    pub client: Option<ClientId>,
    /// The user name that it has proven, else the one it says.
    pub user: Option<String>,
    /// Topic or filter, if it is about one.
    pub topic: Option<String>,
    /// Why.
    pub reason: ReasonCode,
    /// Why, in words.
    pub detail: String,
    /// The key of the configuration that decides; empty: none does.
    pub key: &'static str,
}

/// The other protocol that first bytes look like, in words.
pub(crate) fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match LooksLike::of(bytes)? {
        LooksLike::Tls => Some("this looks like TLS, and the listener has none"),
        LooksLike::Http => Some("this looks like HTTP, and the listener speaks MQTT without WebSocket"),
        LooksLike::Mqtt => None,
    }
}

impl Broker {
    /// Says that something of a connected client was refused, by the rule or limit of `key`.
    pub(crate) fn note_denied(
        &mut self,
        session: SessionKey,
        topic: &str,
        (reason, detail, key): (ReasonCode, &'static str, &'static str),
    ) {
        let Some(session) = self.sessions.get(session) else { return };
        let Some(connection) = session.connection.and_then(|key| self.connections.get(key)) else { return };
        let refusal = Refusal {
            conn: connection.id,
            peer: connection.peer.address.to_string(),
            client: Some(session.client.clone()),
            user: connection.peer.user.as_deref().map(str::to_owned),
            topic: Some(topic.to_owned()),
            reason,
            detail: detail.to_owned(),
            key,
        };
        self.outputs.push_back(Output::Event(Event::Denied(Box::new(refusal))));
    }
}
