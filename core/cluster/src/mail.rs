//! Mail between the shards of a node and between them and the node. Drivers carry it and look into none of it.
//!
//! Two things rest on the driver's promise to keep the order of mail per sender and receiver: publications of one publisher stay
//! in order on their way to other shards and nodes, and a barrier passes behind everything that was sent before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, ConnId, Incarnation, NodeId, ShardId};
use sedge_broker::{Census, Deliver, InterestChange, RestoredSession, SessionState, SubscriptionState, Ticket};
use sedge_mqtt::{Message, MessageId, PacketId, ReasonCode, TopicFilter, Utf8};

pub use crate::shard::Exact;

/// Mail for a shard, from the node or another shard. Small, so that queues of it are.
#[derive(Debug)]
pub enum ToShard {
    /// A message for the ordinary subscriptions here.
    Plain(Arc<Message>),
    /// A message for the ordinary subscriptions of some clients: see [`Missed`].
    Missed(Box<Missed>),
    /// A message for shared subscriptions here, and perhaps for the ordinary ones, too.
    Share(Box<Deliver>),
    /// A QoS 2 publication that has to be in the journal here before it may be forgotten where it comes from.
    Exact(Box<Exact>),
    /// Answer to [`ToShard::Exact`], with its number. It leaves when the journal has what it is about.
    Kept(u64),
    /// A member of this shared subscription was chosen at another node, which is gone: choose again.
    Again(Box<Again>),
    /// The forward table changes. All shards get the same list.
    Table(Arc<[TableChange]>),
    /// Answer with [`ToNode::BarrierReached`] when all mail before this has had its effect.
    Barrier(u64),
    /// A session comes or goes.
    Session(Box<SessionStep>),
    /// Pass mail on to another shard, behind all that was sent there.
    PassOn(ShardId, Box<Self>),
    /// Every reachable node routes accordingly.
    Settled(Box<Settled>),
    /// Publications that were accepted, or not.
    Accepted(Vec<(Ticket, ReasonCode)>),
    /// The node knows the cluster again: publications that waited for that go on; see [`crate::Shard::restore`].
    Recovered,
    /// The node knows the cluster: clients that connect are let in.
    Open,
    /// The process stood still: nothing is read from clients, and no time is over, until [`ToShard::Open`].
    StandStill,
    /// The process stood still, and the others took the node for dead: all connections end, also those that come until [`ToShard::Open`].
    TakenForDead {
        /// Whether another node had a copy of all sessions: then a successor publishes the wills, and passes on QoS 2 publications that the copy has.
        had_copies: bool,
    },
    /// The process stood still, and the backups had been sent batches up to this one by then. Should one of them have taken the sessions over, it
    /// knows nothing of what is in no batch yet, or in a later one.
    Sent(u64),
    /// Another node has taken over the sessions of this earlier life of this node. If the journal held these sessions, the other node publishes
    /// their wills.
    TakenOver(Incarnation),
    /// An operator ends this client's connection.
    Kick {
        /// The client.
        client: ClientId,
        /// The text for the client (5.0).
        reason: ReasonCode,
        /// Whether its session ends, too.
        end_session: bool,
    },
    /// Topics for which some member has no room; see [`sedge_broker::Input::ClosedTopics`].
    ClosedTopics(Arc<[TopicFilter]>),
    /// Another shard has counted its sessions.
    Census(Box<Census>),
    /// A retained message of another node, for the broker behind this node; see [`Retained`].
    Retained(Box<Retained>),
    /// The node is drained: clients that connect are sent to one of these places instead. `None`: the node takes clients again.
    Drain(Option<Arc<[Utf8]>>),
    /// The session of a client is about to move: its connection ends. Answer: [`ToNode::Leaves`], if there is a session then.
    Leave(Box<Leave>),
    /// Make copies of everything for other nodes, under this number of the attempt: [`ToNode::Batch`]. Mail that depends on a change leaves
    /// when [`ToShard::Copied`] says that it is copied.
    Copy(u32),
    /// More of the state that there was before may be copied.
    CopyMore,
    /// Batches up to this one are where they have to be.
    Copied(u64),
    /// No copies are wanted any more.
    CopyNothing,
    /// Answer with [`ToNode::Marked`], or [`ToShard::Marked`] to a shard, when all mail before this has had its effect and that is
    /// copied.
    Mark(Mark),
    /// Answer of a shard to [`ToShard::Mark`].
    Marked {
        /// Which shard.
        by: ShardId,
        /// Number of the mark.
        mark: u64,
    },
}

/// See [`ToShard::Retained`].
#[derive(Debug)]
pub struct Retained {
    /// The message.
    pub message: Arc<Message>,
    /// Whether it is published just now, so that subscriptions here get it; else only the broker's store does.
    pub is_live: bool,
}

/// See [`ToShard::Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// From the node.
    Node(u64),
    /// From another shard.
    Shard(ShardId, u64),
}

/// See [`ToShard::Leave`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The client.
    pub client: ClientId,
    /// Whether the client stays if it is connected.
    pub if_away: bool,
    /// Server reference of the node that gets the session, if it is known.
    pub to: Option<Utf8>,
}

/// See [`ToShard::Again`].
#[derive(Debug)]
pub struct Again {
    /// The message.
    pub message: Arc<Message>,
    /// The shared subscription.
    pub group: TopicFilter,
    /// Where not to send it.
    pub not: Option<Location>,
    /// How many shards of this node have no member, and none on the move.
    pub tried: u16,
}

/// A step in the life of a session; see [`ToShard::Session`].
#[derive(Debug)]
pub enum SessionStep {
    /// The client id belongs to this shard now.
    Claimed(Claimed),
    /// Another node owns the client id now.
    Relinquish(Relinquish),
    /// A session is about to be announced here that has these shared subscriptions: messages that its members are chosen for wait for it.
    Expect(Adopt),
    /// A session is about to come and its interest is known everywhere: catch what matches, then answer with
    /// [`ToNode::Adopted`].
    Adopt(Adopt),
    /// As [`SessionStep::Collect`], but catching goes on: answer with [`ToNode::Adopted`] once more.
    Flush(Handed),
    /// The new owner of the session has it for good: the rest of it here is forgotten.
    Left(Handed),
    /// The new owner of the session will never have it for good: it goes on here under this epoch.
    TakeBack(Handed, u64),
    /// The session goes on at another node with everything that it has here, and is safe there: nothing of it is needed.
    Discard(ClientId),
    /// The new owner of the session takes its time: answer with [`ToNode::Ahead`] if something was caught since the last time.
    Look(Handed),
    /// Whatever comes for the session from now on from the shard that says so comes to its new owner, too. When it has come from all, answer
    /// with [`ToNode::Leftovers`].
    Collect(Handed),
    /// Sessions of a node that is gone are about to come: catch what matches.
    Inherit(Inherit),
    /// All other messages for the sessions. The sessions come when [`SessionStep::Arrive`] has come from all shards.
    Arriving(Arriving),
    /// See [`SessionStep::Arriving`]. Answer: [`ToNode::Inherited`].
    Arrive(Life),
    /// Another node was the owner of the same client, too, and has given its session up.
    Merge(Merge),
    /// The inheritance of a session that comes here, as its former owner knows it.
    Known(Known),
    /// Another owner of the session gives it up, where the client has these subscriptions: those that it has made there since the copy
    /// are made here, too. Answer: [`ToNode::Resubscribed`].
    Resubscribe {
        /// The client.
        client: ClientId,
        /// The other owner.
        from: NodeId,
        /// Under which epoch the client can have left that owner at the earliest.
        next: u64,
        /// All its subscriptions there.
        subscriptions: Vec<SubscriptionState>,
    },
    /// The session of this client, which may be on its way here, has had this publication before it came: it is not to get it again.
    Had {
        /// The client.
        client: ClientId,
        /// The publication.
        id: MessageId,
    },
    /// Messages that come for the session wait: earlier ones will be merged.
    Hold {
        /// The client.
        client: ClientId,
        /// If not `None`: the messages that the session came with do not matter any more, unless it came from this life. Messages that come from now
        /// on are merged.
        afresh: Option<Life>,
    },
    /// As [`SessionStep::Hold`], for all sessions there are: it will turn out which ones have to wait.
    HoldAll,
    /// The messages that have waited go out.
    LetGo(ClientId),
    /// As [`SessionStep::LetGo`], for all sessions.
    LetGoAll {
        /// Except for those of these clients.
        but: Arc<BTreeSet<ClientId>>,
    },
}

impl SessionStep {
    /// The client of a step that has to wait while that client's session is coming.
    pub(crate) const fn client(&self) -> Option<&ClientId> {
        match self {
            Self::Claimed(Claimed { client, .. })
            | Self::Relinquish(Relinquish { client, .. })
            | Self::Expect(Adopt { client, .. })
            | Self::Adopt(Adopt { client, .. })
            | Self::Left(Handed { client, .. })
            | Self::TakeBack(Handed { client, .. }, _)
            | Self::Flush(Handed { client, .. })
            | Self::Look(Handed { client, .. })
            | Self::Collect(Handed { client, .. })
            | Self::Hold { client, .. }
            | Self::Resubscribe { client, .. }
            | Self::LetGo(client)
            | Self::Discard(client)
            | Self::Had { client, .. }
            | Self::Merge(Merge { client, .. }) => Some(client),
            Self::Inherit(_)
            | Self::Arriving(_)
            | Self::Arrive(_)
            | Self::Known(_)
            | Self::HoldAll
            | Self::LetGoAll { .. } => None,
        }
    }
}

/// The messages that an inherited session came with, should the node that it comes from live after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The client.
    pub client: ClientId,
    /// The former owner of the session.
    pub from: Life,
    /// Messages of the copy: its node had them.
    pub copied: Vec<MessageId>,
    /// Messages of others, which had not yet sent them to its node, or did not know that they had arrived.
    pub added: Vec<MessageId>,
    /// Filters that the copy had subscribed to; `None` from nodes of version 1 of the protocol.
    pub filters: Option<Vec<TopicFilter>>,
}

/// A message that was kept for other nodes than this one, to which its own node sent the messages wanted here.
#[derive(Debug)]
pub struct Missed {
    /// The message.
    pub message: Arc<Message>,
    /// Clients whose sessions were elsewhere then.
    pub clients: BTreeSet<ClientId>,
}

/// See [`SessionStep::Merge`].
#[derive(Debug)]
pub struct Merge {
    /// The client.
    pub client: ClientId,
    /// The other owner.
    pub from: Life,
    /// Messages that its session had to deliver, oldest first.
    pub messages: Vec<Held>,
    /// QoS 2 publications that its client was in the middle of.
    pub received: Vec<PacketId>,
    /// Identifier of the last message that was on its way to its client.
    pub sent: Option<PacketId>,
    /// Under this epoch or a later one the client has connected after it had left that session.
    pub next: u64,
    /// Whether this came late, and says nothing of what else its session had.
    pub is_late: bool,
}

/// One life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// See [`SessionStep::Inherit`].
#[derive(Debug)]
pub struct Inherit {
    /// The former owner of the sessions.
    pub of: Life,
    /// The sessions, each with the shard it was at.
    pub sessions: Vec<(ShardId, RestoredSession)>,
    /// Publications that sessions had beyond those that all sessions of their shard had: see [`Arriving::heard`].
    pub ahead: BTreeMap<ClientId, HadAhead>,
}

/// The publications that one session had and other sessions of its shard had not.
#[derive(Debug, Default)]
pub struct HadAhead {
    /// These publications.
    pub ids: BTreeSet<MessageId>,
    /// Publications of each shard of each node up to this one: the session came to the shard with them.
    pub marks: Heard,
}

impl HadAhead {
    /// Whether the session had this publication.
    pub fn has(&self, id: &MessageId) -> bool {
        self.ids.contains(id) || has_come_to(&self.marks, id)
    }
}

/// See [`SessionStep::Arriving`].
#[derive(Debug)]
pub struct Arriving {
    /// The former owner of the sessions.
    pub of: Life,
    /// Publications that may not have come to them.
    pub strays: Arc<[Arc<Message>]>,
    /// For each shard they were at, how far it had come with the publications of each shard of each node.
    pub heard: Arc<BTreeMap<ShardId, Heard>>,
}

/// See [`SessionStep::Claimed`].
#[derive(Debug)]
pub struct Claimed {
    /// The client.
    pub client: ClientId,
    /// The connection that claimed it; `None`: its former owner has given it away.
    pub conn: Option<ConnId>,
    /// Which ownership this is.
    pub epoch: u64,
    /// The session as its former owner gave it away.
    pub session: Option<Box<SessionState>>,
    /// Messages that came for it at its former owner since then.
    pub leftovers: Vec<Arc<Message>>,
    /// The publications that the coming session has had, if there is a session of the client here, too: the coming one gets the messages that only
    /// the one here had to deliver.
    pub beside: Option<Box<HadElsewhere>>,
    /// The node that has given the session away, and the epoch: answer with [`ToNode::Installed`] when it is copied.
    pub given: Option<(NodeId, u64)>,
    /// The number of the last publication of each shard that the session has had, with all before it, at its former node.
    pub had: Heard,
}

/// A shard in one life of its node.
pub type ShardLife = (NodeId, Incarnation, ShardId);

/// How far the publications of each shard had come.
pub type Heard = BTreeMap<ShardLife, u64>;

/// Whether publications had come as far as this one.
pub(crate) fn has_come_to(marks: &Heard, id: &MessageId) -> bool {
    marks.get(&(id.node, id.incarnation, id.shard)).is_some_and(|last| id.seq <= *last)
}

/// Publications of a shard that a session has not had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last one before it.
    pub after: u64,
    /// The last one of it.
    pub to: u64,
}

/// The gaps of a session, by shard.
pub type Gaps = BTreeMap<ShardLife, Vec<Gap>>;

/// Whether a publication is in one of these gaps.
pub(crate) fn is_in(gaps: &Gaps, id: &MessageId) -> bool {
    let of_shard = gaps.get(&(id.node, id.incarnation, id.shard)).into_iter().flatten();
    of_shard.into_iter().any(|gap| gap.after < id.seq && id.seq <= gap.to)
}

/// The publications that a session has had at another node.
#[derive(Clone, Debug, Default)]
pub struct HadElsewhere {
    /// The number of the last one of each shard.
    pub marks: Arc<Heard>,
    /// Those up to there that it has not had.
    pub gaps: Gaps,
    /// Those that it has had all the same, in a gap or after the last one.
    pub fills: BTreeSet<MessageId>,
}

impl HadElsewhere {
    /// Whether it has had this publication.
    pub(crate) fn has(&self, id: &MessageId) -> bool {
        self.fills.contains(id) || (has_come_to(&self.marks, id) && !is_in(&self.gaps, id))
    }
}

/// See [`SessionStep::Adopt`].
#[derive(Debug)]
pub struct Adopt {
    /// The client.
    pub client: ClientId,
    /// Which ownership this is.
    pub epoch: u64,
    /// The filters of the session, without shared ones.
    pub filters: Vec<TopicFilter>,
}

/// A session that was handed over.
#[derive(Clone, Debug)]
pub struct Handed {
    /// The client.
    pub client: ClientId,
    /// Epoch of the new owner.
    pub epoch: u64,
}

/// See [`SessionStep::Relinquish`].
#[derive(Debug)]
pub struct Relinquish {
    /// The client.
    pub client: ClientId,
    /// Epoch of the new owner.
    pub epoch: u64,
    /// Whether the new owner starts clean.
    pub clean_start: bool,
}

/// One message of [`Merge`].
#[derive(Debug)]
pub struct Held {
    /// The message.
    pub message: Arc<Message>,
    /// Shared subscription that the message is for.
    pub group: Option<TopicFilter>,
    /// Whether it came to this node, too.
    pub seen: bool,
    /// Whether it was held back from the session here, since the other owner said that its session had it: that session has it still to deliver.
    pub is_owed: bool,
    /// Whether the other owner has caught it since it gave its session up.
    pub is_caught: bool,
}

/// See [`ToShard::Settled`].
#[derive(Debug)]
pub struct Settled {
    /// Which request.
    pub ticket: Ticket,
    /// Retained messages by index of the change.
    pub retained: Vec<(usize, Vec<Arc<Message>>)>,
}

/// One change of the forward table that every shard has a copy of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// Another shard of this node has, or no longer has, ordinary subscriptions to this filter.
    Shard {
        /// The shard.
        shard: ShardId,
        /// A filter without `$share`.
        filter: TopicFilter,
        /// Whether anyone there wants it.
        wanted: bool,
    },
    /// Other nodes have, or no longer have, ordinary subscriptions to this filter.
    Remote {
        /// A filter without `$share`.
        filter: TopicFilter,
        /// Whether anyone there wants it.
        wanted: bool,
    },
    /// How many members of a shared subscription are at one place; both numbers zero: none any more.
    Group {
        /// The place.
        at: Location,
        /// The whole filter, `$share/group/` included.
        group: TopicFilter,
        /// Members that are connected.
        online: u32,
        /// Members that are not.
        offline: u32,
    },
}

/// Where members of a shared subscription are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// At a shard of this node.
    Shard(ShardId),
    /// At another node.
    Node(NodeId),
}

/// Mail for the node, from one of its shards. Small, so that queues of it are.
#[derive(Debug)]
pub enum ToNode {
    /// The process stood still, as this shard has noticed.
    StoodStill,
    /// A publication for the retained store, other nodes, or both.
    Publish(Publish),
    /// The subscriptions of a client changed.
    Interest(Box<Interest>),
    /// Answer to [`ToShard::Barrier`].
    BarrierReached {
        /// Its number.
        number: u64,
        /// The number of the last publication that the shard has made.
        made: u64,
    },
    /// A client id has to become ours in the whole cluster.
    Claim {
        /// The client.
        client: ClientId,
        /// Its connection.
        conn: ConnId,
        /// Whether former owners throw their session away.
        clean_start: bool,
    },
    /// Answer to [`ToShard::Leave`]: the session can be moved.
    Leaves(ClientId),
    /// Answer to [`ToShard::Leave`]: the client is connected, and stays for now.
    Stays(ClientId),
    /// Answer to [`SessionStep::Relinquish`].
    Relinquished {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner.
        epoch: u64,
        /// The session, if there is one to be carried on.
        session: Option<Box<SessionState>>,
        /// The number of the last publication that the shard has made.
        made: u64,
        /// Publications of this shard that the session takes along, and that have yet to leave for other nodes.
        along: Vec<MessageId>,
    },
    /// Ahead of [`ToNode::Relinquished`], for a session that was in the journal: how far publications had come for it before the node started
    /// again.
    HadBefore(Box<(ClientId, Arc<Heard>)>),
    /// Ahead of [`ToNode::Relinquished`]: for the new owner under this epoch.
    Known(Box<(u64, Known)>),
    /// See [`SessionStep::Resubscribe`]: the changes of interest.
    Resubscribed {
        /// The client.
        client: ClientId,
        /// The other owner.
        from: NodeId,
        /// The filters that this node's clients want from now on.
        changes: Vec<InterestChange>,
    },
    /// Answer to [`SessionStep::Adopt`] and [`SessionStep::Flush`].
    Adopted {
        /// The session.
        handed: Box<Handed>,
        /// The last publication that the shard had made when it began to catch; none if it had begun before.
        made: Option<u64>,
    },
    /// Answer to [`SessionStep::Claimed`]: the session that this node has given away under this epoch is here, and copied.
    Installed(Box<(NodeId, Handed)>),
    /// Answer to [`SessionStep::Look`]: messages that came for a session since it was handed over, and since the last answer. They will be among
    /// the leftovers, too.
    Ahead(Box<(Handed, Vec<Arc<Message>>)>),
    /// Answer to [`SessionStep::Collect`]: messages that came for a session since it was handed over.
    Leftovers(Box<(Handed, Vec<Arc<Message>>)>),
    /// The shard has announced what its journal held.
    Restored,
    /// The broker behind this node may have forgotten retained messages: answer with [`ToShard::Retained`] for each.
    WantsRetained,
    /// The changes of one turn, for copies at other nodes.
    Batch {
        /// Number of the batch; ascending.
        number: u64,
        /// Number of the attempt that it belongs to.
        attempt: u32,
        /// Entries as in a journal.
        bytes: Bytes,
    },
    /// Answer to [`ToShard::Mark`].
    Marked(u64),
    /// Answer to [`SessionStep::Arrive`]: the sessions of this node are here, and copied.
    Inherited(Life),
    /// The session of this client has ended here by itself.
    Ended {
        /// The client.
        client: ClientId,
        /// The ownership that ended.
        epoch: u64,
    },
}

/// See [`ToNode::Publish`].
#[derive(Debug)]
pub struct Publish {
    /// The message.
    pub message: Arc<Message>,
    /// The acknowledgement that waits for it; `None` for QoS 0 and wills.
    pub ticket: Option<Ticket>,
    /// Whether ordinary subscriptions at other nodes match.
    pub remote: bool,
    /// Whether anyone at this node gets the message.
    pub matched: bool,
    /// Nodes that were chosen for shared subscriptions.
    pub groups: Option<Box<[(NodeId, TopicFilter)]>>,
}

/// See [`ToNode::Interest`].
#[derive(Debug)]
pub struct Interest {
    /// The client.
    pub client: ClientId,
    /// The changes, in order.
    pub changes: Vec<InterestChange>,
    /// The acknowledgement that waits until they are known everywhere.
    pub ticket: Option<Ticket>,
}
