//! The way of publications through the node: from its shards to neighbours, from neighbours to its shards.

use std::sync::Arc;

use sedge_base::{NodeId, ShardId};
use sedge_broker::{Deliver, RetainedStore, SetOutcome};
use sedge_mqtt::{Message, QoS, ReasonCode, TopicFilter, TopicName};
use smallvec::SmallVec;

use crate::link::{Frame, FrameSeq, Publication, SendError};
use crate::mail::{Again, Location, Missed, Publish, Retained, ToShard};
use crate::node::Node;
use crate::node::delivery::copied::Source;
use crate::node::delivery::relay::Parcel;
use crate::node::peers::Peer;
use crate::node::standby::absent::Kept;
use crate::sys;

/// The part of a publication that one neighbour gets.
#[derive(Debug)]
struct Leg {
    to: NodeId,
    plain: bool,
    groups: SmallVec<[TopicFilter; 1]>,
    retained_copy: bool,
}

/// The fate of the frames of a publication.
#[derive(Debug, Default)]
struct Sent {
    frames: SmallVec<[(NodeId, FrameSeq); 8]>,
    /// Nodes that are gone and for whose sessions it is kept.
    orphaned: SmallVec<[NodeId; 2]>,
    /// How many destinations it is relayed to.
    relayed: usize,
    /// How many of them may not want it.
    asked: usize,
    refused: bool,
}

impl Node {
    /// A publication of a client of this node. The retained store has it before anyone can ask for a snapshot that would miss it:
    /// a shard that routed it before the shards knew a new subscription put it into the mail before the answer to the barrier
    /// that the new subscription waits for.
    pub(in crate::node) fn publish(&mut self, shard: ShardId, publish: Publish) {
        let Some(publish) = self.waits_to_be_passed_on(shard, publish) else { return };
        let Publish { message, ticket, remote, matched, groups } = publish;
        self.had.note(self.now.instant, &message, false);
        self.keep_pace(&message);
        let remote = remote && !sys::stays_here(&message.topic);
        let mut legs = Vec::new();
        self.plan(&message, remote, &mut legs);
        if self.operators.tracer.is_some() {
            let chosen = groups.as_deref().unwrap_or_default();
            let plain = legs.iter().filter(|leg| leg.plain).map(|leg| leg.to);
            self.trace_routed(&message, plain.chain(chosen.iter().map(|(node, _)| *node)).collect(), chosen.len());
        }
        if let Some(ticket) = ticket
            && self.is_full_elsewhere(&message, &legs, groups.as_deref().unwrap_or_default())
        {
            self.counters.publications_refused += 1;
            return self.accepted(shard, ticket, ReasonCode::QuotaExceeded);
        }
        let (message, stored) = if message.retain { self.retain_own(message) } else { (message, true) };
        for (node, group) in groups.into_iter().flatten() {
            // The shard may have chosen a node that is gone since: what is kept for its sessions goes to members of theirs (FT-20).
            if self.overlay.is_linked(node) || self.orphans.has(node) {
                leg(&mut legs, node).groups.push(group);
            } else {
                self.again(shard, &message, group, node);
            }
        }
        let is_chosen = legs.iter().any(|leg| !leg.groups.is_empty());
        let plain = legs.iter().filter(|leg| leg.plain).count();
        let entry = ticket.map(|_| self.acks.reserve());
        let sent = self.send_legs(Some(shard), entry, &message, legs);
        let (Some(ticket), Some(entry)) = (ticket, entry) else { return };
        // A node that was asked may want the publication yet: see `send_released`.
        let reason = match (stored && !sent.refused, matched || is_chosen || plain > sent.asked) {
            (false, _) => ReasonCode::QuotaExceeded,
            (true, true) => ReasonCode::Success,
            (true, false) => ReasonCode::NoMatchingSubscribers,
        };
        if sent.frames.is_empty() && sent.orphaned.is_empty() && sent.relayed == 0 {
            self.accepted(shard, ticket, reason);
        } else {
            self.acks.wait(entry, (shard, ticket, reason), &sent.frames, &sent.orphaned, sent.relayed);
        }
    }

    /// Whether a neighbour that is known to want the publication has no room to keep it.
    fn is_full_elsewhere(&self, message: &Message, legs: &[Leg], groups: &[(NodeId, TopicFilter)]) -> bool {
        let is_full = |node: &NodeId| self.is_full_at(*node);
        if groups.iter().any(|(node, _)| self.overlay.is_linked(*node) && is_full(node)) {
            return true;
        }
        let mut full = legs.iter().map(|leg| leg.to).filter(is_full).peekable();
        if full.peek().is_none() {
            return false;
        }
        let mut asked = Vec::new();
        if !message.retain {
            self.overlay.unanswered(&message.topic, &mut asked);
        }
        full.any(|node| !asked.contains(&node))
    }

    /// Whether a neighbour has no room to keep what it would get.
    pub(in crate::node) fn is_full_at(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.is_full)
    }

    /// A publication from another node, of this number there. It is put into the store first, so that no snapshot misses what was
    /// delivered before it.
    pub(in crate::node) fn publication(&mut self, from: Source, number: u64, publication: Publication) {
        let Publication { message, plain, groups, retained_copy, .. } = publication;
        if retained_copy || (message.retain && sys::tells_of_a_node(&message.topic)) {
            let is_live = plain && !self.windows.has(&message.id);
            self.retain_new(&message, is_live);
        }
        // The share of a group may come a second time, and back to its origin: it is chosen again where there was no member.
        let fresh = (plain || retained_copy) && self.is_fresh(&message) && self.note_had(from, &message);
        if self.operators.tracer.is_some() {
            self.trace_came(from, &message, plain && !fresh);
        }
        let missed = if plain && fresh { self.who_missed(from, &message) } else { None };
        let mut shards = SmallVec::<[(ShardId, SmallVec<[TopicFilter; 1]>); 4]>::new();
        if plain && fresh {
            self.interest.shards_for(&message.topic, |shard| {
                if shards.iter().all(|(known, _)| *known != shard) {
                    shards.push((shard, SmallVec::new()));
                }
            });
        }
        let plain_shards = shards.len();
        if !groups.is_empty() && message.qos == QoS::ExactlyOnce {
            self.shares.note(&message.id);
        }
        for group in groups {
            // Shard 0 gives back what has no member here, and so it is chosen again.
            let shard = self.interest.choose(&group).unwrap_or_default();
            match shards.iter_mut().find(|(known, _)| *known == shard) {
                Some((_, chosen)) => chosen.push(group),
                None => shards.push((shard, SmallVec::from_iter([group]))),
            }
        }
        let is_marked = self.copies.is_active() && number > 0 && message.qos > QoS::AtMostOnce;
        for (at, (shard, groups)) in shards.into_iter().enumerate() {
            if is_marked {
                self.marks.note(from, number, shard);
            }
            let (message, mut plain) = (Arc::clone(&message), at < plain_shards);
            if let Some(clients) = missed.clone().filter(|_| plain) {
                let missed = Missed { message: Arc::clone(&message), clients };
                self.tell_shard(shard, ToShard::Missed(Box::new(missed)));
                plain = false;
            }
            let mail = match (plain, groups.is_empty()) {
                (false, true) => continue,
                (true, true) => ToShard::Plain(message),
                (_, false) => ToShard::Share(Box::new(Deliver { message, plain, groups })),
            };
            self.tell_shard(shard, mail);
        }
    }

    /// Whether a publication was neither made here nor seen before.
    fn is_fresh(&mut self, message: &Message) -> bool {
        let id = message.id;
        if (id.node, id.incarnation) == (self.config.node, self.config.incarnation) {
            self.counters.publications_looped += 1;
            return false;
        }
        let fresh = self.windows.note(&id);
        self.counters.publications_repeated += u64::from(!fresh);
        fresh
    }

    /// Sends a publication of a node that is gone to all who may not have had it.
    pub(in crate::node) fn publish_for(&mut self, message: &Arc<Message>) {
        let mut legs = Vec::new();
        self.plan(message, true, &mut legs);
        self.send_legs(None, None, message, legs);
    }

    /// The nodes that a publication goes to because of ordinary subscriptions and of the retained stores.
    fn plan(&mut self, message: &Arc<Message>, plain: bool, legs: &mut Vec<Leg>) {
        let origin = message.id.node;
        let mut nodes = Vec::new();
        if plain {
            self.overlay.destinations(&message.topic, &mut nodes);
            if self.overlay.relays() {
                // A member to which there never was a link is not served, whatever the algorithm thinks of it.
                nodes.retain(|node| self.peers.contains_key(node));
            }
            self.plan_for_orphans(message, &mut nodes);
            for node in nodes.drain(..).filter(|node| *node != origin) {
                leg(legs, node).plain = true;
            }
        }
        if message.retain && !sys::tells_of_a_node(&message.topic) {
            self.overlay.everyone(&mut nodes);
            for node in nodes.into_iter().filter(|node| *node != origin) {
                leg(legs, node).retained_copy = true;
            }
        }
    }

    fn send_legs(
        &mut self,
        shard: Option<ShardId>,
        entry: Option<u64>,
        message: &Arc<Message>,
        legs: Vec<Leg>,
    ) -> Sent {
        let mut sent = Sent::default();
        let relays = self.overlay.relays();
        let mut parcels = SmallVec::<[Parcel; 8]>::new();
        for leg in legs {
            let Leg { to, mut plain, mut groups, mut retained_copy } = leg;
            let message = Arc::clone(message);
            let kept = self.stray(to, &message, plain, &groups);
            if kept == Kept::Awaited {
                sent.orphaned.push(to);
                // The successor of the life that had the members has others chosen; the next life, which may be linked, does not.
                let is_kept = self.keeps_for_groups(to);
                for group in groups.drain(..).filter(|_| !is_kept) {
                    self.again(shard.unwrap_or_default(), &message, group, to);
                }
                if !plain && !retained_copy {
                    continue;
                }
            }
            // Behind what was kept before it, as soon as there is a link: see `give_kept`.
            let is_given_later = kept != Kept::No && !self.peers.get(&to).is_some_and(Peer::is_up);
            let chosen = if groups.is_empty() { None } else { Some(groups.clone()) };
            if relays && !is_given_later && (plain || retained_copy) && self.peers.contains_key(&to) {
                parcels.push(Parcel { to, plain, retained_copy });
                (plain, retained_copy) = (false, false);
                if chosen.is_none() {
                    continue;
                }
            }
            let publication =
                Publication { message: Arc::clone(&message), plain, groups, retained_copy, waybill: None };
            let frame = Frame::Publication(publication);
            let result =
                if is_given_later { Err(SendError::NoChannel) } else { self.links.send(self.now.instant, to, frame) };
            match result {
                Ok(_) if self.config.link_qos == Some(QoS::AtMostOnce) => {}
                Ok(seq) => sent.frames.push((to, seq)),
                Err(SendError::NoChannel) if kept == Kept::Awaited => {}
                Err(SendError::NoChannel) => {
                    self.counters.publications_without_channel += u64::from(kept == Kept::No);
                    for group in chosen.into_iter().flatten() {
                        self.again(shard.unwrap_or_default(), &message, group, to);
                    }
                }
                Err(SendError::Full | SendError::TooLarge) => {
                    self.counters.publications_refused += 1;
                    sent.refused |= message.qos > QoS::AtMostOnce;
                }
            }
        }
        if shard.is_some() && !parcels.is_empty() {
            (sent.relayed, sent.asked) = self.keep_back(message, entry, &mut parcels);
        }
        if !parcels.is_empty() {
            let dispatched = self.dispatch(message, &parcels, entry, false);
            sent.relayed += dispatched.kept;
            sent.refused |= dispatched.refused;
        }
        sent
    }

    /// Puts a message into the retained store; false if there is no room for it.
    /// With `is_live` it is published just now; a broker behind this node delivers it then.
    pub(in crate::node) fn retain(&mut self, message: &Arc<Message>, is_live: bool) -> bool {
        let outcome = self.store_for(&message.topic).set(message);
        if matches!(outcome, SetOutcome::Stored | SetOutcome::Cleared) {
            self.tell_upstream(message, is_live);
        }
        self.note_outcome(message, outcome)
    }

    /// The broker behind this node, if there is one, hears what clients of other nodes have retained or cleared.
    fn tell_upstream(&mut self, message: &Arc<Message>, is_live: bool) {
        let is_foreign = message.id.node != self.config.node && !sys::tells_of_a_node(&message.topic);
        if self.config.has_upstream && is_foreign {
            let retained = Retained { message: Arc::clone(message), is_live };
            self.tell_shard(ShardId(0), ToShard::Retained(Box::new(retained)));
        }
    }

    /// The broker behind this node gets all retained messages, and hears what was cleared.
    pub(in crate::node) fn give_retained(&mut self) {
        for message in self.retained.everything() {
            let retained = Retained { message, is_live: false };
            self.tell_shard(ShardId(0), ToShard::Retained(Box::new(retained)));
        }
    }

    /// [`Self::retain`] for a publication that has just come from another node: a topic without a value is not cleared. A broker behind this
    /// node may have a value from a client of its own.
    fn retain_new(&mut self, message: &Arc<Message>, is_live: bool) {
        if !message.payload.is_empty() || self.store_for(&message.topic).knows(&message.topic) {
            self.retain(message, is_live);
        } else {
            self.tell_upstream(message, is_live);
        }
    }

    /// The same for a publication of a client of this node; returns what is to be passed on.
    fn retain_own(&mut self, message: Arc<Message>) -> (Arc<Message>, bool) {
        let (message, outcome) = self.store_for(&message.topic).publish(message);
        let stored = self.note_outcome(&message, outcome);
        (message, stored)
    }

    fn store_for(&mut self, topic: &TopicName) -> &mut RetainedStore {
        if sys::tells_of_a_node(topic) { &mut self.sys } else { &mut self.retained }
    }

    /// False if there was no room.
    fn note_outcome(&mut self, message: &Arc<Message>, outcome: SetOutcome) -> bool {
        if let Some(journal) = &mut self.journal
            && matches!(outcome, SetOutcome::Stored | SetOutcome::Cleared)
            && !sys::tells_of_a_node(&message.topic)
        {
            journal.push(message);
        }
        let full = outcome == SetOutcome::Full;
        self.counters.retained_refused += u64::from(full);
        !full
    }

    /// A shared subscription gets a message somewhere else than at this node.
    pub(in crate::node) fn again(&mut self, shard: ShardId, message: &Arc<Message>, group: TopicFilter, not: NodeId) {
        let (message, not) = (Arc::clone(message), Some(Location::Node(not)));
        self.tell_shard(shard, ToShard::Again(Box::new(Again { message, group, not, tried: 0 })));
    }
}

fn leg(legs: &mut Vec<Leg>, to: NodeId) -> &mut Leg {
    let at = legs.iter().position(|leg| leg.to == to).unwrap_or_else(|| {
        legs.push(Leg { to, plain: false, groups: SmallVec::new(), retained_copy: false });
        legs.len() - 1
    });
    &mut legs[at]
}
