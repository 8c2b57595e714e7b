//! Limits, and signals that nobody should send.

use bytes::Bytes;
use sedge_base::{NodeId, Rng};
use sedge_overlay::{Input, MeshConfig, Overlay, SkipGraphConfig};

use crate::net::{Net, add, patient};

/// Topics beyond the limit go to everyone, and are counted.
#[test]
fn more_topics_than_allowed_go_to_everyone() {
    let mut net = Net::with(3, SkipGraphConfig { max_topics: 2, ..patient() });
    net.subscribe(2, "t2");
    assert_eq!((net.publish(1, "t0"), net.publish(1, "t1")), (vec![], vec![]));
    assert_eq!((net.publish(1, "t2"), net.publish(1, "t3")), (vec![2, 3], vec![2, 3]));
    assert_eq!(net.nodes[&1].overlay.counters().untracked, 4);
    assert_eq!(net.nodes[&1].overlay.counters().asked, 2);
    assert_eq!(net.nodes[&1].overlay.way(&crate::net::topic("t2"), NodeId::new(3)), NodeId::new(3));
}

/// Names that are too long for the graph are known to everyone.
#[test]
fn long_names_are_left_to_the_mesh() {
    let mut net = Net::of(3);
    let long = "x".repeat(5_000);
    net.subscribe(2, &long);
    assert_eq!(net.destinations(1, &long), [2]);
    assert_eq!(net.nodes[&1].overlay.counters().asked, 0);
    let most = "x".repeat(4_096);
    net.subscribe(3, &most);
    assert_eq!(net.publish(1, &most), [3]);
    net.pass(5);
    net.assert_graph();
}

/// Many topics travel in signals of limited size.
#[test]
fn many_topics_are_cut_into_signals() {
    let mesh = MeshConfig { signal_bytes: 1024, ..patient().mesh };
    let mut net = Net::new(SkipGraphConfig { mesh, ..patient() });
    net.start(1);
    net.start(2);
    let names: Vec<String> = (0..300).map(|number| format!("topic/number/{number}")).collect();
    let all: Vec<_> = names.iter().map(|name| add("c", name)).collect();
    net.local(2, &all, false);
    for name in &names {
        net.destinations(1, name);
    }
    net.poll_all();
    net.link(1, 2);
    net.poll_all();
    assert!(net.links.values().all(|link| link.len() > 3 && link.iter().all(|bytes| bytes.len() < 1200)));
    net.settle();
    assert!(names.iter().all(|name| net.destinations(1, name) == [2]));
    net.pass(30);
    net.assert_graph();
}

/// Bytes that cannot be close the link, and do no harm to others.
#[test]
fn what_is_no_signal_closes_the_link() {
    for bytes in [
        &b""[..],
        b"\x02\x03\0\0\x01a",
        b"\x01\x05\0\0\0\0\0\0\0\x09\0",
        b"\x01\x01\x09",
        b"\x01\x02\x02\x09",
        b"\x01\x03\x01\0\x02$x",
    ] {
        let mut net = Net::of(3);
        net.subscribe(2, "a");
        net.publish(1, "a");
        net.feed(1, Input::Signal { from: NodeId::new(2), bytes: Bytes::copy_from_slice(bytes) });
        net.poll(1);
        assert_eq!(net.nodes[&1].protocol_errors.len(), 1, "{bytes:?}");
        assert!(!net.nodes[&1].overlay.is_linked(NodeId::new(2)));
        net.subscribe(3, "a");
        assert_eq!(net.destinations(1, "a"), [2, 3]);
        let mut all = Vec::new();
        net.nodes[&1].overlay.everyone(&mut all);
        assert_eq!(all, [NodeId::new(3)]);
        net.feed(1, Input::Signal { from: NodeId::new(2), bytes: Bytes::copy_from_slice(bytes) });
        net.feed(1, Input::Signal { from: NodeId::new(9), bytes: Bytes::copy_from_slice(bytes) });
        net.poll(1);
        assert_eq!(net.nodes[&1].protocol_errors.len(), 1, "nothing more is heard");
        net.cut(1, 2, false);
        net.link(1, 2);
        net.settle();
        assert_eq!(net.destinations(1, "a"), [2, 3]);
    }
}

/// Signals with random changes: each is refused, or does nothing that does not end.
#[test]
fn damaged_signals_are_survived() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut net = Net::of(4);
        for node in 1..=3 {
            net.subscribe(node, "a");
            net.publish(node + 1, "a");
        }
        for round in 0..100 {
            let links: Vec<(u64, u64)> = net.links.keys().copied().collect();
            let Some(link) = rng.pick(&links).copied() else { break };
            if let Some(bytes) = net.links.get_mut(&link).and_then(|link| link.front_mut()) {
                let mut changed = bytes.to_vec();
                let at = rng.index(changed.len());
                changed[at] ^= 1 << rng.index(8);
                *bytes = changed.into();
            }
            net.deliver(link.0, link.1);
            if round % 10 == 0 {
                let at = net.now + sedge_base::Duration::from_secs(1);
                net.tick(at);
            }
            net.poll_all();
        }
        assert!(net.settle() < 20_000, "seed {seed}");
    }
}
