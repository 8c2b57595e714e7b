//! Traffic between the brokers of an emulated network during a run: publications, where nobody wanted them, and signalling.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::emulate::{Carried, LinkStatus, Passed};
use crate::error::BenchError;
use crate::num;
use crate::plan::{Plan, Role};
use crate::scenario::Scenario;

/// At which brokers the clients of each topic are.
pub(crate) struct Interest {
    publishers: BTreeSet<(usize, String)>,
    subscribers: BTreeSet<(usize, String)>,
}

/// Bytes between brokers, all links together. Those of publications and control are of MQTT packets, without the headers below.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Split {
    /// Publications, each once for every link it went over.
    pub(crate) publications: Passed,
    /// Bytes of publications over the direction of a link that had most of them.
    pub(crate) busiest_bytes: u64,
    /// Publications to brokers that have neither publishers nor subscribers of the topic.
    pub(crate) to_strangers: Passed,
    /// Publications to brokers that have no subscribers of the topic; those to strangers among them.
    pub(crate) to_unsubscribed: Passed,
    /// Bytes that nodes told each other over TCP, and over UDP (headers included).
    pub(crate) signalling_bytes: u64,
    /// The same bytes by the topic on which the nodes sent them; `datagrams` are the bytes of UDP.
    pub(crate) mechanisms: BTreeMap<String, u64>,
    /// All other bytes: headers of TCP and IP, acknowledgements of TCP, bytes that were sent again.
    pub(crate) other_bytes: u64,
    /// The part of the other bytes that could not be read as MQTT.
    pub(crate) unread_bytes: u64,
}

impl Interest {
    /// Of the clients of `scenario` at so many brokers. Subscriptions are those to single topics.
    pub(crate) fn new(scenario: &Scenario, brokers: usize) -> Result<Self, BenchError> {
        let plan = Plan::new(scenario, brokers, 1)?;
        let mut interest = Self { publishers: BTreeSet::new(), subscribers: BTreeSet::new() };
        for client in &plan.clients {
            match &client.role {
                Role::Publisher { streams, .. } => {
                    let streams = plan.streams.get(streams.clone()).unwrap_or_default();
                    let topics = streams.iter().map(|stream| (client.broker, stream.topic.as_str().to_owned()));
                    interest.publishers.extend(topics);
                }
                Role::Subscriber { filter, .. } => {
                    interest.subscribers.insert((client.broker, filter.as_str().to_owned()));
                }
                Role::Idle => {}
            }
        }
        Ok(interest)
    }
}

impl Split {
    /// Splits up the traffic that went over `links` since the state `before`.
    pub(crate) fn new(before: &[LinkStatus], links: &[LinkStatus], interest: &Interest) -> Self {
        let mut split = Self::default();
        for link in links {
            let same = |other: &&LinkStatus| (other.from, other.to) == (link.from, link.to);
            let first = before.iter().find(same);
            let none = Carried::default();
            let carried = link.carried.since(first.map_or(&none, |first| &first.carried));
            split.add(&carried, link.bytes - first.map_or(0, |first| first.bytes), link.to - 1, interest);
        }
        split
    }

    fn add(&mut self, carried: &Carried, bytes: u64, to: usize, interest: &Interest) {
        let told = carried.publications.bytes + carried.control.bytes + carried.datagram_bytes;
        // A packet whose beginning has been seen counts whole, so what is still under way is no part of `bytes`.
        self.other_bytes += bytes.saturating_sub(told);
        self.unread_bytes += carried.unread_bytes;
        self.signalling_bytes += carried.control.bytes + carried.datagram_bytes;
        add(&mut self.publications, carried.publications);
        self.busiest_bytes = self.busiest_bytes.max(carried.publications.bytes);
        for (topic, passed) in &carried.topics {
            let key = (to, topic.clone());
            if !interest.subscribers.contains(&key) {
                add(&mut self.to_unsubscribed, *passed);
                if !interest.publishers.contains(&key) {
                    add(&mut self.to_strangers, *passed);
                }
            }
        }
        let datagrams = std::iter::once(("datagrams", carried.datagram_bytes));
        let control = carried.mechanisms.iter().map(|(name, passed)| (name.as_str(), passed.bytes));
        for (name, bytes) in control.chain(datagrams) {
            *self.mechanisms.entry(name.to_owned()).or_default() += bytes;
        }
    }

    /// The signalling of `quiet_s` seconds without clients for `seconds`.
    pub(crate) fn quiet(&self, quiet_s: f64, seconds: f64) -> f64 {
        num::ratio(num::real(self.signalling_bytes), quiet_s) * seconds
    }
}

const fn add(sum: &mut Passed, more: Passed) {
    sum.count += more.count;
    sum.bytes += more.bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(count: u64, bytes: u64) -> Passed {
        Passed { count, bytes }
    }

    /// TR-28
    #[test]
    fn publications_where_nobody_wants_them_are_told_apart() {
        let at = |place: usize, topic: &str| (place, topic.to_owned());
        let interest = Interest { publishers: [at(0, "t"), at(1, "t")].into(), subscribers: [at(2, "t")].into() };
        let carried = Carried {
            publications: passed(3, 300),
            control: passed(2, 50),
            datagram_bytes: 40,
            topics: [("t".to_owned(), passed(2, 200)), ("u".to_owned(), passed(1, 100))].into(),
            mechanisms: [("$sedge/overlay".to_owned(), passed(2, 50))].into(),
            ..Carried::default()
        };
        let mut split = Split::default();
        for (to, strangers, unsubscribed) in [
            (2, passed(1, 100), passed(1, 100)),
            (1, passed(2, 200), passed(4, 400)),
            (3, passed(5, 500), passed(7, 700)),
        ] {
            split.add(&carried, 500, to, &interest);
            assert_eq!((split.to_strangers, split.to_unsubscribed), (strangers, unsubscribed), "to {to}");
        }
        assert_eq!((split.publications, split.busiest_bytes), (passed(9, 900), 300));
        assert_eq!((split.signalling_bytes, split.other_bytes), (270, 330));
        assert_eq!(split.mechanisms.get("$sedge/overlay"), Some(&150));
        assert!((split.quiet(2.0, 3.0) - 405.0).abs() < 1e-9);
    }

    #[test]
    fn interest_is_that_of_the_plan() {
        let scenario = crate::scenario::named("pairs").expect("a scenario");
        let interest = Interest::new(&scenario, 3).expect("a plan");
        assert!(!interest.publishers.is_empty());
        assert_eq!(interest.publishers, interest.subscribers, "pairs are at the same broker");
    }
}
