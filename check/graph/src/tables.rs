//! Sizes of routing tables (SG-23).

use sedge_base::Rng;

use crate::Options;
use crate::report::section;
use crate::scribe::Dht;
use crate::stats::real;
use crate::world::{Part, World, resting, topic};

/// Tables of Scribe nodes: each node's part of the hash table, children in the trees, and roots it publishes to.
struct Scribe {
    dht: Dht,
    held: Vec<usize>,
}

impl Scribe {
    fn new(nodes: usize, seed: u64) -> Self {
        Self { dht: Dht::new(nodes, &mut Rng::new(seed ^ 0x5c1b)), held: vec![0; nodes] }
    }

    /// Sizes with these subscribers and publishers of each topic.
    fn sizes(&mut self, subscribers: &[Vec<usize>], publishers: &[Vec<usize>]) -> Vec<usize> {
        self.held.fill(0);
        for (number, members) in subscribers.iter().enumerate() {
            for (node, children) in self.dht.tree(number, members.iter().copied()).children() {
                self.held[node] += children;
            }
        }
        for publisher in publishers.iter().flatten() {
            self.held[*publisher] += 1;
        }
        self.held.iter().enumerate().map(|(node, held)| held + self.dht.table_size(node)).collect()
    }
}

fn growth(options: &Options) -> String {
    let (nodes, topics) = (options.nodes(100_000), if options.quick { 10 } else { 1_000 });
    let mut world = World::new(nodes, resting(), options.seed);
    let base = resting().base;
    let mut scribe = Scribe::new(nodes, options.seed);
    let mut publishers = vec![Vec::new(); topics];
    let mut subscribers = vec![Vec::new(); topics];
    // The topics of each node in random order.
    let mut chosen: Vec<Vec<usize>> = Vec::with_capacity(nodes);
    for _ in 0..nodes {
        let mut mine: Vec<usize> = Vec::new();
        while mine.len() < 10 {
            let drawn = world.rng.index(topics);
            if !mine.contains(&drawn) {
                mine.push(drawn);
            }
        }
        chosen.push(mine);
    }
    let mut rows = Vec::new();
    for round in 0..10 {
        for node in world.shuffled() {
            let Some(number) = chosen[node].get(round).copied() else { continue };
            let (part, group) =
                if node % 2 == 0 { (Part::Publisher, &mut publishers) } else { (Part::Subscriber, &mut subscribers) };
            group[number].push(node);
            world.take_part(node, topic(number), part);
            if round == 0 {
                world.join(node);
            }
        }
        if round % 2 == 1 {
            let (entries, others) = world.mean_table_sizes(base);
            let sizes = scribe.sizes(&subscribers, &publishers);
            let mean = real(sizes.iter().sum()) / real(nodes);
            let each = real(round + 1);
            rows.push(vec![
                (round + 1).to_string(),
                format!("{entries:.1}"),
                format!("{:.1}", entries / each),
                format!("{others:.1}"),
                format!("{:.1}", others / each),
                format!("{mean:.1}"),
            ]);
        }
    }
    let remarks = format!(
        "{nodes} nodes, half of them publishers and half subscribers, each on so many of {topics} topics; Scribe's hash table alone has {:.1} entries \
         a node. Source: larger than Scribe, linear in the topics of a node.",
        scribe.dht.mean_table_size(),
    );
    let head = ["Topics of a node", "Entries", "for each topic", "Other nodes", "for each topic", "Scribe"];
    section("Mean table size (figure 3.14)", &head, &rows, &remarks)
}

fn distribution(options: &Options) -> String {
    let nodes = if options.quick { 100 } else { 1_000 };
    let mut world = World::new(nodes, resting(), options.seed);
    let mut subscribers = vec![Vec::new(); nodes];
    for node in world.shuffled() {
        let mut numbers: Vec<usize> = (0..nodes).collect();
        world.rng.shuffle(&mut numbers);
        for (at, number) in numbers.into_iter().take(node + 1).enumerate() {
            subscribers[number].push(node);
            world.take_part(node, topic(number), Part::Subscriber);
            if at == 0 {
                world.join(node);
            }
        }
    }
    let base = resting().base;
    let mut ours: Vec<usize> = (0..nodes).map(|node| world.table_sizes(node, base).0).collect();
    let mut scribe = Scribe::new(nodes, options.seed).sizes(&subscribers, &[]);
    ours.sort_unstable();
    scribe.sort_unstable();
    let at = |sizes: &[usize], tenth: usize| {
        let size = sizes.get((sizes.len() * tenth / 10).saturating_sub(1)).copied().unwrap_or(0);
        (size, 100.0 * real(size) / real(sizes.last().copied().unwrap_or(1).max(1)))
    };
    let rows: Vec<Vec<String>> = (1..=10)
        .map(|tenth| {
            let (ours, scribe) = (at(&ours, tenth), at(&scribe, tenth));
            vec![
                format!("{} %", tenth * 10),
                ours.0.to_string(),
                format!("{:.0} %", ours.1),
                scribe.0.to_string(),
                format!("{:.0} %", scribe.1),
            ]
        })
        .collect();
    let remarks = format!(
        "{nodes} nodes, the k-th on k topics. Source: the share of nodes rises linearly with the size here, since a node's own topics decide, and not \
         for Scribe."
    );
    let head = ["Share of nodes", "Entries at most", "of the largest", "Scribe", "of the largest"];
    section("Table size, distribution (figure 3.15)", &head, &rows, &remarks)
}

pub(crate) fn run(options: &Options) -> String {
    format!("{}\n{}", growth(options), distribution(options))
}
