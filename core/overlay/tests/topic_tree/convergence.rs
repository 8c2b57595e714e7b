//! Whatever happens in whatever order: once everything has come to rest, publications go where a single broker would deliver them.

use crate::net::{Net, add, remove};
use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::{Duration, NodeId};
use sedge_overlay::{Advert, AdvertOp, Input, RootPolicy, Token, TopicTreeConfig};

const NODES: u64 = 4;
const FILTERS: [&str; 10] = ["a", "a/+", "#", "a/b", "+/b", "a/#", "$x/#", "$x/a", "$share/g/a", "$share/h/#"];
const TOPICS: [&str; 6] = ["a", "a/b", "a/c", "b/b", "$x/a", "c"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Local { node: u64, client: u8, filter: usize, op: u8, wait: bool },
    Publish(u64, usize),
    Poll(u64),
    Deliver(u64, u64, u8),
    Reach(u64),
    Link(u64, u64),
    Cut(u64, u64, bool),
    Restart(u64),
    Measure(u64, u64, u32),
    Load(u64, u32),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Op> {
    let node = || 1..=NODES;
    prop_oneof![
        8 => (node(), 0..3_u8, 0..FILTERS.len(), 0..3_u8, any::<bool>())
            .prop_map(|(node, client, filter, op, wait)| Op::Local { node, client, filter, op, wait }),
        8 => (node(), 0..TOPICS.len()).prop_map(|(node, topic)| Op::Publish(node, topic)),
        6 => node().prop_map(Op::Poll),
        10 => (node(), node(), 1..5_u8).prop_map(|(a, b, count)| Op::Deliver(a, b, count)),
        4 => node().prop_map(Op::Reach),
        2 => (node(), node()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => (node(), node(), any::<bool>()).prop_map(|(a, b, gone)| Op::Cut(a, b, gone)),
        1 => node().prop_map(Op::Restart),
        1 => (node(), node(), 1..50_000_u32).prop_map(|(a, b, micros)| Op::Measure(a, b, micros)),
        1 => (node(), 0..1_000_u32).prop_map(|(node, load)| Op::Load(node, load)),
        1 => prop_oneof![0..12_000_u64, Just(700_000)].prop_map(Op::Pass),
    ]
}

fn config() -> impl Strategy<Value = TopicTreeConfig> {
    (any::<bool>(), prop_oneof![Just(2), Just(100)]).prop_map(|(balance, max_topics)| {
        let roots = if balance { RootPolicy::BALANCE } else { RootPolicy::Capacity };
        TopicTreeConfig { roots, max_topics, signal_bytes: 1024, ..TopicTreeConfig::default() }
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}

/// Runs an operation. `tokens` counts the tokens that each node waits for.
fn run(net: &mut Net, op: Op, tokens: &mut [u64; 5]) {
    match op {
        Op::Local { node, client, filter, op, wait } => {
            let client = format!("{client}");
            let change = match op {
                0 => remove(&client, FILTERS[filter]),
                1 => add(&client, FILTERS[filter]),
                _ => Advert { op: AdvertOp::Add { online: false }, ..add(&client, FILTERS[filter]) },
            };
            let count = &mut tokens[index(node)];
            *count += u64::from(wait);
            net.local(node, &[change], wait.then_some(*count));
        }
        Op::Publish(node, topic) => drop(net.destinations(node, TOPICS[topic])),
        Op::Poll(node) => net.poll(node),
        Op::Deliver(a, b, count) => (0..count).for_each(|_| {
            net.deliver(a, b);
        }),
        Op::Reach(node) => drop(net.reach(node)),
        Op::Link(a, b) if a != b => net.link(a, b),
        Op::Cut(a, b, gone) if a != b => net.cut(a, b, gone),
        Op::Link(..) | Op::Cut(..) => {}
        Op::Restart(node) => {
            net.kill(node);
            net.start(node);
            tokens[index(node)] = 0;
        }
        Op::Measure(a, b, micros) => {
            let node = NodeId::new(b);
            net.feed(a, Input::RoundTrip { node, micros });
        }
        Op::Load(node, load) => net.feed(node, Input::Load { capacity: load, clients: load / 2 }),
        Op::Pass(millis) => net.pass(Duration::from_millis(millis)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// TR-10, TR-19, TR-27
    #[test]
    fn publications_go_where_a_single_broker_would_deliver_them(ops in vec(ops(), 0..200), config in config()) {
        let mut net = Net::new(NODES, config);
        let mut tokens = [0; 5];
        for op in ops {
            run(&mut net, op, &mut tokens);
        }
        net.link_all();
        net.pass(Duration::from_secs(31));
        for node in 1..=NODES {
            for topic in TOPICS {
                net.publish(node, topic);
            }
            net.settle();
        }
        net.pass(Duration::from_secs(1));
        for node in 1..=NODES {
            let expected: Vec<Token> = (1..=tokens[index(node)]).map(Token).collect();
            prop_assert_eq!(&net.node(node).settled, &expected);
            prop_assert_eq!(&net.node(node).protocol_errors, &Vec::<String>::new());
            net.check_groups(node);
            prop_assert_eq!(net.node(node).machine.counters().repairs, 0);
        }
        for topic in TOPICS {
            let wanting = net.wanting(topic, 0);
            for node in 1..=NODES {
                let wanted: Vec<u64> = wanting.iter().copied().filter(|other| *other != node).collect();
                let nodes = net.publish(node, topic);
                if net.node(node).machine.published_count() < config.max_topics {
                    prop_assert_eq!(&nodes, &wanted, "{} at {}", topic, node);
                }
                prop_assert!(wanted.iter().all(|other| nodes.contains(other)));
                for other in nodes {
                    let way = net.way(topic, node, other);
                    prop_assert!(way.iter().all(|at| *at == other || config.max_topics > 2 || way.len() < 4));
                }
            }
            if config.max_topics > 2 && topic != "$x/a" {
                // Everybody publishes it, so everybody is a member, and all see the same tree.
                let root = net.root(&[1, 2, 3, 4], topic);
                prop_assert!(root.is_some());
                prop_assert_eq!(net.view(1, topic).parents.len(), 3);
            }
        }
    }

    /// DESIGN section 1, "SUBACK means the cluster knows": from the moment of settling on, every linked node sends its publications
    /// to the subscriber, whether that node published to the topic before or not.
    #[test]
    fn settled_means_that_every_linked_node_sends(ops in vec(ops(), 0..150), config in config()) {
        let mut net = Net::new(NODES, TopicTreeConfig { settle_timeout: Duration::from_hours(1), ..config });
        let mut checked = [0; 5];
        let mut tokens = [0; 5];
        let mut waiting: Vec<Vec<String>> = vec![Vec::new(); 5];
        for op in ops {
            let publisher = if let Op::Publish(node, _) = op { node } else { 0 };
            if let Op::Local { node, client, filter, wait: true, .. } = op {
                // Each token has a filter of its own, which nobody removes.
                let id = tokens[index(node)];
                let text = format!("{}/{node}-{id}", ["a", "+", "$x"][filter % 3]);
                net.local(node, &[add(&format!("{client}"), &text)], Some(id));
                waiting[index(node)].push(text.replace('+', "a"));
                tokens[index(node)] += 1;
            } else if let Op::Pass(millis) = op {
                // Publications for interest that a node has forgotten after a lease are not promised.
                net.pass(Duration::from_millis(millis % 9_000));
            } else {
                run(&mut net, op, &mut tokens);
            }
            if let Op::Restart(node) = op {
                waiting[index(node)].clear();
                checked[index(node)] = 0;
            }
            net.poll_all();
            for node in 1..=NODES {
                let settled = net.nodes[&node].settled.clone();
                for other in 1..=NODES {
                    if !net.links.contains_key(&(node, other)) {
                        continue;
                    }
                    for (at, token) in settled.iter().enumerate() {
                        let name = &waiting[index(node)][index(token.0)];
                        if at >= checked[index(node)] {
                            prop_assert!(net.publish(other, name).contains(&node), "{} at {}", name, other);
                        } else if other == publisher {
                            // Settled before, perhaps while there was no link.
                            prop_assert!(net.destinations(other, name).contains(&node), "{} at {}", name, other);
                        }
                    }
                }
                checked[index(node)] = settled.len();
            }
        }
    }
}
