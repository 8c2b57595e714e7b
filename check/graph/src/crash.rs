//! A fifth of the nodes dies at once (SG-32).

use sedge_overlay::skip_graph::Config;

use crate::Options;
use crate::paths;
use crate::report::section;
use crate::stats::real;
use crate::world::topic;

const PUBLISHERS: usize = 5;
const SUBSCRIBERS: usize = 5;
const SECONDS: usize = 10;

pub(crate) fn run(options: &Options) -> String {
    let nodes = if options.quick { 500 } else { 10_000 };
    let (mut world, members) = paths::world(nodes, PUBLISHERS, SUBSCRIBERS, Config::default(), options.seed);
    for _ in 0..3 {
        world.second();
    }
    let order = world.shuffled();
    for node in order.into_iter().take(nodes / 5) {
        world.kill(node);
    }
    let mut rows = Vec::new();
    for second in 0..=SECONDS {
        if second > 0 {
            world.second();
        }
        let (mut expected, mut reached) = (0, 0);
        for (number, members) in members.iter().enumerate() {
            let (senders, receivers) = members.split_at(PUBLISHERS);
            let living = receivers.iter().filter(|node| world.is_alive(**node)).count();
            for sender in senders {
                if world.is_alive(*sender) {
                    expected += living;
                    world.publish(*sender, topic(number), |copy| reached += usize::from(copy.deliver));
                }
            }
        }
        let (right, links) = world.right_links();
        rows.push(vec![
            second.to_string(),
            format!("{:.2} %", 100.0 * real(reached) / real(expected)),
            format!("{:.2} %", 100.0 * real(right) / real(links)),
        ]);
    }
    let remarks = format!(
        "{nodes} nodes, topics of {PUBLISHERS} publishers and {SUBSCRIBERS} subscribers; all living publishers publish each second. Nodes find out by \
         themselves, after three ticks of a second, that a neighbour is silent."
    );
    section(
        "After a fifth of the nodes died",
        &["Seconds", "Delivered", "Links of level 0 that are right"],
        &rows,
        &remarks,
    )
}
