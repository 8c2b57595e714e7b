//! Inputs and outputs of a [`crate::Shard`] and a [`crate::Node`]: the whole surface that drivers (daemon and simulator) see.
//!
//! A driver owns one `Node` and `shards` many `Shard`s. It carries mail between them in order per sender and receiver, client
//! bytes to and from the shards, link bytes and datagrams to and from the node. It looks into none of the mail.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, ConnId, Duration, NodeId, ShardId};
use sedge_broker::{PublishRate, Report};
use sedge_mqtt::{MessageId, ReasonCode, TopicFilter, Utf8};

use sedge_access::scram::Exchange;
use sedge_broker::{Admission, Awaits, Credentials, Policy, QueueLimits, TraceSpec};

use crate::Mistrust;
use crate::link::Binding;
use crate::mail::{ToNode, ToShard};

/// A connection between two nodes, numbered by the driver's node; never used twice by one process. Dialled links get their
/// number from the node, accepted ones from the driver: see [`LinkId::ACCEPTED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

impl LinkId {
    /// Numbers that a driver gives to accepted links start here.
    pub const ACCEPTED: u64 = 1 << 32;
}

/// An event for a shard.
#[derive(Debug)]
pub enum ShardInput {
    /// A client connection exists and belongs to this shard (see [`crate::Reception`]).
    Opened {
        /// The new connection.
        conn: ConnId,
        /// Address of the other side, for listings.
        peer: String,
        /// User name that the transport has proven, such as that of a client's certificate.
        user: Option<String>,
        /// How fast its client may publish.
        rate: PublishRate,
        /// Whether the other side is a part of this process; see [`sedge_broker::INSIDE_PREFIXES`].
        inside: bool,
    },
    /// Answer to [`ShardOutput::Authenticate`] and [`ShardOutput::Proceed`].
    Authenticated {
        /// The connection it is about.
        conn: ConnId,
        /// The client's identity, or the reason with which it is refused.
        answer: Result<Admission, ReasonCode>,
    },
    /// Another answer to [`ShardOutput::Authenticate`]: the client has to say more.
    Challenge {
        /// The connection it is about.
        conn: ConnId,
        /// The question.
        data: Bytes,
        /// Comes back with what it says.
        exchange: Box<Exchange>,
    },
    /// Accounts that are gone or have another password: connections that rest on them end.
    Revoke {
        /// Their user names.
        users: Arc<BTreeSet<Box<str>>>,
    },
    /// The accounts and rules for clients from here on.
    Policy(Policy),
    /// Other sessions of parts of the process; see [`sedge_broker::Input::Inside`].
    Inside {
        /// The limits of their queues.
        queues: BTreeMap<Box<str>, QueueLimits>,
        /// For which of them publishers wait.
        awaits: Arc<[Awaits]>,
    },
    /// A session of the process stands, and has got rid of publications; see [`sedge_broker::Input::Arrived`].
    Arrived {
        /// Client id of the session.
        session: ClientId,
        /// Some of [`sedge_broker::Broker::awaited`].
        ids: Vec<MessageId>,
    },
    /// These traces run from now on, all of them.
    Traces(Arc<[Arc<TraceSpec>]>),
    /// Somebody looks at the busiest topics.
    WatchTopics,
    /// Somebody looks at the tree of topics.
    WatchTopicTree,
    /// Bytes came from the client.
    Received {
        /// Connection that the bytes came from.
        conn: ConnId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The first `bytes` of [`crate::Shard::outbox`] were taken by the kernel.
    Written {
        /// Connection of the outbox.
        conn: ConnId,
        /// Number of bytes that the kernel took.
        bytes: usize,
    },
    /// The connection is gone without the shard having asked for it.
    Closed {
        /// Which one.
        conn: ConnId,
    },
    /// Mail from the node or another shard.
    Mail(ToShard),
    /// Values that the node tells about itself (see [`crate::sys`]).
    Report(Vec<Report>),
    /// Something of a connection to the broker behind this node: see [`ShardOutput::Upstream`].
    Upstream(UpstreamInput),
    /// The process stood still for more than [`crate::STANDSTILL`]: feed this ahead of everything else, and nothing from clients while
    /// [`crate::Shard::stands_still`].
    StoodStill,
    /// The node stops: say good-bye to all clients and close them.
    Shutdown {
        /// Where else they can go: see [`crate::Node::client_addresses`].
        elsewhere: Arc<[Utf8]>,
    },
}

/// An order to the driver of a shard.
#[derive(Debug)]
pub enum ShardOutput {
    /// The connection's outbox holds something to write.
    Transmit(ConnId),
    /// Close the connection once its outbox is written; give up after a moment if it cannot be.
    Close(ConnId),
    /// Do not read from this connection until told otherwise.
    Hold(ConnId),
    /// Read again.
    Release(ConnId),
    /// Find out who a client is; answer: [`ShardInput::Authenticated`].
    Authenticate(Box<Credentials>),
    /// A client's answer to a [`ShardInput::Challenge`]; answer: [`ShardInput::Authenticated`].
    Proceed {
        /// The connection.
        conn: ConnId,
        /// The message in words.
        data: Bytes,
        /// The data of the challenge.
        exchange: Box<Exchange>,
    },
    /// Mail for the node.
    ToNode(ToNode),
    /// Mail for another shard of this node.
    ToShard(ShardId, ToShard),
    /// A line for the log.
    Event(sedge_broker::Event),
    /// A connection to the broker behind this node, or a line for the log about it.
    Upstream(UpstreamOutput),
}

/// An event of a connection to the broker behind this node; see [`sedge_sidecar::Input`].
#[derive(Debug)]
pub enum UpstreamInput {
    /// A client has proven to own a certificate, which the broker is told of; comes right before [`ShardInput::Opened`].
    Certificate {
        /// The client's connection.
        conn: ConnId,
        /// The certificate's common name.
        name: String,
    },
    /// [`UpstreamOutput::Dial`] has led to a connection.
    Opened(sedge_sidecar::LinkId),
    /// Bytes came.
    Received {
        /// Over which connection.
        link: sedge_sidecar::LinkId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The first `bytes` of [`crate::Shard::upstream_outbox`] were taken by the kernel.
    Written {
        /// Over which connection.
        link: sedge_sidecar::LinkId,
        /// How many.
        bytes: usize,
    },
    /// A connection is gone, or could not be made.
    Closed {
        /// Which one.
        link: sedge_sidecar::LinkId,
        /// Why, in a few words.
        why: String,
    },
}

/// See [`ShardOutput::Upstream`].
#[derive(Debug)]
pub enum UpstreamOutput {
    /// Connect to the broker.
    Dial {
        /// Number of the connection to be.
        link: sedge_sidecar::LinkId,
        /// The client for whom it is; `None`: the node itself.
        origin: Option<sedge_sidecar::Origin>,
    },
    /// The connection's outbox holds something to write.
    Transmit(sedge_sidecar::LinkId),
    /// Close the connection.
    Close(sedge_sidecar::LinkId),
    /// Do not read from the connection, or read again.
    Hold(sedge_sidecar::LinkId, bool),
    /// A line for the log.
    Event(sedge_sidecar::Event),
}

/// An event for a node.
#[derive(Debug)]
pub enum NodeInput {
    /// Mail from a shard.
    Mail {
        /// Which shard.
        from: ShardId,
        /// The mail.
        mail: ToNode,
    },
    /// A datagram came to the cluster port.
    Datagram {
        /// Sender's address.
        from: SocketAddr,
        /// The datagram.
        bytes: Bytes,
    },
    /// A datagram has come that looks like one of a node, and is not taken.
    Mistrusted {
        /// Address that it came from, which nobody has proven.
        from: SocketAddr,
        /// Why.
        cause: Mistrust,
    },
    /// A refusal has come: its sender does not take the datagrams of this node, which nobody has proven.
    Refusal {
        /// Address of the sender.
        from: SocketAddr,
        /// The cause, as the other sees it.
        cause: Mistrust,
    },
    /// The addresses at which there may be nodes, all that are known at this time: they take the place of
    /// [`crate::NodeConfig::seeds`] and of those given before.
    Seeds(Vec<SocketAddr>),
    /// By how many milliseconds the system's clock is ahead of [`sedge_base::Now::wall`]: told to operators. To be given at the start and now and then.
    SystemClock {
        /// Negative: it is behind.
        ahead: i64,
    },
    /// Somebody has connected to the cluster port.
    LinkAccepted {
        /// Number given by the driver.
        link: LinkId,
        /// Address of the other side.
        peer: SocketAddr,
    },
    /// The connection of a link is encrypted from here on: comes before [`NodeInput::LinkDialled`], or before the first bytes
    /// of an accepted one.
    LinkSecured {
        /// Which link.
        link: LinkId,
        /// A secret that only the two ends of the encrypted connection share.
        binding: Binding,
    },
    /// A connection that has to be encrypted cannot be, and is gone.
    LinkInsecure {
        /// Which link.
        link: LinkId,
        /// Why, in a few words.
        why: String,
    },
    /// [`NodeOutput::Dial`] has led to a connection, encrypted if [`crate::link::LinkConfig::encrypted`].
    LinkDialled {
        /// Number from the request.
        link: LinkId,
    },
    /// Bytes came over a link.
    LinkReceived {
        /// Which link.
        link: LinkId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The first `bytes` of [`crate::Node::link_outbox`] were taken by the kernel.
    LinkWritten {
        /// Which link.
        link: LinkId,
        /// How many.
        bytes: usize,
    },
    /// A link is gone, or a dial has failed, without the node having asked for it.
    LinkClosed {
        /// Which link.
        link: LinkId,
    },
    /// A dial has failed because nobody listens there: the host refuses connections. As [`NodeInput::LinkClosed`], and strong
    /// evidence that the node is dead.
    LinkRefused {
        /// Which link.
        link: LinkId,
    },
    /// End the connection of a client that may be at any other node. Answer: [`NodeOutput::Kicked`].
    Kick(Kick),
    /// Put a question to other members. Answers: [`NodeOutput::Answered`].
    Ask {
        /// The member that is asked; `None`: all of them.
        to: Option<NodeId>,
        /// Number that comes back with the answers; ascending.
        request: u64,
        /// Bytes that the drivers of the others understand, at most [`crate::ASK_BYTES_MAX`].
        question: Bytes,
    },
    /// Answer to [`NodeOutput::Asked`].
    Answer {
        /// The node that has asked.
        to: NodeId,
        /// Number of the question there.
        request: u64,
        /// The answer, at most [`crate::ASK_BYTES_MAX`] bytes; empty: there is none.
        answer: Bytes,
    },
    /// Whether there is no room to keep publications with QoS 1 and 2; see [`crate::Shard::set_full`].
    Full(bool),
    /// Topics for whose QoS 1 and 2 publications this node has no room, all of them; publishers to them are refused, at any node.
    ClosedTopics(Vec<TopicFilter>),
    /// These traces run from now on, all of them; the shards are told by the driver, too.
    Traces(Arc<[Arc<TraceSpec>]>),
    /// Empty the node: it takes no clients, and its sessions and the copies that it keeps go to other nodes. Answer:
    /// [`NodeOutput::Drained`], unless it gives up; see [`crate::NodeStatus::drain`]. A second one only sets the limit anew, and is
    /// answered at once if the node is empty.
    Drain {
        /// After which time it gives up and serves on.
        limit: Duration,
    },
    /// Serve on, whether the node is empty or not.
    CancelDrain,
    /// The process stood still for more than [`crate::STANDSTILL`]: feed this ahead of everything else.
    StoodStill,
    /// The node stops: tell the members. Done when the outputs are drained and written.
    Shutdown,
}

/// An operator ends a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kick {
    /// Number that comes back with the answer; ascending.
    pub request: u64,
    /// The client.
    pub client: ClientId,
    /// Reason code that the client is told (5.0); one that DISCONNECT may have.
    pub reason: ReasonCode,
    /// Whether its session ends, too.
    pub end_session: bool,
}

/// An order to the driver of a node.
#[derive(Debug)]
pub enum NodeOutput {
    /// Mail for a shard.
    ToShard(ShardId, ToShard),
    /// Send a datagram from the cluster port.
    Datagram {
        /// Address of the receiver.
        to: SocketAddr,
        /// The datagram.
        bytes: Bytes,
    },
    /// Tell the sender of a datagram that it is not taken: a refusal, which nobody has to believe.
    Refuse {
        /// Where to.
        to: SocketAddr,
        /// Why, as this node sees it.
        cause: Mistrust,
    },
    /// Connect to another node; answer with [`NodeInput::LinkDialled`], [`NodeInput::LinkRefused`] or [`NodeInput::LinkClosed`].
    Dial {
        /// Number of the link to be.
        link: LinkId,
        /// Where to.
        to: SocketAddr,
    },
    /// The link's outbox holds something to write.
    LinkTransmit(LinkId),
    /// Close the link once its outbox is written; give up after a moment if it cannot be.
    LinkClose(LinkId),
    /// Answer to [`NodeInput::Kick`].
    Kicked {
        /// Number from the request.
        request: u64,
        /// The node that owns the client and has ended its connection, if there is one.
        by: Option<NodeId>,
    },
    /// Another node asks: answer with [`NodeInput::Answer`].
    Asked {
        /// The node that asks.
        from: NodeId,
        /// Number of the question there.
        request: u64,
        /// The question of its driver.
        question: Bytes,
    },
    /// An answer to [`NodeInput::Ask`].
    Answered {
        /// Number from the request.
        request: u64,
        /// The node that answers, and its answer; `None`: a node that has nothing to say, or is gone.
        answer: Option<(NodeId, Bytes)>,
        /// Whether no other answer comes.
        last: bool,
    },
    /// The time of the cluster is by so many milliseconds ahead of the time that [`sedge_base::Now::wall`] was so far: all machines of the node get
    /// the changed time from now on, and after a restart.
    SetTime {
        /// Negative: it is behind.
        ahead: i64,
    },
    /// Nothing that clients need is at this node any more: it may stop.
    Drained,
    /// A line for the log.
    Event(NodeEvent),
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// Whether an operator should care.
    pub warning: bool,
    /// The event, as one plain sentence without a full stop.
    pub message: String,
}
