//! Whatever happens in whatever order: once everything has come to rest, all tables are right.

use crate::net::{Net, add, remove};
use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::Duration;
use sedge_mqtt::TopicName;
use sedge_overlay::{Advert, AdvertOp, MeshConfig, Token};

const NODES: u64 = 4;
const FILTERS: [&str; 6] = ["a", "a/+", "#", "b/c", "$share/g/a", "$share/h/#"];

#[derive(Clone, Debug)]
enum Op {
    Local { node: u64, client: u8, filter: usize, op: u8, wait: bool },
    Poll(u64),
    Deliver(u64, u64, u8),
    Reach(u64),
    Link(u64, u64),
    Cut(u64, u64, bool),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Op> {
    let node = || 1..=NODES;
    prop_oneof![
        6 => (node(), 0..3_u8, 0..FILTERS.len(), 0..3_u8, any::<bool>())
            .prop_map(|(node, client, filter, op, wait)| Op::Local { node, client, filter, op, wait }),
        6 => node().prop_map(Op::Poll),
        8 => (node(), node(), 1..5_u8).prop_map(|(a, b, count)| Op::Deliver(a, b, count)),
        4 => node().prop_map(Op::Reach),
        2 => (node(), node()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => (node(), node(), any::<bool>()).prop_map(|(a, b, gone)| Op::Cut(a, b, gone)),
        1 => (0..12_000_u64).prop_map(Op::Pass),
    ]
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}

/// Runs the operations; returns how many tokens each node waits for.
fn run(net: &mut Net, ops: Vec<Op>) -> [u64; 5] {
    let mut tokens = [0; 5];
    for op in ops {
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
            Op::Poll(node) => net.poll(node),
            Op::Deliver(a, b, count) => (0..count).for_each(|_| {
                net.deliver(a, b);
            }),
            Op::Reach(node) => drop(net.reach(node)),
            Op::Link(a, b) if a != b => net.link(a, b),
            Op::Cut(a, b, gone) if a != b => net.cut(a, b, gone),
            Op::Link(..) | Op::Cut(..) => {}
            Op::Pass(millis) => net.pass(Duration::from_millis(millis)),
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tables_become_the_union_of_what_the_others_want(ops in vec(ops(), 0..200)) {
        let mut net = Net::new(NODES, MeshConfig { signal_bytes: 1024, ..MeshConfig::default() });
        let tokens = run(&mut net, ops);
        for a in 1..=NODES {
            for b in 1..a {
                if !net.links.contains_key(&(a, b)) {
                    net.link(a, b);
                }
            }
        }
        net.settle();
        for node in 1..=NODES {
            let others: Vec<u64> = (1..=NODES).filter(|other| *other != node).collect();
            net.check_tables(node, &others);
            let expected: Vec<Token> = (1..=tokens[index(node)]).map(Token).collect();
            prop_assert_eq!(&net.node(node).settled, &expected);
            for topic in ["a", "a/x", "b/c", "$x"] {
                let name = TopicName::new(topic).unwrap();
                let wants = |other: &&u64| {
                    let mut plain = net.nodes[other].local.keys().filter(|(_, filter)| filter.share_group().is_none());
                    plain.any(|(_, filter)| filter.matches(&name))
                };
                let wanting: Vec<u64> = others.iter().filter(wants).copied().collect();
                prop_assert_eq!(net.hops(node, topic), wanting);
            }
        }
        prop_assert!(net.nodes.values().all(|node| node.mesh.counters().repairs == 0));
    }

    /// DESIGN section 1, "SUBACK means the cluster knows": at the moment of settling every linked node's shards route.
    #[test]
    fn settled_means_that_every_linked_node_routes(ops in vec(ops(), 0..120)) {
        let mut net = Net::new(NODES, MeshConfig { settle_timeout: Duration::from_hours(1), ..MeshConfig::default() });
        let mut checked = [0; 5];
        let mut waiting: Vec<(u64, u64, Advert)> = Vec::new();
        for op in ops {
            if let Op::Local { node, client, filter, wait: true, .. } = op {
                // Each token has a filter of its own, which nobody removes.
                let id = waiting.len() as u64;
                let change = add(&format!("{client}"), &format!("{}/{id}", FILTERS[filter % 2].replace('+', "x")));
                net.local(node, core::slice::from_ref(&change), Some(id));
                waiting.push((node, id, change));
            } else {
                run(&mut net, vec![op]);
            }
            net.poll_all();
            for node in 1..=NODES {
                let seen = &mut checked[index(node)];
                let settled = net.nodes[&node].settled.clone();
                for token in &settled[*seen..] {
                    let (owner, _, change) = &waiting[index(token.0)];
                    prop_assert_eq!(*owner, node);
                    for other in (1..=NODES).filter(|other| net.links.contains_key(&(node, *other))) {
                        prop_assert!(net.nodes[&other].shards.remote.contains(&change.filter), "{} at {}", change.filter, other);
                    }
                }
                *seen = settled.len();
            }
        }
    }
}
