//! From the journals of a node's shards to what its shards and the node begin with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, Incarnation, NodeId, ShardId, Timestamp};
use sedge_broker::{Image, Record, RestoredSession, SessionNumber};
use sedge_mqtt::{Message, MessageId, TopicName};

use crate::mail::{HadAhead, Heard, Life};
use crate::reception::shard_of;
use crate::shard::Choice;
use crate::wire::{Entry, Remembered, SafeAt, WireError, read_entries};

/// The last number of each life and shard of this node that a shard has seen.
pub(crate) type Seen = BTreeMap<(Incarnation, ShardId), u64>;

/// A batch that was written by another version, or is not a batch at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(&'static str);

impl From<WireError> for JournalError {
    fn from(WireError(what): WireError) -> Self {
        Self(what)
    }
}

/// Plays back the journal of one shard.
#[derive(Debug, Default)]
pub struct Recovery {
    image: Image,
    retained: BTreeMap<TopicName, Arc<Message>>,
    seen: Seen,
    choices: BTreeMap<MessageId, Choice>,
    heard: Heard,
    ahead: Ahead,
    /// The last messages that sessions were given, oldest first.
    given: VecDeque<(SessionNumber, MessageId)>,
    /// The life of the node whose sessions these are.
    life: Option<Incarnation>,
    members: Vec<Remembered>,
    taken: Vec<Life>,
    safe: Vec<SafeAt>,
    known: Vec<NodeId>,
}

/// Messages that sessions were given, and that are remembered; the oldest are forgotten first, and may come twice from a former owner.
const MAX_GIVEN: usize = 65_536;

/// Publications that came to some sessions of a shard ahead of those that the shard says have come to all: a foreign broker behind it delivers
/// to one session after the other.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Clients to whose ordinary subscriptions each publication came.
    plain: BTreeMap<MessageId, BTreeSet<ClientId>>,
    /// Publications that came for shared subscriptions.
    shares: BTreeSet<MessageId>,
    /// Of each shard, the number of the last publication that a session had when it came.
    marks: BTreeMap<(NodeId, Incarnation, ShardId), BTreeMap<ClientId, u64>>,
}

/// Publications that came ahead; those of the node with the lowest id are forgotten first, and may come twice.
const MAX_AHEAD: usize = 65_536;

/// Shards of nodes whose publications sessions have come with; those of the node with the lowest id are forgotten first, and may come twice.
const MAX_SOURCES: usize = 4096;

impl Ahead {
    fn note(&mut self, id: MessageId, client: &ClientId, is_share: bool) {
        if is_share {
            self.shares.insert(id);
        } else {
            self.plain.entry(id).or_default().insert(client.clone());
        }
        if self.shares.len() > MAX_AHEAD {
            self.shares.pop_first();
        }
        if self.plain.len() > MAX_AHEAD {
            self.plain.pop_first();
        }
    }

    /// A session has come, and has had everything up to this one.
    fn note_all(&mut self, last: MessageId, client: ClientId) {
        self.marks.entry((last.node, last.incarnation, last.shard)).or_default().insert(client, last.seq);
        while self.marks.len() > MAX_SOURCES {
            self.marks.pop_first();
        }
    }

    /// Everything up to this one has come to all.
    fn forget(&mut self, last: MessageId) {
        let key = (last.node, last.incarnation, last.shard);
        if let Some(clients) = self.marks.get_mut(&key) {
            clients.retain(|_, seq| *seq > last.seq);
            if clients.is_empty() {
                self.marks.remove(&key);
            }
        }
        let first = MessageId { seq: 0, ..last };
        while let Some((&id, _)) = self.plain.range(first..=last).next() {
            self.plain.remove(&id);
        }
        while let Some(&id) = self.shares.range(first..=last).next() {
            self.shares.remove(&id);
        }
    }

    /// Publications by client, and those that came for shared subscriptions.
    pub(crate) fn by_client(self) -> (BTreeMap<ClientId, HadAhead>, BTreeSet<MessageId>) {
        let mut found: BTreeMap<ClientId, HadAhead> = BTreeMap::new();
        for (id, clients) in self.plain {
            for client in clients {
                found.entry(client).or_default().ids.insert(id);
            }
        }
        for (key, clients) in self.marks {
            for (client, seq) in clients {
                found.entry(client).or_default().marks.insert(key, seq);
            }
        }
        (found, self.shares)
    }
}

/// State of a shard whose node is gone.
#[derive(Debug)]
pub(crate) struct Heritage {
    pub(crate) sessions: Vec<RestoredSession>,
    /// Publications that have come to all sessions.
    pub(crate) heard: Heard,
    /// Publications that some of the sessions had besides.
    pub(crate) ahead: Ahead,
    /// Places that were chosen for shared subscriptions.
    pub(crate) choices: BTreeMap<MessageId, Choice>,
}

/// The part of a journal that a shard begins with.
#[derive(Debug, Default)]
pub struct RestoredShard {
    pub(crate) sessions: Vec<RestoredSession>,
    pub(crate) seen: Seen,
    pub(crate) heard: Heard,
    /// Publications that sessions had besides.
    pub(crate) ahead: Ahead,
    /// The last messages that sessions were given: they get none of them again from a former owner that has not given them up for good.
    pub(crate) given: Vec<(ClientId, MessageId)>,
    /// Numbers of sessions in the journal that goes on; `None`: a new one begins.
    pub(crate) numbers: Option<SessionNumber>,
    /// Places that were chosen for QoS 2 publications that are on their way.
    pub(crate) choices: BTreeMap<MessageId, Choice>,
    /// The life of the node whose sessions these are; none if it let no client in.
    pub(crate) life: Option<Incarnation>,
}

/// The part of a journal that the node begins with.
#[derive(Debug, Default)]
pub struct RestoredNode {
    pub(crate) retained: Vec<Arc<Message>>,
    pub(crate) clients: Vec<(ClientId, u64)>,
    /// The nodes that were members when this node ended.
    pub(crate) members: Vec<Remembered>,
    /// Lives of other nodes whose sessions went on elsewhere.
    pub(crate) taken: Vec<Life>,
    /// Those among them whose sessions are safe elsewhere.
    pub(crate) safe: Vec<SafeAt>,
    /// Nodes that may come back with retained messages that were cleared meanwhile.
    pub(crate) known: Vec<NodeId>,
    /// The latest life whose sessions the shards' journals hold; none if they let no client in.
    pub(crate) life: Option<Incarnation>,
}

impl RestoredShard {
    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Number of messages that wait for them or are on their way.
    pub fn messages(&self) -> usize {
        self.sessions.iter().map(|session| session.state.queue.len() + session.state.inflight.len()).sum()
    }
}

/// Choices for publications that are remembered; the oldest one is forgotten first. Only those that are on their way are needed.
const MAX_CHOICES: usize = 65_536;

impl RestoredNode {
    /// Number of retained messages and tombstones.
    pub fn retained(&self) -> usize {
        self.retained.len()
    }
}

impl Recovery {
    /// Takes the next batch in. After an error what came before it in the batch has had its effect, the rest has none.
    pub fn apply(&mut self, batch: Bytes) -> Result<(), JournalError> {
        let Self { image, retained, seen, choices, heard, ahead, given, .. } = self;
        let Self { life, members, taken, safe, known: may_return, .. } = self;
        read_entries(batch, |entry| match entry {
            Entry::Broker(record) => {
                if let Record::Queued { session, item } | Record::Sent { session, item, .. } = &record {
                    let id = item.message;
                    // A message for a shared subscription may have gone on to another member, and come back.
                    if item.group.is_none() {
                        given.push_back((*session, id));
                    }
                    if given.len() > MAX_GIVEN {
                        given.pop_front();
                    }
                    let is_ahead = heard.get(&(id.node, id.incarnation, id.shard)).is_some_and(|last| id.seq > *last);
                    if let Some(client) = image.client(*session).filter(|_| is_ahead) {
                        ahead.note(id, client, item.group.is_some());
                    }
                }
                image.apply(record);
            }
            Entry::Retained(message) => {
                let known = retained.get(&message.topic);
                if known.is_none_or(|known| known.stamp < message.stamp) {
                    let message = sedge_broker::detach(&message);
                    retained.insert(message.topic.clone(), message);
                }
            }
            Entry::Chosen { id, choice } => {
                choices.insert(id, choice);
                if choices.len() > MAX_CHOICES {
                    choices.pop_first();
                }
            }
            Entry::Seen { incarnation, shard, seq } => {
                let last = seen.entry((incarnation, shard)).or_insert(seq);
                *last = seq.max(*last);
            }
            Entry::Heard { node, incarnation, shard, seq } => {
                let last = heard.entry((node, incarnation, shard)).or_insert(seq);
                *last = seq.max(*last);
                ahead.forget(MessageId { node, incarnation, shard, seq: *last });
            }
            Entry::Had { client, last } => ahead.note_all(last, client),
            Entry::Members(all) => *members = all,
            Entry::Life(incarnation) => *life = Some(incarnation),
            Entry::Taken(all) => *taken = all,
            Entry::SafeElsewhere(all) => *safe = all,
            Entry::Known(all) => *may_return = all,
        })?;
        Ok(())
    }

    /// Some batches are missing before the next one.
    pub const fn note_hole(&mut self) {
        self.image.note_hole();
    }

    /// Deliveries whose message was not found.
    pub const fn missing(&self) -> u64 {
        self.image.missing()
    }

    /// Whether everything that there is has been told since the beginning.
    pub(crate) const fn is_whole(&self) -> bool {
        self.image.is_whole()
    }

    /// State of a shard whose node is gone.
    pub(crate) fn into_heritage(self, now: Timestamp) -> Heritage {
        let Self { image, heard, ahead, choices, .. } = self;
        Heritage { sessions: image.finish(now), heard, ahead, choices }
    }

    /// Deals out the contents of the journals of all shards to as many shards as there are now. With as many as before each gets its own,
    /// and its journal goes on.
    pub fn deal(recoveries: Vec<Self>, now: Timestamp, shards: u16) -> (Vec<RestoredShard>, RestoredNode) {
        let same = recoveries.len() == usize::from(shards);
        let common = if same { Seen::new() } else { common(&recoveries) };
        let mut dealt: Vec<_> =
            (0..shards).map(|_| RestoredShard { seen: common.clone(), ..RestoredShard::default() }).collect();
        let mut node = RestoredNode::default();
        for (number, recovery) in recoveries.into_iter().enumerate() {
            let Self { image, retained, seen, choices, heard, ahead, given, life, members, taken, safe, known } =
                recovery;
            // Sessions that have ended or left since have no client: what comes back of them later is another session.
            for (client, id) in given.into_iter().filter_map(|(session, id)| Some((image.client(session)?.clone(), id)))
            {
                if let Some(shard) = dealt.get_mut(usize::from(shard_of(&client, shards).0)) {
                    shard.given.push((client, id));
                }
            }
            // They are in one of the journals.
            node.members.extend(members);
            node.life = node.life.max(life);
            node.taken.extend(taken);
            node.safe.extend(safe);
            node.known.extend(known);
            // A shard that gets sessions of several journals takes them for those of the latest life: it drops none that were served since.
            for (_, shard) in dealt.iter_mut().enumerate().filter(|(at, _)| !same || *at == number) {
                shard.life = shard.life.max(life);
            }
            if let Some(shard) = dealt.get_mut(number).filter(|_| same) {
                (shard.seen, shard.numbers) = (seen, Some(image.last_session()));
                (shard.heard, shard.ahead) = (heard, ahead);
            }
            node.retained.extend(retained.into_values());
            let sessions = image.finish(now);
            // Shards of other numbers than before were chosen by nobody.
            if let Some(shard) = dealt.get_mut(number).filter(|_| same) {
                let open: BTreeSet<_> =
                    sessions.iter().flat_map(|session| &session.transits).map(|(_, message)| message.id).collect();
                shard.choices = choices.into_iter().filter(|(id, _)| open.contains(id)).collect();
            }
            for session in sessions {
                node.clients.push((session.state.client.clone(), session.state.epoch));
                let shard = shard_of(&session.state.client, shards);
                if let Some(shard) = dealt.get_mut(usize::from(shard.0)) {
                    shard.sessions.push(session);
                }
            }
        }
        (dealt, node)
    }
}

/// The publications that every shard had seen: none that any shard lacks.
fn common(recoveries: &[Recovery]) -> Seen {
    let Some((first, others)) = recoveries.split_first() else { return Seen::new() };
    let least = |key: &(Incarnation, ShardId), seq: u64| {
        others.iter().try_fold(seq, |least, other| other.seen.get(key).map(|seq| least.min(*seq)))
    };
    first.seen.iter().filter_map(|(key, seq)| least(key, *seq).map(|seq| (*key, seq))).collect()
}
