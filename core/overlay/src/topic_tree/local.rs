//! This node's part in topics, and the changes of it that the neighbours have not been told yet.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{ClientId, Deadlines, Instant, LookupMap, Rng, Seed};
use sedge_mqtt::{TopicFilter, TopicName};

use super::TopicTreeConfig;
use super::interest::{Counts, Interest, Sum};
use super::overlaps::Overlaps;
use super::signal::{Change, Signal, change_len, interest_len};
use crate::{Advert, AdvertOp, Token};

/// One interest of this node.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Some client has it.
    current: bool,
    /// The neighbours have been told.
    announced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Published {
    last: Instant,
    /// Number of the signal that announces it; none before it was sent.
    number: Option<u64>,
}

/// How far the others know that this node publishes a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publishing {
    /// Nobody knows.
    Begins,
    /// The nodes that have confirmed this number know; none: no node has been asked.
    Asked(Option<u64>),
    /// There are too many topics.
    Refused,
}

/// News for the neighbours.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) signals: Vec<Signal>,
    /// Filters of the interests that this node has given up.
    pub(super) ended: Vec<TopicFilter>,
}

#[derive(Debug)]
pub(super) struct Local {
    /// Subscriptions, with whether the client is connected.
    clients: BTreeMap<(ClientId, TopicFilter), bool>,
    /// Clients per plain filter.
    wants: BTreeMap<TopicFilter, u32>,
    groups: BTreeMap<TopicFilter, Counts>,
    published: LookupMap<TopicName, Published>,
    /// When to look whether a topic is still published.
    idle: Deadlines<TopicName>,
    /// Interests that are current or announced.
    interests: Overlaps<Standing>,
    told_groups: BTreeMap<TopicFilter, Counts>,
    touched: BTreeSet<Interest>,
    touched_groups: BTreeSet<TopicFilter>,
    /// Sum of the announced interests.
    sum: Sum,
    /// Tokens that wait for untold changes, and until when each of them waits.
    pub(super) tokens: Vec<(Token, Instant)>,
    /// Number of the last signal that asked.
    pub(super) number: u64,
    /// Somebody waits for an answer of all neighbours although nothing changes.
    pub(super) asks_all: bool,
}

impl Local {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            clients: BTreeMap::new(),
            wants: BTreeMap::new(),
            groups: BTreeMap::new(),
            published: LookupMap::new(Seed::from_rng(rng)),
            idle: Deadlines::new(),
            interests: Overlaps::new(),
            told_groups: BTreeMap::new(),
            touched: BTreeSet::new(),
            touched_groups: BTreeSet::new(),
            sum: Sum::default(),
            tokens: Vec::new(),
            number: 0,
            asks_all: false,
        }
    }

    /// A subscription of a client changes.
    pub(super) fn apply(&mut self, change: Advert) {
        let Advert { client, filter, op } = change;
        let interest = Interest::subscriber(filter.clone());
        if interest_len(&interest).is_none() {
            // Too long for MQTT: no client can have sent it.
            return;
        }
        let key = (client, filter.clone());
        let (before, after) = match op {
            AdvertOp::Add { online } => (self.clients.insert(key, online), Some(online)),
            AdvertOp::Remove => (self.clients.remove(&key), None),
        };
        if filter.share_group().is_some() {
            return self.count_members(filter, before, after);
        }
        let clients = self.wants.entry(filter).or_insert(0);
        let had_any = *clients > 0;
        *clients = *clients + u32::from(after.is_some()) - u32::from(before.is_some());
        let has_any = *clients > 0;
        if !has_any {
            self.wants.remove(&interest.filter);
        }
        if had_any != has_any {
            self.turn(interest, has_any);
        }
    }

    fn count_members(&mut self, group: TopicFilter, before: Option<bool>, after: Option<bool>) {
        let counts = self.groups.entry(group.clone()).or_default();
        if let Some(online) = after {
            *counts.of(online) += 1;
        }
        if let Some(online) = before {
            *counts.of(online) -= 1;
        }
        if *counts == Counts::NONE {
            self.groups.remove(&group);
        }
        self.touched_groups.insert(group);
    }

    fn turn(&mut self, interest: Interest, current: bool) {
        match self.interests.get_mut(&interest) {
            Some(standing) => standing.current = current,
            None => drop(self.interests.insert(interest.clone(), Standing { current, announced: false })),
        }
        self.touched.insert(interest);
    }

    /// A client publishes.
    pub(super) fn publish(&mut self, topic: &TopicName, now: Instant, config: &TopicTreeConfig) -> Publishing {
        if let Some(published) = self.published.get_mut(topic) {
            published.last = now;
            return Publishing::Asked(published.number);
        }
        let Some(interest) = Interest::publisher(topic).filter(|_| self.published.len() < config.max_topics) else {
            return Publishing::Refused;
        };
        let topic = topic.detached();
        self.idle.set(topic.clone(), now + config.idle);
        self.published.insert(topic, Published { last: now, number: None });
        self.turn(interest, true);
        Publishing::Begins
    }

    /// Number of the signal that announces a topic, the largest of all before it was sent; none if the topic is not announced.
    pub(super) fn asked(&self, topic: &TopicName) -> Option<u64> {
        self.published.get(topic).map(|published| published.number.unwrap_or(u64::MAX))
    }

    /// Takes a topic that no client has published for [`TopicTreeConfig::idle`].
    pub(super) fn pop_idle(&mut self, now: Instant, config: &TopicTreeConfig) -> Option<TopicName> {
        while let Some(topic) = self.idle.pop_due(now) {
            let Some(published) = self.published.get(&topic) else { continue };
            let end = published.last + config.idle;
            if end > now {
                self.idle.set(topic, end);
                continue;
            }
            self.published.remove(&topic);
            if let Some(interest) = Interest::publisher(&topic) {
                self.turn(interest, false);
            }
            return Some(topic);
        }
        None
    }

    pub(super) fn next_idle(&self) -> Option<Instant> {
        self.idle.next()
    }

    /// Topics that the others have been told of.
    pub(super) fn advertised(&self) -> impl Iterator<Item = TopicName> {
        let announced = self.interests.iter().filter(|(_, standing)| standing.announced);
        announced.filter_map(|(interest, _)| interest.topic())
    }

    /// Plain filters of clients of this node.
    pub(super) fn wants(&self) -> impl Iterator<Item = &TopicFilter> {
        self.wants.keys()
    }

    pub(super) fn published(&self) -> usize {
        self.published.len()
    }

    /// Whether this node has to do with topics of `filter`. Interest that has ended counts until all have been told.
    pub(super) fn concerns(&self, filter: &TopicFilter) -> bool {
        self.interests.any(filter)
    }

    /// Interests in topics of `filter` that the neighbours have been told.
    pub(super) fn announced(&self, filter: &TopicFilter) -> Vec<Interest> {
        let all = self.interests.matching(filter);
        all.filter(|(_, standing)| standing.announced).map(|(interest, _)| interest.clone()).collect()
    }

    /// Takes all changes that the neighbours have not been told yet.
    pub(super) fn take_news(&mut self, limit: usize) -> News {
        let mut changes = Vec::new();
        let mut ended = Vec::new();
        let mut topics = Vec::new();
        for interest in core::mem::take(&mut self.touched) {
            let Some(standing) = self.interests.get_mut(&interest) else { continue };
            let current = standing.current;
            let was_announced = core::mem::replace(&mut standing.announced, current);
            if current {
                topics.extend(interest.topic());
            } else {
                self.interests.remove(&interest);
                ended.push(interest.filter.clone());
            }
            match (was_announced, current) {
                (false, true) => {
                    self.sum.add(&interest);
                    changes.push(Change::Begins(interest));
                }
                (true, false) => {
                    self.sum.remove(&interest);
                    changes.push(Change::Ends(interest));
                }
                (true, true) | (false, false) => {}
            }
        }
        self.take_groups(&mut changes);
        let question = core::mem::take(&mut self.asks_all).then(Vec::new);
        let number = &mut self.number;
        let pieces = cut(changes.into_iter(), limit, |change| change_len(change).unwrap_or_default()).chain(question);
        let signals = pieces
            .map(|changes| {
                *number += 1;
                Signal::Ask { number: *number, changes }
            })
            .collect();
        for topic in topics {
            if let Some(published) = self.published.get_mut(&topic) {
                published.number = Some(self.number);
            }
        }
        News { signals, ended }
    }

    fn take_groups(&mut self, changes: &mut Vec<Change>) {
        for group in core::mem::take(&mut self.touched_groups) {
            let counts = self.groups.get(&group).copied().unwrap_or_default();
            let told = match counts {
                Counts::NONE => self.told_groups.remove(&group),
                _ => self.told_groups.insert(group.clone(), counts),
            };
            let told = told.unwrap_or_default();
            if told != counts {
                self.sum.turn(&group, told, counts);
                changes.push(Change::Group(group, counts));
            }
        }
    }

    /// Signals with all that is announced.
    pub(super) fn snapshot(&self, limit: usize) -> impl Iterator<Item = Signal> {
        let announced = self.interests.iter().filter(|(_, standing)| standing.announced);
        let begun = announced.map(|(interest, _)| Change::Begins(interest.clone()));
        let groups = self.told_groups.iter().map(|(group, counts)| Change::Group(group.clone(), *counts));
        let pieces = cut(begun.chain(groups), limit, |change| change_len(change).unwrap_or_default());
        let chunks = pieces.map(Signal::SnapshotChunk);
        core::iter::once(Signal::SnapshotBegin).chain(chunks).chain([Signal::SnapshotEnd(self.number)])
    }

    pub(super) const fn sum(&self) -> Sum {
        self.sum
    }
}

/// Cuts entries into pieces of about `limit` bytes.
pub(super) fn cut<T>(
    entries: impl Iterator<Item = T>,
    limit: usize,
    len: impl Fn(&T) -> usize,
) -> impl Iterator<Item = Vec<T>> {
    let mut entries = entries.peekable();
    core::iter::from_fn(move || {
        entries.peek()?;
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < limit {
            let Some(entry) = entries.next() else { break };
            bytes += len(&entry);
            piece.push(entry);
        }
        Some(piece)
    })
}
