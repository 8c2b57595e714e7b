//! A broker as arithmetic: known loss, repetition, delay and jitter give known figures.

use super::*;
use crate::num;
use crate::plan::Plan;
use crate::scenario::{named, sized};
use crate::wire::Stamp;

const MS: u64 = 1_000_000;
const RUN: u32 = 9;
const ORIGIN: u64 = 1_000_000_000;

/// A plan of `pairs` pairs that send every 10 ms.
fn plan(pairs: u32) -> Plan {
    let size = crate::scenario::Size { publishers: Some(pairs), ..crate::scenario::Size::default() };
    let mut scenario = sized("pairs", size).expect("a scenario");
    scenario.set_interval(10.0);
    Plan::new(&scenario, 1, 1).expect("a plan")
}

fn stamp(stream: u32, sequence: u64) -> Stamp {
    Stamp { run: RUN, stream, sequence, sent: ORIGIN + sequence * 10 * MS }
}

/// One second of warm-up and two that are measured; the broker does with each message what `deliver` says: times after
/// sending at which it arrives.
fn simulate(pairs: u32, deliver: impl Fn(u64) -> Vec<u64>) -> (Tally, u64) {
    let plan = plan(pairs);
    let mut recorder = Recorder::new(RUN, &plan);
    let places: Vec<Place> = (0..plan.receivers.len()).map(|receiver| recorder.inbox(receiver, &plan)).collect();
    let window = Window { start: ORIGIN + 1_000 * MS, end: ORIGIN + 3_000 * MS };
    recorder.set_window(ORIGIN, window);
    let mut sent = Vec::new();
    let mut arrivals = Vec::new();
    for (stream, place) in (0..pairs).zip(places) {
        for sequence in 0..300 {
            let stamp = stamp(stream, sequence);
            recorder.sent(stamp, stamp.sent);
            arrivals.extend(deliver(sequence).into_iter().map(|delay| (stamp.sent + delay, place, stamp)));
        }
        sent.push(SentRange { stream, first: 100, end: 300 });
    }
    arrivals.sort_by_key(|(at, ..)| *at);
    for (at, place, stamp) in arrivals {
        assert!(recorder.arrived(place, stamp, at));
    }
    recorder.settle(&sent);
    (recorder.tally, u64::from(pairs) * 200)
}

#[test]
fn a_steady_broker_has_its_delay_and_no_jitter() {
    let (tally, expected) = simulate(5, |_| vec![3 * MS]);
    assert_eq!((tally.sent, tally.lost, tally.duplicates, tally.reordered), (expected, 0, 0, 0));
    // The last message before the window arrives in it, and the last of it too.
    assert_eq!(tally.received, expected);
    assert_eq!((tally.latency.count(), tally.latency.min(), tally.latency.max()), (expected, 3 * MS, 3 * MS));
    assert_eq!((tally.jitter.count(), tally.jitter.max()), (expected, 0));
    assert_eq!(tally.longest_gap, 10 * MS);
    assert_eq!(tally.ingress, vec![50; 30]);
}

#[test]
fn loss_repetition_and_reordering_are_exact() {
    let (tally, expected) = simulate(3, |sequence| match sequence {
        120..130 => vec![],
        200 => vec![MS, 25 * MS],
        210 => vec![15 * MS],
        _ => vec![MS],
    });
    assert_eq!((tally.sent, tally.lost, tally.duplicates, tally.reordered), (expected, 30, 3, 3));
    assert_eq!(tally.received, expected - 30 + 3);
    assert_eq!(tally.latency.count(), expected - 30);
    assert_eq!(tally.latency.max(), 15 * MS);
    assert_eq!(tally.longest_gap, 110 * MS);
}

#[test]
fn jitter_is_the_deviation_from_the_period() {
    // Delays of 1 and 4 ms in turn: arrivals 13 and 7 ms apart instead of 10.
    let (tally, expected) = simulate(1, |sequence| vec![if sequence % 2 == 0 { MS } else { 4 * MS }]);
    assert_eq!((tally.jitter.count(), tally.jitter.min(), tally.jitter.max()), (expected, 3 * MS, 3 * MS));
    assert_eq!((tally.jitter_low, tally.jitter_high), (-3_000_000, 3_000_000));
    assert!((tally.latency.mean() - 2.5e6).abs() < 1.0);
    assert!((tally.latency.deviation() - 1.5e6).abs() < 1.0);
}

/// FT-40: an outage is one thing, how smoothly comes what waited for its end is another.
#[test]
fn the_pauses_of_a_replay_are_not_the_outage() {
    // Nothing comes for 200 ms, then what has waited, 3 ms apart, until it has caught up.
    let (tally, _) = simulate(1, |sequence| match sequence {
        150..179 => vec![(200 - (sequence - 150) * 7) * MS],
        _ => vec![MS],
    });
    assert_eq!(tally.worst_jitter.iter().max(), Some(&(199 * MS)));
    assert_eq!(tally.worst_pause.iter().max(), Some(&(3 * MS)));
    let (calm, _) = simulate(1, |_| vec![MS]);
    assert!(calm.worst_pause.is_empty());
}

#[test]
fn a_broker_that_falls_behind_has_less_egress_than_ingress() {
    // 200 messages per second go in, 160 come out.
    let (tally, expected) = simulate(2, |sequence| vec![sequence * 10 * MS / 4]);
    assert_eq!(tally.sent, expected);
    let rate = num::real(tally.received) / 2.0;
    assert!((rate - 160.0).abs() <= 1.0, "{rate}");
}

#[test]
fn drivers_add_up() {
    let (mut one, _) = simulate(2, |_| vec![MS]);
    let (other, expected) = simulate(3, |sequence| if sequence == 150 { vec![] } else { vec![5 * MS] });
    one.merge(&other);
    assert_eq!((one.sent, one.lost), (1_000, 3));
    assert_eq!(one.latency.count(), 400 + expected - 3);
    assert_eq!((one.latency.min(), one.latency.max()), (MS, 5 * MS));
    assert_eq!(one.ingress, vec![50; 30]);
    let text = serde_json::to_string(&one).expect("JSON");
    let moved: Tally = serde_json::from_str(&text).expect("a tally");
    assert_eq!(serde_json::to_string(&moved).expect("JSON"), text);
}

#[test]
fn probes_alone_have_latency_and_nothing_else() {
    let plan = Plan::new(&named("limit").expect("a scenario"), 1, 1).expect("a plan");
    let probe = u32::try_from(plan.streams.iter().position(|stream| stream.probe).expect("a probe")).expect("a number");
    let mut recorder = Recorder::new(RUN, &plan);
    let places: Vec<Place> = (0..plan.receivers.len()).map(|receiver| recorder.inbox(receiver, &plan)).collect();
    recorder.set_window(0, Window { start: 0, end: 1_000 * MS });
    let mut stamp = Stamp { run: RUN, stream: probe, sequence: 0, sent: 10 };
    recorder.sent(stamp, 10);
    let place = places.last().copied().expect("the probe's subscriber");
    assert!(recorder.arrived(place, stamp, 10 + MS));
    assert_eq!((recorder.tally.latency.count(), recorder.tally.sent, recorder.tally.received), (1, 0, 0));
    stamp.stream = 0;
    recorder.sent(stamp, 10);
    let place = places.first().copied().expect("a subscriber");
    assert!(recorder.arrived(place, stamp, 10 + MS));
    assert_eq!((recorder.tally.latency.count(), recorder.tally.sent, recorder.tally.received), (1, 1, 1));
    stamp.run += 1;
    assert!(!recorder.arrived(place, stamp, 10 + MS), "a message of another run");
    assert_eq!(recorder.tally.foreign, 1);
}
