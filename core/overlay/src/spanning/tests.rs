//! Members whose claims are moved by hand.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use proptest::prelude::*;
use sedge_base::{NodeId, Rng};

use super::*;

fn node(id: usize) -> NodeId {
    NodeId::new(id as u64)
}

fn rank(id: usize, capability: u64) -> Rank {
    // Higher ids have lower addresses.
    let port = 9_000 - u16::try_from(id).unwrap();
    Rank { capability, address: SocketAddr::from(([127, 0, 0, 1], port)), node: node(id) }
}

/// Nodes, the round trips between them and claims under way.
struct Net {
    ranks: Vec<Rank>,
    trees: BTreeMap<usize, Spanning>,
    /// In microseconds; 0 is a link that is down.
    delays: Vec<Vec<u32>>,
    wires: BTreeMap<(usize, usize), VecDeque<Claim>>,
    told: usize,
    /// From how many other members on a tree is large.
    large: usize,
}

impl Net {
    fn new(capabilities: &[u64], delays: Vec<Vec<u32>>) -> Self {
        let ranks: Vec<Rank> = capabilities.iter().enumerate().map(|(id, capability)| rank(id, *capability)).collect();
        let trees = ranks.iter().enumerate().map(|(id, rank)| (id, Spanning::new(*rank))).collect();
        Self { ranks, trees, delays, wires: BTreeMap::new(), told: 0, large: usize::MAX }
    }

    /// Nodes with random strengths and round trips, some links down.
    fn random(count: usize, rng: &mut Rng) -> Self {
        let capabilities: Vec<u64> = (0..count).map(|_| rng.below(4)).collect();
        let mut delays = vec![vec![0; count]; count];
        for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
            // No link is down on the ring, so that all are connected.
            let cut = b + 1 != a && rng.chance(1, 8);
            let delay = u32::try_from(rng.below(100_000)).unwrap() + 1;
            (delays[a][b], delays[b][a]) = if cut { (0, 0) } else { (delay, delay) };
        }
        Self::new(&capabilities, delays)
    }

    /// All trees are large with one other member.
    fn large(mut self) -> Self {
        self.large = 1;
        self.trees = self.ranks.iter().map(|rank| Spanning::new(*rank).large_from(1)).enumerate().collect();
        self
    }

    fn tree(&mut self, id: usize) -> &mut Spanning {
        self.trees.get_mut(&id).unwrap()
    }

    /// Node `a` hears that `b` is a member.
    fn join(&mut self, a: usize, b: usize) {
        let (rank, delay) = (self.ranks[b], self.delays[a][b]);
        let tree = self.tree(a);
        tree.join(node(b), rank);
        match delay {
            0 => tree.unlink(node(b)),
            delay => tree.round_trip(node(b), delay),
        }
        // A new neighbour has to be told the claim.
        let claim = self.trees[&a].claim();
        self.wires.entry((a, b)).or_default().push_back(claim);
    }

    fn join_all(&mut self) {
        let ids: Vec<usize> = self.trees.keys().copied().collect();
        for a in &ids {
            for b in &ids {
                if a != b {
                    self.join(*a, *b);
                }
            }
        }
    }

    /// Every member that has news tells all others, also those to which there is no link: some member passes the news on to them.
    fn talk(&mut self) {
        let ids: Vec<usize> = self.trees.keys().copied().collect();
        for from in &ids {
            if self.tree(*from).take_news() {
                let claim = self.trees[from].claim();
                for to in ids.iter().filter(|to| *to != from) {
                    self.told += 1;
                    self.wires.entry((*from, *to)).or_default().push_back(claim);
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(claim) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
        let direct = self.delays[from][to] != 0;
        let Some(tree) = self.trees.get_mut(&to) else { return true };
        if direct {
            tree.hear(node(from), claim);
        } else {
            tree.hear_of(node(from), claim);
        }
        true
    }

    /// Delivers everything that is under way; says whether there was anything.
    fn round(&mut self) -> bool {
        self.talk();
        let due: Vec<(usize, usize, usize)> = self.wires.iter().map(|((a, b), wire)| (*a, *b, wire.len())).collect();
        for (from, to, count) in &due {
            (0..*count).for_each(|_| assert!(self.deliver(*from, *to)));
        }
        due.iter().any(|(.., count)| *count > 0)
    }

    /// Says how many rounds it took.
    fn settle(&mut self) -> usize {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < 1_000, "no end");
        }
        rounds
    }

    fn kill(&mut self, dead: usize) {
        self.trees.remove(&dead);
        self.wires.retain(|(a, b), _| *a != dead && *b != dead);
    }

    fn root(&self) -> usize {
        *self.trees.keys().max_by_key(|id| self.ranks[**id]).unwrap()
    }

    /// The least cost of the way from the root to each node, in the steps that the tree counts in, and in any number of hops.
    fn shortest(&self) -> BTreeMap<usize, u32> {
        let mut costs = BTreeMap::from([(self.root(), 0)]);
        for _ in 0..self.trees.len() {
            let before = costs.clone();
            for a in self.trees.keys().copied().filter(|a| *a != self.root()) {
                for (b, cost) in &before {
                    if *b != a && self.delays[a][*b] != 0 {
                        let mut edge = cost::Edge::UNMEASURED;
                        edge.measure(self.delays[a][*b]);
                        let way = cost + edge.cost();
                        let best = costs.entry(a).or_insert(way);
                        *best = way.min(*best);
                    }
                }
            }
        }
        costs
    }

    /// TR-07 to TR-10: everybody knows the same tree, it has n-1 edges, is connected, has the right root and the shortest ways.
    fn check(&mut self) {
        self.trees.values_mut().for_each(Spanning::refresh);
        let first = self.trees.values().next().unwrap();
        let shortest = self.shortest();
        let parents = first.parents();
        assert_eq!(parents.len(), self.trees.len());
        let root = node(self.root());
        let mut edges = BTreeSet::new();
        for (id, tree) in &self.trees {
            assert!(tree.is_complete(), "{id}: {tree:?}");
            assert_eq!((tree.claim().epoch, tree.parents()), (first.claim().epoch, parents), "at {id}");
            assert_eq!(tree.claim().root, root, "at {id}");
            // A large tree is mended where it breaks.
            assert!(tree.is_large() || tree.claim().cost == shortest[id], "at {id}: {tree:?}");
            edges.extend(tree.claim().parent.map(|parent| (node(*id), parent)));
            let mut at = node(*id);
            for _ in 0..self.trees.len() {
                at = parents[&at].unwrap_or(at);
            }
            assert_eq!(at, root, "{id} is cut off");
        }
        assert_eq!(edges.len(), self.trees.len() - 1);
        self.check_hops(&edges);
    }

    /// Following the hops leads from everywhere to everywhere.
    fn check_hops(&self, edges: &BTreeSet<(NodeId, NodeId)>) {
        for from in self.trees.keys() {
            for to in self.trees.keys().filter(|to| *to != from) {
                let (mut at, mut hops) = (node(*from), 0);
                while at != node(*to) {
                    let next = self.trees[&usize::try_from(at.get()).unwrap()].hop_towards(node(*to)).unwrap();
                    assert!(edges.contains(&(at, next)) || edges.contains(&(next, at)));
                    (at, hops) = (next, hops + 1);
                    assert!(hops < self.trees.len(), "a cycle");
                }
            }
        }
    }

    /// Whatever the members believe: the parents of a member lead to a root, and no member is passed twice.
    fn check_acyclic(&mut self) {
        for tree in self.trees.values_mut() {
            tree.refresh();
            for start in tree.parents().keys() {
                let (mut at, mut hops) = (*start, 0);
                while let Some(parent) = tree.parents().get(&at).copied().flatten() {
                    (at, hops) = (parent, hops + 1);
                    assert!(hops <= tree.parents().len(), "a cycle in {tree:?}");
                }
            }
        }
    }
}

fn even(count: usize, delay: u32) -> Vec<Vec<u32>> {
    vec![vec![delay; count]; count]
}

/// TR-07, TR-08
#[test]
fn the_strongest_is_root_and_between_equals_the_lowest_address() {
    let mut net = Net::new(&[1, 7, 7, 2], even(4, 10_000));
    net.join_all();
    net.settle();
    net.check();
    // Of 1 and 2 the second has the lower address.
    assert_eq!(net.trees[&0].claim().root, node(2));
    let low = Rank { address: "9.0.0.1:7883".parse().unwrap(), ..rank(1, 5) };
    let high = Rank { address: "10.0.0.1:1".parse().unwrap(), ..rank(0, 5) };
    assert!(low > high, "addresses compare as numbers");
    assert!(Rank { capability: 6, ..high } > low);
}

/// TR-09: the chain A-B-C of the source, where the direct way takes longer.
#[test]
fn a_detour_that_is_faster_is_taken() {
    let mut net = Net::new(&[3, 2, 1], vec![vec![0, 10_000, 90_000], vec![10_000, 0, 10_000], vec![90_000, 10_000, 0]]);
    net.join_all();
    net.settle();
    net.check();
    assert_eq!(net.trees[&2].parents()[&node(2)], Some(node(1)));
    assert_eq!(net.trees[&1].neighbours().collect::<Vec<_>>(), [node(0), node(2)]);
    assert_eq!(net.trees[&2].hop_towards(node(0)), Some(node(1)));
}

#[test]
fn machines_that_stand_together_become_a_star_whatever_the_noise() {
    let mut rng = Rng::new(1);
    let mut net = Net::new(&[1; 6], even(6, 100));
    for delay in net.delays.iter_mut().flatten() {
        *delay = u32::try_from(rng.below(240)).unwrap() + 10;
    }
    net.join_all();
    net.settle();
    net.check();
    let root = net.root();
    assert_eq!(net.trees[&root].neighbours().count(), 5);
    let epoch = net.trees[&0].claim().epoch;
    for _ in 0..1_000 {
        let (a, b) = (rng.index(6), rng.index(6));
        net.tree(a).round_trip(node(b), u32::try_from(rng.below(1_000)).unwrap());
        assert!(!net.trees[&a].is_outdated());
        assert!(!net.round());
    }
    assert_eq!(net.trees[&0].claim().epoch, epoch);
}

/// Overlay-trees section 9, "link cut between two live brokers".
#[test]
fn a_cut_link_is_gone_round() {
    let mut net = Net::new(&[9, 1, 1], even(3, 5_000));
    net.join_all();
    net.settle();
    assert_eq!(net.trees[&2].claim().parent, Some(node(0)));
    (net.delays[0][2], net.delays[2][0]) = (0, 0);
    net.tree(0).unlink(node(2));
    net.tree(2).unlink(node(0));
    assert_eq!(net.trees[&2].hop_towards(node(0)), None, "not over a link that is down");
    net.settle();
    net.check();
    assert_eq!(net.trees[&2].claim().parent, Some(node(1)));
    (net.delays[0][2], net.delays[2][0]) = (5_000, 5_000);
    for (a, b) in [(0, 2), (2, 0)] {
        net.tree(a).link(node(b));
        net.tree(a).round_trip(node(b), 5_000);
    }
    net.settle();
    net.check();
    assert_eq!(net.trees[&2].claim().parent, Some(node(0)));
}

/// TR-22: publications that went over the dead node go straight to the destination until there is a new tree.
#[test]
fn ways_over_a_dead_node_end_at_once_and_the_rest_of_the_tree_stays_until_the_next_is_complete() {
    let line = |a: usize, b: usize| 10_000 * u32::try_from(a.abs_diff(b).pow(2)).unwrap();
    let delays = (0..5).map(|a| (0..5).map(|b| line(a, b)).collect()).collect();
    let mut net = Net::new(&[9, 1, 1, 1, 1], delays);
    net.join_all();
    net.settle();
    net.check();
    assert_eq!(net.trees[&4].hop_towards(node(0)), Some(node(3)));
    net.kill(2);
    for id in [0, 1, 3, 4] {
        net.tree(id).leave(node(2));
        assert!(!net.trees[&id].is_complete());
    }
    assert_eq!(net.trees[&4].hop_towards(node(0)), None);
    assert_eq!(net.trees[&4].hop_towards(node(3)), Some(node(3)));
    assert_eq!(net.trees[&4].hop_towards(node(1)), None);
    net.settle();
    net.check();
    assert_eq!(net.trees[&3].claim().parent, Some(node(1)));
}

#[test]
fn the_old_tree_is_in_use_until_the_new_one_is_complete() {
    let mut net = Net::new(&[9, 1, 1, 10], even(4, 10_000));
    for (a, b) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        net.join(a, b);
    }
    let newcomer = net.trees.remove(&3).unwrap();
    net.settle();
    net.check();
    let before = net.trees[&1].parents().clone();
    net.trees.insert(3, newcomer);
    for other in 0..3 {
        net.join(3, other);
        net.join(other, 3);
        assert!(!net.trees[&other].is_complete());
        assert_eq!(net.trees[&other].hop_towards(node(3)), None);
    }
    assert_eq!(net.trees[&1].parents(), &before);
    assert_eq!(net.trees[&1].hop_towards(node(2)), Some(node(0)));
    net.settle();
    net.check();
    assert_eq!(net.trees[&1].hop_towards(node(2)), Some(node(3)));
}

#[test]
fn a_lasting_change_of_round_trips_or_strength_is_noticed_and_nothing_changes_before_the_next_epoch() {
    let mut net = Net::new(&[4, 1, 1], even(3, 20_000));
    net.join_all();
    net.settle();
    let before = net.trees[&1].claim();
    (0..100).for_each(|_| net.tree(1).round_trip(node(0), 90_000));
    assert!(!net.round());
    assert_eq!(net.trees[&1].claim(), before);
    assert!(net.trees[&1].is_outdated() && !net.trees[&2].is_outdated() && !net.trees[&0].is_outdated());
    (net.delays[0][1], net.delays[1][0]) = (90_000, 90_000);
    net.tree(1).renew();
    net.settle();
    net.check();
    assert_eq!(net.trees[&1].claim().parent, Some(node(2)));
    assert!(net.trees.values().all(|tree| !tree.is_outdated()));

    net.ranks[2].capability = 5;
    let stronger = net.ranks[2];
    net.tree(2).set_rank(stronger);
    assert!(!net.round() && !net.trees[&2].is_outdated(), "not much stronger");
    net.ranks[2].capability = 6;
    let stronger = net.ranks[2];
    net.tree(2).set_rank(stronger);
    assert!(!net.round() && net.trees[&2].is_outdated());
    net.tree(2).renew();
    net.settle();
    net.check();
    net.ranks[2].capability = 1;
    let weaker = net.ranks[2];
    net.tree(2).set_rank(weaker);
    assert!(net.trees[&2].is_outdated());
}

#[test]
fn claims_of_earlier_epochs_and_of_strangers_do_not_count() {
    let mut net = Net::new(&[2, 1, 1], even(3, 10_000));
    net.join_all();
    net.settle();
    let before = net.trees[&1].clone();
    let claim = net.trees[&0].claim();
    let old = Claim { epoch: claim.epoch - 1, root: node(2), cost: 7, parent: Some(node(2)), ..claim };
    net.tree(1).hear(node(0), old);
    net.tree(1).hear(node(77), Claim { capability: 100, root: node(77), ..claim });
    net.tree(1).hear_of(node(0), Claim { version: 0, root: node(2), ..claim });
    assert_eq!((net.trees[&1].claim(), net.trees[&1].parents()), (before.claim(), before.parents()));
    assert!(net.trees[&1].is_complete());
    let highest = Claim { epoch: u64::MAX, ..claim };
    net.tree(1).hear(node(0), highest);
    net.tree(1).renew();
    assert_eq!(net.trees[&1].claim().epoch, u64::MAX);
}

#[test]
fn a_cycle_among_claims_is_no_tree() {
    let mut net = Net::new(&[2, 1, 1], even(3, 10_000));
    net.join_all();
    net.settle();
    let epoch = net.trees[&0].claim().epoch;
    for (child, parent) in [(1, 2), (2, 1)] {
        let claim = Claim { epoch, version: 9, capability: 1, root: node(0), cost: 10_240, parent: Some(node(parent)) };
        net.tree(0).hear(node(child), claim);
    }
    assert!(!net.trees[&0].is_complete());
    net.check_acyclic();
}

/// TR-10: a hundred random networks, all nodes known to each other at once, claims in rounds.
#[test]
fn a_hundred_random_networks_become_shortest_path_trees_in_as_many_rounds_as_they_are_deep() {
    let mut rng = Rng::new(7);
    for _ in 0..100 {
        let count = 2 + rng.index(14);
        let mut net = Net::random(count, &mut rng);
        net.join_all();
        // All hear of the last epoch.
        assert!(net.round());
        let mut rounds = 0;
        while net.round() {
            rounds += 1;
            net.check_acyclic();
        }
        net.check();
        let depth = |mut at: NodeId| {
            let mut depth = 0;
            while let Some(parent) = net.trees[&0].parents()[&at] {
                (at, depth) = (parent, depth + 1);
            }
            depth
        };
        let deepest = (0..count).map(|id| depth(node(id))).max().unwrap();
        assert!(rounds <= deepest + 1, "{rounds} rounds for {count} nodes, {deepest} deep");
    }
}

/// TR-09, TR-10, TR-22: claims arrive in any order; nodes come, go and lose links meanwhile.
fn run(seed: u64, count: usize, steps: usize, large: bool) {
    let mut rng = Rng::new(seed);
    let net = Net::random(count, &mut rng);
    let mut net = if large { net.large() } else { net };
    net.join_all();
    for _ in 0..steps {
        let (a, b) = (rng.index(count), rng.index(count));
        match rng.below(40) {
            0 if net.trees.len() > 2 && net.trees.contains_key(&a) => {
                net.kill(a);
                // Some notice later.
                for other in net.trees.keys().copied().collect::<Vec<_>>() {
                    if rng.chance(1, 2) {
                        for _ in 0..rng.index(20) {
                            net.deliver(rng.index(count), rng.index(count));
                        }
                        net.talk();
                    }
                    net.tree(other).leave(node(a));
                }
            }
            1 if !net.trees.contains_key(&a) => {
                let rank = net.ranks[a];
                net.trees.insert(a, Spanning::new(rank).large_from(net.large));
                for other in net.trees.keys().copied().filter(|other| *other != a).collect::<Vec<_>>() {
                    net.join(a, other);
                    net.join(other, a);
                    net.talk();
                }
            }
            2 if net.trees.contains_key(&a) => net.tree(a).renew(),
            3 if a.abs_diff(b) > 1 && net.trees.contains_key(&a) && net.trees.contains_key(&b) => {
                let delay = if net.delays[a][b] == 0 { 1 + u32::try_from(rng.below(50_000)).unwrap() } else { 0 };
                for (a, b) in [(a, b), (b, a)] {
                    net.delays[a][b] = delay;
                    let tree = net.tree(a);
                    if delay == 0 {
                        tree.unlink(node(b));
                    } else {
                        tree.link(node(b));
                    }
                    tree.round_trip(node(b), delay);
                }
            }
            4..20 => net.talk(),
            _ => {
                net.deliver(a, b);
            }
        }
        net.check_acyclic();
    }
    net.settle();
    // A node that came back in the ring may have no link any more to any that lives: then there is no tree.
    let reachable = net.shortest().len() == net.trees.len();
    if reachable {
        net.check();
    }
    net.check_acyclic();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_happens_the_same_shortest_path_tree_stands_everywhere_once_all_is_quiet(
        seed in any::<u64>(), count in 2..10_usize, steps in 0..400_usize,
    ) {
        run(seed, count, steps, false);
    }

    /// A large tree is mended without a new epoch: the ways need not be the shortest, but all agree on a tree.
    #[test]
    fn whatever_happens_the_same_tree_stands_everywhere_in_a_large_one(
        seed in any::<u64>(), count in 2..10_usize, steps in 0..400_usize,
    ) {
        run(seed, count, steps, true);
    }

    #[test]
    fn claims_come_back_as_they_were(numbers in any::<[u64; 3]>(), version: u32, cost: u32, parent: u64) {
        let [epoch, capability, root] = numbers;
        let parent = (cost != 0 && cost != UNREACHABLE).then(|| NodeId::new(parent));
        let claim = Claim { epoch, version, capability, root: NodeId::new(root), cost, parent };
        let mut out = BytesMut::new();
        claim.put(&mut out);
        prop_assert_eq!(Claim::get(&mut &out[..]), Some(claim));
        for cut in 0..out.len() {
            prop_assert_eq!(Claim::get(&mut &out[..cut]), None);
        }
    }
}
