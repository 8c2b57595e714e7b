//! Messages that no well-behaved node would send.

use sedge_base::{Duration, Incarnation, Instant, NodeId, Rng};
use sedge_overlay::skip_graph::{
    Config, End, Errand, Input, Key, Message, Node, Note, Output, Peer, Range, Role, Side, Status, Vector,
};

use crate::net::Net;
use crate::oracle::assert_right;

fn key(rng: &mut Rng) -> Key<u32> {
    let node = NodeId::new(*rng.pick(&[0, 1, 2, 3, 4, 5, 90, u64::MAX]).expect("some"));
    let role = if rng.chance(1, 2) { Role::Publisher } else { Role::Subscriber };
    match rng.index(4) {
        0 => Key::placeholder(node),
        topic => Key::new(u32::try_from(topic).expect("small"), role, node),
    }
}

fn peer(rng: &mut Rng) -> Peer<u32> {
    Peer { key: key(rng), vector: Vector::random(rng), life: *rng.pick(&[0, 5_000_000, u64::MAX]).expect("some") }
}

fn maybe(rng: &mut Rng) -> Option<Peer<u32>> {
    rng.chance(2, 3).then(|| peer(rng))
}

fn status(rng: &mut Rng) -> Status {
    Status { active: rng.chance(1, 2), epoch: *rng.pick(&[0, 1, 2, u64::MAX]).expect("some") }
}

fn range(rng: &mut Rng) -> Range<u32> {
    let mut end = || End { key: key(rng), included: rng.chance(1, 2) };
    Range { low: end(), high: end() }
}

fn note(rng: &mut Rng) -> Note<u32> {
    let hops = *rng.pick(&[0, 1, 511, u16::MAX]).expect("some");
    Note { whole: range(rng), piece: range(rng), source: key(rng).node, hops }
}

fn message(rng: &mut Rng) -> Message<u32> {
    let hops = *rng.pick(&[0, 1, 511, u16::MAX]).expect("some");
    let errand = match rng.index(3) {
        0 => Errand::Join(peer(rng)),
        1 => Errand::Meet(peer(rng)),
        _ => Errand::Report(1),
    };
    let side = if rng.chance(1, 2) { Side::Left } else { Side::Right };
    let life = peer(rng).life;
    match rng.index(15) {
        0 => Message::Route { to: maybe(rng).map(|peer| peer.key), target: key(rng), hops, errand },
        1 => Message::Joined { to: key(rng), left: maybe(rng), right: maybe(rng), status: Some(status(rng)) },
        2 => Message::Walk { to: key(rng), peer: peer(rng), side },
        3 => Message::Link { to: key(rng), peer: peer(rng), level: u32::from(hops) },
        4 => Message::Linked { to: key(rng), peer: peer(rng), hint: maybe(rng), status: Some(status(rng)) },
        5 => Message::Leave { to: key(rng), key: key(rng), life, right: maybe(rng), hops },
        6 => Message::Left { to: key(rng), by: peer(rng) },
        7 => Message::Gone { key: key(rng), life, instead: vec![peer(rng), peer(rng)] },
        8 => Message::Cast { note: note(rng), topic: 1, status: status(rng) },
        9 => Message::Order { topic: 1, status: status(rng) },
        10 => Message::Ask { to: key(rng), from: key(rng) },
        11 => Message::Answer { to: key(rng), status: status(rng) },
        12 => Message::Outside,
        13 => Message::Ping,
        _ => Message::Pong,
    }
}

/// Whatever comes, a node neither fails nor answers without end.
#[test]
fn any_message_is_survived() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let vector = Vector::random(&mut rng);
        let mut node: Node<u32> = Node::new(NodeId::new(3), Incarnation::new(5_000_000), vector, Config::default());
        let mut now = Instant::ZERO;
        if rng.chance(1, 2) {
            node.handle(now, Input::Introducer(NodeId::new(1)));
        }
        node.handle(now, Input::Start);
        for _ in 0..300 {
            let input = match rng.index(12) {
                0 => Input::Subscribe(1),
                1 => Input::Unsubscribe(1),
                2 => Input::Advertise(2),
                3 => Input::Withdraw(2),
                4 => Input::NodeDown(key(&mut rng).node),
                _ => Input::Message { from: key(&mut rng).node, message: message(&mut rng) },
            };
            node.handle(now, input);
            node.publish(now, &1);
            let forward = node.forward(&note(&mut rng));
            assert!(forward.hops.len() < 40, "seed {seed}");
            if rng.chance(1, 10) {
                now = now + Duration::from_secs(1);
                node.handle_timeout(now);
            }
            let mut sent = 0;
            while let Some(output) = node.poll_output() {
                sent += usize::from(matches!(output, Output::Send { .. }));
            }
            assert!(sent < 400, "seed {seed}: {sent} messages for one");
        }
    }
}

/// A graph into which such messages fell is right again after a while, if they named nodes that exist or can be found dead.
#[test]
fn a_graph_recovers_from_nonsense() {
    for seed in 0..10 {
        let mut net = Net::with(seed, Config::default());
        for node in 0..20 {
            net.start(node);
            net.run();
        }
        let mut rng = Rng::new(seed ^ 9);
        for _ in 0..20 {
            let real = |rng: &mut Rng, net: &Net| {
                let node = &net.nodes[&rng.below(20)];
                Peer { key: Key::placeholder(node.id()), vector: node.vector(), life: 0 }
            };
            let (one, other) = (real(&mut rng, &net), real(&mut rng, &net));
            let message = match rng.index(4) {
                0 => Message::Gone { key: other.key, life: u64::MAX, instead: vec![real(&mut rng, &net)] },
                1 => Message::Leave { to: one.key, key: other.key, life: u64::MAX, right: None, hops: 0 },
                2 => Message::Linked { to: one.key, peer: other, hint: None, status: None },
                _ => Message::Joined { to: one.key, left: Some(other), right: None, status: None },
            };
            net.feed(one.key.node.get(), Input::Message { from: other.key.node, message });
        }
        net.wait(100);
        assert_right(&net);
    }
}
