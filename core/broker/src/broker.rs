//! The machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{
    BufferPool, ClientId, ConnId, Deadlines, Duration, Incarnation, Instant, LookupMap, NodeId, Now, Outbox, Rng, Seed,
    ShardId, Timestamp,
};
use sedge_mqtt::{Packet, PacketId, ReasonCode, SubscriptionTrie, Utf8};
use slab::Slab;

use crate::awaited::Awaited;
use crate::chunks::{Chunks, SharedBuffers};
use crate::clock::Clock;
use crate::closed::Closed;
use crate::connection::{ConnKey, Connection, Connections, Fresh, Phase, Side};
use crate::disconnect::Ending;
use crate::fanout::Scratch;
use crate::given::GivenAway;
use crate::group::Groups;
use crate::hot::HotTopics;
use crate::journal::Journal;
use crate::latency::{Latencies, Sampler};
use crate::merge::Merged;
use crate::outgoing::Outgoing;
use crate::owners::Owners;
use crate::room::free;
use crate::send::little_waits;
use crate::session::{Session, SessionKey};
use crate::subscription::Granted;
use crate::throttle::Throttle;
use crate::trace::Tracer;
use crate::watched::WatchedTopics;
use crate::withdrawn::Withdrawn;
use crate::{BrokerConfig, Counters, Input, Output, Policy, PublishRate, SessionBrief, SessionInfo};

/// Most addresses in one server reference.
const REFERENCES_MAX: usize = 4;

/// A server reference of some addresses (MQTT 5.0 section 4.11), beginning with another one for each client, so that not all go to the
/// same.
fn reference(elsewhere: &[Utf8], first: usize) -> Option<Utf8> {
    let rotated = elsewhere.iter().cycle().skip(first % elsewhere.len().max(1));
    let some: Vec<&str> = rotated.take(elsewhere.len().min(REFERENCES_MAX)).map(Utf8::as_str).collect();
    Utf8::new(&some.join(" ")).ok().filter(|text| !text.is_empty())
}

/// Where a broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Which shard of it.
    pub shard: ShardId,
    /// How many shards the node has; a client belongs to shard `stable_hash % shards`.
    pub shards: u16,
}

/// Bytes of emptied outboxes that are kept for the next: as many as one turn of a busy shard fills.
const SPARE_BYTES: usize = 1024 * 1024;

/// The owner of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection: CONNECT, claim, resumption or keep alive, by its phase.
    Connection(ConnKey),
    /// A connection whose client publishes too fast.
    Pause(ConnKey),
    /// A session without connection: will and expiry.
    Session(SessionKey),
    /// A connection whose client proves again who it is.
    Proof(ConnKey),
    /// A connection that may last only so long.
    Expiry(ConnKey),
    /// Nobody has looked at the tree of topics for long.
    Watched,
}

/// MQTT semantics of one shard: feed it [`Input`]s, then take [`Output`]s until there are none.
#[derive(Debug)]
pub struct Broker {
    pub(crate) config: BrokerConfig,
    pub(crate) policy: Policy,
    pub(crate) place: Place,
    pub(crate) rng: Rng,
    pub(crate) seed: Seed,
    pub(crate) clock: Clock,
    /// Time of the present call.
    pub(crate) now: Now,
    pub(crate) connections: Connections,
    /// Connections that are not [`Phase::Closing`].
    pub(crate) open: usize,
    /// Boxed: a slab grows by doubling, and most of it would be unused room.
    pub(crate) sessions: Slab<Box<Session>>,
    pub(crate) clients: LookupMap<ClientId, SessionKey>,
    /// The users that the sessions belong to.
    pub(crate) owners: Owners,
    /// Connections between CONNECT and CONNACK.
    pub(crate) claims: LookupMap<ClientId, ConnKey>,
    pub(crate) subscriptions: SubscriptionTrie<SessionKey, Granted>,
    pub(crate) groups: Groups,
    pub(crate) timers: Deadlines<Timer>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) merged: Merged,
    pub(crate) withdrawn: Withdrawn,
    /// By connection, one packet each that waits for another owner's session, which may tell what it is about.
    pub(crate) parked: BTreeMap<ConnKey, Packet>,
    /// Whether no packets of clients are taken: see [`Broker::stand_still`].
    pub(crate) stands_still: bool,
    /// QoS 2 publications that clients have completed while their sessions are held back; for each at most as many as there are packet
    /// identifiers.
    pub(crate) released: BTreeSet<(SessionKey, PacketId)>,
    pub(crate) given: GivenAway,
    pub(crate) buffers: BufferPool,
    pub(crate) chunks: Chunks,
    /// Number of the last ticket for a subscription or resumption.
    pub(crate) tickets: u32,
    /// Generation of the last session.
    pub(crate) generation: u32,
    /// Records that have to be written down, if the broker has a journal.
    pub(crate) journal: Option<Box<Journal>>,
    /// Whether there is no room to write more down.
    pub(crate) full: bool,
    /// Topics for which there is no room.
    pub(crate) closed: Closed,
    /// Publications whose acknowledgement waits for a part of the process.
    pub(crate) awaited: Awaited,
    /// Whether new outboxes keep back what is written.
    pub(crate) holds: bool,
    /// Nobody may connect; where they can go instead.
    pub(crate) elsewhere: Option<Arc<[Utf8]>>,
    /// While a trace runs.
    pub(crate) tracer: Option<Box<Tracer>>,
    /// Which deliveries and which acknowledgements are measured.
    pub(crate) sampled_deliveries: Sampler,
    pub(crate) sampled_acks: Sampler,
    pub(crate) latencies: Latencies,
    /// While somebody looks at the busiest topics.
    pub(crate) hot: Option<Box<HotTopics>>,
    /// While somebody looks at the tree of topics.
    pub(crate) watched: Option<Box<WatchedTopics>>,
}

impl Broker {
    /// A broker without connections and sessions. `rng` chooses client ids and hash seeds.
    pub fn new(mut config: BrokerConfig, place: Place, mut rng: Rng) -> Self {
        config.receive_maximum = config.receive_maximum.max(1);
        config.max_inflight = config.max_inflight.max(1);
        let seed = Seed::from_rng(&mut rng);
        let closed = Closed::new(&config.awaits);
        // Measuring must not change the random numbers of anything else.
        let mut sampling = rng.clone();
        Self {
            config,
            policy: Policy::default(),
            place,
            rng,
            seed,
            clock: Clock::new(place),
            now: Now::default(),
            connections: Connections::new(seed),
            open: 0,
            sessions: Slab::new(),
            clients: LookupMap::new(seed),
            owners: Owners::default(),
            claims: LookupMap::new(seed),
            subscriptions: SubscriptionTrie::with_seed(seed),
            groups: Groups::new(seed),
            timers: Deadlines::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            scratch: Scratch::default(),
            merged: Merged::default(),
            withdrawn: Withdrawn::default(),
            parked: BTreeMap::new(),
            stands_still: false,
            released: BTreeSet::new(),
            given: GivenAway::new(),
            buffers: BufferPool::new(SPARE_BYTES),
            chunks: Chunks::default(),
            tickets: 0,
            generation: 0,
            journal: None,
            full: false,
            closed,
            awaited: Awaited::default(),
            holds: false,
            elsewhere: None,
            tracer: None,
            sampled_deliveries: Sampler::new(sampling.split(1)),
            sampled_acks: Sampler::new(sampling.split(2)),
            latencies: Latencies::default(),
            hot: None,
            watched: None,
        }
    }

    /// Takes an event in. Events about unknown connections, clients and tickets are ignored.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        match input {
            Input::Opened { conn, peer, user, rate, inside } => {
                let side = if inside { Side::Inside } else { Side::Outside };
                self.on_opened(conn, (peer, side), user, rate);
            }
            Input::Authenticated { conn, answer } => self.on_authenticated(conn, answer),
            Input::Challenge { conn, data, exchange } => self.on_challenge(conn, data, exchange),
            Input::Policy(policy) => self.on_policy(policy),
            Input::ClosedTopics(filters) => self.on_closed_topics(filters),
            Input::Census(census) => self.on_census(*census),
            Input::Revoke { users } => self.on_revoke(&users),
            Input::Received { conn, bytes } => self.on_received(conn, bytes),
            Input::Written { conn, bytes } => self.on_written(conn, bytes),
            Input::Closed { conn } => self.on_closed(conn),
            Input::Drain(elsewhere) => self.on_drain(elsewhere),
            Input::Leave { client, if_away, to } => self.on_leave(client, if_away, to),
            Input::Claimed { client, conn, epoch, session } => self.on_claimed(&client, conn, epoch, session),
            Input::Relinquish { client, epoch, clean_start } => self.on_relinquish(client, epoch, clean_start),
            Input::Settled { ticket, retained } => self.on_settled(ticket, retained),
            Input::Accepted { ticket, reason } => self.on_accepted(ticket, reason),
            Input::Inside { queues, awaits } => self.on_inside(queues, awaits),
            Input::Arrived { session, ids } => self.on_arrived(&session, &ids),
            Input::Deliver(deliver) => self.deliver(deliver),
            Input::Report(report) => self.on_report(report),
            Input::Kick { client, reason, end_session } => self.on_kick(&client, reason, end_session),
            Input::Shutdown { elsewhere } => self.on_shutdown(&elsewhere),
        }
        if little_waits(&self.counters) {
            self.chunks.release();
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some(timer) = self.timers.pop_due(now.instant) {
            match timer {
                Timer::Connection(key) => self.on_connection_timer(key),
                Timer::Pause(key) => self.on_pause_over(key),
                Timer::Session(key) => self.on_session_timer(key),
                Timer::Proof(key) => self.on_proof_timer(key),
                Timer::Expiry(key) => self.on_expiry_timer(key),
                Timer::Watched => self.watched = None,
            }
        }
    }

    /// The next thing to do, `None` if there is nothing for now.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Broker::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Bytes that a connection has to write; the owner says how many of them were written with [`Input::Written`] and does not advance the outbox
    /// itself. `None` if the connection is forgotten: it is closed and all is written.
    pub fn outbox(&mut self, conn: ConnId) -> Option<&mut Outbox> {
        let key = self.connections.key(conn)?;
        let connection = self.connections.get_mut(key)?;
        connection.transmitting = false;
        Some(&mut connection.outbox)
    }

    /// Whether a client waits for its CONNACK and has sent nothing behind its CONNECT.
    pub fn waits_for_connack(&self, conn: ConnId) -> bool {
        let connection = self.connections.key(conn).and_then(|key| self.connections.get(key));
        connection.is_some_and(|connection| {
            matches!(connection.phase, Phase::Claiming | Phase::Authenticating) && connection.decoder.buffered() == 0
        })
    }

    /// Whether anything was put into the outbox of a connection since the last call that may leave only when the journal has what
    /// the broker has written down: acknowledgements, and messages that were published with QoS 1 or 2, whatever QoS they are
    /// delivered with. Publications with QoS 0, refusals of others, and answers to pings need not wait.
    pub fn take_dependence(&mut self, conn: ConnId) -> bool {
        let connection = self.connections.key(conn).and_then(|key| self.connections.get_mut(key));
        let taken = connection.map(|connection| core::mem::replace(&mut connection.fresh, Fresh::Free));
        taken != Some(Fresh::Free)
    }

    /// Whether what is written from here on is kept back in the outboxes until [`Outbox::allow`] says otherwise.
    pub fn hold_outboxes(&mut self, hold: bool) {
        self.holds = hold;
        for connection in self.connections.iter_mut() {
            if hold { connection.outbox.hold() } else { connection.outbox.let_go() }
        }
    }

    /// The number of the last publication that was made here; 0 if there was none.
    pub const fn last_made(&self) -> u64 {
        self.clock.last()
    }

    /// Everything that was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long the oldest message waits that a connected client has not got yet; zero: none waits. Stored messages count for nothing: they
    /// are as old as their topic. One look at each session.
    pub fn queue_age(&self, now: Timestamp) -> Duration {
        if self.counters.queued_messages == 0 {
            return Duration::ZERO;
        }
        let connected = self.sessions.iter().filter(|(_, session)| session.connection.is_some());
        let first =
            |session: &Session| session.queue.iter().find(|item| !item.retain).map(|item| item.message.stamp.millis);
        let oldest = connected.filter_map(|(_, session)| first(session)).min();
        oldest.map_or(Duration::ZERO, |millis| Duration::from_millis(now.as_millis().saturating_sub(millis)))
    }

    /// How long the oldest message of this client's session waits that the client has not acknowledged, and how old it is if those that were
    /// retained count, too; zero: there is none.
    pub fn oldest_wait(&self, client: &ClientId, now: Timestamp) -> (Duration, Duration) {
        let session = self.clients.get(client).and_then(|key| self.sessions.get(*key));
        let age = |item: &Outgoing| Duration::from_millis(now.as_millis().saturating_sub(item.message.stamp.millis));
        let first = |live: bool| {
            let counts = |item: &&Outgoing| !live || !item.retain;
            let sent = session.and_then(|session| session.inflight.messages().find(counts));
            let queued = session.and_then(|session| session.queue.iter().find(counts));
            sent.into_iter().chain(queued).map(age).max().unwrap_or_default()
        };
        (first(true), first(false))
    }

    /// The buffers that messages share while they wait for their acknowledgements.
    pub fn shared_buffers(&self) -> SharedBuffers {
        self.chunks.status()
    }

    /// All sessions, in an order that depends only on the inputs.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.sessions.iter().map(|(_, session)| self.describe(session))
    }

    /// At most `limit` sessions from the place `from` on, 0 being the first, in an order that depends only on the inputs; and the place
    /// to go on from, if there may be more. Whatever comes and goes meanwhile, no session that stays is left out.
    pub fn sessions_from(&self, from: usize, limit: usize) -> (Vec<SessionInfo>, Option<usize>) {
        let mut found = Vec::new();
        for key in from..self.sessions.capacity() {
            if found.len() == limit {
                return (found, Some(key));
            }
            found.extend(self.sessions.get(key).map(|session| self.describe(session)));
        }
        (found, None)
    }

    /// Shows `visit` at most `limit` sessions from the place `from` on, as [`Broker::sessions_from`] goes through them; returns the place to
    /// go on from, if there may be more.
    pub fn survey<'a>(&'a self, from: usize, limit: usize, mut visit: impl FnMut(SessionBrief<'a>)) -> Option<usize> {
        let mut seen = 0;
        for key in from..self.sessions.capacity() {
            if seen == limit {
                return Some(key);
            }
            if let Some(session) = self.sessions.get(key) {
                let connection = session.connection.and_then(|key| self.connections.get(key));
                visit(SessionBrief::of(session, connection));
                seen += 1;
            }
        }
        None
    }

    /// The session of a client, `None` if it is not here.
    pub fn session(&self, client: &ClientId) -> Option<SessionInfo> {
        self.sessions.get(*self.clients.get(client)?).map(|session| self.describe(session))
    }

    fn describe(&self, session: &Session) -> SessionInfo {
        let connection = session.connection.and_then(|key| self.connections.get(key));
        SessionInfo::of(session, connection)
    }

    /// Number of open connections.
    pub const fn connections(&self) -> usize {
        self.open
    }

    fn on_opened(&mut self, conn: ConnId, (peer, side): (String, Side), user: Option<String>, rate: PublishRate) {
        if self.connections.key(conn).is_some() {
            return;
        }
        let mut connection = Connection::new(conn, peer, user, self.now.instant, &self.config);
        connection.peer.side = side;
        connection.throttle = Throttle::new(rate);
        if self.holds {
            connection.outbox.hold();
        }
        let key = self.connections.insert(connection);
        self.open += 1;
        self.counters.connections_opened += 1;
        self.timers.set(Timer::Connection(key), self.now.instant + self.config.connect_timeout);
    }

    fn on_written(&mut self, conn: ConnId, bytes: usize) {
        let Some(key) = self.connections.key(conn) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (waiting, before) = (connection.outbox.len(), connection.outbox.footprint());
        connection.outbox.advance_into(bytes, &mut self.buffers);
        connection.note_written(bytes, self.now.instant, &mut self.latencies);
        self.counters.bytes_out += (waiting - connection.outbox.len()) as u64;
        self.counters.note_outbox(before, connection.outbox.footprint());
        if connection.phase == Phase::Closing {
            if connection.outbox.is_empty() {
                self.forget_connection(key);
            }
            return;
        }
        if connection.held {
            // Its packets are not read: that it reads ours is the only sign of life.
            connection.last_seen = self.now.instant;
        }
        let low = self.config.outbox_high_water / 2;
        if connection.phase != Phase::Live || connection.outbox.len() > low {
            return;
        }
        let Some(session) = connection.session else { return };
        if let Some(mut link) = self.link(session) {
            link.pump();
        }
        self.release_if_calm(key, session);
    }

    pub(crate) fn on_closed(&mut self, conn: ConnId) {
        let Some(key) = self.connections.key(conn) else { return };
        self.end_connection(key, Ending::lost());
    }

    fn on_kick(&mut self, client: &ClientId, reason: ReasonCode, end_session: bool) {
        if let Some(key) = self.connection_of(client) {
            let is_elsewhere = reason == ReasonCode::SessionTakenOver;
            let detail =
                if is_elsewhere { "the client has connected elsewhere" } else { "an operator ended the connection" };
            self.end_connection(key, Ending::server(reason, detail));
        }
        if end_session && let Some(&key) = self.clients.get(client) {
            self.end_session(key, true);
        }
    }

    fn on_shutdown(&mut self, elsewhere: &[Utf8]) {
        let keys: Vec<ConnKey> = self.connections.iter().map(|(key, _)| key).collect();
        for (at, key) in keys.into_iter().enumerate() {
            self.end_connection(key, Ending::shutdown(reference(elsewhere, at)));
        }
    }

    fn on_drain(&mut self, elsewhere: Option<Arc<[Utf8]>>) {
        self.elsewhere = elsewhere;
        if self.elsewhere.is_none() {
            return;
        }
        let waiting = self.connections.iter().filter(|(_, connection)| connection.pending.is_some());
        for key in waiting.map(|(key, _)| key).collect::<Vec<ConnKey>>() {
            self.refuse_drained(key);
        }
    }

    /// Sends a connection that has come to a drained node elsewhere.
    pub(crate) fn refuse_drained(&mut self, key: ConnKey) {
        let Some(elsewhere) = &self.elsewhere else { return };
        let references = reference(elsewhere, usize::try_from(self.counters.connections_closed).unwrap_or(0));
        self.end_connection(key, Ending::elsewhere(references));
    }

    fn on_leave(&mut self, client: ClientId, if_away: bool, to: Option<Utf8>) {
        let session = self.clients.get(&client).and_then(|&key| self.sessions.get(key));
        if let Some(live) = session.and_then(|session| session.connection) {
            if if_away {
                self.outputs.push_back(Output::Stays { client });
                return;
            }
            self.end_connection(live, Ending::elsewhere(to));
        }
        if self.clients.contains_key(&client) {
            self.outputs.push_back(Output::Leaves { client });
        }
    }

    /// The connection of a client, live or about to be.
    pub(crate) fn connection_of(&self, client: &ClientId) -> Option<ConnKey> {
        let live = || self.sessions.get(*self.clients.get(client)?)?.connection;
        self.claims.get(client).copied().or_else(live)
    }

    fn on_connection_timer(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get(key) else { return };
        match connection.phase {
            Phase::Opening => self.end_connection(
                key,
                Ending::silent(ReasonCode::UnspecifiedError, "no CONNECT came").decided_by("limits.connect_timeout"),
            ),
            Phase::Authenticating if connection.enhanced.is_some() => self.on_proof_timer(key),
            Phase::Authenticating => {
                self.end_connection(
                    key,
                    Ending::server(ReasonCode::ServerUnavailable, "nobody knows the accounts in time")
                        .decided_by("auth.timeout"),
                );
            }
            Phase::Claiming => {
                self.end_connection(key, Ending::server(ReasonCode::ServerUnavailable, "the cluster does not answer"));
            }
            Phase::Resuming => self.go_live(key),
            Phase::Live => self.check_keep_alive(key),
            Phase::Closing => self.forget_connection(key),
        }
    }

    /// The deadline is not moved with every packet: when it comes, this looks whether the client was heard meanwhile.
    fn check_keep_alive(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(patience) = connection.patience() else { return };
        // A client that waits for the cluster is not silent; one that reads nothing is.
        let reads = connection.outbox.len() <= self.config.outbox_high_water.min(free(&self.config, &self.counters));
        let waits = connection.held && reads;
        let heard = if waits { self.now.instant } else { connection.last_seen };
        if heard + patience > self.now.instant {
            self.timers.set(Timer::Connection(key), heard + patience);
            return;
        }
        self.counters.keep_alive_timeouts += 1;
        let detail = "silent for one and a half times the keep alive";
        self.end_connection(key, Ending::server(ReasonCode::KeepAliveTimeout, detail));
    }
}
