//! One page of `sedge top`: figures of all nodes, with rates from two answers of the API.

use sedge_daemon::http::model::{Cluster, HotTopics, MemberSummary, Members, Sessions, Totals};
use serde::Serialize;

use super::super::client::Api;
use super::super::names::Names;
use super::super::text;
use crate::failure::Failure;

/// Slow subscribers that are shown at most.
const SLOW_MAX: usize = 20;
/// Topics that are shown at most.
const TOPICS_MAX: usize = 20;

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Frame {
    /// Name of the cluster.
    pub(super) cluster: String,
    /// Members, those that do not answer, and those that died a short while ago.
    pub(super) nodes: Vec<NodeLine>,
    /// Clients that are connected and have messages waiting, those with the most first.
    pub(super) slow_subscribers: Vec<SlowLine>,
    /// Topics that clients publish to most, the busiest first.
    pub(super) hot_topics: Vec<HotLine>,
    /// Over how many seconds they were counted.
    pub(super) hot_topics_seconds: f64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct NodeLine {
    pub(super) name: String,
    /// Its state in words; `no answer` or `dead for ...` of one that is away.
    pub(super) state: String,
    pub(super) is_away: bool,
    /// Whether it is ready and has no warnings.
    pub(super) is_well: bool,
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
}

/// Figures of a node that answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) clients: u64,
    pub(super) sessions: u64,
    pub(super) queued: u64,
    pub(super) memory_bytes: u64,
    /// Rates, which need two answers; `None` at the first, and at the first since a restart of the node.
    #[serde(flatten)]
    pub(super) rates: Option<Rates>,
}

/// Rates by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) messages_in: f64,
    pub(super) messages_out: f64,
    pub(super) dropped: f64,
    /// 100 is one processor.
    pub(super) cpu_percent: f64,
}

/// A client that takes its messages more slowly than they come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SlowLine {
    pub(super) client: String,
    pub(super) node: String,
    pub(super) queued: usize,
    pub(super) queued_bytes: usize,
    pub(super) inflight: usize,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HotLine {
    pub(super) topic: String,
    pub(super) messages: f64,
}

/// Totals of each node at its last answer: node, incarnation and totals.
#[derive(Debug, Default)]
pub(super) struct Before(Vec<(String, u64, Totals)>);

impl Before {
    /// Rates of a node since its last answer.
    fn rates(&self, member: &MemberSummary) -> Option<Rates> {
        let (said, now) = (&member.summary, &member.summary.totals);
        let is_it = |(node, life, _): &&(String, u64, Totals)| *node == said.node && *life == said.incarnation;
        let (_, _, then) = self.0.iter().find(is_it)?;
        let seconds = real(now.at_ms.checked_sub(then.at_ms).filter(|millis| *millis > 0)?) / 1_000.0;
        let rate = |now: u64, then: u64| real(now.saturating_sub(then)) / seconds;
        Some(Rates {
            messages_in: rate(now.publishes_in, then.publishes_in),
            messages_out: rate(now.publishes_out, then.publishes_out),
            dropped: rate(now.dropped, then.dropped),
            cpu_percent: rate(now.cpu_millis, then.cpu_millis) / 10.0,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
const fn real(count: u64) -> f64 {
    count as f64
}

/// Asks for all that a page shows.
pub(super) fn gather(api: &Api, ids: bool, before: &mut Before) -> Result<Frame, Failure> {
    let members = api.get::<Members>("/api/v1/members")?.value;
    let names = Names::new(&api.get::<Cluster>("/api/v1/cluster")?.value, ids);
    let wanted = format!("/api/v1/sessions?node=*&connected=true&sort=queued&order=desc&limit={SLOW_MAX}");
    let sessions = api.get::<Sessions>(&wanted)?.value;
    let topics = api.get::<HotTopics>(&format!("/api/v1/topics/hot?node=*&limit={TOPICS_MAX}"))?.value;
    let frame = frame(&members, &sessions, &topics, &names, before);
    let last = |member: MemberSummary| (member.summary.node, member.summary.incarnation, member.summary.totals);
    before.0 = members.members.into_iter().map(last).collect();
    Ok(frame)
}

fn frame(members: &Members, sessions: &Sessions, topics: &HotTopics, names: &Names, before: &Before) -> Frame {
    let away = |name: String, state: String| NodeLine { name, state, is_away: true, ..NodeLine::default() };
    let silent =
        members.silent.iter().map(|member| away(names.of_or(&member.node, &member.name), "no answer".to_owned()));
    let since = |seconds| format!("dead for {}", text::duration(seconds));
    let dead = members.dead.iter().map(|dead| {
        let name = names.of_or(&dead.node, dead.name.as_deref().unwrap_or(&dead.node));
        away(name, since(dead.seconds))
    });
    let nodes = members.members.iter().map(|member| node(member, names, before));
    let slow = sessions.sessions.iter().filter(|session| session.queued_messages > 0).map(|session| SlowLine {
        client: session.client.clone(),
        node: names.of_or(&session.node, &session.name),
        queued: session.queued_messages,
        queued_bytes: session.queued_bytes,
        inflight: session.inflight,
    });
    let hot = topics.topics.iter().map(|hot| HotLine { topic: hot.topic.clone(), messages: hot.rate });
    Frame {
        cluster: members.cluster.clone(),
        nodes: nodes.chain(silent).chain(dead).collect(),
        slow_subscribers: slow.collect(),
        hot_topics: hot.collect(),
        hot_topics_seconds: topics.seconds,
    }
}

fn node(member: &MemberSummary, names: &Names, before: &Before) -> NodeLine {
    let said = &member.summary;
    NodeLine {
        name: names.of_or(&said.node, &said.name),
        state: format!("{}, {}", said.state, text::readiness(said.ready, &said.not_ready, &said.warnings)),
        is_away: false,
        is_well: said.ready && said.warnings.is_empty(),
        figures: Some(Figures {
            clients: said.totals.connections,
            sessions: said.totals.sessions,
            queued: said.totals.queued_messages,
            memory_bytes: said.totals.resident_bytes,
            rates: before.rates(member),
        }),
    }
}

/// The column by which nodes are sorted.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    Clients,
    In,
    Out,
    Cpu,
    Memory,
    Queue,
}

impl Order {
    pub(super) const ALL: [Self; 7] =
        [Self::Name, Self::Clients, Self::In, Self::Out, Self::Cpu, Self::Memory, Self::Queue];

    /// Column and key.
    pub(super) const fn label(self) -> (&'static str, char) {
        match self {
            Self::Name => ("NODE", 'n'),
            Self::Clients => ("CLIENTS", 'c'),
            Self::In => ("IN/s", 'i'),
            Self::Out => ("OUT/s", 'o'),
            Self::Cpu => ("CPU", 'p'),
            Self::Memory => ("MEMORY", 'm'),
            Self::Queue => ("QUEUED", 'u'),
        }
    }

    fn value(self, line: &NodeLine) -> f64 {
        let Some(figures) = &line.figures else { return -1.0 };
        let rate = |of: fn(&Rates) -> f64| figures.rates.as_ref().map_or(0.0, of);
        match self {
            Self::Name => 0.0,
            Self::Clients => real(figures.clients),
            Self::In => rate(|rates| rates.messages_in),
            Self::Out => rate(|rates| rates.messages_out),
            Self::Cpu => rate(|rates| rates.cpu_percent),
            Self::Memory => real(figures.memory_bytes),
            Self::Queue => real(figures.queued),
        }
    }

    /// Names upward, numbers from the largest down; the other way round if `reverse`. Nodes that are away come last.
    pub(super) fn sort(self, nodes: &mut [NodeLine], reverse: bool) {
        nodes.sort_by(|one, other| {
            let by = self.value(other).total_cmp(&self.value(one)).then_with(|| one.name.cmp(&other.name));
            one.is_away.cmp(&other.is_away).then(if reverse { by.reverse() } else { by })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, life: u64, at_ms: u64, publishes_in: u64) -> serde_json::Value {
        let totals = Totals { at_ms, publishes_in, cpu_millis: publishes_in, connections: life, ..Totals::default() };
        serde_json::json!({
            "this": false, "address": "10.0.0.1:7883", "clock_ahead_ms": null, "rtt_micros": null, "node": format!("id-{name}"), "name": name,
            "incarnation": life, "version": "1", "state": "normal", "ready": true, "not_ready": [], "warnings": [], "uptime_seconds": 1,
            "durability": "memory", "disk_free_bytes": null, "subscriptions": 0, "retained": 0, "retained_digest": "", "stopping": false, "totals": totals,
        })
    }

    fn members(list: &[serde_json::Value]) -> Members {
        let dead = serde_json::json!([{ "node": "id-c", "name": "c", "incarnation": 1, "address": "x", "seconds": 70, "orphans": [] }]);
        let silent = serde_json::json!([{ "node": "id-d", "name": "d", "address": "x", "linked": true }]);
        let all =
            serde_json::json!({ "node": "id-a", "cluster": "site", "members": list, "silent": silent, "dead": dead });
        serde_json::from_value(all).unwrap()
    }

    fn shown(list: &[serde_json::Value], before: &mut Before) -> Frame {
        let members = members(list);
        let none = Sessions { total: 0, offset: 0, limit: 1, sessions: Vec::new(), next: None, silent: Vec::new() };
        let frame = frame(&members, &none, &HotTopics::default(), &Names::default(), before);
        let last = |member: MemberSummary| (member.summary.node, member.summary.incarnation, member.summary.totals);
        before.0 = members.members.into_iter().map(last).collect();
        frame
    }

    /// OP-02
    #[test]
    fn rates_come_from_two_answers_of_the_same_life_of_a_node() {
        let mut before = Before::default();
        let first = shown(&[member("a", 1, 1_000, 100), member("b", 1, 1_000, 50)], &mut before);
        assert!(first.nodes.iter().all(|node| node.figures.as_ref().is_none_or(|figures| figures.rates.is_none())));
        let second = shown(&[member("a", 1, 3_000, 1_100), member("b", 2, 3_000, 10)], &mut before);
        let rates: Vec<_> = second.nodes.iter().map(|node| node.figures.as_ref().and_then(|f| f.rates)).collect();
        let of_a = Rates { messages_in: 500.0, cpu_percent: 50.0, ..Rates::default() };
        assert_eq!(rates, [Some(of_a), None, None, None], "b has been restarted, c is dead, d is silent");
        let away: Vec<_> =
            second.nodes.iter().filter(|node| node.is_away).map(|node| (&*node.name, &*node.state)).collect();
        assert_eq!(away, [("d", "no answer"), ("c", "dead for 1 min 10 s")]);
    }

    #[test]
    fn nodes_are_sorted_and_those_that_are_away_come_last() {
        let mut before = Before::default();
        let mut nodes = shown(&[member("b", 7, 1, 0), member("a", 9, 1, 0), member("e", 8, 1, 0)], &mut before).nodes;
        let names = |nodes: &[NodeLine]| nodes.iter().map(|node| node.name.as_str()).collect::<String>();
        Order::Name.sort(&mut nodes, false);
        assert_eq!(names(&nodes), "abecd");
        Order::Clients.sort(&mut nodes, false);
        assert_eq!(names(&nodes), "aebcd");
        Order::Clients.sort(&mut nodes, true);
        assert_eq!(names(&nodes), "beadc");
    }
}
