//! One network connection.

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{ClientId, ConnId, Duration, Instant, LookupMap, Outbox, Seed};
use sedge_mqtt::{
    Connect, Decoder, Message, MessageId, Packet, ReasonCode, Stamp, TopicFilter, TopicName, Version, encode,
};

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::enhanced::Enhanced;
use crate::latency::Probes;
use crate::outgoing::Ids;
use crate::room::free;
use crate::session::SessionKey;
use crate::throttle::Throttle;
use crate::traffic::Traffic;
use crate::verdicts::Verdicts;
use crate::{BrokerConfig, Counters, Output};

/// Index of a connection in its slab.
pub(crate) type ConnKey = usize;

/// Most topics remembered while one SUBSCRIBE settles; beyond, a retained message may come twice.
const REMEMBER_AT_MOST: usize = 10_000;

/// Room for answers beyond the high-water mark of the outbox, in bytes.
const ANSWERS_ROOM: usize = 256 * 1024;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// CONNECT is awaited.
    Opening,
    /// It is being found out who the client is.
    Authenticating,
    /// The client id is being made ours.
    Claiming,
    /// The interest of a session from elsewhere settles.
    Resuming,
    /// CONNACK was sent.
    Live,
    /// Closed but for the last bytes.
    Closing,
}

/// Whether bytes for a client rest on the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// The bytes may leave at any time.
    Free,
    /// The bytes say something that the journal has to have first.
    Depends,
}

/// The parts of a CONNECT that are kept until CONNACK.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    pub(crate) connect: Box<Connect>,
    pub(crate) client: ClientId,
    /// Whether the broker chose the client id.
    pub(crate) assigned: bool,
    /// Number of the ticket that a resuming session waits for.
    pub(crate) ticket: u32,
    /// Session expiry after limits, in seconds.
    pub(crate) expiry_secs: u32,
}

/// A SUBSCRIBE or UNSUBSCRIBE that settles.
#[derive(Debug)]
pub(crate) struct Request {
    /// Number of its ticket.
    pub(crate) number: u32,
    pub(crate) packet: RequestPacket,
    pub(crate) reasons: Vec<ReasonCode>,
    /// For each reason its filter, where a broker behind this node may refuse it yet.
    pub(crate) filters: Vec<TopicFilter>,
    /// Changes that want retained messages.
    pub(crate) wanted: Vec<Wanted>,
    /// The latest message of each topic that was delivered live with the retain flag meanwhile.
    pub(crate) seen: BTreeMap<TopicName, Seen>,
}

impl Request {
    /// One of its filters is refused after all.
    pub(crate) fn refuse(&mut self, filter: &TopicFilter, reason: ReasonCode) {
        for (asked, answer) in self.filters.iter().zip(&mut self.reasons) {
            if asked == filter {
                *answer = reason;
            }
        }
    }
}

/// The latest message of a topic that was delivered live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    stamp: Stamp,
    id: MessageId,
}

impl Seen {
    /// Whether `message` has come already: itself, maybe with an earlier stamp than the store gave it, or a later value.
    pub(crate) fn covers(self, message: &Message) -> bool {
        self.id == message.id || self.stamp >= message.stamp
    }
}

/// Which packet a [`Request`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPacket {
    Subscribe(sedge_mqtt::PacketId),
    Unsubscribe(sedge_mqtt::PacketId),
}

impl RequestPacket {
    pub(crate) const fn id(self) -> sedge_mqtt::PacketId {
        match self {
            Self::Subscribe(id) | Self::Unsubscribe(id) => id,
        }
    }
}

/// A new subscription that wants retained messages.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Index of the change.
    pub(crate) change: usize,
    pub(crate) filter: TopicFilter,
    pub(crate) ids: Ids,
}

/// The purpose of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    /// Another broker's bridge: it gets nothing back that it sent, and retain flags as they were.
    Bridge,
}

/// Where the other side of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// In another process.
    Outside,
    /// In this one: no access rules apply to it.
    Inside,
    /// The same, and it is told identity and publisher of messages.
    Bridge,
}

/// The client at the other side of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where it is, for listings.
    pub(crate) address: Box<str>,
    /// User name that was proven, by the transport or by CONNECT.
    pub(crate) user: Option<Box<str>>,
    /// Whether that rests on an account that can be taken away.
    pub(crate) account: bool,
    pub(crate) side: Side,
    /// Whether there is a `Timer::Expiry`.
    pub(crate) expires: bool,
    /// Whether the client has sent a packet of a QoS 2 publication. By then it has repeated the flows that it had begun elsewhere, as every client
    /// does first (MQTT 5.0 section 4.4).
    pub(crate) has_repeated: bool,
    pub(crate) role: Role,
    /// Verdicts of the rules on the client's publications; `None`: no verdict since the policy changed.
    pub(crate) verdicts: Option<Box<Verdicts>>,
    /// When it was let in.
    pub(crate) live_since: Instant,
    /// While something in the outbox is measured.
    pub(crate) probes: Option<Box<Probes>>,
    /// The messages that it brings and takes.
    pub(crate) traffic: Traffic,
}

/// One network connection. Fields that few connections need are boxed.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) session: Option<SessionKey>,
    pub(crate) last_seen: Instant,
    pub(crate) decoder: Decoder,
    pub(crate) outbox: Outbox,
    pub(crate) peer: Box<Peer>,
    pub(crate) pending: Option<Box<PendingConnect>>,
    /// If its CONNECT names a method.
    pub(crate) enhanced: Option<Box<Enhanced>>,
    pub(crate) incoming_aliases: Option<Box<IncomingAliases>>,
    pub(crate) outgoing_aliases: Option<Box<OutgoingAliases>>,
    pub(crate) requests: Vec<Request>,
    /// `None`: the client may publish as fast as it can.
    pub(crate) throttle: Option<Box<Throttle>>,
    /// Largest packet the client takes; `u32::MAX`: any.
    pub(crate) max_packet: u32,
    /// QoS 1 and 2 messages that may be on their way to the client.
    pub(crate) window: u16,
    /// QoS 1 and 2 publications of the client that are not completed.
    pub(crate) inbound: u16,
    /// Seconds; 0: none.
    pub(crate) keep_alive: u16,
    pub(crate) phase: Phase,
    pub(crate) version: Version,
    /// Whether [`Output::Transmit`] was said and the outbox not looked at since.
    pub(crate) transmitting: bool,
    /// Whether [`Output::Hold`] was said.
    pub(crate) held: bool,
    /// Kind of the bytes that were put into the outbox since [`crate::Broker::take_dependence`] was called last.
    pub(crate) fresh: Fresh,
    /// Whether the client wants to be told reasons in words.
    pub(crate) problem_information: bool,
}

impl Connection {
    pub(crate) fn new(id: ConnId, peer: String, user: Option<String>, now: Instant, config: &BrokerConfig) -> Self {
        Self {
            id,
            session: None,
            last_seen: now,
            decoder: Decoder::server(config.max_packet_bytes),
            outbox: Outbox::new(),
            peer: Box::new(Peer {
                address: peer.into_boxed_str(),
                user: user.map(String::into_boxed_str),
                account: false,
                side: Side::Outside,
                expires: false,
                has_repeated: false,
                role: Role::Client,
                verdicts: None,
                live_since: now,
                probes: None,
                traffic: Traffic::default(),
            }),
            pending: None,
            enhanced: None,
            incoming_aliases: None,
            outgoing_aliases: None,
            requests: Vec::new(),
            throttle: None,
            max_packet: u32::MAX,
            window: config.max_inflight,
            inbound: 0,
            keep_alive: 0,
            phase: Phase::Opening,
            version: Version::V311,
            transmitting: false,
            held: false,
            fresh: Fresh::Free,
            problem_information: true,
        }
    }

    /// Takes over what CONNECT says about the connection itself.
    pub(crate) fn adopt(&mut self, connect: &Connect, config: &BrokerConfig, seed: Seed) {
        let properties = &connect.properties;
        self.version = connect.version;
        self.peer.role = if connect.bridge { Role::Bridge } else { Role::Client };
        self.max_packet = properties.maximum_packet_size.unwrap_or(u32::MAX);
        self.window = properties.receive_maximum.unwrap_or(u16::MAX).min(config.max_inflight).max(1);
        self.problem_information = properties.request_problem_information.unwrap_or(true);
        let aliases = properties.topic_alias_maximum.unwrap_or(0).min(config.max_outgoing_aliases);
        if aliases > 0 {
            self.outgoing_aliases = Some(Box::new(OutgoingAliases::new(aliases, seed)));
        }
        self.keep_alive = connect.keep_alive;
        if connect.version == Version::V5
            && config.max_keep_alive > 0
            && (self.keep_alive == 0 || self.keep_alive > config.max_keep_alive)
        {
            self.keep_alive = config.max_keep_alive;
        }
    }

    /// One and a half times the keep alive (MQTT 5.0 section 3.1.2.10).
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.keep_alive > 0).then(|| Duration::from_millis(u64::from(self.keep_alive) * 1_500))
    }

    /// Gives up all but the outbox.
    pub(crate) fn retire(&mut self, max_packet_bytes: u32) {
        self.decoder = Decoder::server(max_packet_bytes);
        self.pending = None;
        self.enhanced = None;
        self.incoming_aliases = None;
        self.outgoing_aliases = None;
        self.requests = Vec::new();
    }

    /// Whether the client reads so little that it should be answered no more for now.
    pub(crate) fn is_clogged(&self, config: &BrokerConfig, counters: &Counters) -> bool {
        self.outbox.len() > config.outbox_high_water.saturating_add(ANSWERS_ROOM)
            || self.outbox.footprint() > free(config, counters)
    }

    /// Whether the client waits because it has published too fast.
    pub(crate) fn is_pausing(&self) -> bool {
        self.throttle.as_ref().is_some_and(|throttle| throttle.is_pausing)
    }

    /// Whether packets of the client are taken now. While it authenticates it is held but for its turns.
    pub(crate) const fn takes_packets(&self) -> bool {
        !self.held && matches!(self.phase, Phase::Opening | Phase::Authenticating | Phase::Live)
    }

    /// Says once that there is something to write.
    pub(crate) fn transmit(&mut self, outputs: &mut VecDeque<Output>) {
        if !self.transmitting {
            self.transmitting = true;
            outputs.push_back(Output::Transmit { conn: self.id });
        }
    }

    /// Says that reading is to stop.
    pub(crate) fn hold(&mut self, outputs: &mut VecDeque<Output>) {
        if !self.held {
            self.held = true;
            outputs.push_back(Output::Hold { conn: self.id });
        }
    }

    /// Says that reading may go on.
    pub(crate) fn release(&mut self, outputs: &mut VecDeque<Output>) {
        if self.held {
            self.held = false;
            outputs.push_back(Output::Release { conn: self.id });
        }
    }

    /// Encodes a packet into the outbox.
    pub(crate) fn send(&mut self, packet: &Packet, counters: &mut Counters, outputs: &mut VecDeque<Output>) {
        let (version, before) = (self.version, self.outbox.footprint());
        self.outbox.append(|out| encode(packet, version, out));
        if !matches!(packet, Packet::PingResp) {
            self.fresh = Fresh::Depends;
        }
        counters.note_outbox(before, self.outbox.footprint());
        counters.packets_out += 1;
        self.transmit(outputs);
    }

    /// Remembers a live delivery with the retain flag for the subscriptions that settle.
    pub(crate) fn remember(&mut self, message: &Message) {
        for request in &mut self.requests {
            let wants = request.wanted.iter().any(|wanted| wanted.filter.matches(&message.topic));
            if wants && request.seen.len() < REMEMBER_AT_MOST {
                let this = Seen { stamp: message.stamp, id: message.id };
                let latest = request.seen.entry(message.topic.clone()).or_insert(this);
                if latest.stamp < this.stamp {
                    *latest = this;
                }
            }
        }
    }
}

/// Connections by number.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Boxed: a slab grows by doubling, and most of it would be unused room.
    slab: slab::Slab<Box<Connection>>,
    keys: LookupMap<ConnId, ConnKey>,
}

impl Connections {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { slab: slab::Slab::new(), keys: LookupMap::new(seed) }
    }

    pub(crate) fn key(&self, id: ConnId) -> Option<ConnKey> {
        self.keys.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> ConnKey {
        let id = connection.id;
        let key = self.slab.insert(Box::new(connection));
        self.keys.insert(id, key);
        key
    }

    /// Returns how many bytes its outbox held.
    pub(crate) fn remove(&mut self, key: ConnKey) -> usize {
        let Some(connection) = self.slab.try_remove(key) else { return 0 };
        self.keys.remove(&connection.id);
        connection.outbox.footprint()
    }

    pub(crate) fn get(&self, key: ConnKey) -> Option<&Connection> {
        self.slab.get(key).map(|connection| &**connection)
    }

    pub(crate) fn get_mut(&mut self, key: ConnKey) -> Option<&mut Connection> {
        self.slab.get_mut(key).map(|connection| &mut **connection)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slab.iter_mut().map(|(_, connection)| &mut **connection)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnKey, &Connection)> {
        self.slab.iter().map(|(key, connection)| (key, &**connection))
    }
}

/// Where the bridges of other brokers say whether they are connected (`notifications` of Mosquitto).
const BRIDGES: (&[u8], &[u8]) = (b"$SYS/broker/connection/", b"/state");

/// Whether a topic belongs to the broker: clients do not publish there. A bridge's own state is the bridge's to publish.
pub(crate) fn is_owned_topic(topic: &TopicName) -> bool {
    let owns = |root: &[u8]| {
        let rest = topic.as_bytes().strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let is_bridge_state = || {
        let name = topic.as_bytes().strip_prefix(BRIDGES.0).and_then(|rest| rest.strip_suffix(BRIDGES.1));
        name.is_some_and(|name| !name.is_empty())
    };
    topic.is_reserved() && (owns(b"$SYS") || owns(b"$sedge") || owns(b"$rule")) && !is_bridge_state()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    /// MQ-07
    #[test]
    fn what_was_seen_covers_itself_and_older_values() {
        let mut live = message("t", "x");
        live.stamp.millis = 5;
        let seen = Seen { stamp: live.stamp, id: live.id };
        let mut other = live.clone();
        other.id.seq += 1;
        assert!(seen.covers(&live) && seen.covers(&other));
        live.stamp.millis = 6;
        other.stamp.millis = 6;
        assert!(seen.covers(&live), "the store gave it a later stamp");
        assert!(!seen.covers(&other));
    }
}
