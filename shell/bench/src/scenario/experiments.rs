//! The placements of the interworking experiments: which client of which topic is at which broker.

use std::str::FromStr;

use super::named::{publisher, subscriber};
use super::{Placement, Scenario};

/// Brokers of the patterns B to D.
pub(super) const NODES: usize = 5;
/// Topics with load; one more carries the probes.
const TOPICS: usize = 5;
/// Publishers, and subscribers, of each topic.
const CLIENTS: u32 = 10;

/// How much of the interest in a topic is at the broker of its publishers (Banno, section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interworking {
    /// One broker has all clients.
    A,
    /// No locality: each broker has 2 publishers and 2 subscribers of each topic.
    B,
    /// Low locality: each broker has 8 and 8 of one topic, 1 and 1 of the next two.
    C,
    /// High locality: each broker has 10 and 10 of one topic.
    D,
}

impl FromStr for Interworking {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "a" => Ok(Self::A),
            "b" => Ok(Self::B),
            "c" => Ok(Self::C),
            "d" => Ok(Self::D),
            _ => Err(format!("{text}: the patterns are a, b, c and d")),
        }
    }
}

impl Interworking {
    /// Name of the scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::A => "pattern-a",
            Self::B => "pattern-b",
            Self::C => "pattern-c",
            Self::D => "pattern-d",
        }
    }

    /// Brokers that the pattern is made for.
    pub(crate) const fn nodes(self) -> usize {
        match self {
            Self::A => 1,
            Self::B | Self::C | Self::D => NODES,
        }
    }

    /// The brokers of the ten publishers, and of the ten subscribers, of `topic`, in turn.
    fn places(self, topic: usize, nodes: usize) -> Vec<usize> {
        let away = |steps: usize| (topic + nodes * steps - steps) % nodes;
        match self {
            Self::A => vec![0],
            Self::B => (0..nodes).collect(),
            // Broker n has the majority of topic n, one pair of topic n + 1 and one of n + 2.
            Self::C => std::iter::repeat_n(away(0), 8).chain([away(1), away(2)]).collect(),
            Self::D => vec![away(0)],
        }
    }
}

/// The load of `pattern` over `nodes` brokers: five topics with ten publishers and ten subscribers each, and one publisher of
/// one message per second at the first broker with a subscriber at each for the latency. With another number of brokers than
/// the pattern is made for the topics still number five, so that the load per broker is uneven.
pub(crate) fn interworking(pattern: Interworking, nodes: usize) -> Scenario {
    let nodes = nodes.max(1);
    let mut scenario =
        Scenario { interval_ms: Some(100.0), warmup_s: 10.0, measure_s: 60.0, drain_s: 10.0, ..Scenario::default() };
    pattern.name().clone_into(&mut scenario.name);
    for topic in 0..TOPICS {
        let name = format!("bench/pattern/{topic}");
        let brokers = Placement::Only(pattern.places(topic, nodes));
        let mut publishers = publisher(CLIENTS, name.clone());
        let mut subscribers = subscriber(CLIENTS, name);
        publishers.brokers.clone_from(&brokers);
        subscribers.brokers = brokers;
        scenario.publishers.push(publishers);
        scenario.subscribers.push(subscribers);
    }
    let mut probe = publisher(1, "bench/probe");
    probe.probe = true;
    probe.interval_ms = Some(1_000.0);
    probe.brokers = Placement::Only(vec![0]);
    scenario.publishers.push(probe);
    scenario.subscribers.push(subscriber(u32::try_from(nodes).unwrap_or(1), "bench/probe"));
    scenario
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{Plan, Role};
    use crate::scenario::named;

    /// Publishers and subscribers by broker and topic, as the plan of a run has them.
    fn placement(name: &str, brokers: usize) -> BTreeMap<(usize, String), [u32; 2]> {
        let plan = Plan::new(&named(name).expect(name), brokers, 1).expect("a plan");
        let mut found: BTreeMap<(usize, String), [u32; 2]> = BTreeMap::new();
        for client in &plan.clients {
            let (topic, column) = match &client.role {
                Role::Publisher { streams, .. } => {
                    (plan.streams.get(streams.start).expect("a stream").topic.as_str().to_owned(), 0)
                }
                Role::Subscriber { filter, .. } => (filter.as_str().to_owned(), 1),
                Role::Idle => panic!("nobody is idle"),
            };
            *found.entry((client.broker, topic)).or_default().get_mut(column).expect("a column") += 1;
        }
        assert!((plan.sp_ratio() - 10.0).abs() < 1e-9, "{name}: sp-ratio {}", plan.sp_ratio());
        found
    }

    /// Load clients of each broker by topic, ascending in number; and the probes.
    fn table(name: &str, brokers: usize) -> Vec<(Vec<[u32; 2]>, [u32; 2])> {
        let all = placement(name, brokers);
        let of = |broker: usize| {
            let own = || all.iter().filter(move |((at, _), _)| *at == broker);
            let mut load: Vec<[u32; 2]> =
                own().filter(|((_, topic), _)| topic != "bench/probe").map(|(_, count)| *count).collect();
            load.sort_unstable();
            let probes = own().find(|((_, topic), _)| topic == "bench/probe").map_or([0; 2], |(_, count)| *count);
            (load, probes)
        };
        (0..brokers).map(of).collect()
    }

    /// BM-08
    #[test]
    fn clients_are_where_the_table_of_the_patterns_has_them() {
        assert_eq!(table("pattern-a", 1), [(vec![[10, 10]; 5], [1, 1])]);
        for (name, load) in
            [("pattern-b", vec![[2, 2]; 5]), ("pattern-c", vec![[1, 1], [1, 1], [8, 8]]), ("pattern-d", vec![[10, 10]])]
        {
            let brokers = table(name, 5);
            assert!(brokers.iter().all(|(found, _)| *found == load), "{name}: {brokers:?}");
            let probes: Vec<[u32; 2]> = brokers.iter().map(|(_, probes)| *probes).collect();
            assert_eq!(probes, [[1, 1], [0, 1], [0, 1], [0, 1], [0, 1]], "{name}");
        }
    }

    /// BM-08
    #[test]
    fn every_topic_has_ten_publishers_and_ten_subscribers() {
        for name in ["pattern-a", "pattern-b", "pattern-c", "pattern-d"] {
            for brokers in [1, 2, 5] {
                let mut topics: BTreeMap<String, [u32; 2]> = BTreeMap::new();
                for ((_, topic), [publishers, subscribers]) in placement(name, brokers) {
                    let sum = topics.entry(topic).or_default();
                    *sum = [sum[0] + publishers, sum[1] + subscribers];
                }
                topics.remove("bench/probe");
                assert_eq!(topics.into_values().collect::<Vec<_>>(), [[10, 10]; 5], "{name} on {brokers}");
            }
        }
        for nodes in 1..8 {
            for pattern in [Interworking::A, Interworking::B, Interworking::C, Interworking::D] {
                interworking(pattern, nodes).check().expect("a scenario");
            }
        }
    }

    #[test]
    fn patterns_have_letters() {
        assert_eq!("C".parse(), Ok(Interworking::C));
        assert!("e".parse::<Interworking>().is_err());
    }
}
