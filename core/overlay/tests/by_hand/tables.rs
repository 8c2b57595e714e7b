//! After any events: once links stand and nothing moves, neighbours agree on what one has told the other, the tables are those of
//! section 6 of the interworking specification, and publications go by them.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{Duration, NodeId};
use sedge_mqtt::TopicFilter;
use sedge_overlay::Overlay;

use crate::net::{filter, id, topic};
use crate::wanted::{Edges, Filters, cover, distances, is_forest, told};
use crate::world::{World, flood, mesh, tree};

const TOPICS: [&str; 7] = ["a", "a/x", "b/c", "$own/x", "a/c", "d", "b"];
/// How many seeds each algorithm has, where the environment names no other number.
const SEEDS: u64 = 100;
/// 1930: a node missed between two broken links that its choice had been heard before the other end ended the link again.
const KEPT: [u64; 1] = [1_930];
/// More lines than any table has.
const ALL: usize = 1_000_000;

/// `SEDGE_TEST_SEEDS` chooses another number: 10,000 take some minutes.
#[expect(clippy::disallowed_methods, reason = "a test program has no other way to be told")]
fn seeds() -> impl Iterator<Item = u64> {
    let count =
        std::env::var("SEDGE_TEST_SEEDS").map_or(SEEDS, |text| text.parse().expect("SEDGE_TEST_SEEDS is a number"));
    (0..count).chain(KEPT.into_iter().filter(move |seed| *seed >= count))
}

/// Lines of a routing table: node and filter.
type Lines = BTreeSet<(u64, TopicFilter)>;

/// The knowledge of all nodes at rest.
struct Rest<'a> {
    world: &'a World,
    edges: Edges,
    seed: u64,
}

impl<'a> Rest<'a> {
    fn of(seed: u64, world: &'a World) -> Self {
        Self { world, edges: world.edges(), seed }
    }

    fn overlay(&self, node: u64) -> &dyn Overlay {
        self.world.net.nodes[&node].overlay.as_ref()
    }

    /// The next node on the way from one to another.
    fn next(&self, node: u64, to: NodeId) -> u64 {
        self.overlay(node).way(&topic("a"), to).get()
    }

    fn local(&self, node: u64) -> Filters {
        self.world.net.nodes[&node].local.keys().map(|(_, filter)| filter.clone()).collect()
    }

    fn reached(&self, node: u64) -> BTreeSet<u64> {
        let mut reached: BTreeSet<u64> = distances(&self.edges, node).into_keys().collect();
        reached.remove(&node);
        reached
    }

    /// The lines that `node` has from its neighbour `from`: `in_node[from]`.
    fn heard(&self, node: u64, from: u64) -> Lines {
        let lines = self.overlay(node).routes(0, ALL).into_iter();
        lines.filter(|line| self.next(node, line.node) == from).map(|line| (line.node.get(), line.filter)).collect()
    }

    /// The lines that `node` says to its neighbour `to`: `out_node[to]`, its own and all that it has from others.
    fn said(&self, node: u64, to: u64) -> Lines {
        let lines = self.overlay(node).routes(0, ALL).into_iter().filter(|line| self.next(node, line.node) != to);
        let own = self.local(node).into_iter().map(|filter| (node, filter));
        own.chain(lines.map(|line| (line.node.get(), line.filter))).collect()
    }

    /// Both ends of each link know of it, and operators have the links that they ordered last.
    fn check_links(&self) {
        for (node, neighbours) in &self.edges {
            let own: BTreeSet<u64> = self.world.neighbours(*node).collect();
            assert_eq!(&own, neighbours, "seed {}: neighbours of {node}", self.seed);
            assert!(self.overlay(*node).is_agreed(), "seed {}: {node} waits for others", self.seed);
        }
        for ((a, b), chosen) in self.world.certain() {
            let is_there = self.edges.get(&a).is_some_and(|others| others.contains(&b));
            assert_eq!(is_there, chosen, "seed {}: link {a} - {b}", self.seed);
        }
    }

    /// `out_x[y] == in_y[x]`, and in a forest both are as section 6 says.
    fn check_tables(&self) {
        let local: BTreeMap<u64, Filters> = self.edges.keys().map(|node| (*node, self.local(*node))).collect();
        let expected = is_forest(&self.edges).then(|| told(&self.edges, &local));
        for (node, neighbours) in &self.edges {
            let mut all = Lines::new();
            for from in neighbours {
                let (said, heard) = (self.said(*from, *node), self.heard(*node, *from));
                if let Some(told) = &expected {
                    assert_eq!(said, heard, "seed {}: from {from} to {node}", self.seed);
                    let filters: Filters = heard.iter().map(|(_, filter)| filter.clone()).collect();
                    assert_eq!(cover(&filters), told[&(*from, *node)], "seed {}: from {from} to {node}", self.seed);
                }
                // In a cycle a node has each other one from one neighbour, which says the same.
                assert!(said.is_superset(&heard), "seed {}: from {from} to {node}", self.seed);
                assert!(all.is_disjoint(&heard), "seed {}: {node} has some of {from} twice", self.seed);
                all.extend(heard);
            }
            let reached = self.reached(*node);
            let from_scratch =
                reached.iter().flat_map(|other| local[other].iter().map(|filter| (*other, filter.clone())));
            assert_eq!(all, from_scratch.collect(), "seed {}: at {node}", self.seed);
        }
    }

    /// The members of shared subscriptions that links lead to are counted, and no others.
    fn check_groups(&self) {
        for (node, state) in &self.world.net.nodes {
            let mut groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)> = BTreeMap::new();
            for other in self.reached(*node) {
                let members = self.world.net.nodes[&other].local.iter();
                for ((_, filter), online) in members.filter(|((_, filter), _)| filter.share_group().is_some()) {
                    let counts = groups.entry((id(other), filter.clone())).or_default();
                    *(if *online { &mut counts.0 } else { &mut counts.1 }) += 1;
                }
            }
            assert_eq!(state.told.groups, groups, "seed {}: groups at {node}", self.seed);
        }
    }

    /// Each way is a shortest one and goes over chosen links only.
    fn check_ways(&self) {
        for node in self.edges.keys() {
            for (to, distance) in distances(&self.edges, *node) {
                let hops = self.world.net.walk(*node, to, "a");
                assert_eq!(hops.len(), distance, "seed {}: from {node} to {to}", self.seed);
                assert!(hops.iter().all(|(a, b)| self.edges[a].contains(b)), "seed {}: {hops:?}", self.seed);
            }
        }
    }
}

/// Publications go to those that want them and that links lead to. `everywhere`: whether they want all that begins with no `$`.
fn check_publications(seed: u64, world: &mut World, everywhere: bool) {
    let nodes: Vec<u64> = world.net.nodes.keys().copied().collect();
    // Some algorithms hear from the first publication which topics there are, and ask.
    for is_known in [false, true] {
        for node in &nodes {
            let reached = Rest::of(seed, world).reached(*node);
            for text in TOPICS {
                let destinations: BTreeSet<u64> = world.net.publish(*node, text).into_iter().collect();
                let wanting: BTreeSet<u64> = world.net.wanting(*node, text).into_iter().collect();
                let flooded = everywhere && !text.starts_with('$');
                let expected = if flooded { reached.clone() } else { &wanting & &reached };
                if is_known {
                    assert_eq!(destinations, expected, "seed {seed}: {text} at {node}");
                    check_transfers(&Rest::of(seed, world), *node, text, &destinations, flooded);
                }
                assert!(destinations.is_superset(&expected), "seed {seed}: {text} at {node}");
            }
        }
        world.net.settle();
    }
}

/// In a forest a publication takes the links over which somebody has told that it is wanted, and no others.
fn check_transfers(rest: &Rest<'_>, node: u64, text: &str, destinations: &BTreeSet<u64>, flooded: bool) {
    if !is_forest(&rest.edges) {
        return;
    }
    let everything: Filters = BTreeSet::from([filter("#")]);
    let plain = |node: &u64| {
        let local = if flooded { everything.clone() } else { rest.local(*node) };
        (*node, local.into_iter().filter(|filter| filter.share_group().is_none()).collect())
    };
    let told = told(&rest.edges, &rest.edges.keys().map(plain).collect());
    let mut expected = BTreeSet::new();
    let mut next = vec![(node, node)];
    while let Some((at, before)) = next.pop() {
        for to in rest.edges[&at].iter().filter(|to| **to != before) {
            if told[&(*to, at)].iter().any(|filter| filter.matches(&topic(text))) {
                expected.insert((at, *to));
                next.push((*to, at));
            }
        }
    }
    let hops: BTreeSet<(u64, u64)> = destinations.iter().flat_map(|to| rest.world.net.walk(node, *to, text)).collect();
    assert_eq!(hops, expected, "seed {}: {text} at {node}", rest.seed);
}

fn check(seed: u64, world: &mut World) {
    world.heal();
    let name = world.net.nodes[&1].overlay.name();
    let rest = Rest::of(seed, world);
    rest.check_links();
    rest.check_ways();
    rest.check_groups();
    if name == "mesh" {
        rest.check_tables();
    }
    check_publications(seed, world, name == "flood");
    // Each node tells every other the digest of all that it has told it; the receiver compares the digest with its table.
    world.net.pass(Duration::from_secs(11));
    let nodes: Vec<u64> = world.net.nodes.keys().copied().collect();
    for node in nodes {
        let counters = world.net.topology(node).counters;
        let wrong: Vec<_> = counters
            .iter()
            .filter(|(name, count)| ["repairs", "late_settlements"].contains(name) && *count > 0)
            .collect();
        assert!(wrong.is_empty(), "seed {seed} at {node}: {wrong:?}");
    }
}

/// The world of a seed after its events, checked; `make` gives each node its algorithm.
fn at_rest(seed: u64, make: fn(u64) -> Box<dyn Overlay>) -> World {
    let mut world = World::new(seed, make);
    world.run();
    check(seed, &mut world);
    world
}

/// IL-09 to IL-11, IL-23, IL-24, IL-29: links are chosen and ended at both ends, TCP connections break and come back, nodes die and start
/// again, clients subscribe and unsubscribe, and everything is late, in order on each link.
#[test]
fn neighbours_agree_on_what_they_have_told_each_other() {
    let (mut forests, mut cycles) = (0, 0);
    for seed in seeds() {
        let world = at_rest(seed, mesh);
        let edges = world.edges();
        let is_linked = edges.values().any(|others| others.len() > 1);
        *(if is_forest(&edges) { &mut forests } else { &mut cycles }) += u64::from(is_linked);
    }
    assert!(forests > 20 && cycles > 10, "{forests} forests, {cycles} graphs with cycles");
}

/// IL-08, IL-29: the same where everybody gets everything that links lead to.
#[test]
fn flooding_reaches_whomever_links_lead_to() {
    seeds().for_each(|seed| drop(at_rest(seed, flood)));
}

/// IL-09, IL-29: the same where nodes tell their interest in the topics that are published.
#[test]
fn topics_that_are_published_go_where_they_are_wanted() {
    seeds().for_each(|seed| drop(at_rest(seed, tree)));
}
