//! Lines of the log about clients and other nodes: at level info as far as the limit allows, at level debug beyond it.

use sedge_base::ConnId;
use sedge_broker::{Event, Refusal};
use sedge_cluster::NodeEvent;
use sedge_mqtt::{LooksLike, ReasonCode};
use tracing::field::display;

use super::Worker;
use crate::runtime::{EventKind, Happened, LineKind};
use crate::transport::{Fault, Listener, Peer};

/// A line at level info if `$allowed`, else at level debug.
macro_rules! line {
    ($allowed:expr, $($line:tt)*) => {
        if $allowed {
            tracing::info!($($line)*);
        } else {
            tracing::debug!($($line)*);
        }
    };
}

/// Protocol that the first bytes look like, where a listener with layers does not understand them.
pub(super) fn hint(listener: Option<&Listener>, bytes: &[u8]) -> Option<&'static str> {
    let protocol = listener?.protocol;
    match (LooksLike::of(bytes)?, protocol.is_tls(), protocol.is_websocket()) {
        (LooksLike::Mqtt, true, _) => Some("this looks like MQTT without TLS"),
        (LooksLike::Mqtt, false, true) => Some("this looks like MQTT without WebSocket"),
        (LooksLike::Http, true, _) => Some("this looks like HTTP without TLS"),
        (LooksLike::Tls, false, _) => Some("this looks like TLS, and the listener has none"),
        (LooksLike::Mqtt | LooksLike::Http, false, _) | (LooksLike::Tls, true, _) => None,
    }
}

fn some(key: &str) -> Option<&str> {
    (!key.is_empty()).then_some(key)
}

impl Worker {
    pub(super) fn log_client(&mut self, event: Event) {
        self.note_client(&event);
        match event {
            Event::Connected { client, peer, session_present } => {
                line!(self.may_log(LineKind::Connected), %client, peer, session_present, "client connected");
            }
            Event::Disconnected { client, reason, detail } => {
                line!(self.may_log(LineKind::Disconnected), %client, ?reason, detail, "client disconnected");
            }
            Event::Refused(refusal) => self.log_refused(&refusal),
            Event::Denied(refusal) => self.log_denied(&refusal),
        }
    }

    /// Keeps an event for those who watch the node.
    fn note(&self, kind: EventKind, describe: impl FnOnce() -> Happened) {
        self.shared.events.note(kind, self.now.instant, self.now.wall.as_millis(), describe);
    }

    fn note_client(&self, event: &Event) {
        match event {
            Event::Connected { client, peer, session_present } => self.note(EventKind::Connected, || {
                let text = if *session_present { "connected, and found its session" } else { "connected" };
                Happened::new(EventKind::Connected, false, text).of(Some(client.as_str()), Some(peer))
            }),
            Event::Disconnected { client, reason, detail } => self.note(EventKind::Disconnected, || {
                let text = format!("disconnected: {reason:?}, {detail}");
                Happened::new(EventKind::Disconnected, false, &text).of(Some(client.as_str()), None)
            }),
            Event::Refused(refusal) => self.note_refusal(EventKind::Refused, refusal),
            Event::Denied(refusal) => self.note_refusal(EventKind::Denied, refusal),
        }
    }

    fn note_refusal(&self, kind: EventKind, refusal: &Refusal) {
        let Refusal { conn: _, peer, client, user: _, topic, reason, detail, key: _ } = refusal;
        self.note(kind, || {
            let topic = topic.as_deref().map_or_else(String::new, |topic| format!(", topic {topic}"));
            let text = format!("{}: {reason:?}, {detail}{topic}", kind.name());
            Happened::new(kind, true, &text).of(client.as_ref().map(sedge_base::ClientId::as_str), Some(peer))
        });
    }

    fn log_refused(&mut self, refusal: &Refusal) {
        let Refusal { conn, peer, client, user, topic: _, reason, detail, key } = refusal;
        let allowed = self.may_log(LineKind::Refused);
        let accounts = self.shared.gate.account_keys();
        let decides: &str = if *reason == ReasonCode::BadUserNameOrPassword { &accounts } else { key };
        let (client, user, listener) = (client.as_ref().map(display), user.as_ref().map(display), self.entrance(*conn));
        line!(allowed, peer, listener, client, user, ?reason, detail, key = some(decides), "client refused");
    }

    fn log_denied(&mut self, refusal: &Refusal) {
        let Refusal { conn, peer, client, user, topic, reason, detail, key } = refusal;
        let allowed = self.may_log(LineKind::Denied);
        let (client, user, listener) = (client.as_ref().map(display), user.as_ref().map(display), self.entrance(*conn));
        let topic = topic.as_deref();
        line!(allowed, peer, listener, client, user, topic, ?reason, detail, key = some(key), "request refused");
    }

    /// A connection that came to nothing below MQTT. Its peer is known until it has a client.
    pub(super) fn log_fault(&mut self, listener: u16, peer: Option<Peer>, fault: &Fault, hint: Option<&'static str>) {
        let allowed = self.may_log(LineKind::Refused);
        self.note(EventKind::Refused, || {
            let peer = peer.as_ref().map(ToString::to_string);
            Happened::new(EventKind::Refused, true, &format!("refused: {fault}")).of(None, peer.as_deref())
        });
        let (listener, peer) = (self.listener_name(listener), peer.map(display));
        line!(allowed, peer, listener, cause = %fault, hint, key = some(fault.key()), "connection refused");
    }

    /// A connection that did not say who it is in time.
    pub(super) fn log_late(&mut self, conn: ConnId) {
        let Some((listener, peer)) = self.clients.greeting_of(conn) else { return };
        let allowed = self.may_log(LineKind::Refused);
        let (listener, key) = (self.listener_name(listener), "limits.connect_timeout");
        line!(allowed, %peer, listener, cause = "no complete CONNECT came in time", key, "connection refused");
    }

    /// The name of the listener through which a connection came.
    fn entrance(&mut self, conn: ConnId) -> Option<&str> {
        let number = self.clients.get_mut(conn)?.listener;
        self.listener_name(number)
    }

    fn listener_name(&self, number: u16) -> Option<&str> {
        self.shared.listeners.get(usize::from(number)).map(|listener| listener.name.as_str())
    }

    pub(super) fn log_node(&mut self, event: &NodeEvent) {
        let NodeEvent { warning, message } = event;
        self.note(EventKind::Cluster, || Happened::new(EventKind::Cluster, *warning, message));
        match (self.may_log(LineKind::Cluster), *warning) {
            (true, true) => tracing::warn!("{message}"),
            (true, false) => tracing::info!("{message}"),
            (false, _) => tracing::debug!("{message}"),
        }
    }

    pub(super) fn may_log(&mut self, kind: LineKind) -> bool {
        let allowed = self.log.allows(kind, self.now.instant);
        self.stats.log_suppressed = self.log.suppressed();
        allowed
    }
}
