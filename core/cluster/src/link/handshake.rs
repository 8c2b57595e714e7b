//! From a connection to an established link: CONNECT, AUTH, CONNACK (`docs/protocol/link.md`, "Handshake").

use core::net::SocketAddr;

use sedge_base::{Instant, NodeId};
use sedge_mqtt::{
    Auth, ConnAck, ConnAckProperties, Connect, ConnectProperties, Disconnect, Packet, QoS, ReasonCode, Utf8, Version,
};

use super::Protocol;
use super::auth::{NONCE_BYTES, PROOF_BYTES, Role, Transcript, method, nonce};
use super::binding::Binding;
use super::closing::Farewell;
use super::conn::Stage;
use super::greeting::{Greeting, node_of};
use super::lanes::CONNECTIONS_MAX;
use super::links::{INCOMPATIBLE_MAX, Incompatible, Links};
use super::notices::{Kind, quoted};
use crate::LinkId;

/// Why a handshake does not lead to a link.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: ReasonCode,
    pub(super) kind: Kind,
    /// For the other side, who may be a stranger.
    pub(super) words: &'static str,
    /// For our own log; empty where it is nobody's fault.
    pub(super) message: String,
}

impl Refusal {
    pub(super) const fn new(code: ReasonCode, kind: Kind, words: &'static str, message: String) -> Self {
        Self { code, kind, words, message }
    }
}

impl Links {
    /// Dialler: introduces this node.
    pub(super) fn send_connect(&mut self, now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get(&link) else { return };
        let (Some(node), binding, lane) = (conn.node, conn.binding, conn.lane) else { return };
        let Some(greeting) = self.greeting_for(node, lane) else { return };
        let authentication_data = self.fresh_nonce();
        let properties = ConnectProperties {
            maximum_packet_size: Some(self.config.max_packet_bytes),
            user: greeting.to_user(),
            authentication_method: authentication_data.as_ref().map(|_| Utf8::from_static(method(binding))),
            authentication_data,
            ..ConnectProperties::default()
        };
        let connect = Packet::Connect(Box::new(Connect {
            version: Version::V5,
            bridge: false,
            clean_start: true,
            keep_alive: u16::try_from(self.config.silence().as_secs() + 1).unwrap_or(u16::MAX),
            client_id: Utf8::new(&self.me.node.to_string()).unwrap_or_default(),
            will: None,
            username: None,
            password: None,
            properties,
        }));
        let mut transcript = Transcript::new(binding);
        transcript.packet(&connect);
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.last_heard = now;
        conn.announced = greeting.stream;
        conn.stage = Stage::AwaitAnswer(Box::new(transcript));
        conn.write(&connect);
        self.transmit(link);
    }

    /// Acceptor: somebody introduces itself.
    pub(super) fn on_connect(&mut self, now: Instant, link: LinkId, connect: Connect) {
        if connect.version != Version::V5 {
            return self.refuse_old_client(now, link);
        }
        let (greeting, is_keyed) = match self.judge_connect(link, &connect) {
            Ok(found) => found,
            Err(refusal) => return self.refuse(now, link, refusal),
        };
        let binding = self.binding(link);
        let mut transcript = Transcript::new(binding);
        transcript.packet(&Packet::Connect(Box::new(connect)));
        if !is_keyed {
            return self.accept(now, link, &greeting, None);
        }
        let (Some(nonce), Some(key)) = (self.fresh_nonce(), self.config.key.as_deref()) else { return };
        transcript.bytes(&nonce);
        let proof = transcript.prove(key, Role::Acceptor);
        let auth = auth_packet(binding, [&nonce[..], &proof[..]].concat());
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.stage = Stage::AwaitProof(Box::new((greeting, transcript)));
        conn.write(&auth);
    }

    /// Acceptor: the identity that the dialler claims, and whether it has to prove it.
    fn judge_connect(&self, link: LinkId, connect: &Connect) -> Result<(Greeting, bool), Refusal> {
        use ReasonCode as Code;
        let Some(conn) = self.conns.get(&link) else { return Err(busy()) };
        let addr = conn.peer_addr;
        let stranger = |code, detail: &str| {
            let message = format!("{addr} is no Sedge node: {detail}; clients belong to the MQTT port");
            Refusal::new(code, Kind::Stranger, "this port is for nodes of the cluster", message)
        };
        let node = node_of(&connect.client_id)
            .ok_or_else(|| stranger(Code::ClientIdentifierNotValid, "its client identifier is no node id"))?;
        if connect.username.is_some() || connect.password.is_some() || connect.will.is_some() {
            return Err(stranger(Code::ProtocolError, "it brings a user name, password or will"));
        }
        let greeting = Greeting::from_user(&connect.properties.user).map_err(|name| {
            stranger(Code::ProtocolError, &format!("the property {name} is missing or makes no sense"))
        })?;
        if greeting.hello.node != node {
            return Err(stranger(Code::ClientIdentifierNotValid, "it has two ids"));
        }
        self.judge_greeting(&greeting, &addr.to_string())?;
        if self.config.encrypted && conn.binding.is_none() && conn.carriage.is_none() {
            return Err(not_encrypted(node, addr));
        }
        let properties = &connect.properties;
        let key_refusal = |code, words, detail: &str| {
            Refusal::new(code, Kind::Key, words, format!("node {node} at {addr} was refused: {detail}"))
        };
        match (&self.config.key, &properties.authentication_method) {
            (Some(_), Some(found)) if found == method(conn.binding) => match &properties.authentication_data {
                Some(nonce) if nonce.len() == NONCE_BYTES => Ok((greeting, true)),
                _ => Err(stranger(Code::ProtocolError, "its nonce has the wrong size")),
            },
            (Some(_), Some(_)) => Err(stranger(Code::BadAuthenticationMethod, "its authentication method is unknown")),
            (Some(_), None) => Err(key_refusal(
                Code::BadAuthenticationMethod,
                "cluster.key is set here, but not at your end",
                "it has no cluster.key; set the same on all nodes",
            )),
            (None, Some(_)) => Err(key_refusal(
                Code::BadAuthenticationMethod,
                "cluster.key is set at your end, but not here",
                "it has a cluster.key, this node has none; set the same on all nodes",
            )),
            (None, None) if self.config.may_link(addr) => Ok((greeting, false)),
            (None, None) => Err(key_refusal(
                Code::NotAuthorized,
                "without cluster.key only loopback addresses are linked",
                "without cluster.key only loopback addresses are linked; set the same cluster.key on all nodes",
            )),
        }
    }

    /// Both sides: whether this node may be a neighbour at all.
    fn judge_greeting(&self, greeting: &Greeting, addr: &str) -> Result<(), Refusal> {
        use ReasonCode as Code;
        let node = greeting.hello.node;
        if !greeting.is_of(&self.config.cluster) {
            let (theirs, ours) = (quoted(&greeting.cluster), quoted(&self.config.cluster));
            let message =
                format!("node {node} at {addr} is of cluster {theirs}, this one of {ours}; set the same cluster.name");
            return Err(Refusal::new(Code::NotAuthorized, Kind::Cluster, "this node is of another cluster", message));
        }
        if greeting.overlay != self.config.overlay {
            let (theirs, ours) = (quoted(&greeting.overlay), quoted(&self.config.overlay));
            let message = format!(
                "node {node} at {addr} has the overlay {theirs}, this one {ours}; set the same cluster.overlay"
            );
            let words = "this node has another cluster.overlay";
            return Err(Refusal::new(Code::NotAuthorized, Kind::Overlay, words, message));
        }
        let ours = self.config.protocol;
        if ours.common(greeting.protocol).is_none() {
            let Protocol { version, since } = greeting.protocol;
            let message = format!(
                "node {node} at {addr} speaks link protocol {since} to {version}, this one {} to {}; upgrade the older",
                ours.since, ours.version
            );
            let words = "no common version of the link protocol";
            return Err(Refusal::new(Code::UnsupportedProtocolVersion, Kind::Version, words, message));
        }
        if node == self.me.node {
            let message = if greeting.hello.incarnation == self.me.incarnation {
                format!("this node has linked itself over {addr}; leave its own address out of the seeds")
            } else {
                format!("{addr} has the id {node} of this node; give each node its own data directory")
            };
            let words = "this node has the same id";
            return Err(Refusal::new(Code::ClientIdentifierNotValid, Kind::Identity, words, message));
        }
        Ok(())
    }

    /// Acceptor: the dialler's proof.
    pub(super) fn on_proof(&mut self, now: Instant, link: LinkId, auth: &Auth, held: (Greeting, Transcript)) {
        let (greeting, mut transcript) = held;
        let node = greeting.hello.node;
        let Some(key) = self.config.key.as_deref() else { return };
        let binding = self.binding(link);
        match auth_data(binding, auth, PROOF_BYTES) {
            Some(proof) if transcript.verify(key, Role::Dialler, proof) => {
                transcript.bytes(proof);
                self.accept(now, link, &greeting, Some(transcript));
            }
            Some(_) => self.refuse(now, link, wrong_key(node, binding)),
            None => {
                let message = format!("node {node} sent an AUTH that makes no sense");
                let words = "an AUTH that makes no sense";
                self.refuse(now, link, Refusal::new(ReasonCode::ProtocolError, Kind::Stranger, words, message));
            }
        }
    }

    /// Acceptor: the dialler is who it says to be.
    fn accept(&mut self, now: Instant, link: LinkId, greeting: &Greeting, transcript: Option<Transcript>) {
        let node = greeting.hello.node;
        let admitted =
            if greeting.lane > 0 { self.admit_lane(now, link, greeting) } else { self.admit(now, link, greeting) };
        if let Err(refusal) = admitted {
            return self.refuse(now, link, refusal);
        }
        let Some(reply) = self.greeting_for(node, greeting.lane) else { return };
        let binding = self.binding(link);
        let method = transcript.as_ref().map(|_| Utf8::from_static(method(binding)));
        let mut connack = Packet::ConnAck(Box::new(ConnAck {
            session_present: false,
            reason: ReasonCode::Success,
            properties: ConnAckProperties {
                maximum_qos: Some(QoS::AtMostOnce),
                maximum_packet_size: Some(self.config.max_packet_bytes),
                user: reply.to_user(),
                authentication_method: method,
                ..ConnAckProperties::default()
            },
        }));
        if let (Some(mut transcript), Some(key)) = (transcript, self.config.key.as_deref()) {
            transcript.packet(&connack);
            let proof = transcript.prove(key, Role::Accepted);
            if let Packet::ConnAck(connack) = &mut connack {
                connack.properties.authentication_data = Some(proof);
            }
        }
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.write(&connack);
        if greeting.lane > 0 {
            return self.establish_lane(now, link, node);
        }
        self.establish(now, link, greeting);
    }

    /// Dialler: the acceptor's proof.
    pub(super) fn on_challenge(&mut self, now: Instant, link: LinkId, auth: &Auth, mut transcript: Transcript) {
        let Some((node, binding)) = self.conns.get(&link).and_then(|conn| Some((conn.node?, conn.binding))) else {
            return;
        };
        let data = auth_data(binding, auth, NONCE_BYTES + PROOF_BYTES);
        let (Some(data), Some(key)) = (data, self.config.key.as_deref()) else {
            let message = format!("node {node} sent an AUTH that makes no sense");
            let words = "an AUTH that makes no sense";
            return self.give_up(now, link, Refusal::new(ReasonCode::ProtocolError, Kind::Stranger, words, message));
        };
        let (nonce, proof) = data.split_at(NONCE_BYTES);
        transcript.bytes(nonce);
        if !transcript.verify(key, Role::Acceptor, proof) {
            return self.give_up(now, link, wrong_key(node, binding));
        }
        let proof = transcript.prove(key, Role::Dialler);
        transcript.bytes(&proof);
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.stage = Stage::AwaitVerdict(Box::new(transcript));
        conn.write(&auth_packet(binding, proof.to_vec()));
    }

    /// Dialler: the acceptor's verdict. `proven` holds what was said if the acceptor has proven itself before.
    pub(super) fn on_connack(&mut self, now: Instant, link: LinkId, connack: ConnAck, proven: Option<Transcript>) {
        if connack.reason.is_error() {
            return self.on_refused(now, link, &connack);
        }
        match self.judge_connack(link, connack, proven).and_then(|greeting| {
            let is_lane = self.conns.get(&link).is_some_and(|conn| conn.lane > 0);
            let admit = if is_lane { Self::admit_lane } else { Self::admit };
            let is_renewed = admit(self, now, link, &greeting)?;
            Ok((greeting, is_renewed))
        }) {
            Ok((greeting, _)) if greeting.lane > 0 => self.establish_lane(now, link, greeting.hello.node),
            // The acceptor was told of a stream that is no more: once again, with the new one.
            Ok((greeting, true)) => self.retry_at_once(now, link, greeting.hello.node),
            Ok((greeting, false)) => self.establish(now, link, &greeting),
            Err(refusal) => self.give_up(now, link, refusal),
        }
    }

    fn judge_connack(&self, link: LinkId, connack: ConnAck, proven: Option<Transcript>) -> Result<Greeting, Refusal> {
        let Some((conn, expected)) = self.conns.get(&link).and_then(|conn| Some((conn, conn.node?))) else {
            return Err(busy());
        };
        let addr = conn.peer_addr;
        let greeting = Greeting::from_user(&connack.properties.user);
        if let Some(key) = self.config.key.as_deref()
            && !is_proven(key, connack, proven)
        {
            return Err(wrong_key(expected, conn.binding));
        }
        let greeting = greeting.map_err(|name| {
            let message = format!("{addr} is no Sedge node: the property {name} is missing or makes no sense");
            Refusal::new(ReasonCode::ProtocolError, Kind::Stranger, "a property is missing", message)
        })?;
        self.judge_greeting(&greeting, &addr.to_string())?;
        let found = greeting.hello.node;
        if found != expected {
            let message = format!("node {found} answers at {addr}, where node {expected} was");
            return Err(Refusal::new(ReasonCode::UseAnotherServer, Kind::Identity, "another node was meant", message));
        }
        let announced = self.peers.get(&expected).map(|peer| peer.channel.stream);
        if announced == Some(conn.announced) { Ok(greeting) } else { Err(busy()) }
    }

    /// Dialler: the acceptor does not want the link.
    fn on_refused(&mut self, now: Instant, link: LinkId, connack: &ConnAck) {
        let Some(conn) = self.conns.get(&link) else { return };
        let (node, addr) = (conn.node.unwrap_or(self.me.node), conn.peer_addr);
        let (code, words) = (connack.reason, connack.properties.reason_string.clone().unwrap_or_default());
        if code != ReasonCode::ServerBusy {
            self.count_refusal(words.contains("cluster.key"));
            let code = code.as_u8();
            let message = format!("node {node} at {addr} refused the link (0x{code:02x}): {}", quoted(words.as_str()));
            if connack.reason == ReasonCode::UnsupportedProtocolVersion {
                self.note_incompatible(link, &message);
            }
            self.warn(now, Kind::Refused, || message);
        }
        self.close(now, link, Farewell::Silence, "refused".to_owned());
    }

    /// Both sides: a DISCONNECT before the link was established.
    pub(super) fn on_early_disconnect(&mut self, now: Instant, link: LinkId, disconnect: &Disconnect) {
        let Some(conn) = self.conns.get(&link) else { return };
        if disconnect.reason == ReasonCode::NotAuthorized
            && let Some(node) = conn.node.filter(|_| !conn.dialled)
        {
            self.counters.auth_failures += 1;
            let message = wrong_key(node, conn.binding).message;
            self.warn(now, Kind::Key, || message);
        }
        self.close(now, link, Farewell::Silence, "the other side gave up".to_owned());
    }

    /// Acceptor: no link.
    fn refuse(&mut self, now: Instant, link: LinkId, refusal: Refusal) {
        if refusal.kind == Kind::Version {
            self.note_incompatible(link, &refusal.message);
        }
        self.tell(now, refusal.kind, refusal.message);
        if let Some(conn) = self.conns.get_mut(&link) {
            let properties = ConnAckProperties {
                reason_string: Some(Utf8::from_static(refusal.words)),
                ..ConnAckProperties::default()
            };
            let connack = ConnAck { session_present: false, reason: refusal.code, properties };
            conn.write(&Packet::ConnAck(Box::new(connack)));
        }
        self.close(now, link, Farewell::Flush, refusal.words.to_owned());
    }

    /// Dialler: no link.
    fn give_up(&mut self, now: Instant, link: LinkId, refusal: Refusal) {
        if refusal.kind == Kind::Version {
            self.note_incompatible(link, &refusal.message);
        }
        self.tell(now, refusal.kind, refusal.message);
        let code = if refusal.code.valid_for(sedge_mqtt::PacketKind::Disconnect) {
            refusal.code
        } else {
            ReasonCode::ImplementationSpecificError
        };
        self.close(now, link, Farewell::Fault(code, refusal.words), refusal.words.to_owned());
    }

    fn refuse_old_client(&mut self, now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let (addr, reason) = (conn.peer_addr, ReasonCode::UnsupportedProtocolVersion);
        let connack = ConnAck { session_present: false, reason, properties: ConnAckProperties::default() };
        conn.write_as(&Packet::ConnAck(Box::new(connack)), Version::V311);
        self.tell(
            now,
            Kind::Stranger,
            format!("{addr} is no Sedge node, but a client; clients belong to the MQTT port"),
        );
        self.close(now, link, Farewell::Flush, "an MQTT 3.1.1 client".to_owned());
    }

    /// Keeps in mind, for the status, that a node of another version wants a link.
    fn note_incompatible(&mut self, link: LinkId, why: &str) {
        let Some(conn) = self.conns.get(&link) else { return };
        let Some(node) = conn.node.filter(|node| *node != self.me.node) else { return };
        if self.incompatible.len() < INCOMPATIBLE_MAX || self.incompatible.contains_key(&node) {
            self.incompatible.insert(node, Incompatible { address: conn.peer_addr, why: why.to_owned() });
        }
    }

    fn tell(&mut self, now: Instant, kind: Kind, message: String) {
        if !message.is_empty() {
            self.count_refusal(matches!(kind, Kind::Key | Kind::Encryption));
            self.warn(now, kind, || message);
        }
    }

    const fn count_refusal(&mut self, is_key: bool) {
        if is_key {
            self.counters.auth_failures += 1;
        } else {
            self.counters.handshakes_refused += 1;
        }
    }

    /// The greeting of this node to another.
    fn greeting_for(&self, node: NodeId, lane: u8) -> Option<Greeting> {
        let channel = &self.peers.get(&node)?.channel;
        Some(Greeting {
            hello: self.me,
            cluster: self.config.cluster.clone(),
            overlay: self.config.overlay.clone(),
            protocol: self.config.protocol,
            stream: channel.stream,
            received: channel.progress(),
            connections: if self.config.protocol.version < Protocol::SECOND { 1 } else { CONNECTIONS_MAX },
            lane,
        })
    }

    fn binding(&self, link: LinkId) -> Option<Binding> {
        self.conns.get(&link)?.binding
    }

    fn fresh_nonce(&mut self) -> Option<bytes::Bytes> {
        let key = self.config.key.as_deref()?;
        self.nonces += 1;
        Some(nonce(key, &self.me, &mut self.rng, self.nonces))
    }
}

/// There is a better link, or there will be: not worth a word.
pub(super) const fn busy() -> Refusal {
    Refusal::new(ReasonCode::ServerBusy, Kind::Refused, "there is a link already", String::new())
}

fn wrong_key(node: NodeId, binding: Option<Binding>) -> Refusal {
    // Over an encrypted connection the same key gives another proof at each end if somebody sits between them.
    let between = if binding.is_some() { ", or somebody is between it and this node" } else { "" };
    let message = format!("node {node} has another cluster.key{between}; set the same on all nodes");
    Refusal::new(ReasonCode::NotAuthorized, Kind::Key, "cluster.key differs", message)
}

fn not_encrypted(node: NodeId, addr: SocketAddr) -> Refusal {
    let message = format!(
        "node {node} at {addr} was refused: its link is plain, those of this node are encrypted; set cluster.key and cluster.encryption alike on all nodes"
    );
    let words = "links are encrypted here; set cluster.key and cluster.encryption alike on all nodes";
    Refusal::new(ReasonCode::NotAuthorized, Kind::Encryption, words, message)
}

fn auth_packet(binding: Option<Binding>, data: Vec<u8>) -> Packet {
    Packet::Auth(Auth {
        reason: ReasonCode::ContinueAuthentication,
        method: Some(Utf8::from_static(method(binding))),
        data: Some(data.into()),
        reason_string: None,
        user: Vec::new(),
    })
}

/// The data of an AUTH that holds nothing else, if they have this size.
fn auth_data(binding: Option<Binding>, auth: &Auth, size: usize) -> Option<&[u8]> {
    let is_bare = auth.reason == ReasonCode::ContinueAuthentication
        && auth.method.as_ref().is_some_and(|found| found == method(binding))
        && auth.reason_string.is_none()
        && auth.user.is_empty();
    auth.data.as_deref().filter(|data| is_bare && data.len() == size)
}

/// Whether a CONNACK carries the proof that belongs to it.
fn is_proven(key: &[u8], mut connack: ConnAck, said: Option<Transcript>) -> bool {
    let (Some(mut transcript), Some(proof)) = (said, connack.properties.authentication_data.take()) else {
        return false;
    };
    transcript.packet(&Packet::ConnAck(Box::new(connack)));
    transcript.verify(key, Role::Accepted, &proof)
}
