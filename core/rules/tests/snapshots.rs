//! State that is taken out and put back anywhere changes nothing of what comes out (DP-02, DP-03).

#[expect(dead_code, reason = "the other tests use the rest")]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{List, Run, compile, list, table, text};
use proptest::prelude::*;
use sedge_rules::{Change, Item, Machine, RestoreError, Rule};

const ALL: List = List(&[
    ("n", "count()"),
    ("sum", "sum(payload.v)"),
    ("mean", "mean(payload.v)"),
    ("first", "first(payload.v)"),
    ("last", "last(payload.s)"),
    ("median", "median(payload.v)"),
    ("distinct", "distinct(payload.s)"),
    ("deviation", "stddev(payload.v)"),
    ("rate", "rate(payload.v)"),
    ("spread", "max(payload.v) - min(payload.v)"),
]);

fn rules() -> Vec<Arc<Rule>> {
    let late = [("time", text("payload.t")), ("lateness", text("3s")), ("idle", text("20s"))];
    let windows = [
        table(&[("tumbling", text("10s"))]),
        table(&[("hopping", text("10s")), ("every", text("4s"))]),
        table(&[("session", text("3s")), ("longest", text("15s"))]),
        table(&[("count", Item::Number(4.0)), ("longest", text("30s"))]),
        table(&[&[("tumbling", text("10s"))], &late[..]].concat()),
        table(&[&[("session", text("3s"))], &late[..]].concat()),
        table(&[&[("hopping", text("9s")), ("every", text("3s"))], &late[..]].concat()),
    ];
    let mut rules: Vec<Vec<(&str, Item)>> = Vec::new();
    for window in windows {
        let common = vec![("window", window), ("group_by", list(&["topic"])), ("select", ALL.table())];
        let limited = [("max_groups", Item::Number(2.0)), ("overflow", text("close"))];
        let watched = [("on_change", list(&["distinct"]))];
        rules.extend([common.clone(), [&common[..], &limited[..]].concat(), [&common[..], &watched[..]].concat()]);
    }
    rules.push(vec![("select", List(&[("v", "payload.v")]).table()), ("deadband", table(&[("v", Item::Number(2.0))]))]);
    rules.iter().map(|entries| Arc::new(compile("r", entries).expect("a valid rule"))).collect()
}

#[derive(Clone, Debug)]
struct Message {
    wait: u64,
    topic: &'static str,
    value: i8,
    text: &'static str,
    behind: u64,
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = (
        prop_oneof![Just(0), 1_u64..4_000, Just(30_000)],
        prop::sample::select(&["a", "b", "c"][..]),
        any::<i8>(),
        prop::sample::select(&["x", "y", ""][..]),
        prop_oneof![Just(0), 0_u64..8_000],
    );
    let message = message.prop_map(|(wait, topic, value, text, behind)| Message { wait, topic, value, text, behind });
    prop::collection::vec(message, 1..40)
}

/// Treatment of the machine between two messages.
type Between = fn(&mut Machine, &mut BTreeMap<Vec<u8>, Vec<u8>>);

fn run(rule: &Arc<Rule>, messages: &[Message], between: Between) -> Vec<String> {
    let mut run = Run { machine: Machine::new(Arc::clone(rule)) };
    let (mut now, mut outputs, mut records) = (100_000, Vec::new(), BTreeMap::new());
    for message in messages {
        // Timers run when they are due, as an owner runs them.
        while let Some(due) = run.timeout().filter(|due| *due <= now + message.wait) {
            run.at(due);
            outputs.extend(run.taken());
        }
        now += message.wait;
        let payload =
            format!(r#"{{"t":{},"v":{},"s":"{}"}}"#, now.saturating_sub(message.behind), message.value, message.text);
        run.send(now, message.topic, &payload);
        outputs.extend(run.taken());
        between(&mut run.machine, &mut records);
    }
    for _ in 0..1_000 {
        let Some(due) = run.timeout() else { break };
        run.at(due);
        outputs.extend(run.taken());
    }
    outputs
}

fn snapshot(machine: &mut Machine, _: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let bytes = machine.snapshot();
    let again = Machine::restore(Arc::clone(machine.rule()), &bytes).expect("its own snapshot");
    assert_eq!(again.snapshot(), bytes);
    assert_eq!(
        (again.state_bytes(), again.window_count(), again.group_count()),
        (machine.state_bytes(), machine.window_count(), machine.group_count())
    );
    *machine = again;
}

/// Keeps changes as a journal does, and makes a new machine from the kept changes.
fn changes(machine: &mut Machine, records: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for Change { key, record } in machine.take_changes() {
        match record {
            Some(record) => records.insert(key, record),
            None => records.remove(&key),
        };
    }
    let mut again = Machine::new(Arc::clone(machine.rule()));
    for (key, record) in records {
        let change = Change { key: key.clone(), record: Some(record.clone()) };
        again.apply(&change).expect("its own record");
    }
    *machine = again;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// DP-02
    #[test]
    fn a_snapshot_at_every_point_changes_no_output(messages in messages()) {
        for rule in rules() {
            let without = run(&rule, &messages, |_, _| ());
            prop_assert_eq!(&run(&rule, &messages, snapshot), &without);
        }
    }

    /// DP-02
    #[test]
    fn every_message_counts_once_whatever_the_groups_are_kept_in(messages in messages()) {
        for rule in rules().iter().filter(|rule| rule.limits().groups > 2) {
            let without = run(rule, &messages, |_, _| ());
            prop_assert_eq!(&run(rule, &messages, changes), &without);
        }
    }

    #[test]
    fn no_bytes_break_a_machine(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for rule in rules() {
            let _ = Machine::restore(Arc::clone(&rule), &bytes);
            let mut run = Run { machine: Machine::new(Arc::clone(&rule)) };
            run.send(5_000, "a", r#"{"t":5000,"v":1,"s":"x"}"#);
            let mut snapshot = run.machine.snapshot();
            let at = at.index(snapshot.len());
            snapshot[at] = byte;
            if let Ok(machine) = Machine::restore(Arc::clone(&rule), &snapshot) {
                let mut run = Run { machine };
                run.send(6_000, "a", r#"{"t":6000,"v":1,"s":"x"}"#);
                run.at(u64::MAX);
                run.taken();
            }
        }
    }
}

#[test]
fn the_state_of_another_rule_is_refused() {
    let rules = rules();
    let mut run = Run { machine: Machine::new(Arc::clone(&rules[0])) };
    run.send(5_000, "a", "{}");
    let other = Machine::restore(Arc::clone(&rules[3]), &run.machine.snapshot());
    assert_eq!(other.err(), Some(RestoreError::OtherRule));
    assert_eq!(Machine::restore(Arc::clone(&rules[0]), b"junk").err(), Some(RestoreError::Malformed));
}
