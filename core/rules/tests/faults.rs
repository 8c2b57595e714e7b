//! Wrong rules: which key, where in its text, and what to do.

#[expect(dead_code, reason = "the other tests use the rest")]
mod common;

use common::{List, compile, list, table, text};
use sedge_rules::{Item, RuleError};

/// Keys of a rule, the key that is wrong, where in its text, and what is said of it.
type Case = (Vec<(&'static str, Item)>, &'static str, Option<usize>, &'static str);

fn faults(entries: &[(&str, Item)]) -> Vec<(String, Option<usize>, String)> {
    let errors = compile("r", entries).expect_err("a wrong rule");
    errors.into_iter().map(|RuleError { key, at, what, .. }| (key, at, what)).collect()
}

fn select() -> (&'static str, Item) {
    ("select", List(&[("v", "mean(payload.v)")]).table())
}

fn tumbling() -> (&'static str, Item) {
    ("window", table(&[("tumbling", text("10s"))]))
}

fn check(cases: Vec<Case>) {
    for (entries, key, at, what) in cases {
        assert_eq!(faults(&entries), [(key.to_owned(), at, what.to_owned())], "{entries:?}");
    }
}

#[test]
fn a_wrong_expression_says_where_and_what_to_write() {
    check(vec![
        (vec![("were", text("true"))], "were", None, "unknown key; did you mean where?"),
        (vec![("where", text("1 < paylod.v"))], "where", Some(4), "there is no paylod; did you mean payload?"),
        (
            vec![("where", text("value > 1"))],
            "where",
            Some(0),
            "there is no value; a field of the payload is written payload.NAME",
        ),
        (vec![("where", text("abz(1) > 1"))], "where", Some(0), "there is no function abz; did you mean abs?"),
        (
            vec![("where", text("payload.v + 1"))],
            "where",
            None,
            "is never true or false: compare it with something, such as payload.value > 0",
        ),
        (
            vec![("where", text("mean(payload.v) > 1"))],
            "where",
            Some(0),
            "an aggregate has no place here: where looks at one message; aggregates stand in select",
        ),
        (vec![("where", text("(payload.v > 1"))], "where", Some(14), ") is missing before the end"),
        (vec![("where", text("1 < 2 < 3"))], "where", Some(6), "comparisons do not follow each other: join two by and"),
        (vec![("where", text("payload.v > 'x"))], "where", Some(12), "this text has no end: add '"),
    ]);
}

#[test]
fn topics_and_selections_that_do_not_fit_are_refused() {
    check(vec![
        (
            vec![("from", list(&["a/+"])), ("to", text("b/{2}"))],
            "to",
            Some(3),
            "topics of [\"a/+\"] have no level 2: their levels are 0 to 1",
        ),
        (
            vec![("from", list(&["a/b+"])), ("to", text("b"))],
            "from[0]",
            None,
            "\"a/b+\" is no topic filter: '+' stands alone in its level",
        ),
        (
            vec![("from", list(&["a"])), ("to", text("b/#"))],
            "to",
            Some(2),
            "messages are published to topics, not to filters: no +, # or } here",
        ),
        (
            vec![("from", list(&["a"]))],
            "from",
            None,
            "needs to, the topic of what comes out; or neither, in a bridge's rule",
        ),
        (
            vec![tumbling()],
            "window",
            None,
            "needs select: what to compute, such as select = { value = \"mean(payload.value)\" }",
        ),
        (
            vec![select()],
            "select.v",
            Some(0),
            "an aggregate has no place here: add a window, such as window = { tumbling = \"10s\" }",
        ),
        (
            vec![("select", text("payload.v")), tumbling()],
            "select",
            Some(0),
            "payload.v differs between the messages of a window: add \"payload.v\" to group_by, or write last(payload.v) in select",
        ),
    ]);
}

#[test]
fn impossible_windows_are_refused() {
    check(vec![
        (
            vec![select(), ("window", table(&[("hopping", text("10s"))]))],
            "window",
            None,
            "a hopping window needs every: how often one begins, such as every = \"10s\"",
        ),
        (
            vec![select(), ("window", table(&[("hopping", text("10s")), ("every", text("1m"))]))],
            "window.every",
            None,
            "is longer than the window (10s): what lies between two would be lost",
        ),
        (
            vec![select(), ("window", table(&[("hopping", text("1h")), ("every", text("1s"))]))],
            "window.every",
            None,
            "is too short: each message would be in 3600 windows; at most 100, so at least 36s",
        ),
        (
            vec![select(), ("window", table(&[("tumbling", text("0s"))]))],
            "window.tumbling",
            None,
            "0s is not between 1ms and 7d",
        ),
        (
            vec![select(), ("window", table(&[("tumbling", text("1s")), ("lateness", text("1s"))]))],
            "window.lateness",
            None,
            "has a meaning only with window.time: messages never arrive late by the time of their arrival",
        ),
        (
            vec![select(), ("window", table(&[("tumbling", text("1s")), ("count", Item::Number(1.0))]))],
            "window",
            None,
            "has exactly one of tumbling, hopping, session and count",
        ),
        (
            vec![select(), tumbling(), ("deadband", table(&[("w", Item::Number(1.0))]))],
            "deadband.w",
            None,
            "select has no w; did you mean v?",
        ),
        (vec![("qos", Item::Number(3.0))], "qos", None, "3 is not between 0 and 2"),
    ]);
}

#[test]
fn all_faults_are_named_at_once() {
    assert_eq!(faults(&[("a", Item::Bool(true)), ("qos", Item::Bool(true))]).len(), 2);
    assert!(compile("Bad Name", &[]).is_err());
}

#[test]
fn an_expression_is_bounded() {
    for source in ["(".repeat(60), "-".repeat(60), format!("1{}", "+1".repeat(60)), " ".repeat(5_000)] {
        assert_eq!(faults(&[("where", text(&source))]).len(), 1);
    }
}
