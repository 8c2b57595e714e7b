//! Graphs of links by hand, as whole nodes use them: the mail that each link carries, and the messages that clients get while links come and go.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use sedge_mqtt::QoS;

use crate::by_hand::{OVERLAYS, apart, graphs, link, reaches, transfers, tree};
use crate::common::{ClientIx, World, address};

/// The neighbours of each node in the tree of the thesis.
const TREE: [&[u64]; 6] = [&[], &[2], &[1, 3, 4], &[2, 5], &[2], &[3]];

/// The links of the tree that a publication takes from `at` on, away from `before`. Says whether anybody there wants it.
fn expect(at: u64, before: u64, wanting: u64, used: &mut BTreeMap<(u64, u64), u64>) -> bool {
    let mut is_wanted = wanting & (1 << at) != 0;
    for to in TREE[usize::try_from(at).unwrap()].iter().filter(|to| **to != before) {
        if expect(*to, at, wanting, used) {
            used.insert((at, *to), 1);
            is_wanted = true;
        }
    }
    is_wanted
}

/// IL-09, IL-10: for each set of nodes with subscribers and each publisher, every link towards a sub-tree with one of them carries the
/// publication once, and no other link carries it.
#[test]
fn no_link_carries_what_nobody_behind_it_wants() {
    for overlay in ["mesh", "tree"] {
        let mut world = tree(21, overlay);
        let readers = (1..=5).map(|node| (node, world.connect(node, &format!("r{node}")))).collect::<Vec<_>>();
        let sets: Vec<u64> = (1..32).map(|set| set << 1).collect();
        for set in &sets {
            for (_, reader) in readers.iter().filter(|(node, _)| set & (1 << node) != 0) {
                world.subscribe(*reader, &format!("s/{set}"), QoS::AtLeastOnce);
            }
        }
        let writers: Vec<_> = (1..=5).map(|node| (node, world.connect(node, &format!("w{node}")))).collect();
        // The first publication tells the other nodes that there is the topic.
        for set in &sets {
            for (_, writer) in &writers {
                world.publish(*writer, &format!("s/{set}"), "0", QoS::AtLeastOnce);
            }
        }
        world.run(3_000);
        for set in &sets {
            for (node, writer) in &writers {
                let before = transfers(&world);
                world.publish(*writer, &format!("s/{set}"), "1", QoS::AtLeastOnce);
                world.run(50);
                let after = transfers(&world).into_iter();
                let new = after.map(|(pair, sent)| (pair, sent - before.get(&pair).unwrap_or(&0)));
                let used: BTreeMap<_, _> = new.filter(|(_, sent)| *sent > 0).collect();
                let mut expected = BTreeMap::new();
                expect(*node, 0, *set, &mut expected);
                assert_eq!(used, expected, "{overlay}: from {node} to the set {set:b}");
            }
        }
    }
}

/// Nodes with some links that stay and some that come and go, which have a cycle while all are there.
struct Run {
    world: World,
    nodes: u64,
    lasting: BTreeSet<(u64, u64)>,
    loose: BTreeMap<(u64, u64), bool>,
    /// Whether connections break, too.
    breaks: bool,
    readers: Vec<ClientIx>,
    /// Readers that subscribe and unsubscribe.
    fickle: Vec<(ClientIx, bool)>,
    writers: Vec<ClientIx>,
    sent: u64,
    /// The payloads that each reader must get, and those that it may get.
    owed: Vec<BTreeSet<String>>,
    allowed: Vec<BTreeSet<String>>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let overlay = OVERLAYS[usize::try_from(seed).unwrap() % 3];
        let nodes = 3 + seed % 4;
        let mut world = apart(5_000 + seed, overlay, nodes);
        world.delays.network = *world.rng.pick(&[200, 2_000, 20_000]).unwrap();
        let (mut lasting, mut loose) = (BTreeSet::new(), BTreeMap::new());
        while lasting.len() + loose.len() < usize::try_from(nodes).unwrap() {
            let (a, b) = (1 + world.rng.below(nodes), 1 + world.rng.below(nodes));
            let pair = (a.min(b), a.max(b));
            if a == b || lasting.contains(&pair) || loose.contains_key(&pair) {
                continue;
            }
            if world.rng.chance(1, 2) {
                lasting.insert(pair);
                link(&mut world, a, b);
            } else {
                loose.insert(pair, false);
            }
        }
        let mut connect = |prefix: &str| -> Vec<ClientIx> {
            (1..=nodes).map(|node| world.connect(node, &format!("{prefix}{node}"))).collect()
        };
        let (readers, fickle, writers) = (connect("r"), connect("f"), connect("w"));
        for reader in &readers {
            world.subscribe(*reader, "t/#", QoS::ExactlyOnce);
        }
        let fickle = fickle.into_iter().map(|client| (client, false)).collect();
        let none = vec![BTreeSet::new(); readers.len()];
        let breaks = seed % 2 == 1;
        Self {
            world,
            nodes,
            lasting,
            loose,
            breaks,
            readers,
            fickle,
            writers,
            sent: 0,
            owed: none.clone(),
            allowed: none,
        }
    }

    fn node(&mut self) -> u64 {
        1 + self.world.rng.below(self.nodes)
    }

    fn step(&mut self) {
        match self.world.rng.below(20) {
            0..3 => self.turn_link(),
            3 => self.turn_reader(),
            4 if self.breaks => {
                let (a, b) = (self.node(), self.node());
                self.world.break_links(a, b);
            }
            5..10 => {
                let millis = self.world.rng.below(4);
                self.world.run(millis);
            }
            _ => self.publish(),
        }
    }

    /// An operator at either end chooses a link that is not there, or ends one that is; nobody waits until all know.
    fn turn_link(&mut self) {
        let pairs: Vec<(u64, u64)> = self.loose.keys().copied().collect();
        let Some((a, b)) = self.world.rng.pick(&pairs).copied() else { return };
        let wanted = !self.loose[&(a, b)];
        let (at, other) = if self.world.rng.chance(1, 2) { (a, b) } else { (b, a) };
        let mut done = false;
        self.world.with_node(at, |node, now| done = node.neighbour(now, &[address(other)], wanted).is_ok());
        // The other end may not know yet what there is to end.
        if done {
            self.loose.insert((a, b), wanted);
        }
    }

    fn turn_reader(&mut self) {
        let at = self.world.rng.index(self.fickle.len());
        let (client, subscribed) = self.fickle[at];
        if subscribed {
            self.world.unsubscribe(client, "t/#");
        } else {
            self.world.subscribe(client, "t/#", QoS::ExactlyOnce);
        }
        self.fickle[at].1 = !subscribed;
    }

    fn publish(&mut self) {
        let node = self.node();
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][self.world.rng.index(3)];
        let text = format!("{node}-{}", self.sent);
        self.sent += 1;
        let writer = self.writers[usize::try_from(node).unwrap() - 1];
        self.world.send_publish(writer, &format!("t/{node}"), &text, qos, false);
        let all = self.lasting.iter().chain(self.loose.keys()).copied().collect();
        for (reader, to) in (1..=self.nodes).enumerate() {
            if reaches(&all, node, to) {
                self.allowed[reader].insert(text.clone());
            }
            if qos > QoS::AtMostOnce && reaches(&self.lasting, node, to) {
                self.owed[reader].insert(text.clone());
            }
        }
    }

    fn check(&self, seed: u64) {
        let fickle = self.fickle.iter().map(|(client, _)| client);
        for (at, client) in self.readers.iter().chain(fickle).enumerate() {
            let got = self.world.got(*client);
            let once: BTreeSet<String> = got.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(once.len(), got.len(), "seed {seed}: reader {at} has something twice: {got:?}");
            let foreign: Vec<_> = once.difference(&self.allowed[at % self.readers.len()]).collect();
            assert!(foreign.is_empty(), "seed {seed}: no links lead to reader {at} from {foreign:?}");
        }
        for (at, client) in self.readers.iter().enumerate() {
            let got: BTreeSet<String> = self.world.got(*client).iter().map(|text| (*text).to_owned()).collect();
            let lost: Vec<_> = self.owed[at].difference(&got).collect();
            assert!(lost.is_empty(), "seed {seed}: reader {at} misses {lost:?}\n{}", self.world.log.join("\n"));
        }
    }
}

/// IL-11, IL-23, IL-24, IL-29: links are chosen and ended and connections break while publications are on their way over graphs with
/// cycles. Nothing comes twice, and with QoS 1 and 2 nothing is lost where links that last lead to the reader.
#[test]
fn nothing_comes_twice_while_links_come_and_go() {
    let mut repeated = 0;
    for seed in 0..graphs(40) {
        let mut run = Run::new(seed);
        for _ in 0..150 {
            run.step();
        }
        run.world.run(12_000);
        run.check(seed);
        repeated += (1..=run.nodes).map(|node| run.world.counter(node, "relay_late")).sum::<u64>();
    }
    assert!(repeated > 0, "nothing came that had to be dropped");
}
