//! Subscriptions that clients have ended here. Another owner of a session, which is back after a partition or from a journal, may still have
//! them: they stay ended if the client had left that owner before (MQ-11, FT-31).

use std::collections::BTreeMap;

use sedge_mqtt::TopicFilter;

use crate::session::SessionKey;

/// Filters that are remembered; those of the session with the lowest key are forgotten first, and may hold again.
const MAX_FILTERS: usize = 10_000;
/// Bytes of these filters; the same ones are forgotten first.
const MAX_BYTES: usize = 1 << 20;

/// The filters of subscriptions that clients of this broker have ended, for as long as their sessions are here.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    /// By session and filter, the epoch of the session when the client ended the subscription.
    sessions: BTreeMap<SessionKey, BTreeMap<TopicFilter, u64>>,
    filters: usize,
    bytes: usize,
}

impl Withdrawn {
    /// The client has ended a subscription of this session, which is here under this epoch.
    pub(crate) fn note(&mut self, session: SessionKey, filter: &TopicFilter, epoch: u64) {
        if self.sessions.entry(session).or_default().insert(filter.clone(), epoch).is_none() {
            self.filters += 1;
            self.bytes += filter.as_str().len();
        }
        while (self.filters > MAX_FILTERS || self.bytes > MAX_BYTES)
            && let Some((&first, _)) = self.sessions.first_key_value()
        {
            self.forget_session(first);
        }
    }

    /// The subscription is made again.
    pub(crate) fn forget(&mut self, session: SessionKey, filter: &TopicFilter) {
        let Some(filters) = self.sessions.get_mut(&session) else { return };
        if filters.remove(filter).is_some() {
            self.filters -= 1;
            self.bytes -= filter.as_str().len();
        }
        if filters.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// The session is gone: another one may get its key.
    pub(crate) fn forget_session(&mut self, session: SessionKey) {
        for filter in self.sessions.remove(&session).unwrap_or_default().keys() {
            self.filters -= 1;
            self.bytes -= filter.as_str().len();
        }
    }

    /// Whether the client ended a subscription here under this epoch or a later one.
    pub(crate) fn has_since(&self, session: SessionKey, filter: &TopicFilter, epoch: u64) -> bool {
        let withdrawn = self.sessions.get(&session).and_then(|filters| filters.get(filter));
        withdrawn.is_some_and(|under| *under >= epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::new(text).unwrap()
    }

    /// MQ-11, FT-31
    #[test]
    fn a_subscription_is_ended_until_it_is_made_again() {
        let mut withdrawn = Withdrawn::default();
        let [a, b] = [1, 2];
        withdrawn.note(a, &filter("t/#"), 40);
        assert!(withdrawn.has_since(a, &filter("t/#"), 40) && withdrawn.has_since(a, &filter("t/#"), 8));
        assert!(!withdrawn.has_since(a, &filter("t/#"), 41), "the client may have made it at the other owner since");
        assert!(!withdrawn.has_since(b, &filter("t/#"), 8) && !withdrawn.has_since(a, &filter("t"), 8));
        withdrawn.forget(a, &filter("t/#"));
        assert!(!withdrawn.has_since(a, &filter("t/#"), 8));
        withdrawn.note(a, &filter("t/#"), 60);
        withdrawn.forget_session(a);
        assert!(!withdrawn.has_since(a, &filter("t/#"), 8));
        assert_eq!((withdrawn.filters, withdrawn.bytes), (0, 0));
    }

    #[test]
    fn filters_and_bytes_are_limited() {
        let mut withdrawn = Withdrawn::default();
        for number in 0..=MAX_FILTERS {
            withdrawn.note(number, &filter("a"), 1);
        }
        assert_eq!((withdrawn.filters, withdrawn.bytes), (MAX_FILTERS, MAX_FILTERS));
        let long = "b".repeat(60_000);
        for number in 0..40 {
            withdrawn.note(MAX_FILTERS + number, &filter(&long), 1);
        }
        assert!(withdrawn.bytes <= MAX_BYTES && withdrawn.filters < 20, "{} filters", withdrawn.filters);
    }
}
