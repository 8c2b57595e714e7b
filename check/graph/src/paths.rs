//! Hops from publishers to subscribers (SG-20).

use sedge_base::Rng;
use sedge_overlay::skip_graph::{Config, Method};

use crate::Options;
use crate::report::section;
use crate::scribe::Dht;
use crate::stats::real;
use crate::world::{Part, World, resting, topic};

/// Name, publishers and subscribers of each topic, and mean hops with multi-range forwarding and split-forward broadcasting by a
/// simulation of the specification's.
const PATTERNS: [(&str, usize, usize, f64, f64); 6] = [
    ("α", 10, 990, 12.5, 8.5),
    ("β", 500, 500, 11.5, 8.0),
    ("γ", 990, 10, 8.8, 8.3),
    ("δ", 1, 9, 3.4, 2.9),
    ("ε", 5, 5, 3.0, 2.7),
    ("ζ", 9, 1, 2.6, 2.6),
];

/// Pairs by hops.
#[derive(Clone, Debug, Default)]
struct Histogram(Vec<usize>);

impl Histogram {
    fn add(&mut self, hops: usize) {
        if self.0.len() <= hops {
            self.0.resize(hops + 1, 0);
        }
        if let Some(count) = self.0.get_mut(hops) {
            *count += 1;
        }
    }

    fn mean(&self) -> f64 {
        let sum: usize = self.0.iter().enumerate().map(|(hops, count)| hops * count).sum();
        real(sum) / real(self.0.iter().sum::<usize>().max(1))
    }

    /// The share of pairs with at most so many hops.
    fn share(&self, hops: usize) -> f64 {
        let below: usize = self.0.iter().take(hops + 1).sum();
        real(below) / real(self.0.iter().sum::<usize>().max(1))
    }
}

/// Hops that were found for one pattern and number of nodes.
#[derive(Clone, Debug, Default)]
struct Found {
    mrf: Histogram,
    sfb: Histogram,
    scribe: Histogram,
}

/// One network with this pattern: every node is in one topic.
pub(crate) fn world(
    nodes: usize,
    publishers: usize,
    subscribers: usize,
    config: Config,
    seed: u64,
) -> (World, Vec<Vec<usize>>) {
    let mut world = World::new(nodes, config, seed);
    let order = world.shuffled();
    let members: Vec<Vec<usize>> = order.chunks_exact(publishers + subscribers).map(<[usize]>::to_vec).collect();
    for (number, members) in members.iter().enumerate() {
        for (at, node) in members.iter().enumerate() {
            let part = if at < publishers { Part::Publisher } else { Part::Subscriber };
            world.take_part(*node, topic(number), part);
        }
    }
    world.join_all();
    (world, members)
}

fn measure(nodes: usize, pattern: (usize, usize), seed: u64, found: &mut Found) {
    let (publishers, subscribers) = pattern;
    let (mut world, members) = world(nodes, publishers, subscribers, resting(), seed);
    for (method, histogram) in [(Method::Mrf, &mut found.mrf), (Method::Sfb, &mut found.sfb)] {
        world.set_method(method);
        for (number, members) in members.iter().enumerate() {
            for publisher in &members[..publishers] {
                let mut reached = 0;
                world.publish(*publisher, topic(number), |copy| {
                    if copy.deliver {
                        histogram.add(usize::from(copy.hops));
                        reached += 1;
                    }
                });
                assert_eq!(reached, subscribers, "a publication missed subscribers");
            }
        }
    }
    let dht = Dht::new(nodes, &mut Rng::new(seed ^ 0x5c1b));
    for (number, members) in members.iter().enumerate() {
        let (senders, receivers) = members.split_at(publishers);
        let tree = dht.tree(number, receivers.iter().copied());
        for receiver in receivers {
            let depth = tree.depth(*receiver);
            for sender in senders {
                found.scribe.add(depth + usize::from(*sender != tree.root));
            }
        }
    }
}

pub(crate) fn run(options: &Options) -> String {
    let sizes: &[usize] = if options.quick { &[1_000, 2_000] } else { &[1_000, 10_000, 100_000] };
    let total = sizes.iter().copied().max().unwrap_or(0);
    let mut rows = Vec::new();
    let mut spread = 0.0_f64;
    let mut quantiles = Vec::new();
    for (name, publishers, subscribers, mrf, sfb) in PATTERNS {
        let mut means: Vec<(f64, f64)> = Vec::new();
        for nodes in sizes {
            let mut found = Found::default();
            // As many nodes, and so topics, for each size: a single small network would be a matter of chance.
            for number in 0..total / nodes {
                measure(*nodes, (publishers, subscribers), options.seed + number as u64, &mut found);
            }
            let (ours, split, scribe) = (found.mrf.mean(), found.sfb.mean(), found.scribe.mean());
            means.push((ours, split));
            let source = if subscribers + publishers == 10 { "< 4; Scribe 16" } else { "as Scribe or less" };
            rows.push(vec![
                format!("{name} ({publishers}/{subscribers})"),
                nodes.to_string(),
                format!("{ours:.2}"),
                format!("{split:.2}"),
                format!("{scribe:.2}"),
                format!("{mrf} / {sfb}"),
                source.to_owned(),
            ]);
            if name == "α" && *nodes == total {
                quantiles = (2..=24)
                    .step_by(2)
                    .map(|hops| {
                        let shares = [&found.mrf, &found.sfb, &found.scribe].map(|found| 100.0 * found.share(hops));
                        let mut row = vec![hops.to_string()];
                        row.extend(shares.iter().map(|share| format!("{share:.1} %")));
                        row
                    })
                    .collect();
            }
        }
        if let Some(last) = means.last().copied() {
            for mean in &means {
                let off = ((mean.0 / last.0 - 1.0).abs()).max((mean.1 / last.1 - 1.0).abs());
                spread = spread.max(100.0 * off);
            }
        }
    }
    let mut text = section(
        "Path length (figures 3.9 and 3.10)",
        &["Pattern", "Nodes", "MRF", "SFB", "Scribe", "Reference MRF / SFB", "Source at 100,000"],
        &rows,
        &format!(
            "Mean hops from each publisher to each subscriber. The largest difference between network sizes is {spread:.1} %."
        ),
    );
    text.push('\n');
    text.push_str(&section(
        "Path length, distribution (figure 3.11)",
        &["Hops at most", "MRF", "SFB", "Scribe"],
        &quantiles,
        "Share of the pairs of pattern α in the largest network. Source: no notable difference between MRF and Scribe.",
    ));
    text
}
