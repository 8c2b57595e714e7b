//! Relief: clients that are connected already are sent to nodes that have fewer (EL-24).
//!
//! A client is told "use another server" (0x9C; 3.1.1: its connection is closed) and comes back through the load balancer, which sends
//! it to a node with room. Its session follows it. A difference of less than a tenth is left alone.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::driver::World;
use crate::network::{Nodes, segment};

/// Clients that are told at once.
const BATCH: usize = 50;
/// Time between two batches: 250 clients a second at most.
const PAUSE: Duration = Duration::from_millis(200);
/// Most batches.
const ROUNDS: usize = 300;
/// How far from the mean a node may be, as a share of it.
const TOLERANCE: f64 = 0.1;
/// Batches without any effect after which it is given up: a balancer may send the clients back to where they were.
const FRUITLESS: usize = 25;

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Load {
    node: String,
    http: String,
    connections: usize,
}

/// Moves clients of a group's fuller nodes to its emptier ones until they are even; with `onto` only until that node has its share.
/// Says how many clients are moved from each node; with `dry_run` how many would be.
pub(crate) fn relieve(
    world: &World,
    group: &str,
    onto: Option<&str>,
    dry_run: bool,
) -> Result<BTreeMap<String, usize>, String> {
    let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
    let mut moved = BTreeMap::new();
    let mut best = usize::MAX;
    let mut fruitless = 0;
    for _ in 0..ROUNDS {
        let loads = loads(world, group, &nodes)?;
        let excess = excess(&loads, onto);
        let all: usize = excess.values().sum();
        if dry_run {
            return Ok(excess);
        }
        fruitless = if all < best { 0 } else { fruitless + 1 };
        best = best.min(all);
        if all == 0 || fruitless >= FRUITLESS {
            break;
        }
        for load in loads.iter().filter(|load| excess.contains_key(&load.node)) {
            let wanted = excess.get(&load.node).copied().unwrap_or(0).min(BATCH);
            let told = send_away(&nodes, load, wanted)?;
            *moved.entry(load.node.clone()).or_insert(0) += told;
        }
        sleep(PAUSE);
    }
    Ok(moved)
}

fn loads(world: &World, group: &str, nodes: &Nodes) -> Result<Vec<Load>, String> {
    let members: Vec<(String, String)> = {
        let state = world.state();
        let members =
            state.nodes.iter().filter(|(_, node)| node.group == group && node.served && !node.http.is_empty());
        members.map(|(name, node)| (name.clone(), node.http.clone())).collect()
    };
    let mut loads = Vec::new();
    for (node, http) in members {
        let status = nodes.json(&http, "/api/v1/status")?;
        let connections = status.get("connections").and_then(Value::as_u64).unwrap_or(0);
        loads.push(Load { node, http, connections: usize::try_from(connections).unwrap_or(usize::MAX) });
    }
    Ok(loads)
}

/// How many clients each node has too many, if the nodes are not even enough.
#[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 connections")]
fn excess(loads: &[Load], onto: Option<&str>) -> BTreeMap<String, usize> {
    let all: usize = loads.iter().map(|load| load.connections).sum();
    let mean = all as f64 / loads.len().max(1) as f64;
    let low = mean * (1.0 - TOLERANCE);
    let lacking = |load: &Load| (load.connections as f64) < low && onto.is_none_or(|node| load.node == node);
    if !loads.iter().any(lacking) {
        return BTreeMap::new();
    }
    let share = all.div_ceil(loads.len().max(1));
    let over = loads.iter().filter(|load| load.connections > share);
    over.map(|load| (load.node.clone(), load.connections - share)).collect()
}

/// Tells some clients of a node to use another server: those with the least on its way first.
fn send_away(nodes: &Nodes, load: &Load, wanted: usize) -> Result<usize, String> {
    let page = nodes.json(&load.http, "/api/v1/sessions?limit=1000")?;
    let sessions = page.get("sessions").and_then(Value::as_array).cloned().unwrap_or_default();
    let number = |session: &Value, field: &str| session.get(field).and_then(Value::as_u64).unwrap_or(0);
    let connected = |session: &&Value| session.get("connected").and_then(Value::as_bool).unwrap_or(false);
    let mut clients: Vec<(u64, String)> = sessions
        .iter()
        .filter(connected)
        .filter_map(|session| {
            let client = session.get("client").and_then(Value::as_str)?;
            let cost =
                number(session, "queued_messages") + number(session, "inflight") + number(session, "incoming_qos2");
            Some((cost, client.to_owned()))
        })
        .collect();
    clients.sort();
    let mut told = 0;
    for (_, client) in clients.into_iter().take(wanted) {
        // A client that has just gone needs no telling.
        let path = format!("/api/v1/sessions/{}/connection?reason=0x9C", segment(&client));
        told += usize::from(nodes.delete(&load.http, &path).is_ok());
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(connections: &[usize]) -> Vec<Load> {
        let load = |(place, connections): (usize, &usize)| Load {
            node: format!("n{place}"),
            http: String::new(),
            connections: *connections,
        };
        connections.iter().enumerate().map(load).collect()
    }

    /// EL-24
    #[test]
    fn only_nodes_above_their_share_give_clients_away() {
        let over = |connections: &[usize], onto| excess(&loads(connections), onto).into_iter().collect::<Vec<_>>();
        assert_eq!(over(&[90, 0], None), [("n0".to_owned(), 45)]);
        assert_eq!(over(&[50, 46], None), [], "even enough");
        assert_eq!(over(&[90, 60, 0], Some("n2")), [("n0".to_owned(), 40), ("n1".to_owned(), 10)]);
        assert_eq!(over(&[90, 10, 50], Some("n2")), [], "the node that matters has its share");
        assert_eq!(over(&[], None), []);
    }
}
