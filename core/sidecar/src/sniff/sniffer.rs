//! All connections of a broker, as they pass by.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{Deadlines, Duration, Instant};
use sedge_mqtt::{Publish, TopicFilter};

use super::client::{Act, Client, Lost};
use super::segment::{Segment, SegmentError};

/// Time for which a connection that has ended is remembered: a part of it may come again.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Limits of a [`Sniffer`], and the connections that it looks for.
#[derive(Clone, Debug)]
pub struct SniffConfig {
    /// Addresses at which clients reach the broker.
    pub addresses: Vec<SocketAddr>,
    /// Prefix of the client identifiers of all nodes' own connections to brokers.
    pub own_prefix: String,
    /// Connections that are followed; more are not, and count as blind.
    pub connections: usize,
    /// Sessions of clients, those without a connection included; more are not kept.
    pub sessions: usize,
    /// Filters of all sessions together; more are not kept, and count.
    pub filters: usize,
}

impl Default for SniffConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            own_prefix: String::new(),
            connections: 20_000,
            sessions: 100_000,
            filters: 1_000_000,
        }
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SniffCounters {
    /// Segments of connections with the broker.
    pub segments: u64,
    /// Fragments and packets that make no sense.
    pub malformed: u64,
    /// Connections seen from their beginning.
    pub connections: u64,
    /// Connections that are not followed, or not any more: first seen in the middle, with a hole, or no MQTT.
    pub blind: u64,
    /// Of these, connections that had a hole: something was not captured.
    pub holes: u64,
    /// Connections with TLS.
    pub encrypted: u64,
    /// Connections of nodes.
    pub own: u64,
    /// Publications of clients.
    pub publications: u64,
    /// Filters without room.
    pub filters_dropped: u64,
}

impl SniffCounters {
    /// All counters by name, in a fixed order.
    pub const fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("segments", self.segments),
            ("malformed", self.malformed),
            ("connections", self.connections),
            ("blind", self.blind),
            ("holes", self.holes),
            ("encrypted", self.encrypted),
            ("own", self.own),
            ("publications", self.publications),
            ("filters_dropped", self.filters_dropped),
        ]
    }
}

/// An order of a [`Sniffer`] to its owner.
#[derive(Debug)]
pub enum SniffOutput {
    /// A client has published this; its topic is there.
    Publish(Box<Publish>),
    /// Whether clients of the broker want the publications that match this filter.
    Want(TopicFilter, bool),
    /// The first connection with TLS, and the address of its client: nothing can be read there.
    Encrypted(SocketAddr),
}

type Key = (SocketAddr, SocketAddr);

#[derive(Debug)]
enum Conn {
    Open(Box<Client>),
    /// Not followed; the client, if it is known, whose session ends with it.
    Blind(Option<String>),
    /// The connection has ended; the number with which it had begun.
    Ended(Option<u32>),
}

#[derive(Debug, Default)]
struct Session {
    filters: BTreeSet<TopicFilter>,
    keeps: bool,
    conn: Option<Key>,
}

/// Reads the packets between a broker and its clients off the wire: the clients' subscriptions and publications (FT-03, FW-03).
#[derive(Debug)]
pub struct Sniffer {
    config: SniffConfig,
    conns: BTreeMap<Key, Conn>,
    sessions: BTreeMap<String, Session>,
    wanted: BTreeMap<TopicFilter, usize>,
    filters: usize,
    ended: Deadlines<Key>,
    outputs: VecDeque<SniffOutput>,
    counters: SniffCounters,
}

impl Sniffer {
    /// Nothing was seen yet.
    pub fn new(config: SniffConfig) -> Self {
        Self {
            config,
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            wanted: BTreeMap::new(),
            filters: 0,
            ended: Deadlines::new(),
            outputs: VecDeque::new(),
            counters: SniffCounters::default(),
        }
    }

    /// An IP packet was captured.
    pub fn handle(&mut self, now: Instant, packet: &Bytes) {
        let segment = match Segment::read(packet) {
            Ok(segment) => segment,
            Err(SegmentError::Other) => return,
            Err(SegmentError::Fragment | SegmentError::Malformed) => {
                self.counters.malformed += 1;
                return;
            }
        };
        let is_broker = |address: &SocketAddr| self.config.addresses.contains(address);
        if is_broker(&segment.to) {
            self.counters.segments += 1;
            self.said(now, segment);
        } else if is_broker(&segment.from) {
            self.counters.segments += 1;
            self.heard(now, segment);
        }
    }

    /// Forgets connections that have ended.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(key) = self.ended.pop_due(now) {
            self.conns.remove(&key);
        }
    }

    /// Time at which [`Sniffer::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ended.next()
    }

    /// The next order to the owner.
    pub fn poll_output(&mut self) -> Option<SniffOutput> {
        self.outputs.pop_front()
    }

    /// Everything that clients of the broker want.
    pub fn wanted(&self) -> impl Iterator<Item = &TopicFilter> {
        self.wanted.keys()
    }

    /// The counters.
    pub const fn counters(&self) -> &SniffCounters {
        &self.counters
    }

    /// Connections that are followed.
    pub fn followed(&self) -> usize {
        self.conns.values().filter(|conn| matches!(conn, Conn::Open(_))).count()
    }

    fn said(&mut self, now: Instant, segment: Segment) {
        let key = (segment.from, segment.to);
        if segment.syn {
            return self.begins(now, key, segment.seq);
        }
        match self.conns.get_mut(&key) {
            Some(Conn::Open(client)) if !segment.rst => {
                let mut acts = Vec::new();
                let piece = (segment.seq, segment.payload, segment.fin);
                let done = client.said(now, piece, &self.config.own_prefix, &mut acts);
                self.done(now, key, acts, done);
            }
            Some(Conn::Open(_) | Conn::Blind(_)) if segment.rst || segment.fin => self.ends(now, key),
            None if !segment.payload.is_empty() => {
                self.counters.blind += 1;
                if self.conns.len() < self.config.connections {
                    self.conns.insert(key, Conn::Blind(None));
                }
            }
            Some(Conn::Open(_) | Conn::Blind(_) | Conn::Ended(_)) | None => {}
        }
    }

    fn heard(&mut self, now: Instant, segment: Segment) {
        let key = (segment.to, segment.from);
        match self.conns.get_mut(&key) {
            Some(Conn::Open(_) | Conn::Blind(_)) if segment.rst => self.ends(now, key),
            Some(Conn::Open(client)) if segment.syn => client.answered(segment.seq),
            Some(Conn::Open(client)) => {
                let mut acts = Vec::new();
                let done = client.heard(now, (segment.seq, segment.payload, segment.fin), &mut acts);
                self.done(now, key, acts, done);
            }
            Some(Conn::Blind(_)) if segment.fin => self.ends(now, key),
            Some(Conn::Blind(_) | Conn::Ended(_)) | None => {}
        }
    }

    fn begins(&mut self, now: Instant, key: Key, first: u32) {
        match self.conns.get(&key) {
            Some(Conn::Open(client)) if client.first == first => return,
            Some(Conn::Ended(Some(known))) if *known == first => return,
            Some(Conn::Open(_) | Conn::Blind(_)) => self.ends(now, key),
            Some(Conn::Ended(_)) | None => {}
        }
        self.ended.cancel(&key);
        if self.conns.len() >= self.config.connections && !self.conns.contains_key(&key) {
            self.counters.blind += 1;
            return;
        }
        self.counters.connections += 1;
        self.conns.insert(key, Conn::Open(Box::new(Client::new(first))));
    }

    fn done(&mut self, now: Instant, key: Key, acts: Vec<Act>, done: Result<(), Lost>) {
        for act in acts {
            self.act(key, act);
        }
        let Some(Conn::Open(client)) = self.conns.get_mut(&key) else { return };
        let Err(lost) = done else {
            if client.has_ended() {
                self.ends(now, key);
            }
            return;
        };
        let id = client.id.take();
        match lost {
            Lost::Own => self.counters.own += 1,
            Lost::Hole => {
                self.counters.holes += 1;
                self.counters.blind += 1;
            }
            Lost::Malformed => self.counters.blind += 1,
            Lost::Encrypted => {
                if self.counters.encrypted == 0 {
                    self.outputs.push_back(SniffOutput::Encrypted(key.0));
                }
                self.counters.encrypted += 1;
                self.counters.blind += 1;
            }
        }
        self.conns.insert(key, Conn::Blind(id.filter(|_| lost != Lost::Own)));
    }

    fn act(&mut self, key: Key, act: Act) {
        match act {
            Act::Began { id, clean, keeps } => {
                if clean {
                    self.end_session(&id);
                }
                if self.sessions.len() < self.config.sessions || self.sessions.contains_key(&id) {
                    let session = self.sessions.entry(id).or_default();
                    (session.keeps, session.conn) = (keeps, Some(key));
                }
            }
            Act::Publish(publish) => self.publish(*publish),
            Act::Subscribed(filters) => self.change(key, filters, true),
            Act::Unsubscribed(filters) => self.change(key, filters, false),
        }
    }

    fn publish(&mut self, publish: Publish) {
        if publish.topic.as_ref().is_some_and(|topic| !topic.is_reserved()) {
            self.counters.publications += 1;
            self.outputs.push_back(SniffOutput::Publish(Box::new(publish)));
        }
    }

    fn change(&mut self, key: Key, filters: Vec<TopicFilter>, is_added: bool) {
        let Some(Conn::Open(client)) = self.conns.get(&key) else { return };
        let Some(session) = client.id.as_ref().and_then(|id| self.sessions.get_mut(id)) else { return };
        for filter in filters {
            // A member of a shared subscription is one subscriber of its filter: the broker chooses among those that it has.
            let Ok(plain) = TopicFilter::new(filter.filter()) else { continue };
            if plain.as_str().starts_with('$') {
                continue;
            }
            if is_added && self.filters >= self.config.filters {
                self.counters.filters_dropped += 1;
            } else if is_added && session.filters.insert(filter.detached()) {
                self.filters += 1;
                let count = self.wanted.entry(plain.detached()).or_default();
                *count += 1;
                if *count == 1 {
                    self.outputs.push_back(SniffOutput::Want(plain.detached(), true));
                }
            } else if !is_added && session.filters.remove(&filter) {
                self.filters -= 1;
                unwant(&mut self.wanted, &mut self.outputs, &plain);
            }
        }
    }

    /// A connection is over, and the client's session with it unless it is kept.
    fn ends(&mut self, now: Instant, key: Key) {
        let (id, will, first) = match self.conns.insert(key, Conn::Ended(None)) {
            Some(Conn::Open(mut client)) => (client.id.take(), client.will(), Some(client.first)),
            Some(Conn::Blind(id)) => (id, None, None),
            Some(Conn::Ended(first)) => (None, None, first),
            None => (None, None, None),
        };
        self.conns.insert(key, Conn::Ended(first));
        self.ended.set(key, now + REMEMBERED);
        if let Some(will) = will {
            self.publish(will);
        }
        let Some(id) = id else { return };
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.conn == Some(key)) else { return };
        session.conn = None;
        if !session.keeps {
            self.end_session(&id);
        }
    }

    fn end_session(&mut self, id: &str) {
        let Some(session) = self.sessions.remove(id) else { return };
        for filter in session.filters {
            self.filters -= 1;
            if let Ok(plain) = TopicFilter::new(filter.filter()) {
                unwant(&mut self.wanted, &mut self.outputs, &plain);
            }
        }
    }
}

/// One session less wants this filter.
fn unwant(wanted: &mut BTreeMap<TopicFilter, usize>, outputs: &mut VecDeque<SniffOutput>, filter: &TopicFilter) {
    let Some(count) = wanted.get_mut(filter) else { return };
    *count -= 1;
    if *count == 0 {
        wanted.remove(filter);
        outputs.push_back(SniffOutput::Want(filter.clone(), false));
    }
}
