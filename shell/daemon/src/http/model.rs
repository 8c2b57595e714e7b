//! Answers of the HTTP API, as plain values: the daemon serves them, `sedge status` and its sisters read them.

mod accounts;
mod bridges;
mod logs;
mod members;
mod neighbours;
mod role;
mod rules;
mod scale;
mod sessions;
mod topics;
mod traces;
mod upstream;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::accounts::{Account, AccountElsewhere, Accounts, NewPassword, SettingEntry, Settings};
pub use self::bridges::{Bridge, BridgeList};
pub use self::logs::{LogLevel, LogLevels, LogLine, LogLines};
pub use self::members::{MemberSummary, Members, SilentMember, Summary};
pub use self::neighbours::{Link, Neighbour, Neighbours};
pub use self::role::Standing;
pub use self::rules::{RuleEntry, RuleList};
pub use self::scale::{Scaling, ScalingOrder};
pub use self::sessions::{Session, Sessions, Subscription};
pub use self::topics::{HotTopic, HotTopics, TopicLevel, TopicLine, TopicValue};
pub use self::traces::{Trace, TraceNote, TraceNotes, Traces};
pub use self::upstream::{Mirror, MirrorDifference, Sniff, UNKNOWN_MAKE, UpstreamStatus};

/// A node as a whole (`GET /api/v1/status`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Id of the node, 16 hexadecimal digits.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Which life of it: milliseconds since 1970 at its start.
    pub incarnation: u64,
    /// Version of the program.
    pub version: String,
    /// Name of the cluster.
    pub cluster: String,
    /// `discovery`, `recovery`, `normal` or `leaving`.
    pub state: String,
    /// Whether it is ready for clients.
    pub ready: bool,
    /// Why it is not.
    pub not_ready: Vec<String>,
    /// What an operator should care about although the node serves: no room in the journal, too few copies.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Cooperation algorithm.
    pub overlay: String,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Where it listens.
    pub addresses: Listening,
    /// Number of shards.
    pub shards: u16,
    /// Members of the cluster, this node included.
    pub members: usize,
    /// Links to other members that are up.
    pub links: usize,
    /// Seeds that have not answered yet.
    pub unreached_seeds: Vec<String>,
    /// Members that the node waits for before it lets clients in: their ids and addresses.
    pub awaited_members: Vec<String>,
    /// Nodes that cannot be linked because of their version, their key or their id: who, and what to do.
    pub refused_nodes: Vec<String>,
    /// Connections of clients.
    pub connections: u64,
    /// Sessions, with and without a connection.
    pub sessions: u64,
    /// Subscriptions of these sessions.
    pub subscriptions: u64,
    /// Messages that wait for these sessions.
    pub queued_messages: u64,
    /// Lines of the routing table.
    pub routes: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of them.
    pub retained_bytes: usize,
    /// Topics that were cleared or whose value expired, and that are remembered for a day so that no earlier value comes back.
    #[serde(default)]
    pub retained_tombstones: usize,
    /// Bytes of them.
    #[serde(default)]
    pub retained_tombstone_bytes: usize,
    /// Publications that other nodes have not acknowledged yet.
    pub unacknowledged: usize,
    /// Publications sent over other nodes that have not arrived yet.
    pub relayed: usize,
    /// Publications that came over other nodes and wait for earlier ones.
    pub relay_held: usize,
    /// Publications to new topics, kept back until others have said whether they want them.
    pub relay_kept: usize,
    /// Nodes that hold this node's sessions and what waits for them, itself included.
    pub copies: usize,
    /// How many that should be with as many members as there are; fewer copies: a crash now may lose messages.
    pub copies_wanted: usize,
    /// Sessions on their way to or from this node.
    pub moving: usize,
    /// Nodes whose sessions this node holds a copy of.
    pub replicas: usize,
    /// Nodes that are gone and whose sessions another node is taking over.
    pub orphaned: usize,
    /// Publications kept for these sessions.
    pub strays: usize,
    /// Whether, and how far, the node is being emptied.
    pub drain: Drain,
    /// `manual` if publications go only over links that operators have chosen, or `mesh`.
    #[serde(default)]
    pub link_mode: String,
    /// QoS of publications between nodes: `as-published`, `0`, `1` or `2`.
    #[serde(default)]
    pub link_qos: String,
    /// Connections with each neighbour that this node dials.
    #[serde(default)]
    pub link_connections: u8,
    /// Which of them a publication takes: `publisher`, the same for all of one publisher, or `round-robin`.
    #[serde(default)]
    pub link_order: String,
    /// How many links operators have chosen.
    #[serde(default)]
    pub neighbours: usize,
    /// The broker behind this node, if there is one.
    #[serde(default)]
    pub upstream: Option<UpstreamStatus>,
    /// What survives a restart: `memory` (nothing), `journal` or `fsync`.
    pub durability: String,
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
    /// Bytes that are free where the data directory is; absent without one.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    /// Resident memory of the process; 0 where it cannot be found out.
    pub resident_bytes: u64,
}

/// How the emptying of a node stands (`/api/v1/drain`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// `off`, `draining`, or `drained`: nothing that clients need is here.
    pub state: String,
    /// Sessions that were here when it began.
    pub sessions: usize,
    /// Those that are still here, or not completely at their new node.
    pub sessions_left: usize,
    /// Nodes whose sessions this node still keeps a copy of.
    pub replicas_left: usize,
    /// Whether the process stops when the node is empty.
    pub stop: bool,
    /// Why the node serves on although it was to be emptied, if that is so.
    pub gave_up: Option<String>,
}

/// The journals of all shards together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalStatus {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files.
    pub segments: u64,
    /// Whether publications with QoS 1 and 2 are refused because there is no room.
    pub full: bool,
    /// What the last start found.
    pub recovery: RecoveryReport,
}

/// What a start found in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryReport {
    /// Batches that were sound.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes that were not sound and are dropped; an unfinished last write is among them.
    pub dropped_bytes: u64,
    /// Batches that are missing, or make no sense.
    pub missing_batches: u64,
    /// Files that are missing.
    #[serde(default)]
    pub missing_segments: u64,
    /// Shards whose directory is missing.
    #[serde(default)]
    pub missing_shards: u64,
    /// What is missing, by name: the first ones.
    #[serde(default)]
    pub holes: Vec<String>,
    /// Deliveries whose message was in what is missing.
    pub undelivered: u64,
    /// Sessions that were found.
    pub sessions: usize,
    /// Messages that wait for them or are on their way.
    pub messages: usize,
    /// Retained messages, cleared topics among them.
    pub retained: usize,
    /// Milliseconds it took.
    pub millis: u64,
}

/// Where a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listening {
    /// For clients: `[mqtt]`.
    pub mqtt: Vec<String>,
    /// All listeners for clients.
    pub listeners: Vec<Listener>,
    /// For other nodes.
    pub cluster: String,
    /// For the API.
    pub http: Option<String>,
}

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listener {
    /// Its name; `mqtt` is that of `[mqtt]`.
    pub name: String,
    /// What its clients speak: `tcp`, `tls`, `ws` or `wss`.
    pub protocol: String,
    /// `address:port`, or the path of a Unix socket behind `unix:`.
    pub address: String,
}

/// What was read again (`POST /api/v1/reload`; status 422 if something cannot be used).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reload {
    /// Everything that is kept in files of its own.
    pub reloaded: Vec<ReloadedPart>,
    /// Keys of the configuration whose change counts from this reload on.
    #[serde(default)]
    pub applied: Vec<String>,
    /// Keys of the configuration that differ from what the node runs with, and count from its next start on.
    #[serde(default)]
    pub restart: Vec<String>,
}

/// One thing that was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadedPart {
    /// What it is, such as `listener.tls`.
    pub what: String,
    /// Why it cannot be used; what was read before goes on being used.
    pub problem: Option<String>,
}

/// The cluster as this node sees it (`GET /api/v1/cluster`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Who says so.
    pub node: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Cooperation algorithm.
    pub overlay: String,
    /// All members it knows, itself included.
    pub members: Vec<Member>,
    /// Members that died a short while ago: `cluster.autoclean`.
    #[serde(default)]
    pub dead: Vec<DeadMember>,
    /// Seeds that have not answered yet.
    pub unreached_seeds: Vec<String>,
    /// Where addresses of nodes come from.
    #[serde(default)]
    pub discovery: Vec<DiscoverySource>,
}

/// A source of addresses of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscoverySource {
    /// `seeds`, `multicast`, `etcd` or `kubernetes`.
    pub source: String,
    /// Addresses that it knows.
    pub addresses: Vec<String>,
    /// Why it could not be asked the last time.
    pub failure: Option<String>,
}

/// A member and the link to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its id.
    pub node: String,
    /// Its name, once it has said it.
    #[serde(default)]
    pub name: Option<String>,
    /// Which life of it.
    pub incarnation: u64,
    /// Where it listens for other nodes.
    pub address: String,
    /// Whether it is the node that was asked.
    pub this: bool,
    /// The link to it, if one is up.
    pub link: Option<Link>,
    /// By how many milliseconds its system clock is ahead of this node's, once it has said so.
    #[serde(default)]
    pub clock_ahead_ms: Option<i64>,
}

/// A member that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadMember {
    /// Its id.
    pub node: String,
    /// Its name, if it has said it.
    #[serde(default)]
    pub name: Option<String>,
    /// Which life of it.
    pub incarnation: u64,
    /// Where it listened for other nodes.
    pub address: String,
    /// How long it is dead.
    pub seconds: u64,
    /// Clients that it had when it died, and what they wanted: at most 1,000 filters, and 16 KiB of text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<Orphan>,
}

/// A client whose node has died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orphan {
    /// The client.
    pub client: String,
    /// Its filters.
    pub filters: Vec<String>,
}

/// Nodes and links between them (`GET /api/v1/topology`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// Who says so. One node knows only its own links; for all members (`node=*`) the links of all are here.
    pub node: String,
    /// All nodes it knows.
    pub nodes: Vec<TopologyNode>,
    /// All links it knows, each once.
    pub links: Vec<TopologyLink>,
    /// Cooperation algorithm.
    pub overlay: String,
    /// Its trees that this node is part of, at most 1,000.
    pub trees: Vec<TopologyTree>,
    /// Where the publishers of topics are (SRT), at most 1,000 lines; none for all members, since each has its own.
    pub adverts: Vec<TopologyAdvert>,
    /// How many lines there are.
    pub adverts_total: usize,
    /// What is wanted where, as far as this node has to know it (PRT), at most 1,000 lines; none for all members.
    pub interest: Vec<TopologyInterest>,
    /// How many lines there are.
    pub interest_total: usize,
    /// Topics of publishers at this node that other nodes know of, at most 1,000.
    pub advertised: Vec<String>,
    /// Those of them that nobody elsewhere wants, so that nothing is sent for them; known with `skip-graph`; at most 1,000.
    pub suspended: Vec<String>,
    /// How many there are.
    pub suspended_total: usize,
    /// The part of a Skip Graph that this node holds; absent with other overlays.
    pub graph: Option<TopologyGraph>,
    /// Counters of the algorithm; for all members their sums.
    pub counters: BTreeMap<String, u64>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A tree that publications take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyTree {
    /// Its topic; absent if it is for all.
    pub topic: Option<String>,
    /// Which computation of it is in use.
    pub epoch: u64,
    /// Whether that is the last one.
    pub complete: bool,
    /// Its root.
    pub root: String,
    /// Its nodes.
    pub nodes: Vec<TopologyTreeNode>,
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyTreeNode {
    /// Its id.
    pub node: String,
    /// The next one towards the root; absent for the root.
    pub parent: Option<String>,
    /// Round trips from the root to it, in microseconds, where known.
    pub cost_micros: Option<u32>,
    /// What it can carry.
    pub capability: u64,
}

/// A part of a Skip Graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyGraph {
    /// The node's membership vector, 16 hexadecimal digits.
    pub vector: String,
    /// How many virtual nodes it has.
    pub virtual_nodes_total: usize,
    /// The first of them in the order of the graph, at most 1,000.
    pub virtual_nodes: Vec<TopologyVirtualNode>,
}

/// A topic that clients of a node publish or subscribe to, as part of a Skip Graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyVirtualNode {
    /// The topic; absent for the place of a node without topics.
    pub topic: Option<String>,
    /// `publisher` or `subscriber`.
    pub role: String,
    /// Neighbours of other nodes towards smaller keys, nearest first.
    pub left: Vec<TopologyVirtualNeighbour>,
    /// The same towards larger keys.
    pub right: Vec<TopologyVirtualNeighbour>,
    /// Whether it is the rendezvous point of the topic.
    pub rendezvous_point: bool,
    /// Whether the topic is suspended as the graph knows it; absent if that is not known, or if it is no publisher.
    pub suspended: Option<bool>,
}

/// A neighbour in a Skip Graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyVirtualNeighbour {
    /// Whose it is.
    pub node: String,
    /// Its topic.
    pub topic: Option<String>,
    /// `publisher` or `subscriber`.
    pub role: String,
    /// On which levels it is the neighbour: from this one.
    pub lowest_level: u32,
    /// To this one.
    pub highest_level: u32,
}

/// A line of the advertisement routing table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyAdvert {
    /// The topic.
    pub topic: String,
    /// A node with publishers.
    pub origin: String,
    /// The neighbour towards it.
    pub next: String,
}

/// A line of the table of who wants what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyInterest {
    /// The filter.
    pub filter: String,
    /// A node with subscribers.
    pub node: String,
    /// The neighbour towards it, or the node itself.
    pub next: String,
}

/// A node of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyNode {
    /// Its id.
    pub node: String,
    /// Its name, once it has said it.
    #[serde(default)]
    pub name: Option<String>,
    /// Where it listens for other nodes.
    pub address: String,
    /// Make and version of the broker behind it, if there is one and the node has answered.
    #[serde(default)]
    pub broker: Option<String>,
}

/// A link of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyLink {
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// How it is, and its load.
    #[serde(flatten)]
    pub link: Link,
}

/// Some lines of the routing table (`GET /api/v1/routes`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Routes {
    /// How many there are in all.
    pub total: usize,
    /// How many come before the first of these.
    pub offset: usize,
    /// The most that were asked for.
    pub limit: usize,
    /// The lines.
    pub routes: Vec<Route>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A line of the routing table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// Node where the subscriber is.
    pub node: String,
    /// Name of that node.
    #[serde(default)]
    pub name: String,
    /// The subscriber, where the cooperation algorithm knows it.
    pub client: Option<String>,
    /// The whole filter.
    pub filter: String,
    /// Make and version of the broker behind that node, if there is one and the node has answered.
    #[serde(default)]
    pub broker: Option<String>,
}

/// Whether a node is ready for clients (`GET /health/ready`; status 503 while it is not).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it is.
    pub ready: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
}

/// Whether a process is alive (`GET /health/live`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Liveness {
    /// Always true: a dead process does not answer, and stuck shards answer with status 503.
    pub alive: bool,
}

/// A client's connection was ended (`DELETE /api/v1/sessions/{client}/connection`), and perhaps its session
/// (`DELETE /api/v1/sessions/{client}`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kicked {
    /// The client.
    pub client: String,
    /// Where it was connected from, if it was to the node that was asked.
    pub peer: Option<String>,
    /// The node that has its session.
    pub node: String,
    /// Name of that node.
    #[serde(default)]
    pub name: String,
    /// Whether its session was ended, too.
    pub session_ended: bool,
}

/// Whether a client would get a publication now, and what decides (`GET /api/v1/explain`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The client.
    pub client: String,
    /// The topic.
    pub topic: String,
    /// Whether the client would get it, at once or later.
    pub gets: bool,
    /// `sent`, `waits` or `not`.
    pub outcome: String,
    /// What decides, for programs, such as `other_level` or `queue_full`; operations.md lists all.
    pub cause: String,
    /// The same in words, with the numbers, keys and lines that decide.
    pub detail: String,
    /// At which QoS the client would get it.
    pub qos: Option<u8>,
    /// The subscription that it would come from, or the one that is next to it.
    pub filter: Option<String>,
    /// The node that decides: that of the session, or that of the publisher.
    pub node: Option<String>,
    /// The name of that node.
    pub name: Option<String>,
}

/// Some of the retained messages (`GET /api/v1/retained`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetainedMessages {
    /// How many retained messages there are in all, whether they match or not.
    pub total: usize,
    /// Those that match.
    pub messages: Vec<RetainedMessage>,
    /// What to give as `cursor` for those that follow; absent at the end.
    pub next: Option<usize>,
    /// Names of the members that hold other retained messages at the moment (`node=*`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differ: Vec<String>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A retained message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetainedMessage {
    /// Its topic.
    pub topic: String,
    /// QoS it was published with.
    pub qos: u8,
    /// Size of its payload.
    pub bytes: usize,
    /// Its payload, if it is UTF-8 text of at most 4096 bytes.
    pub payload: Option<String>,
    /// Who published it.
    pub publisher: Option<String>,
    /// When, in milliseconds since 1970.
    pub set_at_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// A retained message was cleared (`DELETE /api/v1/retained/{topic}`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cleared {
    /// Its topic.
    pub topic: String,
}

/// Something that has happened (`GET /api/v1/events`, event `happened`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number: 1 for the first one since the start of the node.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// `connected`, `disconnected`, `refused`, `denied`, `cluster` or `operator`.
    pub kind: String,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// The client.
    pub client: Option<String>,
    /// The address of the other side.
    pub peer: Option<String>,
    /// What it was, in words.
    pub text: String,
}

/// What a node has counted since its start, and what it has now (`GET /api/v1/events`, event `totals`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Connections of clients.
    pub connections: u64,
    /// Sessions, with and without a connection.
    pub sessions: u64,
    /// Messages that wait for sessions.
    pub queued_messages: u64,
    /// PUBLISH packets from clients so far.
    pub publishes_in: u64,
    /// PUBLISH packets to clients so far.
    pub publishes_out: u64,
    /// Bytes from clients so far.
    pub bytes_in: u64,
    /// Bytes to clients so far.
    pub bytes_out: u64,
    /// Bytes over the links that are up.
    pub link_bytes: u64,
    /// Messages that a full queue had no room for so far.
    pub dropped: u64,
    /// Processor time so far, in milliseconds.
    pub cpu_millis: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
}

/// What a node was like in the last minutes or hours (`GET /api/v1/history`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Seconds between two points.
    pub interval_seconds: u64,
    /// Times of the points, in seconds since 1970.
    pub times: Vec<u64>,
    /// The figures.
    pub series: Vec<HistorySeries>,
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistorySeries {
    /// `connections`, `sessions`, `queued`, `publishes_in`, `publishes_out`, `bytes_in`, `bytes_out`, `link_bytes`, `dropped`, `cpu` or
    /// `memory`.
    pub name: String,
    /// Its unit, such as `1/s`.
    pub unit: String,
    /// A value for each point.
    pub values: Vec<f64>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, for programs: `not_found`, `bad_request`, `busy`, ...
    pub error: String,
    /// What is wrong, for people.
    pub detail: String,
}
