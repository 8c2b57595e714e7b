//! Relief: clients that are connected already are sent to nodes that carry less (EL-24).
//!
//! A client is told "use another server" (0x9C; 3.1.1: its connection is closed) and comes back through the load balancer, which has been
//! told to prefer the nodes with room meanwhile. Its session follows it. Which clients, [`sedge_scale::relief`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sedge_mqtt::{TopicFilter, TopicName};
use sedge_scale::site::Algorithm;
use sedge_scale::{ClientLoad, NodeLoad, Site};
use serde_json::Value;

use crate::driver::World;
use crate::haproxy::Haproxy;
use crate::network::{Nodes, segment};

/// Clients that are told at once.
const BATCH: usize = 50;
/// Time between two batches: 250 clients a second at most.
const PAUSE: Duration = Duration::from_millis(200);
/// Time over which the messages of clients are counted.
const SPAN: Duration = Duration::from_secs(2);
/// Most rounds of counting and moving.
const ROUNDS: usize = 8;
/// Most clients of a node that are looked at.
const MAX_CLIENTS: usize = 50_000;
/// Weight of a node with room at the load balancer while clients move; the other nodes weigh 1.
const PREFERRED: u32 = 256;

/// Moves clients of a group's busier nodes to its less busy ones until they are even; with `onto` only until that node has its share.
/// Says how many clients are moved from each node; with `dry_run` how many would be.
pub(crate) fn relieve(
    world: &World,
    site: &Site,
    group: &str,
    onto: Option<&str>,
    dry_run: bool,
) -> Result<BTreeMap<String, usize>, String> {
    let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
    let mut told: BTreeSet<String> = BTreeSet::new();
    let mut moved = BTreeMap::new();
    for _ in 0..ROUNDS {
        let loads = loads(world, group, &nodes)?;
        let seed = getrandom::u64().map_err(|error| format!("the system has no random numbers: {error}"))?;
        let mut plan = sedge_scale::relief(&loads, onto, seed);
        // One that comes back to where it was is not sent away a second time.
        plan.moves.retain(|step| !told.contains(&step.client));
        if plan.moves.is_empty() {
            break;
        }
        if dry_run {
            for step in plan.moves {
                *moved.entry(step.node).or_insert(0) += 1;
            }
            break;
        }
        let _preference = Preference::new(world, site, group, &plan.onto);
        for batch in plan.moves.chunks(BATCH) {
            for step in batch {
                told.insert(step.client.clone());
                let Some(http) = world.node(&step.node).map(|record| record.http) else { continue };
                // A client that has just gone needs no telling.
                let path = format!("/api/v1/sessions/{}/connection?reason=0x9C", segment(&step.client));
                if nodes.delete(&http, &path).is_ok() {
                    *moved.entry(step.node.clone()).or_insert(0) += 1;
                }
            }
            sleep(PAUSE);
        }
        settle(world, group, &nodes, &plan.moves);
    }
    Ok(moved)
}

/// Waits until the clients that were told to move are at other nodes, though not for ever: the load balancer prefers some nodes meanwhile.
fn settle(world: &World, group: &str, nodes: &Nodes, moves: &[sedge_scale::Move]) {
    let from: BTreeMap<&str, &str> = moves.iter().map(|step| (step.client.as_str(), step.node.as_str())).collect();
    let deadline = Instant::now() + SPAN * 2;
    while Instant::now() < deadline {
        let mut arrived = 0;
        for (node, http) in members(world, group) {
            let connected = snapshot(nodes, &http).unwrap_or_default();
            let came = |client: &&String| from.get(client.as_str()).is_some_and(|former| *former != node);
            arrived += connected.keys().filter(came).count();
        }
        if arrived >= from.len() {
            return;
        }
        sleep(PAUSE);
    }
}

/// While it lives, load balancers send clients that come to some nodes.
struct Preference {
    balancers: Vec<(Haproxy, usize)>,
}

impl Preference {
    /// Where a client's place follows from its identifier, nothing is preferred.
    fn new(world: &World, site: &Site, group: &str, onto: &BTreeSet<String>) -> Self {
        let state = world.state().clone();
        let mut balancers = Vec::new();
        for (name, balancer) in site.balancers() {
            let record = state.balancers.get(name).filter(|record| record.process.is_some());
            let Some(record) = record.filter(|_| balancer.backend == group) else { continue };
            if balancer.algorithm == Algorithm::ClientId {
                continue;
            }
            let haproxy = Haproxy::new(&world.home, name);
            for (place, node) in record.places.iter().enumerate() {
                let preferred = node.as_ref().is_some_and(|node| onto.contains(node));
                if let Err(why) = haproxy.weigh(place, if preferred { PREFERRED } else { 1 }) {
                    tracing::warn!(why, "the load balancer does not prefer the nodes with room");
                }
            }
            balancers.push((haproxy, record.places.len()));
        }
        Self { balancers }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        for (haproxy, places) in &self.balancers {
            for place in 0..*places {
                if let Err(why) = haproxy.weigh(place, 1) {
                    tracing::warn!(why, "the load balancer still prefers some nodes");
                }
            }
        }
    }
}

/// Names and HTTP addresses of the nodes of a group that serve.
fn members(world: &World, group: &str) -> Vec<(String, String)> {
    let state = world.state();
    let members = state.nodes.iter().filter(|(_, node)| node.group == group && node.served && !node.http.is_empty());
    members.map(|(name, node)| (name.clone(), node.http.clone())).collect()
}

/// Load of each node by its clients, counted over [`SPAN`].
fn loads(world: &World, group: &str, nodes: &Nodes) -> Result<Vec<NodeLoad>, String> {
    let members = members(world, group);
    let mut before = Vec::new();
    for (_, http) in &members {
        before.push((Instant::now(), snapshot(nodes, http)?));
    }
    sleep(SPAN);
    let mut loads = Vec::new();
    for ((node, http), (at, before)) in members.iter().zip(before) {
        let later = snapshot(nodes, http)?;
        let seconds = at.elapsed().as_secs_f64().max(0.001);
        let clients = later.iter().map(|(client, session)| load(client, session, before.get(client), seconds));
        loads.push(NodeLoad { node: node.clone(), clients: clients.collect() });
    }
    Ok(loads)
}

/// The connected clients of a node.
fn snapshot(nodes: &Nodes, http: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut found = BTreeMap::new();
    let mut path = "/api/v1/sessions?limit=1000".to_owned();
    loop {
        let mut page = nodes.json(http, &path)?;
        let sessions = page.get_mut("sessions").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        for session in sessions {
            let connected = session.get("connected").and_then(Value::as_bool).unwrap_or(false);
            if let Some(client) = session.get("client").and_then(Value::as_str).filter(|_| connected) {
                found.insert(client.to_owned(), session);
            }
        }
        match page.get("next").and_then(Value::as_str).filter(|_| found.len() < MAX_CLIENTS) {
            Some(next) => path = format!("/api/v1/sessions?limit=1000&cursor={}", segment(next)),
            None => return Ok(found),
        }
    }
}

fn load(client: &str, session: &Value, before: Option<&Value>, seconds: f64) -> ClientLoad {
    let number = |session: &Value, field: &str| session.get(field).and_then(Value::as_u64).unwrap_or(0);
    let messages = |session: &Value| number(session, "messages_received") + number(session, "messages_sent");
    // One that has connected again counts from nothing; one that has just come has no rate yet.
    let count = before.map_or(0, |before| messages(session).saturating_sub(messages(before)));
    let filters = session.get("subscriptions").and_then(Value::as_array).into_iter().flatten();
    let filters = filters.filter_map(|subscription| subscription.get("filter").and_then(Value::as_str));
    ClientLoad {
        client: client.to_owned(),
        rate: f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds,
        waiting: number(session, "queued_messages") + number(session, "inflight") + number(session, "incoming_qos2"),
        topic: session.get("topic").and_then(Value::as_str).and_then(|topic| TopicName::try_from(topic).ok()),
        filters: filters.filter_map(|filter| TopicFilter::new(filter).ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// EL-24
    #[test]
    fn counters_of_a_session_become_a_rate() {
        let at = |received: u64| {
            json!({"client": "c", "connected": true, "messages_received": received, "messages_sent": 5, "inflight": 2,
                   "topic": "t/1", "subscriptions": [{"filter": "t/#", "qos": 1}]})
        };
        let found = load("c", &at(30), Some(&at(10)), 2.0);
        assert!((found.rate - 10.0).abs() < 1e-9 && found.waiting == 2, "{found:?}");
        assert_eq!((found.topic.is_some(), found.filters.len()), (true, 1));
        assert!(load("c", &at(3), Some(&at(10)), 2.0).rate.abs() < 1e-9, "it has connected again");
        assert!(load("c", &at(3), None, 2.0).rate.abs() < 1e-9, "it has just come");
    }
}
