//! When all is calm the nodes agree: members, owners of client ids, routes, retained messages.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::NodeId;
use sedge_cluster::RouteStatus;

use crate::host::Host;
use crate::oracle::Oracle;

/// Name of the invariant.
pub(crate) const NAME: &str = "agreement";

/// More lines than any run has.
const ALL: usize = 1_000_000;

/// Call when the cluster had time to agree.
pub(crate) fn check(hosts: &[Host]) -> Vec<String> {
    let mut wrong = members(hosts);
    wrong.extend(owners(hosts));
    wrong.extend(moves(hosts));
    // The other overlays tell each node only the interest that it needs.
    if hosts.iter().all(|host| ["mesh", "detour"].contains(&host.node.status().overlay)) {
        wrong.extend(routes(hosts));
    }
    wrong.extend(retained(hosts));
    wrong
}

/// Call at the end of a run in which all nodes could always hear each other: no client id ever had two owners.
pub(crate) fn never_two_owners(oracle: &Oracle) -> Vec<String> {
    let split = oracle.splits.iter();
    split.map(|split| format!("client-{} had two owners from {} on", split.client, split.from)).collect()
}

/// Which members do not know, or are not linked to, all others.
pub(crate) fn members(hosts: &[Host]) -> Vec<String> {
    let mut wrong = Vec::new();
    for host in hosts {
        let status = host.node.status();
        let missing = status.members.iter().filter(|member| member.node != host.id && member.link.is_none()).count();
        if status.members.len() != hosts.len() || missing > 0 || !host.node.is_ready() {
            wrong.push(format!(
                "node {} knows {} of {} members, {missing} without a link, state {:?}",
                host.id,
                status.members.len(),
                hosts.len(),
                status.state
            ));
        }
    }
    wrong
}

fn owners(hosts: &[Host]) -> Vec<String> {
    let mut owners: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    for host in hosts {
        for session in host.shards.iter().flat_map(|shard| shard.broker().sessions()) {
            owners.entry(session.client.to_string()).or_default().push(host.id);
        }
    }
    let twice = owners.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    twice.map(|(client, nodes)| format!("{client} has {} owners: {nodes:?}", nodes.len())).collect()
}

/// Nodes that still move sessions, although no client has gone elsewhere for long.
fn moves(hosts: &[Host]) -> Vec<String> {
    let moving = hosts.iter().map(|host| (host.id, host.node.status().moving)).filter(|(_, count)| *count > 0);
    moving.map(|(node, count)| format!("{count} sessions move at node {node} for ever")).collect()
}

fn lines(routes: Vec<RouteStatus>, of: NodeId) -> BTreeSet<(String, String)> {
    let mine = routes.into_iter().filter(|route| route.node == of);
    mine.map(|route| (route.client.map(|client| client.to_string()).unwrap_or_default(), route.filter)).collect()
}

fn routes(hosts: &[Host]) -> Vec<String> {
    let mut wrong = Vec::new();
    for of in hosts {
        let mut held = BTreeSet::new();
        for session in of.shards.iter().flat_map(|shard| shard.broker().sessions()) {
            held.extend(session.subscriptions.iter().map(|one| (session.client.to_string(), one.filter.to_string())));
        }
        let local = lines(of.node.local_routes(0, ALL), of.id);
        if local != held {
            wrong.push(format!("node {} lists {local:?}, its sessions hold {held:?}", of.id));
        }
        for at in hosts.iter().filter(|at| at.id != of.id) {
            let known = lines(at.node.routes(0, ALL), of.id);
            if known != held {
                wrong.push(format!("node {} has {known:?} of node {}, whose sessions hold {held:?}", at.id, of.id));
            }
        }
    }
    wrong
}

fn retained(hosts: &[Host]) -> Vec<String> {
    let digests: Vec<(NodeId, u64)> = hosts.iter().map(|host| (host.id, host.node.retained_digest())).collect();
    if digests.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        Vec::new()
    } else {
        vec![format!("retained messages differ: {digests:x?}")]
    }
}
