//! The end of connections (MQTT 5.0 sections 3.14 and 4.13).

use std::borrow::Cow;

use sedge_base::Duration;
use sedge_mqtt::{ConnAck, ConnAckProperties, Disconnect, Packet, PacketKind, ReasonCode, Utf8, Version, trim_to};

use crate::broker::Timer;
use crate::connection::{ConnKey, PendingConnect, Phase};
use crate::session::SessionKey;
use crate::{Broker, Event, InterestChange, InterestOp, Output, Refusal};

/// The side that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The broker, telling why where the version can.
    Server,
    /// The broker, without a word.
    Silent,
    /// The client by DISCONNECT.
    Client,
    /// The network: there is nothing left to close.
    Network,
}

/// Why and how a connection ends.
#[derive(Debug)]
pub(crate) struct Ending {
    reason: ReasonCode,
    detail: Cow<'static, str>,
    by: By,
    /// Where else the client may go (5.0).
    reference: Option<Utf8>,
    /// The key of the configuration that decides; empty: none does.
    key: &'static str,
}

impl Ending {
    pub(crate) fn server(reason: ReasonCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: detail.into(), by: By::Server, reference: None, key: "" }
    }

    pub(crate) fn shutdown(reference: Option<Utf8>) -> Self {
        Self { reference, ..Self::server(ReasonCode::ServerShuttingDown, "the server stops") }
    }

    pub(crate) fn elsewhere(reference: Option<Utf8>) -> Self {
        Self { reference, ..Self::server(ReasonCode::UseAnotherServer, "this node is being emptied") }
    }

    pub(crate) fn silent(reason: ReasonCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: detail.into(), by: By::Silent, reference: None, key: "" }
    }

    pub(crate) const fn client(reason: ReasonCode) -> Self {
        Self { reason, detail: Cow::Borrowed("the client disconnected"), by: By::Client, reference: None, key: "" }
    }

    /// The others took the node of this connection for dead; nothing is said on it any more.
    pub(crate) const fn taken_for_dead() -> Self {
        let detail = Cow::Borrowed("the node stood still, and the others took it for dead");
        Self { reason: ReasonCode::ServerBusy, detail, by: By::Network, reference: None, key: "" }
    }

    pub(crate) const fn lost() -> Self {
        let detail = Cow::Borrowed("the connection was lost");
        Self { reason: ReasonCode::UnspecifiedError, detail, by: By::Network, reference: None, key: "" }
    }

    /// The same, because of this key of the configuration.
    pub(crate) const fn decided_by(mut self, key: &'static str) -> Self {
        self.key = key;
        self
    }

    /// Only a client that says good-bye has its will forgotten (MQTT 5.0 section 3.1.2.5).
    fn forgets_will(&self) -> bool {
        self.by == By::Client && self.reason == ReasonCode::Success
    }
}

impl Broker {
    /// Ends a connection in whatever phase it is, and with it what its session owes to it.
    pub(crate) fn end_connection(&mut self, key: ConnKey, ending: Ending) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let phase = core::mem::replace(&mut connection.phase, Phase::Closing);
        if phase == Phase::Closing {
            if ending.by == By::Network {
                self.forget_connection(key);
            }
            return;
        }
        let session = connection.session.take();
        let was_parked = self.parked.remove(&key).is_some();
        let has_resumed = connection.peer.has_repeated && !was_parked;
        if connection.enhanced.is_some() {
            self.timers.cancel(&Timer::Proof(key));
        }
        if connection.peer.expires {
            self.timers.cancel(&Timer::Expiry(key));
        }
        self.open -= 1;
        self.counters.connections_closed += 1;
        self.counters.connected -= u64::from(phase == Phase::Live);
        self.say_good_bye(key, phase, &ending);
        let pending = self.forget_claim(key, phase);
        let expiry = pending.as_ref().map(|pending| pending.expiry_secs);
        let (by, forgets_will) = (ending.by, ending.forgets_will());
        self.note_end((key, phase), session, pending.as_deref(), ending);
        self.close(key, by);
        let Some(session_key) = session else { return };
        if let Some(session) = self.sessions.get_mut(session_key) {
            session.expiry_secs = expiry.unwrap_or(session.expiry_secs);
            if has_resumed {
                session.resumed = session.epoch;
            }
        }
        self.disconnect_session(session_key, forgets_will);
    }

    /// Tells the client why, where its version has a packet for it.
    fn say_good_bye(&mut self, key: ConnKey, phase: Phase, ending: &Ending) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if ending.by != By::Server {
            return;
        }
        let v5 = connection.version == Version::V5;
        if !v5 && (phase == Phase::Live || !has_return_code(ending.reason)) {
            return;
        }
        let reason_string =
            Utf8::new(&ending.detail).ok().filter(|_| connection.problem_information && !ending.detail.is_empty());
        let limit = usize::try_from(connection.max_packet).unwrap_or(usize::MAX);
        // A client without room for the way elsewhere is told at least that it has to go.
        for reference in [ending.reference.clone().filter(|_| v5), None] {
            let mut packet = good_bye(phase, ending.reason, reason_string.clone(), reference);
            if trim_to(&mut packet, connection.version, limit) {
                return connection.send(&packet, &mut self.counters, &mut self.outputs);
            }
        }
    }

    /// Forgets a CONNECT that got no CONNACK, and returns it.
    fn forget_claim(&mut self, key: ConnKey, phase: Phase) -> Option<Box<PendingConnect>> {
        if phase != Phase::Live {
            self.counters.connections_refused += 1;
        }
        let pending = self.connections.get_mut(key)?.pending.take()?;
        if self.claims.get(&pending.client) == Some(&key) {
            self.claims.remove(&pending.client);
        }
        Some(pending)
    }

    fn note_end(
        &mut self,
        (key, phase): (ConnKey, Phase),
        session: Option<SessionKey>,
        pending: Option<&PendingConnect>,
        ending: Ending,
    ) {
        // A peer that only looks whether the port is open is not worth a line.
        if phase == Phase::Opening && ending.by == By::Network {
            return;
        }
        let Some(connection) = self.connections.get(key) else { return };
        let client = session.and_then(|key| self.sessions.get(key)).map(|session| session.client.clone());
        let (reason, detail) = (ending.reason, ending.detail.into_owned());
        let event = if let Some(client) = client.filter(|_| phase == Phase::Live) {
            Event::Disconnected { client, reason, detail }
        } else {
            let named = || pending?.connect.username.as_ref().map(|user| user.as_str().to_owned());
            Event::Refused(Box::new(Refusal {
                conn: connection.id,
                peer: connection.peer.address.to_string(),
                client: pending.filter(|pending| !pending.assigned).map(|pending| pending.client.clone()),
                user: connection.peer.user.as_deref().map(str::to_owned).or_else(named),
                topic: None,
                reason,
                detail,
                key: ending.key,
            }))
        };
        self.outputs.push_back(Output::Event(event));
    }

    /// Closes the connection itself. Its last bytes stay for a moment.
    fn close(&mut self, key: ConnKey, by: By) {
        if by == By::Network {
            self.forget_connection(key);
            return;
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.outputs.push_back(Output::Close { conn: connection.id });
        if connection.outbox.is_empty() {
            self.forget_connection(key);
            return;
        }
        connection.retire(self.config.max_packet_bytes);
        self.timers.set(Timer::Connection(key), self.now.instant + self.config.close_timeout);
    }

    /// Forgets a connection that is closed.
    pub(crate) fn forget_connection(&mut self, key: ConnKey) {
        self.timers.cancel(&Timer::Connection(key));
        self.timers.cancel(&Timer::Pause(key));
        let freed = self.connections.remove(key);
        self.counters.outbox_bytes -= freed as u64;
    }

    /// The session has lost its connection: it ends, or waits for its client.
    fn disconnect_session(&mut self, key: SessionKey, forget_will: bool) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.connection = None;
        session.disconnected_at = now.wall;
        session.inflight.disconnect();
        if let Some(inbound) = &mut session.inbound {
            inbound.disconnect();
        }
        session.inbound.take_if(|inbound| inbound.is_idle());
        if forget_will {
            session.will = None;
        }
        if session.expiry_secs == 0 {
            return self.end_session(key, true);
        }
        if let Some(mut link) = self.link(key) {
            link.queue_backlog();
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !self.config.queue_qos0_offline && session.queue.qos0() > 0 {
            let is_waiting = |item: &crate::outgoing::Outgoing| item.qos != sedge_mqtt::QoS::AtMostOnce;
            self.counters.dropped.offline_qos0 += session.queue.retain(&mut self.counters, is_waiting);
        }
        session.queue.iter_mut().for_each(crate::outgoing::Outgoing::keep);
        let expiry = session.expiry_secs;
        session.expires_in(now.instant, Duration::from_secs(u64::from(expiry)));
        self.schedule_will(key);
        self.note_facts(key);
        self.set_session_timer(key);
        self.announce_shared(key, false);
    }

    /// Tells those who route that the members of shared subscriptions come or go (MQTT 5.0 section 4.8.2).
    pub(crate) fn announce_shared(&mut self, key: SessionKey, online: bool) {
        let Some(session) = self.sessions.get(key) else { return };
        let shared = session.subscriptions.iter().filter(|subscription| subscription.is_shared());
        let op = InterestOp::Add { retained: false, online };
        let changes: Vec<_> =
            shared.map(|subscription| InterestChange { filter: subscription.filter.clone(), op }).collect();
        if !changes.is_empty() {
            let client = session.client.clone();
            self.outputs.push_back(Output::Interest { client, changes, ticket: None });
        }
    }
}

/// The packet that ends a connection in this phase.
fn good_bye(phase: Phase, reason: ReasonCode, reason_string: Option<Utf8>, server_reference: Option<Utf8>) -> Packet {
    let reason = if server_reference.is_some() { ReasonCode::UseAnotherServer } else { reason };
    if phase == Phase::Live {
        let reason = for_packet(reason, PacketKind::Disconnect);
        return Packet::Disconnect(Disconnect { reason_string, server_reference, ..Disconnect::new(reason) });
    }
    let properties = ConnAckProperties { reason_string, server_reference, ..ConnAckProperties::default() };
    let reason = for_packet(reason, PacketKind::ConnAck);
    Packet::ConnAck(Box::new(ConnAck { session_present: false, reason, properties }))
}

/// The reason itself where the standard lists it for the packet, else what comes closest (MQTT 5.0 section 2.4).
fn for_packet(reason: ReasonCode, kind: PacketKind) -> ReasonCode {
    if reason.valid_for(kind) && (reason.is_error() || kind != PacketKind::ConnAck) {
        reason
    } else if reason == ReasonCode::ServerShuttingDown {
        ReasonCode::ServerUnavailable
    } else {
        ReasonCode::UnspecifiedError
    }
}

/// Whether a 3.1.1 client learns something from the CONNACK return code (3.1.1 section 3.2.2.3).
const fn has_return_code(reason: ReasonCode) -> bool {
    let is_told = matches!(
        reason,
        ReasonCode::ServerUnavailable
            | ReasonCode::ServerBusy
            | ReasonCode::QuotaExceeded
            | ReasonCode::UseAnotherServer
    );
    is_told || reason.v311_connect_code() != 3
}
