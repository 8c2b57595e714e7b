//! Enhanced authentication: AUTH (MQTT 5.0 sections 3.15 and 4.12). The owner knows the meaning of the data; this module keeps the order of packets.

use bytes::Bytes;
use sedge_access::scram::Exchange;
use sedge_base::ConnId;
use sedge_mqtt::{Auth, Packet, ReasonCode, Utf8, Version, trim_to};

use crate::access::refused_for;
use crate::broker::Timer;
use crate::connection::{ConnKey, Phase};
use crate::disconnect::Ending;
use crate::process::Fault;
use crate::{Admission, Broker, Credentials, Method, Output};

/// How far an authentication has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// It is the owner's turn.
    Asked,
    /// It is the client's turn.
    Challenged(Box<Exchange>),
    /// The client is who it says; it may begin again.
    Done,
}

/// The authentication of a connection whose CONNECT names a method.
#[derive(Debug)]
pub(crate) struct Enhanced {
    /// For all of the connection (MQTT-4.12.0-5).
    pub(crate) method: Utf8,
    pub(crate) stage: Stage,
    /// Authentication data of the CONNACK.
    pub(crate) data: Option<Bytes>,
}

impl Enhanced {
    pub(crate) const fn new(method: Utf8) -> Self {
        Self { method, stage: Stage::Asked, data: None }
    }
}

impl Broker {
    /// The owner wants to know more of the client.
    pub(crate) fn on_challenge(&mut self, conn: ConnId, data: Bytes, exchange: Box<Exchange>) {
        let Some(key) = self.connections.key(conn) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(enhanced) = &mut connection.enhanced else { return };
        if !matches!(enhanced.stage, Stage::Asked) || !matches!(connection.phase, Phase::Authenticating | Phase::Live) {
            return;
        }
        enhanced.stage = Stage::Challenged(exchange);
        if self.send_auth(key, ReasonCode::ContinueAuthentication, Some(data))
            && let Some(connection) = self.connections.get_mut(key)
            && connection.phase == Phase::Authenticating
        {
            connection.release(&mut self.outputs);
            self.process(key);
        }
    }

    /// A packet between CONNECT and CONNACK: the client answers, or gives up (MQTT-3.1.2-30).
    pub(crate) fn on_packet_before_connack(&mut self, key: ConnKey, packet: Packet) -> Result<(), Fault> {
        if let Packet::Auth(auth) = packet {
            return self.on_auth(key, &auth);
        }
        let Packet::Disconnect(disconnect) = packet else {
            return Err(Fault(ReasonCode::ProtocolError, "neither AUTH nor DISCONNECT before CONNACK"));
        };
        self.end_connection(key, Ending::client(disconnect.reason));
        Ok(())
    }

    /// AUTH of a client: its next step, or the beginning of a re-authentication (section 4.12.1).
    pub(crate) fn on_auth(&mut self, key: ConnKey, auth: &Auth) -> Result<(), Fault> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let is_live = connection.phase == Phase::Live;
        let Some(enhanced) = &mut connection.enhanced else {
            return Err(Fault(ReasonCode::ProtocolError, "AUTH without an authentication method"));
        };
        if auth.method.as_ref() != Some(&enhanced.method) {
            return Err(Fault(ReasonCode::BadAuthenticationMethod, "not the authentication method of the CONNECT"));
        }
        let data = auth.data.clone().unwrap_or_default();
        match (auth.reason, core::mem::replace(&mut enhanced.stage, Stage::Asked)) {
            (ReasonCode::ContinueAuthentication, Stage::Challenged(exchange)) => {
                if !is_live {
                    connection.hold(&mut self.outputs);
                }
                self.outputs.push_back(Output::Proceed { conn: connection.id, data, exchange });
            }
            (ReasonCode::ReAuthenticate, Stage::Done) if is_live => {
                let method = Method { name: enhanced.method.as_str().to_owned(), data };
                self.timers.set(Timer::Proof(key), self.now.instant + self.config.connect_timeout);
                self.ask_again(key, method);
            }
            _ => return Err(Fault(ReasonCode::ProtocolError, "AUTH out of turn")),
        }
        Ok(())
    }

    fn ask_again(&mut self, key: ConnKey, method: Method) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(session) = connection.session.and_then(|session| self.sessions.get(session)) else { return };
        let credentials = Credentials {
            conn: connection.id,
            client: session.client.clone(),
            peer: connection.peer.address.to_string(),
            certificate: None,
            user: None,
            password: None,
            method: Some(method),
        };
        self.outputs.push_back(Output::Authenticate(Box::new(credentials)));
    }

    /// The owner's answer for a client that is connected. Whoever it was before it has to stay.
    pub(crate) fn on_authenticated_again(&mut self, key: ConnKey, answer: Result<Admission, ReasonCode>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(enhanced) = connection.enhanced.as_mut().filter(|enhanced| matches!(enhanced.stage, Stage::Asked))
        else {
            return;
        };
        let refusal = match answer {
            Ok(admission) if admission.identity.user == connection.peer.user => {
                enhanced.stage = Stage::Done;
                self.timers.cancel(&Timer::Proof(key));
                self.send_auth(key, ReasonCode::Success, admission.data);
                return;
            }
            Ok(_) => Ending::server(ReasonCode::NotAuthorized, "another user than the one that connected"),
            Err(reason) => refused_for(reason),
        };
        self.counters.authentications_refused += 1;
        self.end_connection(key, refusal);
    }

    /// The client has not finished to say again who it is.
    pub(crate) fn on_proof_timer(&mut self, key: ConnKey) {
        self.counters.authentications_refused += 1;
        self.end_connection(key, Ending::server(ReasonCode::NotAuthorized, "the authentication took too long"));
    }

    /// Says whether it fitted into the client's maximum packet size; if not, the connection has ended.
    fn send_auth(&mut self, key: ConnKey, reason: ReasonCode, data: Option<Bytes>) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let method = connection.enhanced.as_ref().map(|enhanced| enhanced.method.clone());
        let mut packet = Packet::Auth(Auth { reason, method, data, reason_string: None, user: Vec::new() });
        let limit = usize::try_from(connection.max_packet).unwrap_or(usize::MAX);
        let fits = trim_to(&mut packet, Version::V5, limit);
        if fits {
            connection.send(&packet, &mut self.counters, &mut self.outputs);
        } else {
            let detail = "AUTH is larger than the client takes";
            self.end_connection(key, Ending::server(ReasonCode::PacketTooLarge, detail));
        }
        fits
    }
}
