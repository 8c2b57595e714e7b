//! The topics that this node publishes and subscribes to, and the virtual nodes that stand for them.

use sedge_base::Instant;

use super::machine::Stage;
use super::{Key, Node, Role, Status, Topic};

/// The part of this node in one topic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interest {
    pub(super) subscribed: bool,
    pub(super) publishing: bool,
    pub(super) last_publication: Instant,
    /// Known once the publisher is in the list; meaningless for subscribers, which are never suspended (SG-19).
    pub(super) status: Option<Status>,
    /// Neighbours were asked for the status.
    pub(super) asked: bool,
}

impl Interest {
    /// Role of the virtual node of this node in the topic: a subscriber needs no other one to publish (SG-19).
    pub(super) const fn role(self) -> Role {
        if self.subscribed { Role::Subscriber } else { Role::Publisher }
    }
}

impl<T: Topic> Node<T> {
    pub(super) fn subscribe(&mut self, topic: &T) {
        self.topics.entry(topic.clone()).or_default().subscribed = true;
        self.settle_topic(topic);
    }

    pub(super) fn unsubscribe(&mut self, topic: &T) {
        let Some(interest) = self.topics.get_mut(topic) else { return };
        interest.subscribed = false;
        self.drop_if_idle(topic);
    }

    pub(super) fn advertise(&mut self, now: Instant, topic: &T) {
        let interest = self.topics.entry(topic.clone()).or_default();
        interest.last_publication = now;
        if !interest.publishing {
            interest.publishing = true;
            self.settle_topic(topic);
        }
    }

    pub(super) fn withdraw(&mut self, topic: &T) {
        let Some(interest) = self.topics.get_mut(topic) else { return };
        interest.publishing = false;
        self.drop_if_idle(topic);
    }

    /// Topics to which nobody has published for long.
    pub(super) fn withdraw_idle(&mut self, now: Instant) {
        let limit = self.config.publisher_idle;
        let idle = |interest: &Interest| interest.publishing && now.since(interest.last_publication) >= limit;
        let topics: Vec<T> =
            self.topics.iter().filter(|(_, interest)| idle(interest)).map(|(topic, _)| topic.clone()).collect();
        for topic in topics {
            self.withdraw(&topic);
        }
    }

    fn drop_if_idle(&mut self, topic: &T) {
        if self.topics.get(topic).is_some_and(|interest| !interest.subscribed && !interest.publishing) {
            self.topics.remove(topic);
        }
        self.settle_topic(topic);
    }

    /// The virtual nodes this node is to have: one for each topic, or a placeholder if there is none (SG-06).
    pub(super) fn is_wanted(&self, key: &Key<T>) -> bool {
        self.started
            && match &key.topic {
                None => self.topics.is_empty(),
                Some(topic) => self.topics.get(topic).is_some_and(|interest| interest.role() == key.role),
            }
    }

    /// Inserts or removes one virtual node as far as that can be done by now.
    fn settle(&mut self, key: Key<T>) {
        if self.is_wanted(&key) {
            if !self.vnodes.contains_key(&key) && !self.joining.contains_key(&key) {
                self.start_join(key);
            }
        } else if self.vnodes.contains_key(&key) && self.may_leave(&key) {
            self.start_leave(&key);
        }
    }

    /// The virtual node that takes the place of a leaving one has to be in the list before: another role of the topic, or anything at all.
    fn may_leave(&self, key: &Key<T>) -> bool {
        let is_in = |key: &Key<T>| self.vnodes.get(key).is_some_and(|vnode| vnode.stage == Stage::In);
        match key.topic.as_ref().and_then(|topic| self.topics.get_key_value(topic)) {
            _ if !self.started => true,
            Some((topic, interest)) => is_in(&Key::new(topic.clone(), interest.role(), self.me)),
            None => self.vnodes.keys().any(|other| other != key && is_in(other) && self.is_wanted(other)),
        }
    }

    fn settle_topic(&mut self, topic: &T) {
        for role in [Role::Subscriber, Role::Publisher] {
            self.settle(Key::new(topic.clone(), role, self.me));
        }
        self.settle(Key::placeholder(self.me));
    }

    pub(super) fn settle_all(&mut self) {
        let topics: Vec<T> = self.topics.keys().cloned().collect();
        for topic in &topics {
            self.settle_topic(topic);
        }
        self.settle_unwanted();
        self.settle(Key::placeholder(self.me));
    }

    fn settle_unwanted(&mut self) {
        let keys: Vec<Key<T>> = self.vnodes.keys().filter(|key| !self.is_wanted(key)).cloned().collect();
        for key in keys {
            self.settle(key);
        }
    }

    /// A virtual node has come or gone: others may have waited for it.
    pub(super) fn settle_after(&mut self, key: &Key<T>) {
        let Some(topic) = &key.topic else {
            self.settle_unwanted();
            self.settle(key.clone());
            return;
        };
        let gone = key.role == Role::Publisher && !self.vnodes.contains_key(key);
        if let Some(interest) = self.topics.get_mut(topic).filter(|_| gone) {
            (interest.status, interest.asked) = (None, false);
        }
        self.settle_topic(topic);
    }
}
