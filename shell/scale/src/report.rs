//! The report of `sedge scale status` and of the controller's API.

use std::collections::BTreeMap;

use sedge_scale::{Decision, Event, ScaleStatus, Scaler};
use serde::{Deserialize, Serialize};

use crate::state::State;

/// A site at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The site file.
    pub site: String,
    /// Its driver.
    pub driver: String,
    /// Whether a controller runs.
    pub running: bool,
    /// Process of the controller that runs or ran last.
    pub pid: Option<u32>,
    /// Where its API is.
    pub api: Option<String>,
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whether the kill switch is on.
    pub paused: bool,
    /// Whether everything the site says is there, and nothing is under way.
    pub converged: bool,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupReport>,
    /// Load balancers by name.
    pub balancers: BTreeMap<String, BalancerReport>,
    /// Modules by name, and where they run: `here`, `elsewhere` or `missing`.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// Alarms by name.
    pub alarms: BTreeMap<String, AlarmReport>,
    /// Actions under way, in words.
    pub pending: Vec<String>,
    /// Actions that policies may still start within this hour.
    pub actions_left: u32,
    /// Last decisions with their reasons, oldest first.
    pub decisions: Vec<DecisionReport>,
    /// Last events, oldest first.
    pub events: Vec<EventReport>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Fewest nodes.
    pub min: u32,
    /// Most nodes.
    pub max: u32,
    /// Nodes that are wanted.
    pub wanted: u32,
    /// Processors that each node may use, if that is limited.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Why a change that a policy wants is not made, if so.
    pub hold: Option<String>,
    /// Its nodes.
    pub nodes: Vec<NodeReport>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// `starting`, `serving` or `leaving`.
    pub state: String,
    /// For how many seconds.
    pub seconds: u64,
    /// Its process, if the driver starts processes.
    pub pid: Option<u32>,
    /// Where clients reach it.
    pub mqtt: String,
    /// Where its HTTP API is.
    pub http: String,
    /// Its newest samples by metric.
    pub samples: BTreeMap<String, f64>,
}

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalancerReport {
    /// Its port.
    pub port: u16,
    /// How it chooses.
    pub algorithm: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Nodes that get new connections.
    pub nodes: Vec<String>,
    /// Connections of each of them.
    pub connections: BTreeMap<String, u64>,
}

/// An alarm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlarmReport {
    /// `ok`, `alarm` or `insufficient data`.
    pub state: String,
    /// For how many seconds.
    pub seconds: u64,
    /// Measurement of the last period, if there is one.
    pub value: Option<f64>,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Which group.
    pub group: String,
    /// Nodes before.
    pub from: u32,
    /// Nodes that are wanted.
    pub to: u32,
    /// Why.
    pub reason: String,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Kind of the event.
    pub kind: String,
    /// Resource or node that it happened to.
    pub subject: String,
    /// The event in words.
    pub text: String,
}

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> Self {
        Self {
            at_ms: decision.at.as_millis(),
            group: decision.group.clone(),
            from: decision.from,
            to: decision.to,
            reason: decision.reason.clone(),
        }
    }
}

impl From<&Event> for EventReport {
    fn from(event: &Event) -> Self {
        Self {
            at_ms: event.at.as_millis(),
            kind: event.kind.to_string(),
            subject: event.subject.clone(),
            text: event.text.clone(),
        }
    }
}

/// The groups of a status with the recorded facts about their nodes.
pub(crate) fn groups(status: &ScaleStatus, state: &State, now: sedge_base::Instant) -> BTreeMap<String, GroupReport> {
    let node = |member: &sedge_scale::MemberStatus| {
        let record = state.nodes.get(&member.name).cloned().unwrap_or_default();
        NodeReport {
            name: member.name.clone(),
            state: member.state.to_string(),
            seconds: now.since(member.since).as_secs(),
            pid: record.process.map(|process| process.pid),
            mqtt: record.mqtt,
            http: record.http,
            samples: member.samples.iter().map(|(metric, value)| (metric.to_string(), *value)).collect(),
        }
    };
    let group = |group: &sedge_scale::GroupStatus| GroupReport {
        min: group.min,
        max: group.max,
        wanted: group.wanted,
        cpu: group.millicpus.map(sedge_scale::processors),
        hold: group.hold.clone(),
        nodes: group.members.iter().map(node).collect(),
    };
    status.groups.iter().map(|found| (found.name.clone(), group(found))).collect()
}

/// Alarms and decisions of the machine.
pub(crate) fn fill(report: &mut Report, scaler: &Scaler, state: &State, now: sedge_base::Now) {
    let status = scaler.status();
    report.at_ms = now.wall.as_millis();
    report.paused = status.paused;
    report.converged = scaler.is_converged();
    report.groups = groups(&status, state, now.instant);
    let alarm = |alarm: &sedge_scale::AlarmStatus| AlarmReport {
        state: alarm.state.to_string(),
        seconds: now.instant.since(alarm.since).as_secs(),
        value: alarm.value,
    };
    report.alarms = status.alarms.iter().map(|found| (found.name.clone(), alarm(found))).collect();
    report.pending = status.pending;
    report.actions_left = status.actions_left;
    report.decisions = scaler.decisions().map(DecisionReport::from).collect();
}

/// `at_ms` as time of the day in UTC.
pub(crate) fn time_of_day(at_ms: u64) -> String {
    let seconds = at_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let controller = match (self.running, self.pid) {
            (true, Some(pid)) => format!("controller runs (pid {pid})"),
            (true, None) => "controller runs".to_owned(),
            (false, _) => "no controller runs; this is what the last one said".to_owned(),
        };
        let paused = if self.paused { ", PAUSED: no action begins" } else { "" };
        lines.push(format!("{}, driver {}, {controller}{paused}", self.site, self.driver));
        let apart: Vec<String> = self
            .modules
            .iter()
            .filter(|(_, place)| *place != "here")
            .map(|(name, place)| format!("{name} {place}"))
            .collect();
        if !apart.is_empty() {
            lines.push(format!("modules: {}", apart.join(", ")));
        }
        for (name, group) in &self.groups {
            let hold = group.hold.as_ref().map_or_else(String::new, |hold| format!("; stays: {hold}"));
            let size = group.cpu.map_or_else(String::new, |cpu| format!(", each with {cpu} processors"));
            lines.push(format!(
                "group {name}: {} of {} nodes wanted ({} to {}){size}{hold}",
                group.nodes.len(),
                group.wanted,
                group.min,
                group.max
            ));
            for node in &group.nodes {
                let samples: Vec<String> =
                    node.samples.iter().map(|(metric, value)| format!("{metric} {value:.1}")).collect();
                lines.push(format!(
                    "  {} {} for {} s at {}: {}",
                    node.name,
                    node.state,
                    node.seconds,
                    node.mqtt,
                    samples.join(", ")
                ));
            }
        }
        for (name, balancer) in &self.balancers {
            let nodes: Vec<String> = balancer
                .nodes
                .iter()
                .map(|node| format!("{node} ({} connections)", balancer.connections.get(node).copied().unwrap_or(0)))
                .collect();
            lines.push(format!(
                "load balancer {name}: port {}, {}: {}",
                balancer.port,
                balancer.algorithm,
                nodes.join(", ")
            ));
        }
        for (name, alarm) in &self.alarms {
            let value = alarm.value.map_or_else(String::new, |value| format!(" at {value:.1}"));
            lines.push(format!("alarm {name}: {}{value} for {} s", alarm.state, alarm.seconds));
        }
        lines.extend(self.pending.iter().map(|action| format!("under way: {action}")));
        for decision in self.decisions.iter().rev().take(5).rev() {
            let (at, group, from, to) = (time_of_day(decision.at_ms), &decision.group, decision.from, decision.to);
            lines.push(format!("{at} {group} {from} -> {to}: {}", decision.reason));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_a_person_asks() {
        let node = NodeReport {
            name: "brokers-1".to_owned(),
            state: "serving".to_owned(),
            mqtt: "127.0.0.1:1".to_owned(),
            ..NodeReport::default()
        };
        let group = GroupReport {
            min: 1,
            max: 3,
            wanted: 1,
            nodes: vec![node],
            cpu: Some(0.5),
            hold: Some("max is 3".to_owned()),
        };
        let decision =
            DecisionReport { at_ms: 3_600_000, group: "brokers".to_owned(), from: 1, to: 2, reason: "load".to_owned() };
        let report = Report {
            site: "site.yaml".to_owned(),
            driver: "process".to_owned(),
            running: true,
            pid: Some(7),
            groups: [("brokers".to_owned(), group)].into(),
            decisions: vec![decision],
            ..Report::default()
        };
        let text = report.text();
        for wanted in [
            "controller runs (pid 7)",
            "1 of 1 nodes wanted (1 to 3), each with 0.5 processors; stays: max is 3",
            "brokers-1 serving",
            "01:00:00 brokers 1 -> 2: load",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
    }
}
