//! Messages for each publication, with and without subscribers (SG-10).

use sedge_base::Rng;

use crate::Options;
use crate::report::section;
use crate::scribe::Dht;
use crate::stats::{Mean, real};
use crate::world::{Part, World, resting, topic};

/// Topics of each kind in the network; the results are means over them.
const TOPICS: usize = 5;

struct Group {
    publishers: Vec<usize>,
    subscribers: Vec<usize>,
}

/// The network with all publishers and subscribers, some topics of each kind.
fn network(nodes: usize, kinds: [usize; 2], subscribers: usize, seed: u64) -> (World, Vec<Group>) {
    let mut world = World::new(nodes, resting(), seed);
    let mut order = world.shuffled().into_iter();
    let mut groups = Vec::new();
    for publishers in kinds {
        for _ in 0..TOPICS {
            let publishers: Vec<usize> = order.by_ref().take(publishers).collect();
            let members = order.by_ref().take(subscribers).collect();
            groups.push(Group { publishers, subscribers: members });
        }
    }
    for (number, group) in groups.iter().enumerate() {
        for node in &group.publishers {
            world.take_part(*node, topic(number), Part::Publisher);
        }
        for node in &group.subscribers {
            world.take_part(*node, topic(number), Part::Subscriber);
        }
    }
    world.join_all();
    (world, groups)
}

pub(crate) fn run(options: &Options) -> String {
    let scale = if options.quick { 10 } else { 1 };
    let nodes = 100_000 / scale;
    let kinds = [100, 10].map(|publishers| publishers / scale);
    let stages = [1_000, 100, 10, 0].map(|subscribers: usize| subscribers / scale);
    let (mut world, mut groups) = network(nodes, kinds, stages[0], options.seed);
    let (mut rows, mut leaving) = (Vec::new(), Mean::default());
    let joining = real(usize::try_from(world.signals).unwrap_or(usize::MAX)) / real(nodes);
    let dht = Dht::new(nodes, &mut Rng::new(options.seed ^ 0x5c1b));
    for subscribers in stages {
        for (number, group) in groups.iter_mut().enumerate() {
            while group.subscribers.len() > subscribers {
                let before = world.signals;
                if let Some(node) = group.subscribers.pop() {
                    world.unsubscribe(node, topic(number));
                }
                leaving.add(real(usize::try_from(world.signals - before).unwrap_or(usize::MAX)));
            }
        }
        for (kind, groups) in groups.chunks(TOPICS).enumerate() {
            let (mut ours, mut scribe) = (0, 0);
            let signals = world.signals;
            for (at, group) in groups.iter().enumerate() {
                let number = kind * TOPICS + at;
                let tree = dht.tree(number, group.subscribers.iter().copied());
                for publisher in &group.publishers {
                    let mut reached = 0;
                    world.publish(*publisher, topic(number), |copy| {
                        ours += 1;
                        reached += usize::from(copy.deliver);
                    });
                    assert_eq!(reached, subscribers, "a publication missed subscribers");
                    scribe += tree.messages(*publisher);
                }
            }
            let mean = |messages: usize| real(messages) / real(TOPICS);
            let signals = world.signals - signals;
            let factor = if ours == 0 { "∞".to_owned() } else { format!("{:.1}", real(scribe) / real(ours)) };
            rows.push(vec![
                kinds[kind].to_string(),
                subscribers.to_string(),
                format!("{:.1}", mean(ours)),
                signals.to_string(),
                format!("{:.1}", mean(scribe)),
                factor,
                if subscribers == 0 { "0; Scribe more" } else { "about 10" }.to_owned(),
            ]);
        }
    }
    let title = "Messages when every publisher of a topic publishes once (figures 3.7 and 3.8)";
    let remarks = format!(
        "{nodes} nodes, means over {TOPICS} topics. Spread with SFB. Joining took {joining:.0} signals a node, and an \
         unsubscription {:.0}: the placeholder joins and the subscriber leaves.",
        leaving.get(),
    );
    let head = ["Publishers", "Subscribers", "Skip Graph", "Signals", "Scribe", "Scribe is times", "Source: times"];
    section(title, &head, &rows, &remarks)
}
