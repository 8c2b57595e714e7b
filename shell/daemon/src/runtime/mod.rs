//! Threads that drive the machines: one event loop for each shard; the first one also drives the node.

mod addresses;
mod clients;
mod clock;
mod door;
mod events;
mod keeper;
mod links;
mod log_limiter;
mod mailbox;
mod office;
mod pace;
mod pulse;
pub(crate) mod sockets;
mod stats;
mod traces;
mod upstream;
mod users;
mod wire;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use sedge_base::{ClientId, ConnId, NodeId, ShardId};
use sedge_broker::{Awaits, Policy, QueueLimits, Report, TraceSpec};
use sedge_cluster::link::LinkOrder;
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_cluster::{DrainStatus, NeighbourError, Node, NodeStatus, Shard};
use sedge_mqtt::{MessageId, ReasonCode, TopicFilter, Utf8};
use tokio::sync::{mpsc, oneshot};

use crate::access::{Answer, Gate};
use crate::discovery::Discovered;

pub(crate) use addresses::{AddressSeat, AddressTable, network};
pub(crate) use clock::{Clock, wall};
pub(crate) use door::Door;
pub(crate) use events::{EventKind, EventStats, Events, Happened, Noted};
pub(crate) use keeper::{Keeper, KeeperParts, KeeperStats};
pub(crate) use links::{Hub, Kicks, Links};
pub(crate) use log_limiter::{LineKind, LogLimiter};
pub(crate) use mailbox::Mailbox;
pub(crate) use pulse::Pulse;
pub(crate) use stats::WorkerStats;
pub(crate) use traces::Traces;
pub(crate) use upstream::{BrokerPlace, Upstreams};
pub(crate) use users::{UserSeat, Users};
pub(crate) use wire::Departure;
pub(crate) use worker::{MAIL, Parts, Worker};

use crate::transport::{ClusterTls, Layers, Listener, Peer, Socket};

/// A message from one thread to another.
pub(crate) enum Letter {
    /// For the shard's machine.
    Shard(ToShard),
    /// For the node's machine.
    Node(ShardId, ToNode),
    /// A connection whose client belongs to this shard.
    Handover(Box<Handover>),
    /// Values that the node tells about itself (`$SYS`).
    Report(Vec<Report>),
    /// The gate's answer about a client.
    Authenticated(ConnId, Answer),
    /// The new policy for clients, and the users whose accounts are gone or have another password.
    Policy(Policy, Arc<BTreeSet<Box<str>>>),
    /// A question of another thread.
    Query(Query),
    /// For the node: other nodes may be at these addresses, all that are known.
    Seeds(Vec<SocketAddr>),
    /// For the node: end a connection at another one. The answer is the node that has done it, if there is one.
    Kick(Box<RemoteKick>),
    /// For the node: put a question to other nodes.
    Ask(Box<Ask>),
    /// For the node: the answer to a question of another node, with its number there.
    Answer(NodeId, u64, Bytes),
    /// Other bridges and rules: limits of their queues, and the sessions for which publishers wait.
    Inside(BTreeMap<Box<str>, QueueLimits>, Arc<[Awaits]>),
    /// A session that publishers wait for stands, and these publications are gone from it.
    Arrived(ClientId, Vec<MessageId>),
    /// For the node: be emptied, or serve on.
    Drain(DrainOrder),
    /// For the node: choose a link, or end one.
    Neighbour(NeighbourOrder),
    /// For the node: how many connections with each neighbour, and how publications are spread over them.
    Connections(u8, LinkOrder),
    /// For the node: topics for which it has no room.
    ClosedTopics(Vec<TopicFilter>),
    /// Somebody looks at the busiest topics.
    WatchTopics,
    /// Somebody looks at the tree of topics.
    WatchTopicTree,
    /// These traces run from now on.
    Traces(Arc<[Arc<TraceSpec>]>),
    /// Say good-bye and end; clients can go to these server references.
    Stop(Arc<[Utf8]>),
    /// Behind the publications of that thread: to be answered in [`Shared::answers`] when they are in this thread's journal.
    Mark(ShardId, u64),
    /// This shard has said good-bye to its clients.
    Gone,
}

/// See [`Letter::Kick`].
pub(crate) struct RemoteKick {
    pub(crate) client: ClientId,
    pub(crate) reason: ReasonCode,
    pub(crate) end_session: bool,
    pub(crate) answer: oneshot::Sender<Option<NodeId>>,
}

/// See [`Letter::Ask`].
pub(crate) struct Ask {
    /// The node that is asked; `None`: all other nodes.
    pub(crate) to: Option<NodeId>,
    pub(crate) question: Bytes,
    /// Answers come here; it is dropped when no other comes.
    pub(crate) answers: mpsc::UnboundedSender<(NodeId, Bytes)>,
}

/// See [`Letter::Drain`].
pub(crate) struct DrainOrder {
    /// How long it may take; none: serve on.
    pub(crate) limit: Option<std::time::Duration>,
    /// How it stands then. With the order, since a node that is empty at once may stop before it reads another letter.
    pub(crate) answer: oneshot::Sender<DrainStatus>,
}

/// See [`Letter::Neighbour`].
pub(crate) struct NeighbourOrder {
    /// Where the other node may be.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the link is wanted.
    pub(crate) wanted: bool,
    /// How it stands then, or why nothing was done.
    pub(crate) answer: oneshot::Sender<Result<NodeStatus, NeighbourError>>,
}

/// Looks at a thread's machines and sends the answer wherever it belongs.
pub(crate) type Query = Box<dyn FnOnce(&View<'_>) + Send>;

/// State at which a question may look.
pub(crate) struct View<'a> {
    pub(crate) id: ShardId,
    /// Id and name of the node.
    pub(crate) place: &'a (String, String),
    /// Make of the broker behind the node as the configuration has it.
    pub(crate) make: Option<&'a str>,
    pub(crate) shard: &'a Shard,
    /// Only on the first shard.
    pub(crate) node: Option<&'a Node>,
    pub(crate) stats: &'a WorkerStats,
    /// With a journal only.
    pub(crate) journal: Option<KeeperStats>,
}

impl View<'_> {
    /// Make and version of the broker behind the node, if there is one.
    pub(crate) fn broker(&self) -> Option<String> {
        let (broker, _) = self.shard.upstream()?;
        let known = broker.version.as_deref().or(self.make);
        Some(known.unwrap_or(crate::http::model::UNKNOWN_MAKE).to_owned())
    }
}

/// A connection on its way to its shard.
pub(crate) struct Handover {
    pub(crate) socket: Socket,
    pub(crate) layers: Option<Box<Layers>>,
    /// Number of its listener.
    pub(crate) listener: u16,
    pub(crate) peer: Peer,
    pub(crate) seat: Option<Box<AddressSeat>>,
    /// User that its certificate names.
    pub(crate) user: Option<String>,
    /// Bytes that were read from the connection so far.
    pub(crate) bytes: Vec<Bytes>,
}

/// State that all threads of a node share.
pub(crate) struct Shared {
    /// Id and name of the node.
    pub(crate) place: (String, String),
    /// Make of the broker behind the node as the configuration has it.
    pub(crate) make: Option<String>,
    pub(crate) clock: Clock,
    /// One for each shard.
    pub(crate) boxes: Vec<Mailbox<Letter>>,
    /// Connections of clients, from accepting to closing.
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_max: usize,
    /// Connections to the HTTP port.
    pub(crate) http_visits: Arc<crate::http::Visits>,
    /// Most bytes of a request's body.
    pub(crate) http_body_max: usize,
    /// Where clients come in, by number.
    pub(crate) listeners: Vec<Listener>,
    /// TLS configuration of links, if they are encrypted.
    pub(crate) cluster_tls: Option<Arc<ClusterTls>>,
    /// Authentication of clients, and their rights.
    pub(crate) gate: Arc<Gate>,
    /// Access to the HTTP API.
    pub(crate) api_guard: crate::http::Guard,
    /// Connections by address, if that is limited.
    pub(crate) addresses: Option<Arc<AddressTable>>,
    /// Clients by user, if that is limited.
    pub(crate) users: Option<Arc<Users>>,
    /// Where other nodes may be.
    pub(crate) discovered: Discovered,
    /// Bytes that may be held for all clients together.
    pub(crate) buffered_max: usize,
    /// The node says good-bye.
    pub(crate) stopping: AtomicBool,
    /// The process is to stop when the node is empty.
    pub(crate) stop_when_drained: AtomicBool,
    /// How to stop the process.
    pub(crate) stopper: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The comparison with a broker, while it lives.
    pub(crate) mirror: OnceLock<Weak<sedge_bridge::Mirroring>>,
    /// The reader of a broker's traffic, while it lives.
    pub(crate) sniff: OnceLock<Weak<sedge_bridge::Sniffing>>,
    /// The bridges, while they live.
    pub(crate) bridges: OnceLock<Weak<sedge_bridge::Bridges>>,
    /// Reads the configuration again, if that is known how.
    pub(crate) again: OnceLock<crate::reload::Again>,
    /// The rules, while they live.
    pub(crate) rules: OnceLock<Weak<sedge_bridge::Rules>>,
    /// For each sender and receiver the last [`Letter::Mark`] that was answered; empty without a journal.
    pub(crate) answers: Vec<Vec<AtomicU64>>,
    /// Journals without room.
    pub(crate) full_journals: AtomicUsize,
    /// Shards that have not said good-bye to all their clients.
    pub(crate) busy_shards: AtomicUsize,
    /// The last turn of the thread that drives the node; see [`Pulse`].
    pub(crate) pulse: Pulse,
    /// Recent events.
    pub(crate) events: Events,
    /// Traces that run.
    pub(crate) traces: Traces,
    /// Questions of other nodes.
    pub(crate) desk: crate::http::Desk,
}

impl Shared {
    /// Makes a shard take a turn.
    pub(crate) fn nudge(&self, shard: ShardId) {
        if let Some(mailbox) = self.boxes.get(usize::from(shard.0)) {
            mailbox.nudge();
        }
    }

    /// A connection of a client is gone.
    pub(crate) fn client_gone(&self, listener: u16) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(listener) = self.listeners.get(usize::from(listener)) {
            listener.gone();
        }
    }

    /// Notes what somebody has asked for through the API.
    pub(crate) fn note_order(&self, client: Option<&str>, text: &str) {
        let now = self.clock.now();
        let describe = || Happened::new(EventKind::Operator, false, text).of(client, None);
        self.events.note(EventKind::Operator, now.instant, now.wall.as_millis(), describe);
    }

    /// Puts a letter for `shard` in that comes from no shard.
    pub(crate) fn post(&self, shard: ShardId, letter: Letter) {
        if let Some(mailbox) = self.boxes.get(usize::from(shard.0)) {
            mailbox.post_one(letter);
        }
    }
}
