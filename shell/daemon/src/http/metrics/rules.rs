//! Rules that run in the cluster.

use sedge_bridge::{RuleState, RuleStatus};

use super::exposition::{Exposition, Kind};
use crate::http::rules::status;
use crate::runtime::Shared;

type Row = (&'static str, &'static str, fn(&RuleStatus) -> u64);

pub(super) fn write(out: &mut Exposition, shared: &Shared) {
    let all = status(shared);
    if all.is_empty() {
        return;
    }
    let gauges: [Row; 8] = [
        ("rule_running", "Whether this node runs the rule.", |rule| u64::from(rule.state == RuleState::Running)),
        ("rule_lag_messages", "Messages that wait for the rule at this node.", |rule| rule.lag.messages),
        ("rule_lag_seconds", "How long the oldest of them has waited.", |rule| rule.lag.waits.as_secs()),
        ("rule_groups", "Groups that the rule keeps.", |rule| rule.groups),
        ("rule_windows", "Windows that are open.", |rule| rule.windows),
        ("rule_state_bytes", "Bytes of groups and windows.", |rule| rule.state_bytes),
        ("rule_births", "Sparkplug edge nodes that it remembers.", |rule| rule.births),
        ("rule_births_bytes", "Bytes of what it remembers of them.", |rule| rule.births_bytes),
    ];
    let counters: [Row; 17] = [
        ("rule_seen_total", "Messages that reached the rule.", |rule| rule.counters.seen),
        ("rule_selected_total", "Messages that it selected.", |rule| rule.counters.selected),
        ("rule_outputs_total", "Messages that it put out.", |rule| rule.counters.outputs),
        ("rule_held_back_total", "Outputs that on_change or deadband held back.", |rule| rule.counters.held_back),
        ("rule_late_total", "Messages that came after their windows had closed.", |rule| rule.counters.late),
        ("rule_bad_time_total", "Messages without a usable time.", |rule| rule.counters.bad_time),
        ("rule_loops_total", "Messages that the rule itself, or too many rules, had a part in.", |rule| {
            rule.counters.loops
        }),
        ("rule_too_large_total", "Messages whose payload was too large to look into.", |rule| rule.counters.too_large),
        ("rule_over_limit_total", "Messages that a limit kept out.", |rule| rule.counters.over_limit),
        ("rule_closed_early_total", "Groups whose windows closed early to make room.", |rule| {
            rule.counters.closed_early
        }),
        ("rule_undecodable_total", "Payloads that are none of Sparkplug B.", |rule| rule.counters.undecodable),
        ("rule_unknown_metrics_total", "Sparkplug metrics that no birth explains.", |rule| {
            rule.counters.unknown_metrics
        }),
        ("rule_rebirths_total", "Sparkplug edge nodes asked for their births.", |rule| rule.counters.rebirths),
        ("rule_births_forgotten_total", "Sparkplug edge nodes forgotten for want of room.", |rule| {
            rule.births_forgotten
        }),
        ("rule_jq_failed_total", "Messages for which the jq program has raised an error.", |rule| {
            rule.counters.jq_failed
        }),
        ("rule_jq_over_budget_total", "Messages for which the jq program has taken too much.", |rule| {
            rule.counters.jq_over_budget
        }),
        ("rule_failed_total", "Outputs without a topic that they may go to.", |rule| rule.counters.failed),
    ];
    let gauges = gauges.into_iter().map(|row| (row, Kind::Gauge));
    for ((name, help, read), kind) in gauges.chain(counters.into_iter().map(|row| (row, Kind::Counter))) {
        let mut family = out.family(name, kind, help);
        for rule in &all {
            family.labelled(&[("rule", &rule.name)], read(rule));
        }
    }
}
