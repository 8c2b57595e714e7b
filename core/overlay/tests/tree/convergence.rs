//! Whatever happens in whatever order: no publication misses a node that it has to reach, and once everything has come to rest it reaches
//! no other node.

use std::collections::{BTreeMap, BTreeSet};

use crate::net::{Net, add, filter, id, patient_tree, remove, topic};
use proptest::prelude::*;
use sedge_base::{Duration, Rng};
use sedge_overlay::{AdvertOp, Input};

const FILTERS: [&str; 7] = ["a", "a/+", "#", "b/c", "$own/#", "$share/g/a", "+/c"];
const TOPICS: [&str; 7] = ["a", "a/x", "b/c", "$own/x", "a/c", "d", "b"];

/// Random events, and the conditions that have to hold after them.
struct World {
    net: Net,
    rng: Rng,
    count: u64,
    /// Subscriptions, by the token of each: node, client, filter.
    made: Vec<(u64, String, &'static str)>,
    /// How many settled tokens of each node have been seen.
    seen: BTreeMap<u64, usize>,
    /// Subscriptions that are settled and still there.
    settled: BTreeSet<usize>,
    /// Publications at this node have to reach this subscription.
    sure: BTreeSet<(u64, usize)>,
}

impl World {
    fn new(seed: u64, count: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut net = Net::new(patient_tree, count);
        for (a, b) in (1..=count).flat_map(|a| (1..a).map(move |b| (b, a))) {
            net.delays.insert((b, a), u32::try_from(rng.below(100_000)).expect("small") + 1);
        }
        let (made, seen) = (Vec::new(), BTreeMap::new());
        Self { net, rng, count, made, seen, settled: BTreeSet::new(), sure: BTreeSet::new() }
    }

    fn runs(&self, node: u64) -> bool {
        self.net.nodes.contains_key(&node)
    }

    fn subscribe(&mut self, node: u64) {
        let text = FILTERS[self.rng.index(FILTERS.len())];
        let (token, client) = (self.made.len(), format!("c{}", self.made.len()));
        let op = AdvertOp::Add { online: self.rng.chance(1, 2) };
        let change = sedge_overlay::Advert { op, ..add(&client, text) };
        self.made.push((node, client, text));
        self.net.local(node, &[change], Some(token as u64));
    }

    fn unsubscribe(&mut self, node: u64) {
        let local: Vec<_> = self.net.nodes[&node].local.keys().cloned().collect();
        let Some((client, _)) = self.rng.pick(&local) else { return };
        let token = self.made.iter().position(|(at, name, _)| *at == node && name == client.as_str()).expect("made");
        self.forget(|_, subscription| subscription == token);
        let change = remove(client.as_str(), self.made[token].2);
        let wait = self.rng.chance(1, 2);
        self.net.local(node, &[change], wait.then_some(u64::MAX));
    }

    /// Ends all that has been sure or settled about the subscriptions concerned.
    fn forget(&mut self, concerns: impl Fn(u64, usize) -> bool) {
        self.sure.retain(|(at, subscription)| !concerns(*at, *subscription));
        self.settled.retain(|subscription| !concerns(0, *subscription));
    }

    fn stop(&mut self, node: u64) {
        let made = self.made.clone();
        self.forget(|at, subscription| at == node || made[subscription].0 == node);
        self.seen.remove(&node);
    }

    /// A node starts again; the others notice by the new link only.
    fn replace(&mut self, node: u64) {
        self.stop(node);
        self.net.start(node);
        let linked: Vec<u64> = self.net.links.keys().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect();
        for other in linked {
            self.link(node, other);
        }
    }

    fn link(&mut self, a: u64, b: u64) {
        self.net.link(a, b);
        for subscription in &self.settled {
            let (owner, _, text) = &self.made[*subscription];
            // Filters that are told to everyone are known when the tables have been exchanged.
            if (*owner == a || *owner == b) && !text.starts_with('$') {
                self.sure.insert((a + b - owner, *subscription));
            }
        }
    }

    fn cut(&mut self, a: u64, b: u64, gone: bool) {
        self.net.cut(a, b, gone);
        let made = &self.made;
        self.sure.retain(|(at, subscription)| {
            let (owner, _, text) = &made[*subscription];
            let concerned = (*at, *owner) == (a, b) || (*at, *owner) == (b, a);
            !concerned || !(gone || text.starts_with('$'))
        });
    }

    /// Takes note of the settled subscriptions: from now on every linked node's publications have to come.
    fn note(&mut self) {
        for node in self.net.nodes.keys().copied().collect::<Vec<_>>() {
            self.net.poll(node);
            let tokens = self.net.nodes[&node].settled.clone();
            let seen = self.seen.insert(node, tokens.len()).unwrap_or(0);
            for token in tokens[seen..].iter().filter(|token| token.0 != u64::MAX) {
                let subscription = usize::try_from(token.0).expect("small");
                let (owner, client, text) = &self.made[subscription];
                assert_eq!(*owner, node);
                if self.net.nodes[&node].local.contains_key(&(client.as_str().into(), filter(text))) {
                    self.settled.insert(subscription);
                    let linked = self.net.links.keys().filter(|(from, _)| *from == node).map(|(_, to)| *to);
                    self.sure.extend(linked.map(|other| (other, subscription)));
                }
            }
        }
    }

    /// TR-15, TR-16, TR-26
    fn publish(&mut self, node: u64) {
        let text = TOPICS[self.rng.index(TOPICS.len())];
        let destinations = self.net.publish(node, text);
        for (_, subscription) in self.sure.iter().filter(|(at, _)| *at == node) {
            let (owner, _, wanted) = &self.made[*subscription];
            let wanted = filter(wanted);
            if wanted.share_group().is_none() && wanted.matches(&topic(text)) {
                assert!(destinations.contains(owner), "{text} at {node} misses {wanted} at {owner}: {destinations:?}");
            }
        }
    }

    fn step(&mut self) {
        let (a, b) = (self.rng.below(self.count) + 1, self.rng.below(self.count) + 1);
        let both = a != b && self.runs(a) && self.runs(b);
        match self.rng.below(60) {
            0 if self.net.nodes.len() > 2 && self.runs(a) => {
                self.net.kill(a);
                self.stop(a);
            }
            1 | 2 if !self.runs(a) => {
                self.net.start(a);
                let others: Vec<u64> = self.net.nodes.keys().copied().filter(|other| *other != a).collect();
                for other in others {
                    self.link(a, other);
                }
            }
            3 if self.runs(a) => self.replace(a),
            4..8 if both => self.link(a, b),
            8 if both => {
                let gone = self.rng.chance(1, 3);
                self.cut(a, b, gone);
            }
            9..15 if self.runs(a) => self.subscribe(a),
            15 | 16 if self.runs(a) => self.unsubscribe(a),
            17..27 if self.runs(a) => self.publish(a),
            27..40 => self.net.poll(a),
            40..46 => _ = self.net.reach(a),
            46 if self.rng.chance(1, 4) => {
                let millis = self.rng.below(40_000);
                self.net.pass(Duration::from_millis(millis));
            }
            47 if both => {
                let micros = u32::try_from(self.rng.below(90_000)).expect("small");
                self.net.feed(a, Input::RoundTrip { node: id(b), micros });
            }
            48 if self.runs(a) => self.net.local(a, &[], Some(u64::MAX)),
            _ => _ = self.net.deliver(a, b),
        }
        self.note();
    }

    /// TR-13, TR-14: every publication goes exactly where it is wanted, on a tree that all agree on.
    fn check_at_rest(&mut self) {
        self.net.link_all();
        self.note();
        self.net.check_tree();
        self.net.check_groups();
        let nodes: Vec<u64> = self.net.nodes.keys().copied().collect();
        for round in 0..2 {
            for node in &nodes {
                for text in TOPICS {
                    let destinations = self.net.publish(*node, text);
                    let wanting = self.net.wanting(*node, text);
                    if round == 1 {
                        assert_eq!(destinations, wanting, "{text} at {node}");
                    }
                    assert!(wanting.iter().all(|other| destinations.contains(other)));
                }
            }
            self.net.settle();
        }
        let waiting = self.made.iter().enumerate().filter(|(token, (owner, client, text))| {
            let local = self.net.nodes.get(owner).map(|node| &node.local);
            let there = local.is_some_and(|local| local.contains_key(&(client.as_str().into(), filter(text))));
            there && !self.settled.contains(token)
        });
        assert_eq!(waiting.count(), 0, "somebody waits for ever");
        for node in nodes {
            let (repairs, late) = (self.net.counter(node, "repairs"), self.net.counter(node, "late_settlements"));
            assert_eq!((repairs, late), (0, 0), "at {node}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn nobody_is_missed_at_any_time_and_nobody_is_bothered_at_rest(seed: u64, count in 2..6_u64, steps in 0..300_u32) {
        let mut world = World::new(seed, count);
        (0..steps).for_each(|_| world.step());
        world.check_at_rest();
    }

    /// The same with all links up from the start, so that more is settled.
    #[test]
    fn nobody_is_missed_in_a_cluster_that_has_found_together(seed: u64, count in 2..5_u64, steps in 0..300_u32) {
        let mut world = World::new(seed, count);
        world.net.link_all();
        (0..steps).for_each(|_| world.step());
        world.check_at_rest();
    }
}
