//! What the API says, for people.

use std::fmt::Write;

use sedge_base::printable;
use sedge_daemon::http::model::{
    Cluster, DeadMember, Drain, Kicked, Link, Member, RetainedMessage, RetainedMessages, Routes, Session, Sessions,
    Status, Topology, TopologyGraph, TopologyLink, TopologyTree, TopologyVirtualNeighbour, TopologyVirtualNode,
};

use crate::table::{pairs, table};

const FOR_EVER: u32 = u32::MAX;

pub(super) fn status(status: &Status, cluster: &Cluster) -> String {
    let ready = if status.ready { "ready".to_owned() } else { format!("not ready: {}", status.not_ready.join(", ")) };
    let mut lines = vec![
        ("node", format!("{} ({})", status.name, status.node)),
        (
            "cluster",
            format!(
                "{}, {}, {}, overlay {}",
                status.cluster,
                count(status.members, "member"),
                count(status.links, "link"),
                status.overlay
            ),
        ),
        ("state", format!("{}, {ready}", status.state)),
        ("up", format!("{}, version {}, {} shards", duration(status.uptime_seconds), status.version, status.shards)),
        ("listens", listening(status)),
        (
            "clients",
            format!(
                "{} connected, {} sessions, {} subscriptions",
                status.connections, status.sessions, status.subscriptions
            ),
        ),
        (
            "messages",
            format!("{} queued, {} unacknowledged by other nodes", status.queued_messages, status.unacknowledged),
        ),
        ("copies", copies(status)),
        ("retained", format!("{} messages, {}", status.retained, bytes(status.retained_bytes as u64))),
        ("routes", status.routes.to_string()),
    ];
    if status.drain.state != "off" || status.drain.gave_up.is_some() {
        lines.push(("drain", drain(&status.drain)));
    }
    if status.resident_bytes > 0 {
        lines.push(("memory", bytes(status.resident_bytes)));
    }
    for refused in &status.refused_nodes {
        lines.push(("refused", refused.clone()));
    }
    if !status.awaited_members.is_empty() {
        lines.push(("waits for", status.awaited_members.join(", ")));
    }
    if !status.unreached_seeds.is_empty() {
        lines.push(("no answer", status.unreached_seeds.join(", ")));
    }
    for source in &cluster.discovery {
        if let Some(why) = &source.failure {
            lines.push(("discovery", format!("{} does not work: {why}", source.source)));
        }
    }
    format!("{}\n\n{}", pairs(&lines), members(cluster))
}

pub(super) fn drain(drain: &Drain) -> String {
    let copies = match drain.replicas_left {
        0 => String::new(),
        left => format!(", copies for {} are still here", count(left, "node")),
    };
    match (drain.state.as_str(), &drain.gave_up) {
        ("off", Some(why)) => format!("given up: {why}; the node serves on"),
        ("off", None) => "off: the node serves".to_owned(),
        ("drained", _) => "drained: nothing that clients need is here".to_owned(),
        (state, _) => {
            format!("{state}: {} of {} have to leave{copies}", drain.sessions_left, count(drain.sessions, "session"))
        }
    }
}

fn copies(status: &Status) -> String {
    let short = if status.copies < status.copies_wanted { ": a crash now may lose messages" } else { "" };
    let taken = if status.orphaned > 0 { ", a node's sessions are being taken over" } else { "" };
    format!("{} of {}{short}{taken}", status.copies, status.copies_wanted)
}

fn listening(status: &Status) -> String {
    let http = status.addresses.http.as_ref().map(|http| format!(", HTTP {http}")).unwrap_or_default();
    format!("MQTT {}, other nodes {}{http}", status.addresses.mqtt.join(" "), status.addresses.cluster)
}

fn members(cluster: &Cluster) -> String {
    let row = |member: &Member| {
        let link = match (&member.link, member.this) {
            (_, true) => "this node".to_owned(),
            (Some(link), _) => state(link),
            (None, _) => "down".to_owned(),
        };
        let of = |number: fn(&Link) -> u64| {
            member.link.as_ref().map_or_else(|| "-".to_owned(), |link| number(link).to_string())
        };
        let rtt = member.link.as_ref().map_or_else(|| "-".to_owned(), |link| millis(link.rtt_micros));
        let (sent, received) = (of(|link| link.publications_sent), of(|link| link.publications_received));
        vec![member.node.clone(), member.address.clone(), link, rtt, sent, received]
    };
    let dead = |dead: &DeadMember| {
        let none = || "-".to_owned();
        let since = format!("dead for {}", duration(dead.seconds));
        vec![dead.node.clone(), dead.address.clone(), since, none(), none(), none()]
    };
    let rows: Vec<_> = cluster.members.iter().map(row).chain(cluster.dead.iter().map(dead)).collect();
    table(&["MEMBER", "ADDRESS", "LINK", "RTT", "SENT", "RECEIVED"], &rows)
}

/// What a link is good for, and who carries it.
fn state(link: &Link) -> String {
    let state = if link.synced { "up" } else { "syncing" };
    link.via.as_ref().map_or_else(|| state.to_owned(), |via| format!("{state} via {via}"))
}

pub(super) fn topology(topology: &Topology) -> String {
    let nodes: Vec<_> = topology.nodes.iter().map(|node| vec![node.node.clone(), node.address.clone()]).collect();
    let links: Vec<_> = topology
        .links
        .iter()
        .map(|TopologyLink { from, to, link }| {
            let load = [link.publications_sent, link.publications_received].map(|count| count.to_string());
            let load = load.into_iter().chain([bytes(link.bytes_sent), bytes(link.bytes_received)]);
            let line = [from.clone(), to.clone(), state(link), millis(link.rtt_micros)];
            line.into_iter().chain(load).collect()
        })
        .collect();
    let mut parts = vec![
        format!("overlay {}", topology.overlay),
        table(&["NODE", "ADDRESS"], &nodes),
        table(&["FROM", "TO", "LINK", "RTT", "PUBLISHED", "TAKEN", "SENT", "RECEIVED"], &links),
    ];
    parts.extend(topology.trees.iter().map(tree));
    let line = |name: &str, node: &str, next: &str| vec![name.to_owned(), node.to_owned(), next.to_owned()];
    let adverts: Vec<_> = topology.adverts.iter().map(|a| line(&a.topic, &a.origin, &a.next)).collect();
    if !adverts.is_empty() {
        let rest = rest(topology.adverts_total, 0, adverts.len());
        parts.push(table(&["PUBLISHED TOPIC", "AT", "NEXT"], &adverts) + &rest);
    }
    let interest: Vec<_> = topology.interest.iter().map(|i| line(&i.filter, &i.node, &i.next)).collect();
    if !interest.is_empty() {
        let rest = rest(topology.interest_total, 0, interest.len());
        parts.push(table(&["WANTED FILTER", "AT", "NEXT"], &interest) + &rest);
    }
    let suspended: Vec<_> = topology.suspended.iter().map(|topic| vec![topic.clone()]).collect();
    if !suspended.is_empty() {
        let rest = rest(topology.suspended_total, 0, suspended.len());
        parts.push(table(&["SUSPENDED TOPIC"], &suspended) + &rest);
    }
    parts.extend(topology.graph.as_ref().map(graph));
    parts.join("\n\n")
}

fn graph(graph: &TopologyGraph) -> String {
    let side = |side: &[TopologyVirtualNeighbour]| {
        let one = |one: &TopologyVirtualNeighbour| format!("{} {}-{}", one.node, one.lowest_level, one.highest_level);
        if side.is_empty() { "-".to_owned() } else { side.iter().map(one).collect::<Vec<_>>().join(", ") }
    };
    let row = |own: &TopologyVirtualNode| {
        let topic = own.topic.clone().unwrap_or_else(|| "-".to_owned());
        let role = if own.rendezvous_point { "rendezvous point".to_owned() } else { own.role.clone() };
        vec![topic, role, side(&own.left), side(&own.right)]
    };
    let rows: Vec<_> = graph.virtual_nodes.iter().map(row).collect();
    let rest = rest(graph.virtual_nodes_total, 0, rows.len());
    let head = format!("Skip Graph, vector {}; neighbours with their levels", graph.vector);
    format!("{head}\n{}{rest}", table(&["TOPIC", "ROLE", "LEFT", "RIGHT"], &rows))
}

fn tree(tree: &TopologyTree) -> String {
    let topic =
        tree.topic.as_ref().map_or_else(|| "of all topics".to_owned(), |topic| format!("of {}", printable(topic)));
    let state = if tree.complete { "" } else { ", about to change" };
    let rows: Vec<_> = tree
        .nodes
        .iter()
        .map(|node| {
            let parent = node.parent.clone().unwrap_or_else(|| "root".to_owned());
            vec![node.node.clone(), parent, node.cost_micros.map_or_else(|| "-".to_owned(), millis)]
        })
        .collect();
    let head = format!("tree {topic}, epoch {}{state}", tree.epoch);
    format!("{head}\n{}", table(&["NODE", "PARENT", "FROM ROOT"], &rows))
}

pub(super) fn sessions(page: &Sessions) -> String {
    let row = |session: &Session| {
        vec![
            session.client.clone(),
            session.peer.clone().unwrap_or_else(|| "-".to_owned()),
            session.protocol.clone(),
            expiry(session),
            session.subscriptions.len().to_string(),
            session.queued_messages.to_string(),
            session.inflight.to_string(),
        ]
    };
    let head = ["CLIENT", "CONNECTED FROM", "MQTT", "EXPIRY", "SUBSCRIPTIONS", "QUEUED", "IN FLIGHT"];
    let rows: Vec<_> = page.sessions.iter().map(row).collect();
    table(&head, &rows) + &rest(page.total, page.offset, rows.len())
}

pub(super) fn session(session: &Session) -> String {
    let lines = [
        ("client", session.client.clone()),
        ("connected", session.peer.clone().map_or_else(|| "no".to_owned(), |peer| format!("from {peer}"))),
        ("user", session.user.clone().unwrap_or_else(|| "-".to_owned())),
        ("protocol", format!("MQTT {}, keep alive {} s", session.protocol, session.keep_alive_seconds)),
        ("expiry", expiry(session)),
        ("queued", format!("{} messages, {}", session.queued_messages, bytes(session.queued_bytes as u64))),
        ("in flight", format!("{} to the client, {} QoS 2 from it", session.inflight, session.incoming_qos2)),
        ("will", if session.will { "yes" } else { "no" }.to_owned()),
        ("owner", format!("shard {}, epoch {}", session.shard, session.epoch)),
    ];
    let row = |subscription: &sedge_daemon::http::model::Subscription| {
        let id = subscription.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        vec![subscription.qos.to_string(), id, subscription.filter.clone()]
    };
    let rows: Vec<_> = session.subscriptions.iter().map(row).collect();
    format!("{}\n\n{}", pairs(&lines), table(&["QOS", "ID", "SUBSCRIPTION"], &rows))
}

pub(super) fn retained(page: &RetainedMessages) -> String {
    let row = |message: &RetainedMessage| {
        let payload = message.payload.as_ref().map_or_else(|| "-".to_owned(), |text| shortened(text));
        let publisher = message.publisher.clone().unwrap_or_else(|| "-".to_owned());
        vec![message.topic.clone(), message.qos.to_string(), message.bytes.to_string(), publisher, payload]
    };
    let rows: Vec<_> = page.messages.iter().map(row).collect();
    let more = if page.next.is_some() { "; there may be more, see --limit" } else { "" };
    let head = ["TOPIC", "QOS", "BYTES", "PUBLISHER", "PAYLOAD"];
    format!("{}\n\n{} of {} retained messages{more}", table(&head, &rows), rows.len(), page.total)
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    let mut line: String = text.chars().take(60).collect();
    if text.chars().nth(60).is_some() {
        line.push_str(" ...");
    }
    line
}

pub(super) fn kicked(kicked: &Kicked) -> String {
    let peer = kicked.peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
    let session =
        if kicked.session_ended { "its session was ended, too" } else { "its session stays as it was agreed" };
    format!("the connection of {}{peer} at node {} was ended; {session}", printable(&kicked.client), kicked.node)
}

pub(super) fn routes(page: &Routes) -> String {
    let row = |route: &sedge_daemon::http::model::Route| {
        vec![route.node.clone(), route.client.clone().unwrap_or_else(|| "-".to_owned()), route.filter.clone()]
    };
    let rows: Vec<_> = page.routes.iter().map(row).collect();
    table(&["NODE", "CLIENT", "FILTER"], &rows) + &rest(page.total, page.offset, rows.len())
}

/// Says what a page leaves out.
fn rest(total: usize, offset: usize, shown: usize) -> String {
    let mut text = String::new();
    if offset > 0 || offset + shown < total {
        let _ = write!(text, "\n\n{shown} of {total} from {offset} on; see more with --offset and --limit");
    }
    text
}

fn expiry(session: &Session) -> String {
    match session.expiry_seconds {
        FOR_EVER => "never".to_owned(),
        0 => "at the end".to_owned(),
        seconds => duration(u64::from(seconds)),
    }
}

fn count(number: usize, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

fn millis(micros: u32) -> String {
    if micros == 0 { "-".to_owned() } else { format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10) }
}

fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} bytes"),
        10_000..=9_999_999 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!((millis(0).as_str(), millis(1234).as_str()), ("-", "1.23 ms"));
        assert_eq!((duration(59).as_str(), duration(3_725).as_str()), ("59 s", "1 h 2 min"));
        assert_eq!((count(1, "link").as_str(), count(0, "link").as_str()), ("1 link", "0 links"));
        assert_eq!((bytes(9_999).as_str(), bytes(12_345_678).as_str()), ("9999 bytes", "12 MB"));
    }

    #[test]
    fn a_cut_list_says_so() {
        assert_eq!(rest(3, 0, 3), "");
        assert_eq!(rest(3, 1, 1), "\n\n1 of 3 from 1 on; see more with --offset and --limit");
    }
}
