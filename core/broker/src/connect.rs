//! CONNECT, client ids, and how connections find their sessions (MQTT 5.0 sections 3.1, 3.2 and 4.1).

use sedge_base::{ClientId, ConnId, Instant, Now};
use sedge_mqtt::{
    ConnAck, ConnAckProperties, Connect, Disconnect, Packet, ReasonCode, Utf8, Version, encoded_len, trim_to,
};

use crate::access::{BRIDGE_PREFIX, is_inside_id, refused_for};
use crate::api::TicketKind;
use crate::broker::Timer;
use crate::connection::{ConnKey, PendingConnect, Phase, Side};
use crate::disconnect::Ending;
use crate::process::Fault;
use crate::session::{PendingWill, SessionKey};
use crate::{Broker, BrokerConfig, Event, Identity, Output, SessionState};

/// Why a CONNECT cannot be taken, whatever session there is.
fn refusal(connect: &Connect, inside: bool, config: &BrokerConfig) -> Option<(ReasonCode, &'static str)> {
    if is_inside_id(connect.client_id.as_str()) != inside {
        return Some((
            ReasonCode::ClientIdentifierNotValid,
            "client ids that begin with $bridge/ or $rule/ belong to the broker",
        ));
    }
    if connect.will.as_ref().is_some_and(|will| config.owns(&will.topic)) {
        let reason = match connect.version {
            Version::V5 => ReasonCode::TopicNameInvalid,
            Version::V311 => ReasonCode::NotAuthorized,
        };
        return Some((reason, "the will's topic belongs to the broker"));
    }
    if connect.client_id.is_empty() && connect.version == Version::V311 && !connect.clean_start {
        return Some((ReasonCode::ClientIdentifierNotValid, "no client id, but a session to be kept"));
    }
    None
}

impl Broker {
    /// CONNECT: the client id has to become ours before it is answered.
    pub(crate) fn on_connect(&mut self, key: ConnKey, connect: Box<Connect>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.adopt(&connect, &self.config, self.seed);
        self.counters.connects += 1;
        let inside = connection.peer.side != Side::Outside;
        if inside && connect.client_id.as_str().starts_with(BRIDGE_PREFIX) {
            connection.peer.side = Side::Bridge;
        }
        let refused = refusal(&connect, inside, &self.config);
        let has_method = connect.properties.authentication_method.is_some();
        let assigned = connect.client_id.is_empty();
        let client = if assigned { self.new_client_id() } else { ClientId::new(&connect.client_id) };
        let expiry_secs = self.granted_expiry(&connect);
        let pending = PendingConnect { connect, client, assigned, ticket: 0, expiry_secs };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.pending = Some(Box::new(pending));
        if self.elsewhere.is_some() {
            return self.refuse_drained(key);
        }
        if has_method && !self.policy.authenticate {
            return self.end_connection(key, refused_for(ReasonCode::BadAuthenticationMethod));
        }
        if let Some((reason, detail)) = refused {
            return self.end_connection(key, Ending::server(reason, detail));
        }
        if let Some(ending) = self.refuse_session(key).filter(|_| !inside) {
            self.counters.refused_sessions += 1;
            return self.end_connection(key, ending);
        }
        if self.policy.authenticate && !inside {
            self.ask_who(key);
        } else {
            self.admit(key);
        }
    }

    /// Why a client may not have the session that it wants: one that it has is never refused.
    fn refuse_session(&self, key: ConnKey) -> Option<Ending> {
        let pending = self.connections.get(key)?.pending.as_ref()?;
        if pending.client.as_str().len() > self.config.max_client_id_bytes {
            let ending = Ending::server(ReasonCode::ClientIdentifierNotValid, "the client id is too long");
            return Some(ending.decided_by("limits.max_client_id_bytes"));
        }
        let sessions = self.counters.sessions + self.owners.sessions_elsewhere();
        let is_new = pending.expiry_secs > 0 && !self.clients.contains_key(&pending.client);
        (is_new && sessions >= self.config.max_sessions as u64).then(|| {
            let ending = Ending::server(ReasonCode::QuotaExceeded, "there are as many sessions as there may be");
            ending.decided_by("limits.max_sessions")
        })
    }

    /// Whether nobody vouches for the client of this connection.
    fn is_anonymous(&self, key: ConnKey) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|connection| connection.peer.user.is_none() && connection.peer.side != Side::Inside)
    }

    /// Longest session expiry of a client, in seconds.
    const fn longest_expiry(&self, is_anonymous: bool) -> u32 {
        let (all, anonymous) = (self.config.max_session_expiry, self.config.max_anonymous_session_expiry);
        if is_anonymous && anonymous < all { anonymous } else { all }
    }

    /// The client of a CONNECT is known: its id has to become ours before it is answered.
    pub(crate) fn admit(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(pending) = &connection.pending else { return };
        let (client, clean_start) = (pending.client.clone(), pending.connect.clean_start);
        let user = connection.peer.user.as_deref();
        if let Some(will) = &pending.connect.will
            && !self.may_leave_will(user, &client, &will.topic)
        {
            self.counters.refused_publications += 1;
            return self.end_connection(
                key,
                Ending::server(ReasonCode::NotAuthorized, "the will is not authorized").decided_by("acl.file"),
            );
        }
        if let Some(older) = self.connection_of(&client) {
            self.take_over(older);
        }
        let longest = self.longest_expiry(self.is_anonymous(key));
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(pending) = &mut connection.pending {
            pending.expiry_secs = pending.expiry_secs.min(longest);
        }
        connection.phase = Phase::Claiming;
        connection.hold(&mut self.outputs);
        let conn = connection.id;
        self.claims.insert(client.clone(), key);
        self.timers.set(Timer::Connection(key), self.now.instant + self.config.connect_timeout);
        self.outputs.push_back(Output::Claim { client, conn, clean_start });
    }

    /// Whether this connection waits for its client id to become ours: then it has as much time as if it had asked just now.
    pub fn goes_on_claiming(&mut self, now: Now, client: &ClientId, conn: ConnId) -> bool {
        let claiming = self.claims.get(client).copied().filter(|key| {
            let connection = self.connections.get(*key);
            connection.is_some_and(|connection| connection.id == conn && connection.phase == Phase::Claiming)
        });
        if let Some(key) = claiming {
            self.timers.set(Timer::Connection(key), now.instant + self.config.connect_timeout);
        }
        claiming.is_some()
    }

    /// Another connection of the same client has come (MQTT 5.0 section 3.1.4).
    pub(crate) fn take_over(&mut self, older: ConnKey) {
        self.counters.takeovers += 1;
        self.end_connection(older, Ending::server(ReasonCode::SessionTakenOver, "the client connected again"));
    }

    /// A random client id that belongs to this shard.
    fn new_client_id(&mut self) -> ClientId {
        let shards = u64::from(self.place.shards.max(1));
        loop {
            let client = ClientId::new(&format!("sedge-{:016x}", self.rng.next_u64()));
            let here = client.stable_hash() % shards == u64::from(self.place.shard.0) % shards;
            if here && self.connection_of(&client).is_none() && !self.clients.contains_key(&client) {
                return client;
            }
        }
    }

    /// Seconds the session will outlive this connection.
    fn granted_expiry(&self, connect: &Connect) -> u32 {
        let wanted = match connect.version {
            Version::V5 => connect.properties.session_expiry.unwrap_or(0),
            Version::V311 if connect.clean_start => 0,
            Version::V311 => u32::MAX,
        };
        wanted.min(self.config.max_session_expiry)
    }

    /// The client id is ours: gives the connection its session.
    pub(crate) fn on_claimed(
        &mut self,
        client: &ClientId,
        conn: Option<ConnId>,
        epoch: u64,
        state: Option<Box<SessionState>>,
    ) {
        let claiming = self.claims.get(client).copied().filter(|&key| {
            self.connections.get(key).is_some_and(|found| Some(found.id) == conn && found.phase == Phase::Claiming)
        });
        let Some(key) = claiming else { return self.claimed_for_nobody(client, epoch, state) };
        let pending = self.connections.get(key).and_then(|connection| connection.pending.as_ref());
        let clean = pending.is_none_or(|pending| pending.connect.clean_start);
        if clean && let Some(&old) = self.clients.get(client) {
            self.end_session(old, false);
        }
        let settles = match state.filter(|_| !clean) {
            Some(state) => {
                let has_subscriptions = !state.subscriptions.is_empty();
                self.install(*state, true);
                has_subscriptions
            }
            None => false,
        };
        if !self.clients.contains_key(client)
            && let Some(ending) = self.refuse_owner(key)
        {
            self.counters.refused_sessions += 1;
            self.end_connection(key, ending);
            return self.claimed_for_nobody(client, epoch, None);
        }
        let session_key = match self.clients.get(client) {
            Some(&key) => key,
            None => self.create_session(client.clone()),
        };
        self.timers.cancel(&Timer::Session(session_key));
        let Some(session) = self.sessions.get_mut(session_key) else { return };
        session.epoch = epoch;
        // The client is back before its will was due (MQTT 5.0 section 3.1.3.2.2).
        session.will = None;
        session.expires = Instant::NEVER;
        // The journal keeps messages, too, that arrive for a session from elsewhere while its routes settle.
        self.note_facts(session_key);
        let Some(session) = self.sessions.get(session_key) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.session = Some(session_key);
        connection.phase = Phase::Resuming;
        if settles {
            self.tickets = self.tickets.wrapping_add(1);
            let ticket = session.ticket(session_key, TicketKind::Resume, self.tickets);
            if let Some(pending) = &mut connection.pending {
                pending.ticket = self.tickets;
            }
            self.timers.set(Timer::Connection(key), self.now.instant + self.config.resume_timeout);
            self.announce_all(session_key, true, Some(ticket));
        } else {
            self.announce_shared(session_key, true);
            self.go_live(key);
        }
    }

    /// The connection that claimed is gone: the state of the client stays until it comes again.
    fn claimed_for_nobody(&mut self, client: &ClientId, epoch: u64, state: Option<Box<SessionState>>) {
        if let Some(state) = state {
            let key = self.install(*state, false);
            if let Some(session) = self.sessions.get_mut(key) {
                session.epoch = epoch;
            }
            self.note_facts(key);
            self.announce_all(key, false, None);
            self.on_session_timer(key);
            return;
        }
        match self.clients.get(client).and_then(|&key| self.sessions.get_mut(key)) {
            Some(session) => {
                session.epoch = session.epoch.max(epoch);
                if let Some(&key) = self.clients.get(client) {
                    self.note_facts(key);
                }
            }
            None => self.outputs.push_back(Output::Ended { client: client.clone(), epoch }),
        }
    }

    /// Routing towards a session from elsewhere has settled.
    pub(crate) fn on_resumed(&mut self, session: SessionKey, number: u32) {
        let Some(session) = self.sessions.get(session) else { return };
        let Some(&key) = self.claims.get(&session.client) else { return };
        let waits = self.connections.get(key).is_some_and(|connection| {
            connection.phase == Phase::Resuming
                && connection.pending.as_ref().is_some_and(|pending| pending.ticket == number)
        });
        if waits {
            self.go_live(key);
        }
    }

    /// CONNACK, then what waits for the client.
    pub(crate) fn go_live(&mut self, key: ConnKey) {
        let now = self.now.instant;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (Some(pending), Some(session_key)) = (connection.pending.take(), connection.session) else { return };
        let Some(session) = self.sessions.get_mut(session_key) else { return };
        self.claims.remove(&pending.client);
        let present = session.begun;
        session.begun = true;
        session.connection = Some(key);
        session.version = connection.version;
        session.expiry_secs = pending.expiry_secs;
        session.will = pending
            .connect
            .will
            .as_ref()
            .map(|will| Box::new(PendingWill { will: Box::new(will.detached()), due: None }));
        connection.phase = Phase::Live;
        connection.peer.live_since = self.now.instant;
        self.counters.connected += 1;
        connection.last_seen = now;
        self.note_facts(session_key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.patience() {
            Some(patience) => self.timers.set(Timer::Connection(key), now + patience),
            None => {
                self.timers.cancel(&Timer::Connection(key));
            }
        }
        self.counters.sessions_resumed += u64::from(present);
        let peer = connection.peer.address.to_string();
        let identity = Identity { user: connection.peer.user.clone() };
        self.identify(session_key, &identity);
        self.note_owner(session_key, key, pending.expiry_secs);
        self.send_connack(key, &pending, present);
        self.outputs.push_back(Output::Event(Event::Connected {
            client: pending.client,
            peer,
            session_present: present,
        }));
        if let Some(connection) = self.connections.get_mut(key) {
            connection.release(&mut self.outputs);
        }
        if let Some(mut link) = self.link(session_key) {
            link.pump();
        }
        self.process(key);
    }

    fn send_connack(&mut self, key: ConnKey, pending: &PendingConnect, session_present: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let config = &self.config;
        let wanted = pending.connect.properties.session_expiry.unwrap_or(0);
        let keep_alive = connection.keep_alive;
        let enhanced = connection.enhanced.as_deref_mut();
        let (method, data) = enhanced.map(|enhanced| (enhanced.method.clone(), enhanced.data.take())).unzip();
        let properties = if connection.version == Version::V5 {
            // The CONNACK leaves out properties of available features: absent means available, and more of the client's maximum packet size is left.
            ConnAckProperties {
                session_expiry: (wanted != pending.expiry_secs).then_some(pending.expiry_secs),
                receive_maximum: Some(config.receive_maximum.max(1)),
                maximum_packet_size: Some(config.max_packet_bytes.max(1)),
                assigned_client_id: pending.assigned.then(|| Utf8::new(pending.client.as_str()).unwrap_or_default()),
                topic_alias_maximum: Some(config.topic_alias_maximum),
                authentication_method: method,
                authentication_data: data.flatten(),
                server_keep_alive: (keep_alive != pending.connect.keep_alive).then_some(keep_alive),
                ..ConnAckProperties::default()
            }
        } else {
            ConnAckProperties::default()
        };
        let connack = ConnAck { session_present, reason: ReasonCode::Success, properties };
        let mut packet = Packet::ConnAck(Box::new(connack));
        let limit = usize::try_from(connection.max_packet).unwrap_or(usize::MAX);
        if !trim_to(&mut packet, connection.version, limit) && encoded_len(&packet, connection.version) > limit {
            let detail = "CONNACK is larger than the client takes";
            return self.end_connection(key, Ending::silent(ReasonCode::PacketTooLarge, detail));
        }
        connection.send(&packet, &mut self.counters, &mut self.outputs);
    }

    /// DISCONNECT of a client (MQTT 5.0 section 3.14).
    pub(crate) fn on_disconnect(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        disconnect: &Disconnect,
    ) -> Result<(), Fault> {
        let limit = self.longest_expiry(self.is_anonymous(key));
        if let (Some(expiry), Some(session)) = (disconnect.session_expiry, self.sessions.get_mut(session)) {
            if session.expiry_secs == 0 && expiry != 0 {
                return Err(Fault(ReasonCode::ProtocolError, "a session expiry where CONNECT had none"));
            }
            session.expiry_secs = expiry.min(limit);
        }
        self.end_connection(key, Ending::client(disconnect.reason));
        Ok(())
    }
}
