//! Record of the messages that clients saw, and of those that they had a right to see.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::Instant;
use sedge_mqtt::{QoS, TopicFilter, TopicName};

/// A publication by a client.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) publisher: usize,
    /// Which connection of the publisher it was first sent on: order is promised within one.
    pub(crate) connection: u64,
    pub(crate) topic: TopicName,
    pub(crate) qos: QoS,
    pub(crate) sent: Instant,
    /// Whether it was sent again with DUP: then it may come late to clients that subscribed in between.
    pub(crate) repeated: bool,
    /// When the publisher got the acknowledgement.
    pub(crate) acknowledged: Option<Instant>,
}

/// A subscription, while a client had a right to messages that match.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) client: usize,
    pub(crate) session: u64,
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    /// Whether the session outlives its connection.
    pub(crate) persistent: bool,
    /// When the SUBACK arrived.
    pub(crate) from: Instant,
    /// When the client gave it up, or its session ended.
    pub(crate) until: Option<Instant>,
}

/// A message that reached a client's application: QoS 2 repetitions are already sorted out by the client.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) publication: usize,
    pub(crate) at: Instant,
    pub(crate) qos: QoS,
    pub(crate) dup: bool,
    pub(crate) retained: bool,
}

/// A time during which two nodes that could not hear of each other held a session of one client.
///
/// No node can then know the deliveries of the other copy: a client that goes to and fro between the two may get a message from both.
/// The promise for a session is about one session; [`crate::invariant::agreement`] asks that it is one again.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) client: usize,
    pub(crate) from: Instant,
    /// When one of the two was given up.
    pub(crate) until: Option<Instant>,
}

/// A time during which some nodes could not hear each other, or had not yet found each other again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) from: Instant,
    pub(crate) until: Option<Instant>,
}

/// A client that came to another node, until it was served there.
///
/// A session waits until every member knows of its move, so that messages on their way are told from those it had before; but it waits no
/// longer than [`sedge_cluster::NodeConfig::claim_timeout`]. If a member cannot be reached for so long, messages that this member had sent
/// towards the new node for others, before it knew, may come to this session, too, which had them at the former node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) client: usize,
    pub(crate) from: Instant,
    pub(crate) until: Option<Instant>,
}

/// Repetitions and disorder that break no promise, as `docs/guarantees.md` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excused {
    /// Deliveries while two nodes held the session, on two sides of a partition.
    pub splits: usize,
    /// Deliveries to a session that moved while nodes were out of reach.
    pub moves: usize,
    /// Deliveries of publications whose publisher repeated them at another node, after a node had died that had no complete copies.
    pub uncopied: usize,
}

impl Excused {
    /// Both, when two checks have been made.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            splits: self.splits + other.splits,
            moves: self.moves + other.moves,
            uncopied: self.uncopied + other.uncopied,
        }
    }

    const fn add(&mut self, excuse: Excuse) {
        match excuse {
            Excuse::Split => self.splits += 1,
            Excuse::Move => self.moves += 1,
            Excuse::Uncopied => self.uncopied += 1,
        }
    }
}

impl core::fmt::Display for Excused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { splits, moves, uncopied } = self;
        write!(f, "{splits} by splits, {moves} by moves during cuts, {uncopied} by deaths without a copy")
    }
}

/// Why a repetition or disorder breaks no promise.
#[derive(Clone, Copy, Debug)]
enum Excuse {
    Split,
    Move,
    Uncopied,
}

/// Everything clients saw.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) publications: Vec<Publication>,
    pub(crate) subscriptions: Vec<Subscription>,
    /// By client and session, in order of arrival.
    pub(crate) deliveries: BTreeMap<(usize, u64), Vec<Delivery>>,
    /// Sessions that two nodes held.
    pub(crate) splits: Vec<Split>,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) moves: Vec<Move>,
    /// When nodes died that had no complete copies and no journal.
    pub(crate) uncopied_deaths: Vec<Instant>,
    /// Clients that subscribe to a shared subscription and to nothing else.
    pub(crate) workers: BTreeSet<usize>,
    /// Whether the sessions of some of them end with their connections.
    pub(crate) workers_end: bool,
    /// Whether nodes are cut off from each other in this run: only then splits and moves excuse anything.
    pub(crate) has_partitions: bool,
    /// Seconds after which publications with an expiry expire.
    pub(crate) expiry: u32,
    /// Sessions that were to stay and did not.
    pub(crate) lost_sessions: Vec<String>,
    /// Broken rules of the protocol, seen by clients.
    pub(crate) protocol: Vec<String>,
    /// Whether anything happened after which acknowledged messages may be lost for now: a node crashed, or was declared dead.
    pub(crate) disturbed: bool,
}

impl Oracle {
    pub(crate) fn subscribed(&mut self, subscription: Subscription) {
        let (client, session, now) = (subscription.client, subscription.session, subscription.from);
        self.unsubscribed(client, session, &subscription.filter.clone(), now);
        self.subscriptions.push(subscription);
    }

    pub(crate) fn unsubscribed(&mut self, client: usize, session: u64, filter: &TopicFilter, now: Instant) {
        for known in &mut self.subscriptions {
            if known.client == client && known.session == session && known.until.is_none() && known.filter == *filter {
                known.until = Some(now);
            }
        }
    }

    /// The session is over: it has no more rights.
    pub(crate) fn ended(&mut self, client: usize, session: u64, now: Instant) {
        for known in &mut self.subscriptions {
            if known.client == client && known.session == session && known.until.is_none() {
                known.until = Some(now);
            }
        }
    }

    pub(crate) fn delivered(&mut self, client: usize, session: u64, delivery: Delivery) {
        self.deliveries.entry((client, session)).or_default().push(delivery);
    }

    /// Whether a publication may be said to live so many seconds: its publisher's expiry, less the time it waited, to a second or two.
    pub(crate) fn may_live(&self, publication: usize, life: u32, now: Instant) -> bool {
        let waited = now.since(self.publications[publication].sent).as_secs();
        u64::from(life) <= u64::from(self.expiry) && u64::from(life) + waited + 2 >= u64::from(self.expiry)
    }

    /// Notes the clients of whom two nodes hold a session at `now`.
    pub(crate) fn split(&mut self, now: Instant, clients: &BTreeSet<usize>) {
        let open = |split: &&mut Split| split.until.is_none();
        let mut known = BTreeSet::new();
        for split in self.splits.iter_mut().filter(open) {
            if clients.contains(&split.client) {
                known.insert(split.client);
            } else {
                split.until = Some(now);
            }
        }
        let fresh = clients.difference(&known).map(|client| Split { client: *client, from: now, until: None });
        self.splits.extend(fresh);
    }

    /// Some nodes cannot hear each other.
    pub(crate) fn cut(&mut self, now: Instant) {
        if self.cuts.last().is_none_or(|cut| cut.until.is_some()) {
            self.cuts.push(Cut { from: now, until: None });
        }
    }

    /// All nodes know each other.
    pub(crate) fn joined(&mut self, now: Instant) {
        if let Some(cut) = self.cuts.last_mut() {
            cut.until.get_or_insert(now);
        }
    }

    /// A client turns to another node than before.
    pub(crate) fn moves(&mut self, client: usize, now: Instant) {
        self.moves.push(Move { client, from: now, until: None });
    }

    /// A client is served.
    pub(crate) fn served(&mut self, client: usize, now: Instant) {
        let open = self.moves.iter_mut().filter(|one| one.client == client && one.until.is_none());
        open.for_each(|one| one.until = Some(now));
    }

    /// Whether the publisher's node could not know of this subscription: it was made, or the session ends with a connection, while
    /// some nodes could not hear each other.
    pub(crate) fn is_out_of_reach(&self, subscription: &Subscription, publication: &Publication) -> bool {
        self.cuts.iter().any(|cut| {
            let during =
                publication.acknowledged.is_none_or(|at| at >= cut.from) && is_before(publication.sent, cut.until);
            during && (!subscription.persistent || subscription.from >= cut.from)
        })
    }

    /// Whether a second copy of a message, or one out of order, breaks no promise, and is counted. See [`Split`] and [`Move`].
    pub(crate) fn excuses(&self, client: usize, delivery: &Delivery, excused: &mut Excused) -> bool {
        let excuse = self.excuse(client, delivery);
        if let Some(excuse) = excuse {
            excused.add(excuse);
        }
        excuse.is_some()
    }

    /// Whether the order of a delivery counts for nothing.
    pub(crate) fn is_excused(&self, client: usize, delivery: &Delivery) -> bool {
        self.excuse(client, delivery).is_some()
    }

    /// A node dies while no other one has all that it has. Whatever its clients have published there and not had acknowledged, and nobody else has
    /// noted, may have been delivered, and is new at the node where the client repeats it. A message that its clients have acknowledged there is on
    /// its way in the copy, which sends it again with DUP.
    pub(crate) fn dies_alone(&mut self, now: Instant) {
        self.uncopied_deaths.push(now);
    }

    fn excuse(&self, client: usize, delivery: &Delivery) -> Option<Excuse> {
        let publication = &self.publications[delivery.publication];
        let mut between = self.uncopied_deaths.iter().filter(|at| publication.sent <= **at && **at <= delivery.at);
        if (publication.repeated || delivery.dup) && between.next().is_some() {
            return Some(Excuse::Uncopied);
        }
        if !self.has_partitions {
            return None;
        }
        // It came after the second copy of the session had appeared, and was sent while there were two; or its publisher sent it
        // to both copies of the publisher's own session, neither of which knew the publications that the other had taken.
        let split = self.splits.iter().any(|split| {
            let concerned = split.client == client || (publication.repeated && split.client == publication.publisher);
            concerned && split.from <= delivery.at && is_before(publication.sent, split.until)
        });
        // It came after the move, and was sent before all nodes could learn of it.
        let moved = self.moves.iter().filter(|one| one.client == client && one.from <= delivery.at).any(|one| {
            let mut during =
                self.cuts.iter().filter(|cut| is_before(cut.from, one.until) && is_before(one.from, cut.until));
            during.any(|cut| is_before(publication.sent, cut.until))
        });
        if split { Some(Excuse::Split) } else { moved.then_some(Excuse::Move) }
    }
}

/// Whether this was not after `end`, if there is one.
fn is_before(at: Instant, end: Option<Instant>) -> bool {
    end.is_none_or(|end| at <= end)
}
