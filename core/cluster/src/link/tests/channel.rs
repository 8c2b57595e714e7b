//! Every frame exactly once, in order.

use proptest::prelude::*;
use sedge_base::{Duration, Incarnation};

use super::world::{World, config, frame};
use crate::link::{FrameSeq, Output, Protocol, SendError};

/// FT-17
#[test]
fn frames_arrive_in_order_and_are_acknowledged() {
    let mut world = World::pair(1);
    // The first frames wait for the link.
    for number in 1..=300 {
        assert_eq!(world.send(0, 1, number), number);
        if number % 100 == 0 {
            world.run(1);
        }
    }
    assert_eq!(world.nodes[0].links.unacknowledged(), 200);
    world.run(100);
    assert_eq!(world.got(1, 0), (1..=300).collect::<Vec<_>>());
    assert_eq!(world.acks(0).last(), Some(&300));
    assert_eq!(world.nodes[0].links.unacknowledged(), 0);
    let status = world.nodes[0].links.status(world.nodes[1].hello.node).unwrap();
    assert_eq!((status.unacknowledged, status.publications_sent), (0, 200));
    let counters = world.nodes[1].links.counters();
    assert_eq!((counters.frames_received, counters.publications_received), (300, 200));
}

/// FT-17: the owner says how far frames may be acknowledged when it has taken them.
#[test]
fn what_the_owner_has_not_taken_is_not_acknowledged() {
    let mut world = World::pair(1);
    world.run(100);
    let counts = |world: &World| {
        let counters = world.nodes[1].links.counters();
        (counters.frames_received, counters.acks_sent)
    };
    let (frames, acks) = counts(&world);
    world.send(0, 1, 1);
    world.only_read();
    let now = world.now;
    world.nodes[1].links.flush(now);
    assert_eq!(counts(&world), (frames + 1, acks));
    world.run(100);
    assert_eq!(world.acks(0), [1]);
}

/// FT-18
#[test]
fn a_batch_takes_one_acknowledgement() {
    let mut world = World::pair(1);
    world.splits = false;
    world.run(100);
    let before = world.nodes[1].links.counters().acks_sent;
    for number in 1..=100 {
        world.send(0, 1, number);
    }
    world.run(100);
    assert_eq!(world.got(1, 0).len(), 100);
    assert_eq!(world.nodes[1].links.counters().acks_sent, before + 1);
    assert_eq!(world.acks(0), [100]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// FT-18, FT-21
    #[test]
    fn cut_connections_lose_and_repeat_nothing(seed in any::<u64>(), patience in 0_u64..100, cuts in 1_u64..40) {
        let mut settings = config();
        settings.outbox_bytes = 2_000;
        settings.dial_patience = Duration::from_millis(patience);
        // Nobody carries: carried mail would have numbers, too.
        settings.protocol = Protocol { version: 1, since: 1 };
        let mut world = World::new(seed, vec![settings.clone(), settings.clone(), settings]);
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            world.want(from, to);
        }
        let mut sent = [[0; 3]; 3];
        for _ in 0..400 {
            let (from, to) = (world.rng.index(3), world.rng.index(3));
            if from != to {
                sent[from][to] += 1;
                let seq = world.send(from, to, sent[from][to]);
                prop_assert_eq!(seq, sent[from][to]);
            }
            if world.rng.chance(cuts, 100) {
                world.cut_all();
            }
            if world.rng.chance(1, 3) {
                let millis = world.rng.below(20);
                world.run(millis);
            }
        }
        world.run(10_000);
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                let last = sent.get(from).and_then(|row| row.get(to)).copied().unwrap_or(0);
                prop_assert_eq!(world.got(to, from), (1..=last).collect::<Vec<_>>());
                prop_assert!(world.is_linked(from, to));
            }
            prop_assert_eq!(world.nodes[from].links.unacknowledged(), 0);
            prop_assert_eq!(world.nodes[from].links.counters().protocol_errors, 0);
            prop_assert_eq!(world.nodes[from].links.counters().frames_lost, 0);
            let is_expected = |line: &String| line.contains("cannot be linked");
            prop_assert!(world.warnings(from).iter().all(is_expected), "{:?}", world.warnings(from));
            for up in world.ups(from) {
                prop_assert_eq!(up.2, 0);
            }
        }
        prop_assert_eq!(world.open_wires(), 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// FT-18, FT-21
    #[test]
    fn whatever_has_happened_frames_pass_again(seed in any::<u64>(), patience in 0_u64..100) {
        let mut settings = config();
        settings.dial_patience = Duration::from_millis(patience);
        let mut world = World::new(seed, vec![settings.clone(), settings.clone()]);
        let mut number = 0;
        for _ in 0..60 {
            let at = world.rng.index(2);
            let other = 1 - at;
            let node = world.nodes[other].hello.node;
            match world.rng.below(12) {
                0 => world.nodes[at].links.forget(world.now, node),
                1 => world.restart(at, settings.clone()),
                2 => world.cut_all(),
                3 => world.want(at, other),
                4..8 => {
                    number += 1;
                    let _ = world.nodes[at].links.send(world.now, node, frame(number));
                }
                _ => {
                    let millis = world.rng.below(100);
                    world.run(millis);
                }
            }
        }
        world.want(0, 1);
        world.want(1, 0);
        world.run(10_000);
        prop_assert!(world.is_linked(0, 1));
        prop_assert_eq!(world.open_wires(), 1);
        world.exchanges(10);
    }
}

/// FT-18
#[test]
fn a_neighbour_that_resumes_is_told_from_one_that_begins_anew() {
    let mut world = World::pair(1);
    world.run(100);
    world.send(0, 1, 1);
    world.run(100);
    world.cut_all();
    world.send(0, 1, 2);
    world.run(1_000);
    assert_eq!(world.ups(0), [(2, false, 0), (2, true, 0)]);
    assert_eq!(world.ups(1), [(1, false, 0), (1, true, 0)]);
    assert_eq!(world.downs(0), ["the connection was lost"]);
    assert_eq!(world.got(1, 0), [1, 2]);

    // A restart that membership has not noticed: frames meant for the former life can be asked for, and numbers go on.
    world.restart(1, config());
    assert_eq!(world.send(0, 1, 8), 3);
    world.want(1, 0);
    world.run(4_000);
    assert_eq!(world.ups(0).last(), Some(&(2, false, 3)));
    assert_eq!(world.ups(1).last(), Some(&(1, false, 0)));
    assert_eq!(world.nodes[0].links.counters().frames_lost, 1);
    let node = world.nodes[1].hello.node;
    assert_eq!(world.nodes[0].links.take_former(node).len(), 1);
    assert_eq!(world.send(0, 1, 4), 4);
    world.send(1, 0, 5);
    world.run(100);
    assert_eq!(world.got(1, 0), [1, 2, 4]);
    assert_eq!(world.got(0, 1), [5]);
    assert_eq!(world.acks(0), [1, 2, 4]);
}

/// FT-18
#[test]
fn a_restart_that_membership_reports_first_keeps_what_was_sent_since() {
    let mut world = World::pair(1);
    world.run(100);
    world.is_dark = true;
    world.send(0, 1, 1);
    world.restart(1, config());
    world.is_dark = false;
    world.want(0, 1);
    assert_eq!(world.send(0, 1, 2), 2);
    world.want(1, 0);
    world.run(4_000);
    assert_eq!(world.got(1, 0), [2]);
    assert_eq!(world.ups(0).last(), Some(&(2, false, 1)));
    // Late news of the former life changes nothing.
    let peer = world.nodes[1].hello;
    world.nodes[0].links.want(world.now, peer.node, Incarnation::new(1), peer.link_addr);
    world.run(1_000);
    assert!(world.is_linked(0, 1));
}

/// FT-18: signals of before mean nothing any more; publications whose publishers wait are sent again.
#[test]
fn a_neighbour_that_was_forgotten_begins_anew_on_both_sides() {
    for forgetter in [0, 1] {
        let other = 1 - forgetter;
        let mut world = World::pair(1);
        world.run(100);
        world.send(0, 1, 1);
        world.send(1, 0, 2);
        world.run(100);
        let node = world.nodes[other].hello.node;
        world.nodes[forgetter].links.forget(world.now, node);
        let (again, lost) = (world.send(other, forgetter, 8), world.send(other, forgetter, 3));
        assert_eq!(world.nodes[forgetter].links.send(world.now, node, frame(9)), Err(SendError::NoChannel));
        world.want(forgetter, other);
        assert_eq!(world.send(forgetter, other, 4), 1);
        world.run(8_000);
        assert!(world.is_linked(0, 1));
        assert!(
            world.ups(other).iter().any(|(_, resumed, up_to)| !resumed && *up_to == lost),
            "{:?}",
            world.ups(other)
        );
        let resent = |output: &Output| matches!(output, Output::Up { lost, .. } if lost.resent == [FrameSeq(again)]);
        assert!(world.nodes[other].said.iter().any(resent), "{:?}", world.nodes[other].said);
        world.send(other, forgetter, 5);
        world.run(100);
        assert_eq!(world.got(other, forgetter).last(), Some(&4));
        assert!(world.got(forgetter, other).ends_with(&[8, 5]));
        assert_eq!(world.got(other, forgetter).len() + world.got(forgetter, other).len(), 5);
        assert!(world.warnings(0).is_empty() && world.warnings(1).is_empty());
    }
}

/// FT-17
#[test]
fn the_log_has_a_limit() {
    let mut settings = config();
    settings.send_log_bytes = 10_000;
    settings.max_packet_bytes = 6_100;
    let mut world = World::new(1, vec![settings, config()]);
    world.want(0, 1);
    world.want(1, 0);
    let to = world.nodes[1].hello.node;
    let mut taken = 0;
    while world.nodes[0].links.send(world.now, to, frame(taken + 100)).is_ok() {
        taken += 1;
    }
    assert!((10..40).contains(&taken), "{taken}");
    assert_eq!(world.nodes[0].links.send(world.now, to, frame(1)), Err(SendError::Full));
    world.run(100);
    assert_eq!(world.got(1, 0).len(), usize::try_from(taken).unwrap());
    assert_eq!(world.nodes[0].links.send(world.now, to, frame(1)), Ok(FrameSeq(taken + 1)));
    assert_eq!(world.nodes[0].links.counters().frames_refused, 2);
    let payload = vec![0; 6_000].into();
    let large = crate::link::Frame::Control { topic: crate::link::ControlTopic::Node, payload };
    assert_eq!(world.nodes[0].links.send(world.now, to, large), Err(SendError::TooLarge));
}

/// FT-17
#[test]
fn the_outbox_is_filled_as_it_is_written() {
    let mut settings = config();
    settings.outbox_bytes = 1_000;
    let mut world = World::new(1, vec![settings, config()]);
    world.want(0, 1);
    world.run(100);
    world.is_dark = true;
    let to = world.nodes[1].hello.node;
    for number in 0..1_000 {
        world.nodes[0].links.send(world.now, to, frame(3 * number)).unwrap();
    }
    let link = std::iter::from_fn(|| world.nodes[0].links.poll_output()).find_map(|output| {
        let Output::Transmit { link } = output else { return None };
        Some(link)
    });
    let link = link.unwrap();
    let mut most = 0;
    let mut total = 0;
    while let Some(outbox) = world.nodes[0].links.outbox(link).filter(|outbox| !outbox.is_empty()) {
        most = most.max(outbox.len());
        let step = outbox.len().min(700);
        total += step;
        world.nodes[0].links.written(world.now, link, step);
    }
    assert!(most < 7_000 && total > 30_000, "{most} {total}");
    assert_eq!(world.nodes[0].links.counters().frames_sent, 1_000);
}
