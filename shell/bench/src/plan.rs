//! A scenario spelled out: every client, every stream of messages and who has to get it. The same scenario gives the same
//! plan in every driver.

use std::collections::BTreeMap;

use sedge_base::Rng;
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};

use crate::error::BenchError;
use crate::num;
use crate::scenario::{Pacing, PublisherGroup, Scenario, expand};

/// Everything that takes part in a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) clients: Vec<Client>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) receivers: Vec<Receiver>,
    /// Whether there are streams for the latency alone.
    pub(crate) probes: bool,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) broker: usize,
    pub(crate) driver: usize,
    pub(crate) role: Role,
}

/// Role of a client.
#[derive(Debug)]
pub(crate) enum Role {
    Publisher {
        /// Its streams, a run of numbers.
        streams: std::ops::Range<usize>,
        /// Time between two messages in ns; none in the closed loop.
        interval: Option<u64>,
        /// When within the interval its turn is, in ns.
        phase: u64,
    },
    Subscriber {
        filter: TopicFilter,
        /// Index of its receiver, shared by the members of a group.
        receiver: usize,
    },
    Idle,
}

/// The messages of one publisher to one topic.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) topic: TopicName,
    /// The client.
    pub(crate) publisher: usize,
    /// How many receivers each message has.
    pub(crate) fan_out: u64,
    /// For latency alone.
    pub(crate) probe: bool,
    /// Time between two messages in ns, 0 in the closed loop.
    pub(crate) period: u64,
}

/// A subscriber, or a group that shares a subscription.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// Streams that the receiver has to get, ascending.
    pub(crate) streams: Vec<u32>,
    pub(crate) shared: bool,
}

impl Plan {
    /// Spells `scenario` out for so many brokers and drivers.
    pub(crate) fn new(scenario: &Scenario, brokers: usize, drivers: usize) -> Result<Self, BenchError> {
        scenario.check()?;
        let mut builder = Builder {
            plan: Self { clients: Vec::new(), streams: Vec::new(), receivers: Vec::new(), probes: false },
            scenario,
            brokers: brokers.max(1),
            drivers: drivers.max(1),
            rng: Rng::new(scenario.seed),
        };
        for group in &scenario.publishers {
            builder.publishers(group)?;
        }
        builder.subscribers()?;
        for group in &scenario.idle {
            for number in 0..u64::from(group.count) {
                let broker = group.brokers.broker(number, builder.brokers, &mut builder.rng);
                builder.client(number, broker, Role::Idle);
            }
        }
        let mut plan = builder.plan;
        plan.connect_streams()?;
        Ok(plan)
    }

    /// `sp-ratio`: receivers per message, weighted by the messages sent; probes are left out.
    pub(crate) fn sp_ratio(&self) -> f64 {
        let streams = || self.streams.iter().filter(|stream| !stream.probe);
        let rate = |stream: &Stream| if stream.period > 0 { 1e9 / num::real(stream.period) } else { 1.0 };
        let all: f64 = streams().map(rate).sum();
        num::ratio(streams().map(|stream| rate(stream) * num::real(stream.fan_out)).sum(), all)
    }

    /// Messages per second that all publishers but the probes are to send, none if one of them has a closed loop.
    pub(crate) fn nominal_rate(&self) -> Option<f64> {
        let streams = || self.streams.iter().filter(|stream| !stream.probe);
        if streams().any(|stream| stream.period == 0) {
            return None;
        }
        Some(streams().map(|stream| 1e9 / num::real(stream.period)).sum())
    }

    /// Drivers of publisher and subscriber, wherever a delivery lets the closed loop go on.
    pub(crate) fn loops(&self) -> impl Iterator<Item = (usize, usize)> {
        let subscribers = self.clients.iter().filter_map(|client| match &client.role {
            Role::Subscriber { receiver, .. } => Some((client.driver, self.receivers.get(*receiver)?)),
            Role::Publisher { .. } | Role::Idle => None,
        });
        subscribers.flat_map(move |(driver, receiver)| {
            let streams = receiver.streams.iter().filter_map(|stream| self.streams.get(num::index(u64::from(*stream))));
            let closed = streams.filter(|stream| stream.period == 0);
            closed.filter_map(move |stream| Some((self.clients.get(stream.publisher)?.driver, driver)))
        })
    }

    /// Finds the receivers of each stream.
    fn connect_streams(&mut self) -> Result<(), BenchError> {
        let mut trie = SubscriptionTrie::new();
        for client in &self.clients {
            if let Role::Subscriber { filter, receiver } = &client.role {
                trie.insert(filter, *receiver, ());
            }
        }
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let number = u32::try_from(number)
                .ok()
                .ok_or_else(|| BenchError::Usage("a scenario has at most four thousand million streams".to_owned()))?;
            trie.matches(&stream.topic, |receiver: &usize, ()| {
                if let Some(receiver) = self.receivers.get_mut(*receiver) {
                    receiver.streams.push(number);
                    stream.fan_out += 1;
                }
            });
        }
        Ok(())
    }
}

struct Builder<'a> {
    plan: Plan,
    scenario: &'a Scenario,
    brokers: usize,
    drivers: usize,
    rng: Rng,
}

impl Builder<'_> {
    fn client(&mut self, number: u64, broker: usize, role: Role) {
        // Clients with the same number in their groups share a driver: pairs stay together.
        let driver = num::index(number) % self.drivers;
        self.plan.clients.push(Client { broker, driver, role });
    }

    fn publishers(&mut self, group: &PublisherGroup) -> Result<(), BenchError> {
        let interval = self.scenario.interval_of(group).map(|ms| num::nanos(ms / 1e3).max(1));
        let scheduled = self.scenario.pacing == Pacing::Schedule;
        for number in 0..u64::from(group.count) {
            let broker = group.brokers.broker(number, self.brokers, &mut self.rng);
            let random = self.rng.next_u64() >> 16;
            let publisher = self.plan.clients.len();
            let first = self.plan.streams.len();
            for topic in 0..u64::from(group.topics) {
                let numbers = crate::scenario::Numbers { client: number, topic, random };
                let topic = expand(&group.topic, numbers).map_err(BenchError::Usage)?;
                let topic =
                    TopicName::new(&topic).map_err(|error| BenchError::Usage(format!("topic {topic}: {error}")))?;
                let period = interval.filter(|_| scheduled);
                let period = period.map_or(0, |interval| interval.saturating_mul(u64::from(group.topics)));
                self.plan.streams.push(Stream { topic, publisher, fan_out: 0, probe: group.probe, period });
            }
            let ramp = num::nanos(self.scenario.ramp_s);
            let within = if ramp > 0 { Some(ramp) } else { interval };
            let phase = within.map_or(0, |within| spread(within, number, u64::from(group.count)));
            let streams = first..self.plan.streams.len();
            self.plan.probes |= group.probe;
            self.client(number, broker, Role::Publisher { streams, interval, phase });
        }
        Ok(())
    }

    fn subscribers(&mut self) -> Result<(), BenchError> {
        let mut shared: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for group in &self.scenario.subscribers {
            for number in 0..u64::from(group.count) {
                let broker = group.brokers.broker(number, self.brokers, &mut self.rng);
                let random = self.rng.next_u64() >> 16;
                let numbers = crate::scenario::Numbers { client: number, topic: 0, random };
                let text = expand(&group.filter, numbers).map_err(BenchError::Usage)?;
                let filter =
                    TopicFilter::new(&text).map_err(|error| BenchError::Usage(format!("filter {text}: {error}")))?;
                let share = filter.share_group().is_some();
                // Members of a group share a driver, which sees all that the group gets.
                let known = shared.get(&text).copied().filter(|_| share);
                let (receiver, driver) = known.unwrap_or_else(|| {
                    self.plan.receivers.push(Receiver { streams: Vec::new(), shared: share });
                    (self.plan.receivers.len() - 1, if share { num::count(shared.len()) } else { number })
                });
                if share {
                    shared.insert(text, (receiver, driver));
                }
                self.client(driver, broker, Role::Subscriber { filter, receiver });
            }
        }
        Ok(())
    }
}

/// The turn of client `number` of `count` within `interval`.
fn spread(interval: u64, number: u64, count: u64) -> u64 {
    let place = u128::from(interval) * u128::from(number) / u128::from(count.max(1));
    u64::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::named;

    fn plan(name: &str) -> Plan {
        Plan::new(&named(name).expect("a scenario"), 2, 3).expect("a plan")
    }

    #[test]
    fn every_message_has_the_receivers_that_its_topic_says() {
        let fan_outs = |name: &str| {
            let plan = plan(name);
            let mut all: Vec<u64> = plan.streams.iter().map(|stream| stream.fan_out).collect();
            all.dedup();
            (plan.streams.len(), all, plan.receivers.len())
        };
        assert_eq!(fan_outs("pairs"), (100, vec![1], 100));
        assert_eq!(fan_outs("fan-in"), (1_000, vec![1], 1));
        assert_eq!(fan_outs("fan-out"), (1, vec![1_000], 1_000));
        assert_eq!(fan_outs("shared"), (100, vec![1], 1));
        assert_eq!(fan_outs("smart-plugs-publish"), (3_600, vec![1], 4));
        assert_eq!(fan_outs("smart-plugs-subscribe"), (360, vec![1], 360));
        assert_eq!(fan_outs("limit"), (51, vec![10, 1], 51));
    }

    #[test]
    fn figures_of_the_load() {
        let limit = plan("limit");
        assert!((limit.sp_ratio() - 10.0).abs() < 1e-9);
        assert!(limit.probes);
        assert!((limit.nominal_rate().expect("an open loop") - 500.0).abs() < 1e-9);
        assert_eq!(plan("pairs").nominal_rate(), None);
        assert!((plan("smart-plugs-publish").nominal_rate().expect("an open loop") - 360.0).abs() < 1e-6);
    }

    #[test]
    fn pairs_and_groups_stay_in_one_driver() {
        let pairs = plan("pairs");
        for (publisher, subscriber) in pairs.clients.iter().zip(pairs.clients.iter().skip(100)) {
            assert_eq!(publisher.driver, subscriber.driver);
        }
        let shared = plan("shared");
        let mut drivers: Vec<usize> = shared.clients.iter().skip(100).map(|client| client.driver).collect();
        drivers.dedup();
        assert_eq!(drivers.len(), 1);
    }

    #[test]
    fn wrong_topics_are_refused() {
        let mut scenario = named("pairs").expect("a scenario");
        for topic in ["a/#", "{x}", ""] {
            for group in &mut scenario.publishers {
                topic.clone_into(&mut group.topic);
            }
            assert!(Plan::new(&scenario, 1, 1).is_err(), "{topic}");
        }
    }
}
