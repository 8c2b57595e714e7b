//! Rules from their keys to what they put out, on a clock of the test's own (DP-02).

mod common;
#[path = "rules/sparkplug.rs"]
mod sparkplug;

use common::{List, Run, list, table, text};
use sedge_rules::Item;

const MEAN: &[(&str, &str)] = &[("value", "mean(payload.value)"), ("n", "count()")];

fn mean(window: &Item) -> Run {
    Run::new(&[
        ("from", list(&["plant/+/temperature"])),
        ("to", text("plant/{1}/mean")),
        ("where", text("payload.value > 0")),
        ("group_by", list(&["topic"])),
        ("window", window.clone()),
        ("select", List(MEAN).table()),
    ])
}

/// DP-02
#[test]
fn a_mean_of_ten_seconds_replaces_the_raw_values() {
    let mut run = mean(&table(&[("tumbling", text("10s"))]));
    run.send(1_000, "plant/a/temperature", r#"{"value": 20}"#);
    run.send(2_000, "plant/b/temperature", r#"{"value": 7}"#);
    run.send(3_000, "plant/a/pressure", r#"{"value": 1000}"#);
    run.send(4_000, "plant/a/temperature", r#"{"value": -300}"#);
    run.send(9_999, "plant/a/temperature", r#"{"value": 21}"#);
    assert_eq!(run.taken(), [""; 0], "nothing comes out before the window has ended");
    assert_eq!(run.timeout(), Some(10_000));
    run.send(10_000, "plant/a/temperature", r#"{"value": 40}"#);
    assert_eq!(run.taken(), [r#"plant/a/mean {"value":20.5,"n":2}"#, r#"plant/b/mean {"value":7,"n":1}"#]);
    run.at(20_000);
    assert_eq!(run.taken(), [r#"plant/a/mean {"value":40,"n":1}"#]);
    assert_eq!(run.timeout(), None, "nothing is left of the groups");
    let counters = run.machine.counters();
    assert_eq!((counters.seen, counters.selected, counters.outputs), (6, 4, 3));
}

/// DP-02
#[test]
fn hopping_windows_count_a_message_in_each() {
    let mut run =
        Run::new(&[("window", table(&[("hopping", text("10s")), ("every", text("5s"))])), ("select", text("count()"))]);
    run.send(6_000, "t", "1");
    run.send(12_000, "t", "1");
    run.at(30_000);
    assert_eq!(run.taken(), ["- 1", "- 2", "- 1"]);
}

/// DP-02
#[test]
fn a_session_ends_when_nothing_has_come_for_its_gap() {
    let mut run = Run::new(&[
        ("window", table(&[("session", text("5s"))])),
        ("select", List(&[("n", "count()"), ("from", "window_start()"), ("to", "window_end()")]).table()),
    ]);
    for time in [1_000, 5_999, 10_998] {
        run.send(time, "t", "1");
    }
    run.at(15_997);
    assert_eq!(run.taken(), [""; 0]);
    run.send(15_998, "t", "1");
    assert_eq!(run.taken(), [r#"- {"n":3,"from":1000,"to":10998}"#]);
    run.at(60_000);
    assert_eq!(run.taken(), [r#"- {"n":1,"from":15998,"to":15998}"#]);
}

/// DP-02
#[test]
fn a_late_message_joins_two_sessions() {
    let window = table(&[("session", text("5s")), ("time", text("payload.at")), ("lateness", text("1m"))]);
    let mut run =
        Run::new(&[("window", window), ("select", List(&[("n", "count()"), ("of", "first(payload.at)")]).table())]);
    for (now, at) in [(100_000, 1_000), (100_001, 9_000), (100_002, 5_000)] {
        run.send(now, "t", &format!(r#"{{"at":{at}}}"#));
    }
    assert_eq!(run.machine.window_count(), 1);
    run.at(200_000);
    assert_eq!(run.taken(), [r#"- {"n":3,"of":1000}"#]);
}

/// DP-02
#[test]
fn a_session_is_no_longer_than_its_longest() {
    let mut run = Run::new(&[
        ("window", table(&[("session", text("5s")), ("longest", text("6s"))])),
        ("select", text("count()")),
    ]);
    for time in (0..20).map(|step| 1_000 + step * 1_000) {
        run.send(time, "t", "1");
    }
    run.at(60_000);
    assert_eq!(run.taken(), ["- 7", "- 7", "- 6"]);
}

/// DP-02
#[test]
fn windows_by_count_close_with_their_last_message_or_with_age() {
    let mut run = Run::new(&[
        ("window", table(&[("count", Item::Number(3.0)), ("longest", text("1m"))])),
        ("group_by", list(&["topic[0]"])),
        ("select", text("sum(payload)")),
        ("from", list(&["+/#"])),
        ("to", text("out/{0}")),
    ]);
    for value in 1..=4 {
        run.send(1_000, "a/x", &value.to_string());
        run.send(1_000, "b", "1");
    }
    assert_eq!(run.taken(), ["out/a 6", "out/b 3"]);
    run.at(61_000);
    assert_eq!(run.taken(), ["out/a 4", "out/b 1"]);
}

/// DP-02
#[test]
fn late_messages_count_as_long_as_the_window_waits() {
    let window = table(&[("tumbling", text("10s")), ("time", text("payload.at")), ("lateness", text("2s"))]);
    let mut run = Run::new(&[("window", window), ("select", text("count()"))]);
    let send = |run: &mut Run, at: u64| run.send(1_000_000, "t", &format!(r#"{{"at":{at}}}"#));
    send(&mut run, 5_000);
    send(&mut run, 11_999);
    send(&mut run, 9_999);
    assert_eq!(run.taken(), [""; 0]);
    send(&mut run, 12_000);
    assert_eq!(run.taken(), ["- 2"]);
    send(&mut run, 9_999);
    send(&mut run, 10_000);
    assert_eq!((run.machine.counters().late, run.machine.window_count()), (1, 1));
    run.at(1_059_999);
    assert_eq!(run.taken(), [""; 0]);
    run.at(1_060_000);
    assert_eq!(run.taken(), ["- 3"], "a group that has gone quiet is put out without a later message");
}

#[test]
fn a_device_with_a_wrong_clock_spoils_no_window() {
    let window = table(&[("tumbling", text("10s")), ("time", text("payload.at"))]);
    let mut run = Run::new(&[("window", window), ("select", text("count()"))]);
    for at in ["10001000", "-1", "1e300", "\"noon\"", "null", "6400000"] {
        run.send(6_400_000, "t", &format!(r#"{{"at":{at}}}"#));
    }
    assert_eq!((run.machine.counters().bad_time, run.machine.window_count()), (5, 1));
}

/// DP-02
#[test]
fn a_rule_without_a_window_selects_and_computes() {
    let mut run = Run::new(&[
        ("from", list(&["in/#"])),
        ("to", text("out/{payload.site}/{topic[1]}")),
        ("where", text("payload.ok and client == 'c'")),
        ("select", List(&[("f", "round(payload.c * 9 / 5 + 32, 1)"), ("raw", "payload.list"), ("q", "qos")]).table()),
    ]);
    run.send(0, "in/x", r#"{"ok":true,"site":"n","c":21.53,"list":[1, {"a":2}]}"#);
    run.send(0, "in/x", r#"{"ok":false,"site":"n","c":21.53}"#);
    run.send(0, "in/x", r#"{"ok":true,"site":"n/s","c":21.53}"#);
    run.send(0, "in/x", r#"{"ok":true,"site":"+","c":21.53}"#);
    run.send(0, "in/x", r#"{"ok":true,"c":21.53}"#);
    assert_eq!(run.taken(), [r#"out/n/x {"f":70.8,"raw":[1, {"a":2}],"q":1}"#]);
    assert_eq!(run.machine.counters().failed, 3, "a value never leaves its level of a topic");
}

/// DP-02
#[test]
fn without_select_the_payload_goes_on_as_it_is() {
    let mut run = Run::new(&[("from", list(&["a"])), ("to", text("b"))]);
    run.send(0, "a", "no \u{0} JSON");
    assert_eq!(run.taken(), ["b no \u{0} JSON"]);
}

/// DP-02
#[test]
fn a_deadband_holds_back_what_has_hardly_moved() {
    let mut run =
        Run::new(&[("select", List(&[("v", "payload")]).table()), ("deadband", table(&[("v", Item::Number(0.5))]))]);
    for (topic, value) in [("a", "20"), ("a", "20.5"), ("b", "20.4"), ("a", "20.6"), ("a", "20.2"), ("a", "\"broken\"")]
    {
        run.send(0, topic, value);
    }
    assert_eq!(run.taken(), [r#"- {"v":20}"#, r#"- {"v":20.4}"#, r#"- {"v":20.6}"#, r#"- {"v":"broken"}"#]);
    assert_eq!(run.machine.counters().held_back, 2);
}

/// DP-02
#[test]
fn on_change_puts_out_changes_also_of_windows() {
    let mut run = Run::new(&[
        ("window", table(&[("tumbling", text("1s"))])),
        ("select", List(&[("most", "max(payload)"), ("n", "count()")]).table()),
        ("on_change", list(&["most"])),
    ]);
    for (now, value) in [(0, "5"), (1_000, "5"), (1_001, "3"), (2_000, "6")] {
        run.send(now, "t", value);
    }
    run.at(10_000);
    assert_eq!(run.taken(), [r#"- {"most":5,"n":1}"#, r#"- {"most":6,"n":1}"#]);
}

/// DP-02
#[test]
fn a_rule_never_takes_what_it_has_put_out() {
    let one = [
        ("from", list(&["#"])),
        ("to", text("x")),
        ("window", table(&[("count", Item::Number(1.0))])),
        ("select", text("count()")),
    ];
    let two = [("from", list(&["x"])), ("to", text("y"))];
    let (mut one, mut two) = (Run::named("one", &one), Run::named("two", &two));
    one.send(0, "t", "1");
    let first = one.machine.poll_output().unwrap();
    two.pass(0, &first);
    let second = two.machine.poll_output().unwrap();
    let marks = |output: &sedge_rules::Output| {
        output.properties.user.iter().map(|(_, rule)| rule.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((marks(&first), marks(&second)), (vec!["one".to_owned()], vec!["one".to_owned(), "two".to_owned()]));
    one.pass(0, &first);
    one.pass(0, &second);
    two.pass(0, &second);
    assert_eq!((one.machine.counters().loops, one.machine.poll_output()), (2, None));
    assert_eq!((two.machine.counters().seen, two.machine.poll_output()), (2, None), "y is not what it listens to");
}

/// DP-02
#[test]
fn a_rule_of_somebody_puts_out_below_his_prefix() {
    let rule = common::compile("r", &[("select", text("payload + 1"))]).expect("a valid rule");
    let filter = sedge_mqtt::TopicFilter::new("a/#").expect("a filter");
    let rule = rule.below(vec![filter], "$rule/r/out/");
    let mut run = Run { machine: sedge_rules::Machine::new(std::sync::Arc::new(rule)) };
    run.send(0, "a/b", "1");
    run.send(0, "b", "1");
    assert_eq!(run.taken(), ["$rule/r/out/a/b 2"]);
}

/// DP-02
#[test]
fn a_chain_of_rules_ends_after_eight() {
    let mut output = None;
    for number in 0..9 {
        let mut run = Run::named(&format!("r{number}"), &[("from", list(&["#"])), ("to", text("x"))]);
        match &output {
            None => run.send(0, "t", "1"),
            Some(output) => run.pass(0, output),
        }
        output = run.machine.poll_output();
        assert_eq!(output.is_some(), number < 8, "{number}");
        if output.is_none() {
            assert_eq!(run.machine.counters().loops, 1);
        }
    }
}

fn by_topic(overflow: &str, limit: (&'static str, f64)) -> Run {
    Run::new(&[
        ("group_by", list(&["topic"])),
        ("window", table(&[("tumbling", text("10s"))])),
        ("select", List(&[("t", "topic"), ("n", "count()")]).table()),
        ("overflow", text(overflow)),
        (limit.0, Item::Number(limit.1)),
    ])
}

#[test]
fn a_limit_keeps_new_groups_out_or_closes_the_oldest_early() {
    for limit in [("max_groups", 2.0), ("max_windows", 2.0), ("max_state", 900.0)] {
        let mut run = by_topic("drop", limit);
        for topic in ["a", "b", "c", "a"] {
            run.send(1, topic, "1");
        }
        assert_eq!((run.machine.counters().over_limit, run.machine.group_count()), (1, 2), "{limit:?}");
        run.at(10_000);
        assert_eq!(run.taken(), [r#"- {"t":"a","n":2}"#, r#"- {"t":"b","n":1}"#]);
        assert_eq!((run.machine.state_bytes(), run.machine.window_count()), (0, 0));

        let mut run = by_topic("close", limit);
        for topic in ["a", "b", "c"] {
            run.send(1, topic, "1");
        }
        assert_eq!(run.taken(), [r#"- {"t":"a","n":1}"#], "{limit:?}");
        assert_eq!((run.machine.counters().closed_early, run.machine.counters().over_limit), (1, 0));
    }
}

#[test]
fn a_payload_that_is_too_large_is_not_looked_into() {
    let mut run = Run::new(&[("where", text("payload.a == 1")), ("max_payload", Item::Number(20.0))]);
    run.send(0, "t", r#"{"a":1}"#);
    run.send(0, "t", r#"{"a":1, "b":"0123456789"}"#);
    assert_eq!(run.machine.counters().too_large, 1);
    assert_eq!(run.taken(), [r#"- {"a":1}"#]);
}
