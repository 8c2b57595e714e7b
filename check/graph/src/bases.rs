//! Bases of membership vectors (SG-21), and searches (SG-02).

use sedge_base::NodeId;
use sedge_overlay::skip_graph::{Base, Config, Key, Method, Range};

use crate::Options;
use crate::paths;
use crate::report::section;
use crate::stats::{Mean, real};
use crate::world::{World, resting, topic};

fn bases(options: &Options) -> String {
    let nodes = if options.quick { 1_000 } else { 10_000 };
    let mut rows = Vec::new();
    for base in [Base::Two, Base::Four, Base::Sixteen] {
        let config = Config { base, ..resting() };
        let (mut world, members) = paths::world(nodes, 10, 990, config, options.seed);
        let mut row = vec![format!("{base:?}")];
        for method in [Method::Mrf, Method::Sfb] {
            world.set_method(method);
            let mut mean = Mean::default();
            for (number, members) in members.iter().enumerate() {
                for publisher in &members[..10] {
                    world.publish(*publisher, topic(number), |copy| {
                        if copy.deliver {
                            mean.add(f64::from(copy.hops));
                        }
                    });
                }
            }
            row.push(format!("{:.2}", mean.get()));
        }
        let (entries, others) = world.mean_table_sizes(base);
        row.extend([format!("{entries:.1}"), format!("{others:.1}")]);
        rows.push(row);
    }
    let remarks = format!(
        "{nodes} nodes, pattern α. Source: the larger the base, the smaller the tables and the longer the paths."
    );
    section("Bases of membership vectors", &["Base", "MRF", "SFB", "Entries", "Other nodes"], &rows, &remarks)
}

fn searches(options: &Options) -> String {
    let mut rows = Vec::new();
    for nodes in [1_000, 10_000, 100_000].map(|nodes| options.nodes(nodes)) {
        let mut world = World::new(nodes, resting(), options.seed);
        world.join_all();
        let mut mean = Mean::default();
        for _ in 0..5_000 {
            let (from, to) = (world.rng.index(nodes), world.rng.index(nodes));
            let target = Key::placeholder(NodeId::new(to as u64));
            let mut hops = 0;
            world.query(from, Range::closed(target, target), |copy| hops = copy.hops);
            if from != to {
                mean.add(f64::from(hops));
            }
        }
        let log = real(nodes).log2();
        rows.push(vec![nodes.to_string(), format!("{:.2}", mean.get()), format!("{:.3}", mean.get() / log)]);
    }
    section(
        "Searches",
        &["Nodes", "Mean hops", "divided by log2 of the nodes"],
        &rows,
        "5,000 searches between random nodes.",
    )
}

pub(crate) fn run(options: &Options) -> String {
    format!("{}\n{}", bases(options), searches(options))
}
