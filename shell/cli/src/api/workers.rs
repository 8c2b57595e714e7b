//! `sedge bridges` and `sedge rules` as text.

use sedge_daemon::http::model::{Bridge, BridgeList, RuleEntry, RuleList};

use super::names::Names;
use super::text::{bytes, duration, silent};
use crate::table::table;

/// Text of a cell that has no value.
const NOTHING: &str = "-";

/// Name of the node.
fn place(id: Option<&String>, name: Option<&String>, names: &Names) -> String {
    match (id, name) {
        (Some(id), Some(name)) => names.of_or(id, name),
        (Some(id), None) => names.of(id),
        (None, _) => NOTHING.to_owned(),
    }
}

/// Number and bytes of the publications that wait, and for how long they do.
fn waiting(lag: u64, lag_bytes: u64, seconds: u64) -> String {
    let since = if seconds > 0 { format!(", {}", duration(seconds)) } else { String::new() };
    format!("{lag} ({}{since})", bytes(lag_bytes))
}

fn or_nothing(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| NOTHING.to_owned())
}

pub(super) fn bridges(list: &BridgeList, names: &Names) -> String {
    if list.bridges.is_empty() {
        return format!("the configuration has no [bridge.NAME]{}", silent(&list.silent));
    }
    let row = |bridge: &Bridge| {
        vec![
            bridge.name.clone(),
            bridge.kind.clone(),
            bridge.direction.clone(),
            bridge.state.clone(),
            place(bridge.node.as_ref(), bridge.node_name.as_ref(), names),
            or_nothing(bridge.address.as_ref()),
            waiting(bridge.lag, bridge.lag_bytes, bridge.waits_seconds),
            bridge.messages_out.to_string(),
            bridge.messages_in.to_string(),
            (bridge.dropped + bridge.refused).to_string(),
            bridge.failures.to_string(),
            or_nothing(bridge.last_error.as_ref()),
        ]
    };
    let rows: Vec<_> = list.bridges.iter().map(row).collect();
    let head = [
        "BRIDGE",
        "KIND",
        "WAY",
        "STATE",
        "NODE",
        "CONNECTED TO",
        "WAITING",
        "OUT",
        "IN",
        "DROPPED",
        "FAILURES",
        "LAST ERROR",
    ];
    table(&head, &rows) + &silent(&list.silent)
}

pub(super) fn rules(list: &RuleList, names: &Names) -> String {
    if list.rules.is_empty() {
        return format!("the configuration has no [rule.NAME] that runs in the cluster{}", silent(&list.silent));
    }
    let row = |rule: &RuleEntry| {
        let kept_out = rule.late + rule.bad_time + rule.over_limit + rule.failed + rule.jq_failed + rule.jq_over_budget;
        vec![
            rule.name.clone(),
            rule.state.clone(),
            place(rule.node.as_ref(), rule.node_name.as_ref(), names),
            waiting(rule.lag, rule.lag_bytes, rule.waits_seconds),
            rule.seen.to_string(),
            rule.selected.to_string(),
            rule.outputs.to_string(),
            kept_out.to_string(),
            format!("{} ({})", rule.windows, bytes(rule.state_bytes)),
            or_nothing(rule.last_error.as_ref()),
        ]
    };
    let rows: Vec<_> = list.rules.iter().map(row).collect();
    let head = ["RULE", "STATE", "NODE", "WAITING", "SEEN", "SELECTED", "OUT", "LEFT OUT", "WINDOWS", "LAST ERROR"];
    table(&head, &rows) + &silent(&list.silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OP-02
    #[test]
    fn a_line_says_who_runs_a_bridge_and_how_long_messages_wait() {
        let bridge = Bridge {
            name: "cloud".to_owned(),
            state: "down".to_owned(),
            node: Some("1a".to_owned()),
            node_name: Some("attic".to_owned()),
            lag: 12,
            lag_bytes: 1_200,
            waits_seconds: 75,
            failures: 3,
            last_error: Some("refused".to_owned()),
            ..Bridge::default()
        };
        let list = BridgeList { bridges: vec![bridge], silent: vec!["cellar".to_owned()] };
        let text = bridges(&list, &Names::default());
        for part in ["attic", "12 (1200 bytes, 1 min 15 s)", "refused", "cellar"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(rules(&RuleList::default(), &Names::default()).contains("no [rule.NAME]"));
    }
}
