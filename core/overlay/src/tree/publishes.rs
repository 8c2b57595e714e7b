//! The topics that clients of this node publish to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Instant, LookupMap, NodeId, Rng, Seed};
use sedge_mqtt::TopicName;

use super::TreeConfig;
use super::digest::Digest;
use super::signal::Entry;

/// A topic that is advertised.
#[derive(Clone, Debug)]
pub(super) struct Advert {
    /// Number of the changes that advertise the topic: a node that has confirmed them has told its interest in the topic. The largest
    /// number of all while the topic has not been told.
    pub(super) number: u64,
    published: Instant,
    /// There was one publication only.
    single: bool,
    /// Where publications go, as it was in this generation of the tables.
    pub(super) known: Option<(u64, Vec<NodeId>)>,
    /// Whether some of those have not answered.
    pub(super) is_open: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Publishes {
    limit: usize,
    adverts: LookupMap<TopicName, Advert>,
    /// All names again, in order.
    names: BTreeSet<TopicName>,
    /// In order of their first publications; some have had more since, or are gone.
    singles: VecDeque<TopicName>,
    /// Topics advertised (`true`) or withdrawn that the other nodes have not been told of.
    untold: BTreeMap<TopicName, bool>,
    digest: Digest,
    /// Publications to topics for which there was no room.
    pub(super) unadvertised: u64,
    /// Topics advertised so far.
    pub(super) advertised: u64,
    /// Topics withdrawn so far.
    pub(super) withdrawn: u64,
}

impl Publishes {
    pub(super) fn new(config: &TreeConfig, rng: &mut Rng) -> Self {
        Self {
            limit: config.topic_limit(),
            adverts: LookupMap::new(Seed::from_rng(rng)),
            names: BTreeSet::new(),
            singles: VecDeque::new(),
            untold: BTreeMap::new(),
            digest: Digest::default(),
            unadvertised: 0,
            advertised: 0,
            withdrawn: 0,
        }
    }

    /// A client publishes to `topic`. None if there is no room to advertise it.
    pub(super) fn publish(&mut self, now: Instant, topic: &TopicName, config: &TreeConfig) -> Option<&mut Advert> {
        if self.adverts.contains_key(topic) {
            let advert = self.adverts.get_mut(topic)?;
            advert.single = false;
            advert.published = now;
            return Some(advert);
        }
        if self.adverts.len() >= self.limit && !self.make_room(now, config) {
            self.unadvertised += 1;
            return None;
        }
        let topic = topic.detached();
        self.advertised += 1;
        self.digest.topic(&topic, true);
        self.names.insert(topic.clone());
        self.singles.push_back(topic.clone());
        self.untold.insert(topic.clone(), true);
        let advert = Advert { number: u64::MAX, published: now, single: true, known: None, is_open: true };
        Some(self.adverts.get_or_insert_with(topic, || advert))
    }

    /// Withdraws the oldest topic with a single publication if that is long ago.
    fn make_room(&mut self, now: Instant, config: &TreeConfig) -> bool {
        while let Some(topic) = self.singles.front() {
            match self.adverts.get(topic) {
                Some(advert) if advert.single && now.since(advert.published) < config.single => return false,
                Some(advert) if advert.single => {
                    let topic = topic.clone();
                    self.singles.pop_front();
                    self.withdraw(&topic);
                    return true;
                }
                _ => drop(self.singles.pop_front()),
            }
        }
        false
    }

    fn withdraw(&mut self, topic: &TopicName) {
        if self.adverts.remove(topic).is_some() {
            self.withdrawn += 1;
            self.names.remove(topic);
            self.digest.topic(topic, false);
            self.untold.insert(topic.clone(), false);
        }
    }

    /// Withdraws topics that nobody has published to for long.
    pub(super) fn age(&mut self, now: Instant, config: &TreeConfig) {
        let adverts = &self.adverts;
        let is_idle =
            |topic: &&TopicName| adverts.get(*topic).is_some_and(|advert| now.since(advert.published) >= config.idle);
        let idle: Vec<TopicName> = self.names.iter().filter(is_idle).cloned().collect();
        for topic in idle {
            self.withdraw(&topic);
        }
        let adverts = &self.adverts;
        self.singles.retain(|topic| adverts.get(topic).is_some_and(|advert| advert.single));
    }

    pub(super) fn get(&self, topic: &TopicName) -> Option<&Advert> {
        self.adverts.get(topic)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Takes the entries that the other nodes have not been told.
    pub(super) fn take_news(&mut self) -> Vec<Entry> {
        let untold = core::mem::take(&mut self.untold);
        untold.into_iter().map(|(topic, there)| Entry::Topic { topic, there }).collect()
    }

    /// The other nodes were told this; when they confirm `number`, they have answered it.
    pub(super) fn told(&mut self, news: &[Entry], number: u64) {
        for entry in news {
            if let Entry::Topic { topic, there: true } = entry
                && let Some(advert) = self.adverts.get_mut(topic)
            {
                advert.number = number;
            }
        }
    }

    /// Everything that is advertised.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.names.iter().map(|topic| Entry::Topic { topic: topic.clone(), there: true })
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.names.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.adverts.len()
    }

    pub(super) const fn digest(&self) -> Digest {
        self.digest
    }
}
