//! Strangers and broken neighbours.

use bytes::Bytes;
use proptest::prelude::*;
use sedge_base::Rng;

use super::world::{World, config};
use crate::LinkId;
use crate::link::Output;
use crate::link::conn::STRANGER_BYTES;

const STRANGER: LinkId = LinkId(LinkId::ACCEPTED + 1_000_000);

fn open(world: &mut World, link: LinkId) {
    world.nodes[1].links.opened(world.now, link, "127.0.0.77:5".parse().unwrap());
}

fn say(world: &mut World, link: LinkId, bytes: &[u8]) {
    world.nodes[1].links.received(world.now, link, Bytes::copy_from_slice(bytes));
}

/// Bytes of a stranger that the machine keeps.
fn kept(world: &World) -> usize {
    world.nodes[1].links.conns.get(&STRANGER).map_or(0, |conn| conn.decoder.buffered() + conn.outbox.len())
}

/// The first bytes of a real dialler.
fn connect() -> Vec<u8> {
    let mut world = World::new(4, vec![config(), config()]);
    let found = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let put = std::rc::Rc::clone(&found);
    world.falsify = Some(Box::new(move |pipe, at, bytes| {
        if (pipe, at) == (0, 0) {
            put.borrow_mut().clone_from(bytes);
        }
    }));
    world.want(0, 1);
    world.run(1);
    let bytes = found.borrow().clone();
    assert!(bytes.len() > 100);
    bytes
}

proptest! {
    /// FT-21
    #[test]
    fn whatever_strangers_say_neighbours_are_not_disturbed(
        seed in any::<u64>(),
        garbage in prop::collection::vec(any::<u8>(), 0..2_000),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut world = World::pair(1);
        world.run(100);
        open(&mut world, STRANGER);
        let mut bytes = connect();
        for (index, value) in &flips {
            *index.get_mut(&mut bytes) = *value;
        }
        if Rng::new(seed).chance(1, 3) {
            bytes.clear();
        }
        bytes.extend_from_slice(&garbage);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + world.rng.index(rest.len()));
            say(&mut world, STRANGER, now);
            prop_assert!(kept(&world) <= 2 * usize::try_from(STRANGER_BYTES).unwrap());
            rest = later;
        }
        world.send(0, 1, 1);
        world.send(1, 0, 2);
        world.run(6_000);
        prop_assert_eq!(world.got(1, 0), [1]);
        prop_assert_eq!(world.got(0, 1), [2]);
        prop_assert_eq!(world.ups(1).len(), 1);
        prop_assert!(world.downs(0).is_empty() && world.downs(1).is_empty());
        prop_assert!(!world.nodes[1].links.conns.contains_key(&STRANGER));
    }

    /// FT-21
    #[test]
    fn a_neighbour_that_talks_nonsense_is_cut_off_and_resumes(
        seed in any::<u64>(),
        garbage in prop::collection::vec(any::<u8>(), 1..300),
        is_publish in any::<bool>(),
    ) {
        let mut world = World::pair(seed);
        world.splits = seed % 2 == 0;
        world.run(100);
        let mut garbage = Some(if is_publish { publish(&garbage) } else { garbage });
        world.falsify = Some(Box::new(move |pipe, _, bytes| {
            if pipe == 0 && let Some(garbage) = garbage.take() {
                bytes.splice(0..0, garbage);
            }
        }));
        for number in 1..=20 {
            world.send(0, 1, number);
            world.send(1, 0, number);
            world.run(5);
        }
        world.run(10_000);
        prop_assert!(world.is_linked(0, 1));
        // Bytes that happen to be whole packets may be believed; a believed frame may be wrong, but never out of order.
        let got = world.got(0, 1);
        prop_assert!(got.is_sorted(), "{:?}", got);
    }
}

/// A PUBLISH with this behind its topic.
fn publish(rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x30];
    let len = rest.len() + 12;
    bytes.extend([u8::try_from(len % 128).unwrap() | 0x80, u8::try_from(len / 128).unwrap()]);
    bytes.extend(b"\0\x0a$sedge/ack");
    bytes.extend(rest);
    bytes
}

#[test]
fn an_announced_length_is_not_believed() {
    let mut world = World::pair(1);
    open(&mut world, STRANGER);
    say(&mut world, STRANGER, &[0x10, 0xff, 0xff, 0xff, 0x7f]);
    world.run(1);
    assert!(!world.nodes[1].links.conns.contains_key(&STRANGER));
    assert!(world.warnings(1)[0].contains("does not talk like"), "{:?}", world.warnings(1));
}

#[test]
fn clients_are_sent_away() {
    let mut world = World::pair(1);
    for (connect, code) in [
        (&b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02hi"[..], [0x20, 2, 0, 1]),
        (b"\x10\x0f\0\x04MQTT\x05\x02\0\x3c\0\0\x02hi", [0x20, 43, 0, 0x85]),
    ] {
        open(&mut world, STRANGER);
        say(&mut world, STRANGER, connect);
        let answer = world.nodes[1].links.outbox(STRANGER).unwrap().take().concat();
        assert_eq!(answer[..4], code, "{answer:?}");
        assert!(!world.nodes[1].links.conns.contains_key(&STRANGER));
        while let Some(output) = world.nodes[1].links.poll_output() {
            world.nodes[1].said.push(output);
        }
        assert_eq!(world.nodes[1].said.pop(), Some(Output::Close { link: STRANGER }));
    }
    // The second is not worth another line so soon.
    assert_eq!(world.warnings(1).len(), 1);
    assert!(world.warnings(1)[0].contains("MQTT port"), "{:?}", world.warnings(1));
}

#[test]
fn a_crowd_is_kept_outside() {
    let mut world = World::pair(1);
    for number in 0..1_000 {
        open(&mut world, LinkId(STRANGER.0 + number));
    }
    assert!(world.nodes[1].links.conns.len() <= 256);
    world.run(6_000);
    assert_eq!(world.nodes[1].links.conns.len(), 1);
    assert!(world.warnings(1).len() < 3, "{:?}", world.warnings(1));
}

/// FT-17
#[test]
fn an_acknowledgement_of_what_was_never_sent_ends_the_link() {
    let mut world = World::pair(1);
    world.run(100);
    let mut lie = Some(b"\x30\x0e\0\x0a$sedge/ack\x009".to_vec());
    world.falsify = Some(Box::new(move |pipe, _, bytes| {
        if pipe == 0
            && let Some(lie) = lie.take()
        {
            bytes.splice(0..0, lie);
        }
    }));
    world.run(2_000);
    assert_eq!(world.nodes[1].links.counters().protocol_errors, 1);
    assert!(world.warnings(1)[0].contains("never sent"), "{:?}", world.warnings(1));
    assert!(world.is_linked(0, 1));
}
