//! Members of shared subscriptions (MQTT 5.0 section 4.8.2).

use sedge_base::{LookupMap, Seed};
use sedge_mqtt::TopicFilter;

use crate::session::SessionKey;
use crate::subscription::Granted;

/// The members of one shared subscription that this broker has.
#[derive(Debug)]
pub(crate) struct Group {
    /// Never 0, never used twice.
    pub(crate) number: u32,
    pub(crate) members: Vec<(SessionKey, Granted)>,
    /// Where the next search starts: the members take turns.
    pub(crate) next: usize,
}

/// All shared subscriptions, by whole filter.
#[derive(Debug)]
pub(crate) struct Groups {
    by_filter: LookupMap<TopicFilter, Group>,
    last: u32,
}

impl Groups {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { by_filter: LookupMap::new(seed), last: 0 }
    }

    pub(crate) fn get(&self, filter: &TopicFilter) -> Option<&Group> {
        self.by_filter.get(filter)
    }

    pub(crate) fn get_mut(&mut self, filter: &TopicFilter) -> Option<&mut Group> {
        self.by_filter.get_mut(filter)
    }

    /// The number of a shared subscription; 0 if it has no members here.
    pub(crate) fn number(&self, filter: &TopicFilter) -> u32 {
        self.by_filter.get(filter).map_or(0, |group| group.number)
    }

    /// Adds a member or changes what it was granted.
    pub(crate) fn join(&mut self, filter: &TopicFilter, session: SessionKey, granted: Granted) {
        let Some(group) = self.by_filter.get_mut(filter) else {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let group = Group { number: self.last, members: vec![(session, granted)], next: 0 };
            self.by_filter.insert(filter.clone(), group);
            return;
        };
        match group.members.iter_mut().find(|(member, _)| *member == session) {
            Some(member) => member.1 = granted,
            None => group.members.push((session, granted)),
        }
    }

    /// Removes a member.
    pub(crate) fn leave(&mut self, filter: &TopicFilter, session: SessionKey) {
        let Some(group) = self.by_filter.get_mut(filter) else { return };
        group.members.retain(|(member, _)| *member != session);
        if group.members.is_empty() {
            self.by_filter.remove(filter);
        }
    }
}
