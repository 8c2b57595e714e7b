//! Nodes that become neighbours, and nodes that do not.

use std::cell::Cell;
use std::rc::Rc;

use sedge_base::{Duration, Incarnation};

use super::world::{World, config, hello};
use crate::link::{Hello, LinkConfig, Lost, Output, Protocol};

fn with_key(key: Option<&[u8]>) -> LinkConfig {
    LinkConfig::new("test", key.map(<[u8]>::to_vec))
}

/// Two nodes of these settings that want each other, after a while.
fn meet(a: LinkConfig, b: LinkConfig) -> World {
    let mut world = World::new(1, vec![a, b]);
    world.want(0, 1);
    world.want(1, 0);
    world.run(4_000);
    world
}

#[test]
fn nodes_with_the_same_key_become_neighbours() {
    let world = meet(config(), config());
    assert!(world.is_linked(0, 1));
    assert_eq!(world.ups(0), [(2, false, 0)]);
    assert_eq!(world.ups(1), [(1, false, 0)]);
    let told = |at: usize, of: usize| {
        let peer = hello(of);
        world.nodes[at].said.contains(&Output::Up { peer, resumed: false, lost: Lost::default() })
    };
    assert!(told(0, 1) && told(1, 0));
    assert!(world.warnings(0).is_empty() && world.warnings(1).is_empty());
    assert_eq!((world.nodes[0].links.counters().dials, world.nodes[1].links.counters().dials), (1, 0));
}

#[test]
fn without_key_only_loopback_is_linked() {
    let world = meet(with_key(None), with_key(None));
    assert!(world.is_linked(0, 1));

    let far = |is_far: [bool; 2]| {
        let mut world = World::new(1, vec![with_key(None), with_key(None)]);
        for (node, _) in world.nodes.iter_mut().zip(is_far).filter(|(_, is_far)| *is_far) {
            node.hello.link_addr = format!("192.0.2.{}:7883", node.hello.node.get()).parse().unwrap();
        }
        world.want(0, 1);
        world.run(2_000);
        assert!(!world.is_linked(0, 1));
        world
    };
    let world = far([true, true]);
    assert_eq!(world.nodes[0].links.counters().dials, 0);
    assert!(world.warnings(0)[0].contains("cluster.key"), "{:?}", world.warnings(0));
    let world = far([true, false]);
    assert!(world.nodes[0].links.counters().dials > 1);
    assert!(world.warnings(1)[0].contains("cluster.key"), "{:?}", world.warnings(1));
    assert!(world.warnings(0)[0].contains("0x87"), "{:?}", world.warnings(0));
}

fn encrypted() -> LinkConfig {
    LinkConfig { encrypted: true, ..config() }
}

/// FT-21
#[test]
fn proofs_are_bound_to_the_encrypted_connection() {
    let world = meet(encrypted(), encrypted());
    assert!(world.is_linked(0, 1));
    assert!(world.warnings(0).is_empty() && world.warnings(1).is_empty());

    let mut world = World::new(1, vec![encrypted(), encrypted()]);
    world.is_tapped = true;
    world.want(0, 1);
    world.want(1, 0);
    world.run(4_000);
    for at in 0..2 {
        assert!(world.ups(at).is_empty());
        assert!(world.warnings(at).iter().any(|line| line.contains("somebody is between")), "{:?}", world.warnings(at));
        assert!(world.nodes[at].links.counters().auth_failures > 1);
    }
}

/// FT-21
#[test]
fn encrypted_and_plain_links_do_not_mix() {
    let keyless = with_key(None);
    for (a, b) in
        [(encrypted(), config()), (config(), encrypted()), (encrypted(), keyless.clone()), (keyless, encrypted())]
    {
        let world = meet(a, b);
        for at in 0..2 {
            assert!(world.ups(at).is_empty());
            assert!(world.nodes[at].links.counters().auth_failures > 1);
        }
        let told = |at: usize| world.warnings(at).iter().any(|line| line.contains("cluster.encryption"));
        assert!(told(1), "{:?}", world.warnings(1));
        assert!(told(0) || world.warnings(0)[0].contains("no encrypted link"), "{:?}", world.warnings(0));
    }
}

#[test]
fn an_encrypted_link_is_not_begun_in_the_clear() {
    let mut world = World::new(1, vec![encrypted(), config()]);
    let Hello { node, incarnation, link_addr, .. } = world.nodes[1].hello;
    let links = &mut world.nodes[0].links;
    links.want(world.now, node, incarnation, link_addr);
    let Some(Output::Dial { link, .. }) = links.poll_output() else { panic!("a dial") };
    links.dialled(world.now, link);
    assert!(links.outbox(link).is_none());
    assert_eq!(links.poll_output(), Some(Output::Close { link }));
}

#[test]
fn a_wrong_or_missing_key_is_refused_and_named() {
    for (a, b) in [
        (Some(&b"secret"[..]), Some(&b"wrong"[..])),
        (Some(b"secret"), None),
        (None, Some(b"secret")),
        (Some(b"secret"), Some(b"")),
    ] {
        let world = meet(with_key(a), with_key(b));
        for at in 0..2 {
            assert!(world.ups(at).is_empty());
            assert!(world.warnings(at).iter().any(|line| line.contains("cluster.key")), "{:?}", world.warnings(at));
            assert!(world.warnings(at).len() <= 3, "{:?}", world.warnings(at));
            assert!(world.nodes[at].links.counters().auth_failures > 1);
            assert_eq!(world.nodes[at].links.counters().handshakes, 0);
        }
    }
}

#[test]
fn another_cluster_is_refused_and_named() {
    let world = meet(config(), LinkConfig::new("other", Some(b"secret".to_vec())));
    assert!(world.ups(0).is_empty() && world.ups(1).is_empty());
    assert!(world.warnings(1)[0].contains("\"test\", this one of \"other\""), "{:?}", world.warnings(1));
    assert!(world.warnings(0)[0].contains("another cluster"), "{:?}", world.warnings(0));
    assert!(world.nodes[1].links.counters().handshakes_refused > 1);
    assert_eq!(world.nodes[1].links.counters().auth_failures, 0);
}

#[test]
fn another_overlay_is_refused_and_named() {
    let tree = LinkConfig { overlay: "tree".to_owned(), ..config() };
    let world = meet(config(), tree);
    assert!(world.ups(0).is_empty() && world.ups(1).is_empty());
    assert!(world.warnings(1)[0].contains("set the same cluster.overlay"), "{:?}", world.warnings(1));
    assert!(world.warnings(0)[0].contains("another cluster.overlay"), "{:?}", world.warnings(0));
}

fn speaking(version: u32, since: u32) -> LinkConfig {
    LinkConfig { protocol: Protocol { version, since }, ..config() }
}

/// Nodes of neighbouring versions are linked and speak the older of the two.
#[test]
fn neighbouring_versions_understand_each_other() {
    let current = Protocol::CURRENT.version;
    for other in [speaking(current - 1, current - 1), config(), speaking(current + 1, current)] {
        let common = current.min(other.protocol.version);
        let newer = other.protocol.version > current;
        let mut world = meet(config(), other);
        assert!(world.is_linked(0, 1));
        let (a, b) = (world.nodes[0].hello.node, world.nodes[1].hello.node);
        assert_eq!(world.nodes[0].links.version(b), Some(common));
        assert_eq!(world.nodes[1].links.version(a), Some(common));
        assert_eq!(world.nodes[0].links.status(b).map(|status| status.version), Some(common));
        assert_eq!((world.nodes[0].links.is_newer(b), world.nodes[0].links.incompatible().count()), (newer, 0));
        for number in 0..20 {
            world.send(0, 1, number);
            world.send(1, 0, number);
        }
        world.run(100);
        assert_eq!(world.got(0, 1), (0..20).collect::<Vec<_>>());
        assert_eq!(world.got(1, 0), (0..20).collect::<Vec<_>>());
    }
}

/// A version too far away is refused, and both sides say what to do until it is gone.
#[test]
fn versions_too_far_away_are_refused_and_named() {
    let current = Protocol::CURRENT.version;
    for (a, b) in [(config(), speaking(current + 2, current + 1)), (speaking(current + 2, current + 1), config())] {
        let far = [&a, &b].map(|config| config.protocol.version > current);
        let mut world = meet(a, b);
        assert!(world.ups(0).is_empty() && world.ups(1).is_empty());
        assert!(world.warnings(1).iter().any(|line| line.contains("upgrade the older")), "{:?}", world.warnings(1));
        assert!(world.warnings(0).iter().any(|line| line.contains("(0x84)")), "{:?}", world.warnings(0));
        for at in 0..2 {
            let (other, links) = (world.nodes[1 - at].hello, &world.nodes[at].links);
            let refused: Vec<_> = links.incompatible().collect();
            assert_eq!(refused.len(), 1);
            assert_eq!((refused[0].0, links.version(other.node)), (other.node, None));
            assert!(refused[0].1.why.contains("link"), "{refused:?}");
        }
        // The one that was in the way is replaced.
        let at = far.iter().position(|far| *far).unwrap();
        world.restart(at, config());
        world.want(0, 1);
        world.want(1, 0);
        world.run(6_000);
        assert!(world.is_linked(0, 1));
        assert_eq!(world.nodes[1 - at].links.incompatible().count(), 0);
    }
}

#[test]
fn a_node_does_not_link_itself_or_its_double() {
    let mut world = World::new(1, vec![config(), config()]);
    let double = world.nodes[0].hello;
    world.nodes[0].links.want(world.now, double.node, double.incarnation, double.link_addr);
    world.run(1_000);
    assert_eq!(world.nodes[0].links.counters().dials, 0);

    // Node 1 is told that node 2 lives where node 1 itself listens.
    let other = world.nodes[1].hello;
    world.nodes[0].links.want(world.now, other.node, other.incarnation, double.link_addr);
    world.run(100);
    assert!(world.ups(0).is_empty());
    assert!(world.warnings(0).iter().any(|line| line.contains("linked itself")), "{:?}", world.warnings(0));

    // Another process with the id of node 1.
    let mut world = World::new(1, vec![config(), config()]);
    let mut twin = world.nodes[0].hello;
    twin.incarnation = Incarnation::new(2);
    world.nodes[1].links = crate::link::Links::new(config(), twin, sedge_base::Rng::new(5));
    world.want(0, 1);
    world.run(100);
    assert!(world.ups(0).is_empty() && world.ups(1).is_empty());
    assert!(world.warnings(1)[0].contains("data directory"), "{:?}", world.warnings(1));
}

#[test]
fn a_former_life_is_refused() {
    let mut world = World::pair(1);
    let mut later = world.nodes[0].hello;
    later.incarnation = Incarnation::new(9);
    world.nodes[1].links.want(world.now, later.node, later.incarnation, later.link_addr);
    world.run(2_000);
    assert!(!world.is_linked(0, 1));
    assert!(world.warnings(1)[0].contains("former life"), "{:?}", world.warnings(1));
}

#[test]
fn another_node_than_expected_is_no_neighbour() {
    let mut world = World::new(1, vec![config(), config(), config()]);
    let (expected, found) = (world.nodes[2].hello, world.nodes[1].hello);
    world.nodes[0].links.want(world.now, expected.node, expected.incarnation, found.link_addr);
    world.run(300);
    assert!(world.ups(0).is_empty());
    assert!(world.warnings(0)[0].contains("answers at"), "{:?}", world.warnings(0));
}

/// How many bytes the handshake takes in each direction.
fn handshake_bytes() -> [usize; 2] {
    let counted = Rc::new(Cell::new([0; 2]));
    let mut world = World::new(3, vec![config(), config()]);
    let count = Rc::clone(&counted);
    world.falsify = Some(Box::new(move |pipe, at, bytes| {
        let mut sizes = count.get();
        sizes[pipe] = at + bytes.len();
        count.set(sizes);
    }));
    world.want(0, 1);
    // CONNECT, AUTH, AUTH, CONNACK: four flights of a millisecond, and the dialler's first PINGREQ behind them.
    world.run(4);
    assert_eq!(world.ups(0).len(), 1);
    let [from_dialler, from_acceptor] = counted.get();
    [from_dialler - 2, from_acceptor]
}

/// FT-21
#[test]
fn a_falsified_handshake_makes_no_neighbour() {
    let sizes = handshake_bytes();
    assert!(sizes.iter().all(|size| (200..1_000).contains(size)), "{sizes:?}");
    for (pipe, size) in sizes.into_iter().enumerate() {
        for at in 0..size {
            for bit in [0, 4, 7] {
                let mut world = World::new(3, vec![config(), config()]);
                world.dials_left = 1;
                world.splits = false;
                world.falsify = Some(Box::new(move |towards, from, bytes| {
                    if let Some(byte) =
                        at.checked_sub(from).and_then(|at| bytes.get_mut(at)).filter(|_| towards == pipe)
                    {
                        *byte ^= 1 << bit;
                    }
                }));
                world.want(0, 1);
                world.run(5_500);
                assert!(world.ups(0).is_empty(), "pipe {pipe}, byte {at}, bit {bit}");
                // Once the acceptor has sent its verdict only the dialler can find fault with it.
                assert!(pipe == 1 || world.ups(1).is_empty(), "pipe {pipe}, byte {at}, bit {bit}");
                assert!(!world.is_linked(0, 1));
            }
        }
    }
}

/// FT-21
#[test]
fn a_recorded_handshake_cannot_be_played_again() {
    use crate::LinkId;
    let recorded = Rc::new(std::cell::RefCell::new(Vec::new()));
    let mut world = World::new(3, vec![config(), config()]);
    let record = Rc::clone(&recorded);
    world.falsify = Some(Box::new(move |pipe, _, bytes| {
        if pipe == 0 {
            record.borrow_mut().push(bytes.clone());
        }
    }));
    world.want(0, 1);
    world.run(100);
    assert!(world.is_linked(0, 1));
    world.falsify = None;
    world.kill(0);
    world.run(100);
    let ups = world.ups(1).len();
    let link = LinkId(LinkId::ACCEPTED + 77);
    world.nodes[1].links.opened(world.now, link, "127.0.0.9:9".parse().unwrap());
    for bytes in recorded.borrow().iter() {
        world.nodes[1].links.received(world.now, link, bytes.clone().into());
    }
    world.run(100);
    assert_eq!(world.ups(1).len(), ups);
    assert!(world.warnings(1).iter().any(|line| line.contains("cluster.key")));
}

#[test]
fn an_unanswered_handshake_ends() {
    let mut world = World::new(1, vec![config(), config()]);
    world.is_dark = true;
    world.want(0, 1);
    world.run(4_900);
    assert_eq!(world.open_wires(), 1);
    world.run(200);
    assert_eq!(world.nodes[0].links.counters().handshakes_refused, 1);
    world.is_dark = false;
    world.latency = Duration::from_millis(1);
    world.run(3_000);
    assert!(world.ups(0).len() == 1);
}
