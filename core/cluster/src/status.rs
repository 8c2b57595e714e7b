//! The status of a node as plain values for listings; the shell gives them a wire form.

use core::net::SocketAddr;

use sedge_base::{ClientId, Duration, Incarnation, NodeId};
use sedge_mqtt::QoS;

use crate::link::LinkOrder;

/// How far a node has come (DESIGN section 5, "Joining"; FT-26, FT-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Knows no other member yet, and has seeds to ask (TR-02).
    Discovery,
    /// Pulls tables from its neighbours.
    Recovery,
    /// Serves with full knowledge.
    Normal,
    /// Says good-bye.
    Leaving,
}

/// A node as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Name of the cluster.
    pub cluster: String,
    /// How far it has come.
    pub state: NodeState,
    /// Cooperation algorithm.
    pub overlay: &'static str,
    /// Links that operators have chosen; `None` where the algorithm chooses.
    pub neighbours: Option<NeighboursStatus>,
    /// With which QoS publications go from node to node; `None`: with their own.
    pub link_qos: Option<QoS>,
    /// Connections with each neighbour that this node dials.
    pub link_connections: u8,
    /// How publications are spread over them.
    pub link_order: LinkOrder,
    /// All members it knows, itself included, by id.
    pub members: Vec<MemberStatus>,
    /// Members that died a short while ago, by id (EL-03).
    pub dead: Vec<DeadStatus>,
    /// Seeds that have not answered yet.
    pub unreached_seeds: Vec<SocketAddr>,
    /// Members that the node waits for before it lets clients in, and where they are or were.
    pub awaited: Vec<(NodeId, SocketAddr)>,
    /// Clients that this node's directory knows as its own.
    pub sessions: usize,
    /// Lines of the subscription routing table.
    pub routes: usize,
    /// Retained messages held, without tombstones.
    pub retained: usize,
    /// Bytes of them.
    pub retained_bytes: usize,
    /// Topics that were cleared or whose value expired, and that are remembered so that no earlier value comes back.
    pub tombstones: usize,
    /// Bytes of them.
    pub tombstone_bytes: usize,
    /// Publications that wait for acknowledgement by neighbours (FT-17).
    pub unacknowledged: usize,
    /// Publications that were sent over other nodes and have not arrived.
    pub relayed: usize,
    /// Publications that came over other nodes and wait for earlier ones.
    pub relay_held: usize,
    /// Publications to new topics that are kept back until others have said whether they want them; at most 1,000.
    pub relay_kept: usize,
    /// Nodes that hold this node's sessions, itself included.
    pub copies: usize,
    /// How many that should be, with as many members as there are.
    pub copies_wanted: usize,
    /// Sessions on their way to or from this node.
    pub moving: usize,
    /// Sessions that have moved here, of which is known what they had before; at most 10,000.
    pub arrived: usize,
    /// Sessions that have left, of which is known where they went; at most 10,000.
    pub left: usize,
    /// Sessions that wait here until it is known to whom they belong: before the home's word, or while the client's session leaves; at most 1,024.
    pub early: usize,
    /// Questions of other nodes that wait here until this one knows that the node they are about is gone; at most 4,096 for sessions and as
    /// many for what is kept of them.
    pub asked_early: usize,
    /// Sessions of which this node was asked for the copy, and which another one keeps.
    pub kept_elsewhere: usize,
    /// Nodes that are gone without a farewell and have not come back.
    pub away: usize,
    /// Nodes whose sessions this node holds a copy of.
    pub replicas: usize,
    /// Nodes that are gone and whose sessions another node is taking over.
    pub orphaned: usize,
    /// Publications kept for their sessions (FT-42).
    pub strays: usize,
    /// Their bytes.
    pub stray_bytes: usize,
    /// Whether, and how far, the node is being emptied.
    pub drain: DrainStatus,
    /// Nodes that cannot be linked because of their version, their key or their id.
    pub refused: Vec<RefusedNode>,
    /// Everything counted since the start, by metric name without prefix (`links_frames_sent`, ...).
    pub counters: Vec<(&'static str, u64)>,
}

/// A node that cannot be linked because of its version, its key or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedNode {
    /// Its id, as it says; `None` where nothing that it says is believed.
    pub node: Option<NodeId>,
    /// Where it was, or came from.
    pub address: SocketAddr,
    /// The mistake that keeps it and this node apart, and its remedy.
    pub why: String,
}

/// The links that operators have chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeighboursStatus {
    /// One line for each, by id; those at whose address no node has answered come last.
    pub lines: Vec<NeighbourStatus>,
    /// Whether all linked nodes know what was chosen here.
    pub agreed: bool,
}

/// A link that operators have chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourStatus {
    /// The other end; `None` where no node has answered at the address.
    pub node: Option<NodeId>,
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// Whether it was chosen here.
    pub here: bool,
    /// Whether it was chosen at the other end.
    pub there: bool,
    /// The link, if it is up.
    pub link: Option<LinkStatus>,
}

/// How the emptying of a node stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStatus {
    /// How far it has come.
    pub state: DrainState,
    /// Sessions, and clients whose sessions end with their connections, that were here when it began.
    pub sessions: usize,
    /// Those that are still here or not completely at their new node.
    pub sessions_left: usize,
    /// Nodes whose sessions this node still keeps a copy of.
    pub replicas_left: usize,
    /// Why the last one ended without the node being empty.
    pub gave_up: Option<DrainEnd>,
}

/// See [`DrainStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainState {
    /// Nobody wants the node to be empty.
    #[default]
    Off,
    /// Clients, sessions and copies leave.
    Draining,
    /// Nothing that clients need is here.
    Drained,
}

/// Why a node serves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// An operator wants it to.
    Cancelled,
    /// There is no other node that could take the sessions.
    NobodyElse,
    /// A neighbour is of a version that does not know how to take sessions.
    OlderNode,
    /// It took too long.
    TimeLimit,
}

/// A member and the link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id.
    pub node: NodeId,
    /// Its name, if it has said so.
    pub name: Option<String>,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Where it listens for links.
    pub address: SocketAddr,
    /// The link to it; `None` for the node itself and where none is up.
    pub link: Option<LinkStatus>,
    /// By how many milliseconds its system clock is ahead of this node's; `None` where it has not said.
    pub clock_ahead: Option<i64>,
}

/// A member that died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadStatus {
    /// Its id.
    pub node: NodeId,
    /// Its former name, if it has said so.
    pub name: Option<String>,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Where it listened for links.
    pub address: SocketAddr,
    /// How long it is dead.
    pub since: Duration,
    /// Clients that it had (FT-33); at most 1,000 filters, and 16 KiB of text.
    pub orphans: Vec<Orphan>,
}

/// A client whose node has died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The client.
    pub client: ClientId,
    /// The filters of its subscriptions.
    pub filters: Vec<String>,
}

/// A link that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The node that carries it, where the path between the two hosts is broken.
    pub via: Option<NodeId>,
    /// Connections that it has, at least 1.
    pub connections: usize,
    /// Round trip in microseconds, smoothed; 0 until measured.
    pub rtt_micros: u32,
    /// Version of the link protocol that both sides speak.
    pub version: u32,
    /// Whether both sides have said sync-ok.
    pub synced: bool,
    /// Frames sent and not acknowledged.
    pub unacknowledged: usize,
    /// Publications sent over it since it exists (FT-14).
    pub publications_sent: u64,
    /// Publications received over it since it exists.
    pub publications_received: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_received: u64,
}

/// A line of the subscription routing table (FT-10) or of the local subscription table (FT-09).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteStatus {
    /// Node where the subscriber is.
    pub node: NodeId,
    /// The subscriber, where the algorithm knows it.
    pub client: Option<ClientId>,
    /// The whole filter.
    pub filter: String,
}
