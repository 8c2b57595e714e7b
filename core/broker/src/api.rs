//! Inputs and outputs of a [`crate::Broker`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sedge_access::scram::Exchange;
use sedge_base::{ClientId, ConnId, Duration};
use sedge_mqtt::{Message, MessageId, ReasonCode, TopicFilter, TopicName, Utf8};
use smallvec::SmallVec;

use crate::{Admission, Awaits, Census, Policy, PublishRate, QueueLimits, Refusal, SessionState};

/// Names one acknowledgement that a client waits for. Handed out by the broker, handed back with the answer; means nothing to
/// anyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) session: u64,
    pub(crate) kind: TicketKind,
    pub(crate) number: u32,
}

impl Ticket {
    /// Whether it stands for the CONNACK of a session that came with subscriptions from elsewhere.
    pub const fn resumes(self) -> bool {
        matches!(self.kind, TicketKind::Resume)
    }
}

/// Which acknowledgement a [`Ticket`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TicketKind {
    /// PUBACK or PUBREC; the session's publications are numbered, since a packet id may be in use again before the answer.
    Publish,
    /// SUBACK or UNSUBACK; the broker's requests are numbered.
    Subscribe,
    /// CONNACK of a session that came with subscriptions from elsewhere.
    Resume,
}

/// An event for the broker.
#[derive(Debug)]
pub enum Input {
    /// A connection exists. `peer` is its address, for listings.
    Opened {
        /// The new connection.
        conn: ConnId,
        /// Address of the other side.
        peer: String,
        /// User name that the transport has proven, such as that of a client's certificate.
        user: Option<String>,
        /// How fast its client may publish.
        rate: PublishRate,
        /// Whether the other side is a part of this process; see [`crate::INSIDE_PREFIXES`].
        inside: bool,
    },
    /// Answer to [`Output::Authenticate`] and [`Output::Proceed`].
    Authenticated {
        /// The connection it is about.
        conn: ConnId,
        /// The client's identity, or the reason with which it is refused.
        answer: Result<Admission, ReasonCode>,
    },
    /// Another answer to an [`Output::Authenticate`] with a method: the client has to say more (AUTH with 0x18).
    Challenge {
        /// The connection it is about.
        conn: ConnId,
        /// Authentication data for the client.
        data: Bytes,
        /// Comes back with the client's answer; forgotten if the client says nothing.
        exchange: Box<Exchange>,
    },
    /// Accounts that are gone or have another password: connections that rest on them end (0x87).
    Revoke {
        /// Their user names.
        users: Arc<BTreeSet<Box<str>>>,
    },
    /// Another policy from here on.
    Policy(Policy),
    /// QoS 1 and 2 publications that clients make to topics of these filters are refused from here on (0x97), those to all others are not:
    /// the node that has to keep them has no room. 3.1.1, which has no word for it, gets no acknowledgement until there is room.
    ClosedTopics(Arc<[TopicFilter]>),
    /// Another shard of the node has counted its sessions.
    Census(Box<Census>),
    /// Bytes came from the client, in any pieces.
    Received {
        /// Connection that the bytes came from.
        conn: ConnId,
        /// The bytes; packets are sliced out of them without copying.
        bytes: Bytes,
    },
    /// The first `bytes` of the connection's outbox were taken by the kernel. The broker forgets them and refills the outbox with
    /// messages that wait in the session.
    Written {
        /// Connection of the outbox.
        conn: ConnId,
        /// Number of bytes that the kernel took.
        bytes: usize,
    },
    /// The connection is gone without the broker having asked for it.
    Closed {
        /// Which one.
        conn: ConnId,
    },
    /// Answer to [`Output::Claim`]: the client id belongs to this broker now.
    Claimed {
        /// The client.
        client: ClientId,
        /// The connection that claimed; `None`: the former owner has given the session away by itself. The connection may be gone
        /// by now: the session is kept all the same.
        conn: Option<ConnId>,
        /// Which ownership this is; greater than any before.
        epoch: u64,
        /// The session as its former owner gave it away; `None`: whatever this broker holds of the client is the session.
        session: Option<Box<SessionState>>,
    },
    /// Another owner has taken the client id: close its connection (0x8E), publish its will if it is due, and give up the session with
    /// [`Output::Relinquished`]. Ignored for an epoch not above the broker's own, except that [`Output::Relinquished`] is still sent.
    Relinquish {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner.
        epoch: u64,
        /// Whether the new owner starts clean: the session ends and a delayed will is due.
        clean_start: bool,
    },
    /// Answer to [`Output::Interest`]: every reachable node routes accordingly. `retained` holds, for each change that wanted
    /// it (by index), the retained messages that match its filter.
    Settled {
        /// Which request.
        ticket: Ticket,
        /// Retained messages by index of the change.
        retained: Vec<(usize, Vec<Arc<Message>>)>,
    },
    /// Answer to [`Output::Route`]: as many nodes hold the message as have to. `reason` is what the publisher is told.
    Accepted {
        /// Which publication.
        ticket: Ticket,
        /// `Success`, `NoMatchingSubscribers`, or `QuotaExceeded` where it could not be taken.
        reason: ReasonCode,
    },
    /// Other sessions of parts of the process, or other limits for them, from here on.
    Inside {
        /// See [`crate::BrokerConfig::inside_queues`].
        queues: BTreeMap<Box<str>, QueueLimits>,
        /// See [`crate::BrokerConfig::awaits`].
        awaits: Arc<[Awaits]>,
    },
    /// Somebody has a session that publishers wait for, one of [`crate::BrokerConfig::awaits`], and these publications are gone from it.
    Arrived {
        /// Client id of the session.
        session: ClientId,
        /// Some of [`crate::Broker::awaited`], or none.
        ids: Vec<MessageId>,
    },
    /// A message of another shard or node, or the share of a group that was chosen here.
    Deliver(Deliver),
    /// The node tells something about itself: published like any publication, but by nobody.
    Report(Report),
    /// An operator ends this client's connection.
    Kick {
        /// The client.
        client: ClientId,
        /// Reason code that the client is told (5.0).
        reason: ReasonCode,
        /// Whether the session ends, too, and with it the wait of its will; also if the client is away.
        end_session: bool,
    },
    /// The node is drained: until this input comes with `None`, each client that connects or has no CONNACK yet is refused with 0x9C and one of these
    /// server references (3.1.1: return code 3). Clients that are connected stay.
    Drain(Option<Arc<[Utf8]>>),
    /// The session of this client is about to move: its connection ends with 0x9C, its will is published as on a lost connection. If
    /// there is a session then, the answer is [`Output::Leaves`].
    Leave {
        /// The client.
        client: ClientId,
        /// A client that is connected stays so for now, and the answer is [`Output::Stays`].
        if_away: bool,
        /// Server reference of the node that gets the session, without spaces.
        to: Option<Utf8>,
    },
    /// The node stops: all connections are told and closed; wills of the clients are published as on a lost connection. 5.0 clients
    /// are told 0x8B, or, with `elsewhere`, 0x9C and where else to go.
    Shutdown {
        /// Server references of other nodes, each without spaces.
        elsewhere: Arc<[Utf8]>,
    },
}

/// A value that a node tells about itself: a retained message at QoS 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Below `$SYS`, where no client publishes.
    pub topic: TopicName,
    /// The value.
    pub payload: Bytes,
    /// How long it is true without being told again; `None`: until another is told.
    pub expiry: Option<Duration>,
}

/// A message for sessions of this broker.
#[derive(Clone, Debug)]
pub struct Deliver {
    /// The message.
    pub message: Arc<Message>,
    /// Whether to deliver to the ordinary subscriptions that match.
    pub plain: bool,
    /// The shared subscriptions (whole `$share/...` filters) of which one member here has to take it.
    pub groups: SmallVec<[TopicFilter; 1]>,
}

/// One change of a client's subscriptions, for the parts of the node that route towards the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestChange {
    /// The whole filter, `$share/group/` included.
    pub filter: TopicFilter,
    /// Kind of the change.
    pub op: InterestOp,
}

/// See [`InterestChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterestOp {
    /// The client has this subscription. Sent again when `online` of a shared subscription changes.
    Add {
        /// Whether [`Input::Settled`] has to bring retained messages; never for shared subscriptions.
        retained: bool,
        /// Whether the client is connected. Matters for shared subscriptions only: groups prefer members that are.
        online: bool,
    },
    /// The client does not have this subscription any more.
    Remove,
}

/// Statements of a client about itself in CONNECT, and properties of its connection.
#[derive(PartialEq, Eq)]
pub struct Credentials {
    /// The connection.
    pub conn: ConnId,
    /// The client id, chosen by the client or the broker.
    pub client: ClientId,
    /// Address of the other side.
    pub peer: String,
    /// User name that the transport has proven.
    pub certificate: Option<String>,
    /// User name of the CONNECT.
    pub user: Option<String>,
    /// Password of the CONNECT.
    pub password: Option<Bytes>,
    /// Method of an enhanced authentication; with one, user name and password count for nothing.
    pub method: Option<Method>,
}

/// The beginning of an enhanced authentication (MQTT 5.0 section 4.12).
#[derive(Clone, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The client's first data; empty: none.
    pub data: Bytes,
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // No password in any log.
        let has_password = self.password.is_some();
        let mut out = f.debug_struct("Credentials");
        out.field("conn", &self.conn).field("client", &self.client).field("user", &self.user);
        let method = self.method.as_ref().map(|method| &method.name);
        out.field("has_password", &has_password).field("method", &method).finish_non_exhaustive()
    }
}

/// A task for the owner of the broker.
#[derive(Debug)]
pub enum Output {
    /// The connection's outbox holds something to write. Said once until the outbox was looked at with
    /// [`crate::Broker::outbox`].
    Transmit {
        /// Where to.
        conn: ConnId,
    },
    /// Close the connection once its outbox is written (give up after a moment if it cannot be; the broker forgets the outbox
    /// after [`crate::BrokerConfig::close_timeout`]). No more input for it is expected, not even [`Input::Closed`];
    /// [`Input::Written`] is welcome.
    Close {
        /// Which one.
        conn: ConnId,
    },
    /// Do not read from this connection until told otherwise: the client is ahead of what may be taken from it.
    Hold {
        /// Which one.
        conn: ConnId,
    },
    /// Read again.
    Release {
        /// Which one.
        conn: ConnId,
    },
    /// A client has sent PINGREQ: answer with [`crate::Broker::pong`]. Only said with [`crate::BrokerConfig::delivers_elsewhere`].
    Ping {
        /// The client.
        client: ClientId,
        /// Its connection.
        conn: ConnId,
    },
    /// Find out who a client is; answer: [`Input::Authenticated`]. Only asked if [`Policy::authenticate`] says so.
    /// With a method also for a client that is connected and proves again who it is (section 4.12.1).
    Authenticate(Box<Credentials>),
    /// A client's answer to a [`Input::Challenge`]; answer: [`Input::Authenticated`].
    Proceed {
        /// The connection.
        conn: ConnId,
        /// Authentication data of the client.
        data: Bytes,
        /// The exchange that came with the challenge.
        exchange: Box<Exchange>,
    },
    /// A CONNECT was accepted; the client id has to be made ours in the whole cluster. Answer: [`Input::Claimed`].
    Claim {
        /// The client.
        client: ClientId,
        /// Its connection.
        conn: ConnId,
        /// Whether the session starts clean: former owners throw theirs away.
        clean_start: bool,
    },
    /// Answer to [`Input::Relinquish`]: nothing of the client is left here; `session` is what there was. Its interest was
    /// withdrawn by an [`Output::Interest`] before.
    Relinquished {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner, from the request.
        epoch: u64,
        /// The session; `None` if there was none or the new owner starts clean.
        session: Option<Box<SessionState>>,
    },
    /// The session of this client has ended here by itself (expiry, or the end of its connection): the directory may forget it,
    /// unless it knows a later epoch. Also said before [`Output::Relinquished`] if the session ended with the connection that was
    /// closed for it.
    Ended {
        /// The client.
        client: ClientId,
        /// The ownership that ended.
        epoch: u64,
    },
    /// The other shards of the node are to know this; see [`Input::Census`].
    Census(Box<Census>),
    /// Answer to [`Input::Leave`]: there is a session, without a connection.
    Leaves {
        /// The client.
        client: ClientId,
    },
    /// Answer to [`Input::Leave`] with `if_away`: the client is connected.
    Stays {
        /// The client.
        client: ClientId,
    },
    /// The client's subscriptions changed. With a ticket, answer by [`Input::Settled`].
    Interest {
        /// The client.
        client: ClientId,
        /// The changes, in order.
        changes: Vec<InterestChange>,
        /// The acknowledgement that waits for it.
        ticket: Option<Ticket>,
    },
    /// A client of this broker published. The ordinary subscriptions here have got it; all the rest is the owner's: shared
    /// subscriptions, other shards, other nodes, the retained store. With a ticket, answer by [`Input::Accepted`].
    Route {
        /// The message.
        message: Arc<Message>,
        /// The acknowledgement that waits for it; QoS 0 and wills have none.
        ticket: Option<Ticket>,
        /// Whether an ordinary subscription here matched.
        matched: bool,
    },
    /// A member of this shared subscription had been chosen here and does not get it: choose again.
    Bounced {
        /// The message.
        message: Arc<Message>,
        /// The shared subscription.
        group: TopicFilter,
        /// Cause of the return.
        reason: BounceReason,
    },
    /// Something an operator wants to read in the log.
    Event(Event),
}

/// Why a message that a member of a shared subscription was chosen for comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BounceReason {
    /// The shared subscription has no member here (any more).
    NoMember,
    /// The member's session has ended. There may be other members here.
    SessionEnded,
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client is connected.
    Connected {
        /// The client.
        client: ClientId,
        /// Its address.
        peer: String,
        /// Whether it found a session.
        session_present: bool,
    },
    /// A client's connection has ended.
    Disconnected {
        /// The client.
        client: ClientId,
        /// Why, as an MQTT 5.0 reason code.
        reason: ReasonCode,
        /// Why, in words.
        detail: String,
    },
    /// A connection was closed before its client was connected.
    Refused(Box<Refusal>),
    /// A connected client may not publish or subscribe as it wants.
    Denied(Box<Refusal>),
}
