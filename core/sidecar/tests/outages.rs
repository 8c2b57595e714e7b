//! A sidecar before a broker that crashes, and whose connections break, at any moment.

mod common;

use std::collections::BTreeMap;

use common::World;
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client publishes with this QoS.
    Publish(usize, u8),
    /// Another node's publication comes.
    Enter(u8),
    /// So many packets go either way.
    Run(usize),
    /// The broker crashes and forgets everything.
    Crash,
    /// The connection of a client's conversation breaks.
    Break(usize),
    /// So many milliseconds go by.
    Wait(u64),
    /// The broker hangs for so many milliseconds.
    Hang(u64),
    /// A client has no room for more for so many milliseconds.
    Behind(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, 0..3_u8).prop_map(|(client, qos)| Step::Publish(client, qos)),
        3 => (0..3_u8).prop_map(Step::Enter),
        8 => (1..12_usize).prop_map(Step::Run),
        1 => Just(Step::Crash),
        1 => (0..3_usize).prop_map(Step::Break),
        // All of them together are shorter than the time in which a delivery is recognised.
        2 => (1..30_u64).prop_map(Step::Wait),
        1 => (100..10_000_u64).prop_map(Step::Hang),
        1 => (1..3_usize, 100..10_000_u64).prop_map(|(client, millis)| Step::Behind(client, millis)),
    ]
}

/// Lets everything come to rest.
fn rest(world: &mut World) {
    for _ in 0..200 {
        world.run(1_000);
        world.wait(50);
        if world.is_at_rest() {
            return;
        }
    }
    panic!("it does not come to rest: {:?}", world.sidecar);
}

/// One history: whatever breaks, each publication with QoS 1 or 2 is answered once and comes once to each of two subscribers, and,
/// where no payloads are equal, in the order of its publisher.
fn history((seed, v5, equal): (u64, bool, bool), steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::new(seed, v5, equal, 3);
    world.subscribe(1, "t/#");
    world.subscribe(2, "t/#");
    rest(&mut world);
    // By number: who published it, and with which QoS.
    let mut wanted: BTreeMap<u64, (Option<usize>, u8)> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Publish(client, qos) => {
                let number = world.publish(Some(client), qos);
                if qos > 0 {
                    wanted.insert(number, (Some(client), qos));
                }
            }
            Step::Enter(qos) => {
                let number = world.publish(None, qos);
                if qos > 0 {
                    wanted.insert(number, (None, qos));
                }
            }
            Step::Run(packets) => world.run(packets),
            Step::Crash => world.crash(),
            Step::Break(client) => world.break_link(client),
            Step::Wait(millis) => world.wait(millis),
            Step::Hang(millis) => world.hang(millis),
            Step::Behind(client, millis) => {
                world.hold(client, true);
                for _ in 0..millis / 50 {
                    world.run(4);
                    world.wait(50);
                }
                world.hold(client, false);
            }
        }
    }
    rest(&mut world);
    for client in [1, 2] {
        let got = world.delivered(client);
        for number in wanted.keys() {
            let times = got.iter().filter(|found| *found == number).count();
            prop_assert_eq!(times, 1, "publication {} came {} times to client {}: {:?}", number, times, client, got);
        }
        let mut last: BTreeMap<(Option<usize>, u8), u64> = BTreeMap::new();
        for number in got.iter().filter(|_| !equal) {
            let before = last.insert(wanted[number], *number).unwrap_or(0);
            prop_assert!(before < *number, "client {}: {} came ahead of {}: {:?}", client, before, number, got);
        }
    }
    prop_assert!(world.answered_once());
    prop_assert_eq!(world.sidecar.settled(), world.sidecar.last());
    Ok(())
}

/// MQ-07, IL-05: of what the broker sends by itself, a client that has no room for more gets a few messages, and the rest once it has room.
#[test]
fn a_client_without_room_gets_the_rest_later() {
    let mut world = World::new(1, true, false, 2);
    world.subscribe(1, "t/#");
    rest(&mut world);
    world.has_room_for_one = Some(1);
    for _ in 0..100 {
        // No delivery of these is expected: their QoS is 0.
        world.publish(None, 0);
    }
    world.hear();
    world.join_packets();
    world.run(1_000);
    let mut turns = 1;
    assert_eq!(world.ping(1), 1, "the client's connection is not dead");
    while world.foreign < 100 {
        assert!(world.foreign <= turns * 16, "{} came in turn {turns}", world.foreign);
        world.wait(60_000);
        world.hold(1, false);
        world.run(1_000);
        turns += 1;
    }
    assert_eq!((turns, world.foreign), (7, 100));
    assert_eq!(world.sidecar.counters().failures, 0, "a held conversation is not one that does not answer");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// IL-01, FT-20
    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_comes_twice(kind in any::<(u64, bool, bool)>(), steps in prop::collection::vec(step(), 1..60)) {
        history(kind, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    /// IL-01, FT-20
    #[test]
    #[ignore = "minutes: ./test histories"]
    fn so_it_is_in_20_000_histories(kind in any::<(u64, bool, bool)>(), steps in prop::collection::vec(step(), 1..60)) {
        history(kind, steps)?;
    }
}
