//! Whatever happens in whatever order: no publication misses a settled subscription, and once all has come to rest, everything is right.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::Duration;
use sedge_overlay::skip_graph::{Base, Role};
use sedge_overlay::{MeshConfig, SkipGraphConfig};

use crate::net::{Net, add, patient, remove};

const NODES: u64 = 6;
const FILTERS: [&str; 7] = ["a", "b", "b/c", "b/+", "#", "$x", "$share/g/a"];
const TOPICS: [&str; 5] = ["a", "b", "b/c", "d", "$x"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Subscribe { node: u64, client: u8, filter: usize, wait: bool },
    Unsubscribe { node: u64, client: u8, filter: usize },
    Publish { node: u64, topic: usize },
    Poll(u64),
    Deliver { from: u64, to: u64, count: u8 },
    Reach(u64),
    Start(u64),
    Link(u64, u64),
    Cut(u64, u64),
    Kill(u64),
    Pass(u64),
    Settle,
}

fn ops() -> impl Strategy<Value = Op> {
    let node = || 1..=NODES;
    prop_oneof![
        8 => (node(), 0..2_u8, 0..FILTERS.len(), prop::bool::weighted(0.8))
            .prop_map(|(node, client, filter, wait)| Op::Subscribe { node, client, filter, wait }),
        4 => (node(), 0..2_u8, 0..FILTERS.len())
            .prop_map(|(node, client, filter)| Op::Unsubscribe { node, client, filter }),
        8 => (node(), 0..TOPICS.len()).prop_map(|(node, topic)| Op::Publish { node, topic }),
        6 => node().prop_map(Op::Poll),
        14 => (node(), node(), 1..6_u8).prop_map(|(from, to, count)| Op::Deliver { from, to, count }),
        5 => node().prop_map(Op::Reach),
        2 => node().prop_map(Op::Start),
        3 => (node(), node()).prop_map(|(a, b)| Op::Link(a, b)),
        2 => (node(), node()).prop_map(|(a, b)| Op::Cut(a, b)),
        1 => node().prop_map(Op::Kill),
        2 => (0..3_000_u64).prop_map(Op::Pass),
        1 => Just(Op::Settle),
    ]
}

fn run(net: &mut Net, op: Op) {
    let client = |client: u8| format!("{client}");
    match op {
        Op::Subscribe { node, .. } | Op::Unsubscribe { node, .. } | Op::Publish { node, .. } | Op::Reach(node)
            if !net.nodes.contains_key(&node) => {}
        Op::Subscribe { node, client: id, filter, wait } => net.local(node, &[add(&client(id), FILTERS[filter])], wait),
        Op::Unsubscribe { node, client: id, filter } => net.local(node, &[remove(&client(id), FILTERS[filter])], true),
        Op::Publish { node, topic } => drop(net.destinations(node, TOPICS[topic])),
        Op::Poll(node) => net.poll(node),
        Op::Deliver { from, to, count } => (0..count).for_each(|_| _ = net.deliver(from, to)),
        Op::Reach(node) => _ = net.reach(node),
        Op::Start(node) if !net.nodes.contains_key(&node) => net.start(node),
        Op::Link(a, b) if a != b && net.nodes.contains_key(&a) && net.nodes.contains_key(&b) => net.link(a, b),
        Op::Cut(a, b) if net.links.contains_key(&(a, b)) => net.cut(a, b, false),
        Op::Kill(node) if net.nodes.len() > 2 => net.kill(node),
        Op::Start(_) | Op::Link(..) | Op::Cut(..) | Op::Kill(_) => {}
        Op::Pass(millis) => {
            let at = net.now + Duration::from_millis(millis);
            net.tick(at);
        }
        Op::Settle => _ = net.settle(),
    }
}

/// At any moment: where a topic is published, every linked node whose subscription is settled is a destination, and nobody who is gone.
fn assert_safe(net: &mut Net) {
    for node in net.ids() {
        let published: Vec<String> = net.nodes[&node].published.iter().cloned().collect();
        for text in published {
            let found = net.destinations(node, &text);
            for other in net.wanting(node, &text, true) {
                let linked = net.links.contains_key(&(node, other));
                assert!(!linked || found.contains(&other), "{text} from {node} misses {other}: {found:?}");
            }
            assert!(
                found.iter().all(|other| net.nodes.contains_key(other)),
                "{text} from {node} goes to the dead: {found:?}"
            );
        }
    }
}

/// After quiet: destinations are exact, all waiting is over, the graph is right, suspension agrees with it, and ways lead over interested
/// nodes only.
fn assert_converged(net: &mut Net) {
    net.link_all();
    net.settle();
    // Publications find the faults that the graph has missed.
    for seconds in [150, 20, 20] {
        for node in net.ids() {
            for text in TOPICS {
                net.destinations(node, text);
            }
        }
        net.pass(seconds);
    }
    net.assert_graph();
    for node in net.ids() {
        assert_eq!(net.nodes[&node].protocol_errors, Vec::<String>::new());
        assert_eq!(net.nodes[&node].waiting(), 0, "all tokens are given back");
        for text in TOPICS {
            let found = net.destinations(node, text);
            assert_eq!(found, net.wanting(node, text, false), "{text} from {node}");
            assert_suspended_if_unwanted(net, node, text);
            assert_ways(net, node, text, &found);
        }
    }
    assert_eq!(net.settle(), 0, "known topics cause no signals, wanted or not (SG-10)");
}

/// SG-10, SG-11, SG-14: the rendezvous point agrees with the lists of subscribers.
fn assert_suspended_if_unwanted(net: &Net, node: u64, text: &str) {
    let by_name = |other: &u64| net.nodes[other].local.iter().any(|(_, filter)| filter.as_str() == text);
    if let Some(own) = net.virtual_node(node, text, Role::Publisher) {
        let wanted = net.others(node).iter().any(by_name);
        assert_eq!(own.is_suspended, Some(!wanted), "{text} at {node}");
    }
}

/// SG-17, SG-18: every destination is reached once, and only nodes that publish or subscribe to the topic pass it on.
fn assert_ways(net: &Net, node: u64, text: &str, found: &[u64]) {
    let carried = net.carry(node, text, found);
    assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), found);
    let interested: BTreeSet<u64> = net
        .ids()
        .into_iter()
        .filter(|id| {
            [Role::Publisher, Role::Subscriber].iter().any(|role| net.virtual_node(*id, text, *role).is_some())
        })
        .collect();
    assert!(carried.relays.is_subset(&interested), "{text} from {node} over {:?}", carried.relays);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_settled_is_never_missed(start in 1..=NODES, ops in vec(ops(), 0..150)) {
        let mut net = Net::new(patient());
        for node in 1..=start {
            net.join(node);
        }
        for op in ops {
            run(&mut net, op);
            net.poll_all();
            assert_safe(&mut net);
        }
    }

    #[test]
    fn everything_is_right_once_quiet(start in 1..=NODES, base in 0..3_usize, ops in vec(ops(), 0..150)) {
        let base = [Base::Two, Base::Four, Base::Sixteen][base];
        let mesh = MeshConfig { signal_bytes: 1024, ..patient().mesh };
        let mut net = Net::new(SkipGraphConfig { base, mesh, ..patient() });
        for node in 1..=start {
            net.join(node);
        }
        for op in ops {
            run(&mut net, op);
        }
        assert_converged(&mut net);
    }
}
