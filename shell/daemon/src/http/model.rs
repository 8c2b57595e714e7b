//! What the HTTP API says, as plain values: served by the daemon, read by `sedge status` and its sisters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    /// Nodes that cannot be linked because of their version: who, and what to do.
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
    /// What survives a restart: `memory` (nothing), `journal` or `fsync`.
    pub durability: String,
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
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
    /// Which life of it.
    pub incarnation: u64,
    /// Where it listens for other nodes.
    pub address: String,
    /// Whether it is the node that was asked.
    pub this: bool,
    /// The link to it, if one is up.
    pub link: Option<Link>,
}

/// A member that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadMember {
    /// Its id.
    pub node: String,
    /// Which life of it.
    pub incarnation: u64,
    /// Where it listened for other nodes.
    pub address: String,
    /// How long it is dead.
    pub seconds: u64,
}

/// A link that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The node that carries it, where the path between the two hosts is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Round trip in microseconds, smoothed; 0 until measured.
    pub rtt_micros: u32,
    /// Version of the link protocol that both sides speak.
    pub protocol: u32,
    /// Whether both sides know each other's tables.
    pub synced: bool,
    /// Frames sent and not acknowledged.
    pub unacknowledged: usize,
    /// Publications sent.
    pub publications_sent: u64,
    /// Publications received.
    pub publications_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

/// Nodes and links between them (`GET /api/v1/topology`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// Who says so: only links of this node are known to it.
    pub node: String,
    /// All nodes it knows.
    pub nodes: Vec<TopologyNode>,
    /// All links it knows, each once.
    pub links: Vec<TopologyLink>,
    /// Cooperation algorithm.
    pub overlay: String,
    /// Its trees that this node is part of, at most 1,000.
    pub trees: Vec<TopologyTree>,
    /// Where the publishers of topics are (SRT), at most 1,000 lines.
    pub adverts: Vec<TopologyAdvert>,
    /// How many lines there are.
    pub adverts_total: usize,
    /// What is wanted where, as far as this node has to know it (PRT), at most 1,000 lines.
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
    /// Counters of the algorithm.
    pub counters: BTreeMap<String, u64>,
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
    /// Where it listens for other nodes.
    pub address: String,
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

/// Some of the sessions of a node (`GET /api/v1/sessions`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sessions {
    /// How many there are in all, as far as they match the question.
    pub total: usize,
    /// How many come before the first of these.
    pub offset: usize,
    /// The most that were asked for.
    pub limit: usize,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// What to give as `cursor` for those that follow; absent at the end.
    pub next: Option<String>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The client.
    pub client: String,
    /// Whether it has a connection.
    pub connected: bool,
    /// Its address while it is connected.
    pub peer: Option<String>,
    /// User name that its transport has proven (certificate), while it is connected.
    pub user: Option<String>,
    /// `3.1.1` or `5.0` (`3.1` for very old clients).
    pub protocol: String,
    /// Which shard it is on.
    pub shard: u16,
    /// Which ownership in the cluster it is.
    pub epoch: u64,
    /// Whether the session ends with the connection.
    pub clean: bool,
    /// Seconds the session outlives the connection; 4294967295: for ever.
    pub expiry_seconds: u32,
    /// Keep alive; 0: none.
    pub keep_alive_seconds: u16,
    /// When it lost its connection, in milliseconds since 1970.
    pub disconnected_at_ms: Option<u64>,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// Messages that wait for it.
    pub queued_messages: usize,
    /// Bytes of them.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages sent to it and not acknowledged.
    pub inflight: usize,
    /// QoS 2 publications of its own that are not completed.
    pub incoming_qos2: usize,
    /// Whether there is a will.
    pub will: bool,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscription {
    /// The whole filter, `$share/group/` included.
    pub filter: String,
    /// Highest QoS of deliveries.
    pub qos: u8,
    /// Subscription identifier.
    pub id: Option<u32>,
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
}

/// A line of the routing table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// Node where the subscriber is.
    pub node: String,
    /// The subscriber, where the cooperation algorithm knows it.
    pub client: Option<String>,
    /// The whole filter.
    pub filter: String,
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
    /// Whether its session was ended, too.
    pub session_ended: bool,
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

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, for programs: `not_found`, `bad_request`, `busy`, ...
    pub error: String,
    /// What is wrong, for people.
    pub detail: String,
}
