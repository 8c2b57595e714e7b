//! One other node: the topics and filters that each side has told the other, and the link to it if there is one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_mqtt::{TopicFilter, TopicName};

use super::config::MAX_TOPICS;
use super::digest::Digest;
use super::signal::{Entry, SignalError};
use crate::mesh::Answers;

/// How far the neighbour's snapshot has come.
#[derive(Debug, Default)]
enum Incoming {
    #[default]
    Nothing,
    /// Topics and filters that the peer has named so far.
    Snapshot(BTreeSet<TopicName>, BTreeSet<TopicFilter>),
    Complete,
}

/// State that lasts as long as one link.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Number of the link: no two links have the same.
    pub(super) link: u64,
    /// Numbers sent and not confirmed, in order.
    outstanding: VecDeque<u64>,
    pub(super) snapshot_due: bool,
    /// The end of the last snapshot, until it is confirmed.
    snapshot: Option<u64>,
    pub(super) sync_ok_sent: bool,
    pub(super) sync_ok_received: bool,
    /// The highest number of its own.
    number: u64,
    pub(super) answers: Answers,
    incoming: Incoming,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Topics that its clients publish to.
    pub(super) topics: BTreeSet<TopicName>,
    /// Filters that it wants, as far as it has told.
    pub(super) filters: BTreeSet<TopicFilter>,
    digest: Digest,
    /// Filters that it has been told, or is about to.
    pub(super) told: BTreeSet<TopicFilter>,
    told_digest: Digest,
    untold: BTreeMap<TopicFilter, bool>,
    pub(super) session: Option<Session>,
    /// While there is no link: the number that the peer had confirmed when the link went down.
    confirmed: u64,
    /// The filters that the peer wants were forgotten because it has not refreshed them.
    pub(super) expired: bool,
    /// Membership has lost the node although a link stands: it is forgotten with the link.
    pub(super) lost: bool,
}

/// Changes that a signal made to the topics and filters that a peer has told.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) topics: Vec<(TopicName, bool)>,
    pub(super) filters: Vec<(TopicFilter, bool)>,
}

impl Peer {
    pub(super) fn link_up(&mut self, link: u64) {
        self.untold.clear();
        self.confirmed = 0;
        self.session = Some(Session { link, snapshot_due: true, ..Session::default() });
    }

    /// The link is down. `number` is that of the last changes of this node.
    pub(super) fn link_down(&mut self, number: u64) {
        self.confirmed = self.confirmed(number);
        self.session = None;
        self.untold.clear();
    }

    /// Number of the last changes of this node that the peer has answered; 0 if its knowledge is not sure. `number` is that of the last
    /// changes.
    pub(super) fn confirmed(&self, number: u64) -> u64 {
        let Some(session) = &self.session else { return self.confirmed };
        if session.snapshot_due || session.snapshot.is_some() {
            return 0;
        }
        session.outstanding.front().map_or(number, |first| first - 1)
    }

    /// Whether the peer was asked, over a link that is in step, and has not answered up to `number`. `last` is that of the last changes.
    pub(super) fn is_asked(&self, last: u64, number: u64) -> bool {
        let Some(session) = &self.session else { return false };
        let is_in_step = !session.snapshot_due && session.snapshot.is_none() && self.is_complete();
        is_in_step && !self.expired && !self.lost && self.confirmed(last) < number
    }

    /// Changes or a snapshot with this number were sent.
    pub(super) fn sent(&mut self, number: u64, is_snapshot: bool) {
        if let Some(session) = &mut self.session {
            session.outstanding.push_back(number);
            if is_snapshot {
                session.snapshot = Some(number);
            }
        }
    }

    pub(super) fn acked(&mut self, number: u64) {
        if let Some(session) = &mut self.session {
            while session.outstanding.pop_front_if(|first| *first <= number).is_some() {}
            session.snapshot = session.snapshot.filter(|end| *end > number);
        }
    }

    /// Records that the peer has to be told whether clients of this node want the filter: `there`.
    pub(super) fn tell(&mut self, filter: &TopicFilter, there: bool) {
        let changed = if there { self.told.insert(filter.clone()) } else { self.told.remove(filter) };
        if changed {
            self.told_digest.filter(filter, there);
            if self.session.as_ref().is_some_and(|session| !session.snapshot_due) {
                self.untold.insert(filter.clone(), there);
            }
        }
    }

    /// Records that the peer has to know these filters of this node and no others.
    pub(super) fn tell_exactly(&mut self, due: &BTreeSet<TopicFilter>) {
        let wrong: Vec<(TopicFilter, bool)> =
            self.told.symmetric_difference(due).map(|filter| (filter.clone(), due.contains(filter))).collect();
        for (filter, there) in wrong {
            self.tell(&filter, there);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        !self.untold.is_empty()
    }

    pub(super) fn take_news(&mut self) -> impl Iterator<Item = Entry> {
        core::mem::take(&mut self.untold).into_iter().map(|(filter, there)| Entry::Filter { filter, there })
    }

    /// All filters that it has to know, for a snapshot.
    pub(super) fn told_entries(&self) -> impl Iterator<Item = Entry> {
        self.told.iter().map(|filter| Entry::Filter { filter: filter.clone(), there: true })
    }

    /// Of the filters that it has been told.
    pub(super) const fn told_digest(&self) -> Digest {
        self.told_digest
    }

    /// Digest of the topics and filters that the peer has told.
    pub(super) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether its digest can be compared: everything is here.
    pub(super) fn is_complete(&self) -> bool {
        self.session.as_ref().is_some_and(|session| matches!(session.incoming, Incoming::Complete))
    }

    pub(super) fn begin_snapshot(&mut self) {
        if let Some(session) = &mut self.session {
            session.incoming = Incoming::Snapshot(BTreeSet::new(), BTreeSet::new());
        }
    }

    pub(super) fn chunk(&mut self, entries: Vec<Entry>) -> Result<Effects, SignalError> {
        let Some(Incoming::Snapshot(topics, filters)) = self.session.as_mut().map(|session| &mut session.incoming)
        else {
            return Err(SignalError::Value("order: chunk outside of a snapshot"));
        };
        for entry in &entries {
            match entry {
                Entry::Topic { topic, .. } => _ = topics.insert(topic.clone()),
                Entry::Filter { filter, .. } => _ = filters.insert(filter.clone()),
            }
        }
        self.apply(entries)
    }

    pub(super) fn end_snapshot(&mut self, number: u64) -> Result<Effects, SignalError> {
        let Some(session) = &mut self.session else { return Ok(Effects::default()) };
        if number <= session.number {
            return Err(SignalError::Value("number"));
        }
        let Incoming::Snapshot(topics, filters) = core::mem::replace(&mut session.incoming, Incoming::Complete) else {
            return Err(SignalError::Value("order: end without a snapshot"));
        };
        session.number = number;
        session.answers.rely(number);
        self.expired = false;
        let gone = self.topics.difference(&topics).cloned().map(|topic| Entry::Topic { topic, there: false });
        let unwanted = self.filters.difference(&filters).cloned().map(|filter| Entry::Filter { filter, there: false });
        let entries: Vec<Entry> = gone.chain(unwanted).collect();
        self.apply(entries)
    }

    pub(super) fn changes(&mut self, number: u64, entries: Vec<Entry>) -> Result<Effects, SignalError> {
        let Some(session) = self.session.as_mut().filter(|session| matches!(session.incoming, Incoming::Complete))
        else {
            return Err(SignalError::Value("order: changes before a snapshot"));
        };
        if number <= session.number {
            return Err(SignalError::Value("number"));
        }
        session.number = number;
        if entries.is_empty() || entries.iter().any(|entry| matches!(entry, Entry::Filter { .. })) {
            session.answers.rely(number);
        }
        self.apply(entries)
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<Effects, SignalError> {
        let is_new =
            |entry: &&Entry| matches!(entry, Entry::Topic { topic, there: true } if !self.topics.contains(topic));
        // A snapshot is taken in before the entries that it does not name are taken out.
        if self.topics.len() + entries.iter().filter(is_new).count() > 2 * MAX_TOPICS {
            return Err(SignalError::Topics(MAX_TOPICS));
        }
        let mut effects = Effects::default();
        for entry in entries {
            match entry {
                Entry::Topic { topic, there } => {
                    if if there { self.topics.insert(topic.clone()) } else { self.topics.remove(&topic) } {
                        self.digest.topic(&topic, there);
                        effects.topics.push((topic, there));
                    }
                }
                Entry::Filter { filter, there } => {
                    if if there { self.filters.insert(filter.clone()) } else { self.filters.remove(&filter) } {
                        self.digest.filter(&filter, there);
                        effects.filters.push((filter, there));
                    }
                }
            }
        }
        Ok(effects)
    }

    /// Takes out the filters that the peer wants.
    pub(super) fn forget_filters(&mut self) -> Effects {
        let filters: Vec<_> = core::mem::take(&mut self.filters).into_iter().map(|filter| (filter, false)).collect();
        for (filter, _) in &filters {
            self.digest.filter(filter, false);
        }
        Effects { topics: Vec::new(), filters }
    }

    /// Takes out all that it has told.
    pub(super) fn forget(&mut self) -> Effects {
        let topics = core::mem::take(&mut self.topics).into_iter().map(|topic| (topic, false)).collect();
        Effects { topics, ..self.forget_filters() }
    }
}
