//! Answers of the API as text for people.

use std::fmt::Write;

use sedge_base::printable;
use sedge_daemon::http::model::{
    Cluster, DeadMember, Drain, Kicked, Link, Member, MemberSummary, Members, Mirror, MirrorDifference, Neighbour,
    Neighbours, Orphan, RetainedMessage, RetainedMessages, Routes, Session, Sessions, SilentMember, Sniff, Status,
    Topology, TopologyGraph, TopologyLink, TopologyNode, TopologyTree, TopologyVirtualNeighbour, TopologyVirtualNode,
    UpstreamStatus,
};

use super::names::Names;
use crate::table::{pairs, table};

const FOR_EVER: u32 = u32::MAX;
/// Differences to a broker that are shown.
const DIFFERENCES_SHOWN: usize = 5;

pub(super) fn status(status: &Status, cluster: &Cluster, all: &Members, names: &Names) -> String {
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
        ("state", format!("{}, {}", status.state, readiness(status.ready, &status.not_ready, &status.warnings))),
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
        ("retained", retained_line(status)),
        ("routes", status.routes.to_string()),
    ];
    if !status.link_mode.is_empty() {
        lines.push(("links", link_line(status)));
    }
    if let Some(upstream) = &status.upstream {
        lines.push(("broker", broker(upstream)));
    }
    if let Some(mirror) = status.upstream.as_ref().and_then(|upstream| upstream.mirror.as_ref()) {
        lines.push(("compared", compared(mirror)));
        let last = mirror.last.iter().rev().take(DIFFERENCES_SHOWN);
        lines.extend(last.map(|one| ("differs", difference(one))));
    }
    if status.drain.state != "off" || status.drain.gave_up.is_some() {
        lines.push(("drain", drain(&status.drain)));
    }
    if status.resident_bytes > 0 {
        lines.push(("memory", bytes(status.resident_bytes)));
    }
    if let Some(free) = status.disk_free_bytes {
        lines.push(("disk left", bytes(free)));
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
    format!("{}\n\n{}", pairs(&lines), members(cluster, all, names))
}

/// Whether a node serves, and the reasons and warnings.
pub(super) fn readiness(ready: bool, not_ready: &[String], warnings: &[String]) -> String {
    match (ready, warnings) {
        (true, []) => "ready".to_owned(),
        (true, warnings) => format!("ready, but {}", warnings.join("; ")),
        (false, warnings) => {
            let reasons: Vec<_> = not_ready.iter().chain(warnings).map(String::as_str).collect();
            format!("not ready: {}", reasons.join("; "))
        }
    }
}

/// Names the members that have not answered in time, behind a listing.
pub(super) fn silent(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("\n\nno answer in time from {}: what it knows is missing here", printable(&names.join(", ")))
}

/// The broker behind a node.
fn broker(upstream: &UpstreamStatus) -> String {
    let make = printable(upstream.make());
    let state = match (upstream.up, &upstream.last_error) {
        (true, _) => format!("up for {}", duration(upstream.since_seconds)),
        (false, Some(why)) => format!("away for {}: {}", duration(upstream.since_seconds), printable(why)),
        (false, None) => "not reached yet".to_owned(),
    };
    if let Some(sniff) = &upstream.sniff {
        return format!("{}, {state}, {}", upstream.address, read_along(sniff));
    }
    if upstream.mirror.is_some() {
        return format!("{}, MQTT {}, {state}, the node stands beside it", upstream.address, upstream.protocol);
    }
    format!(
        "{}, {make}, MQTT {}, {state}, {}",
        upstream.address,
        upstream.protocol,
        count(upstream.conversations, "conversation")
    )
}

/// Counts of a node that reads a broker's traffic along: connections, filters and publications.
fn read_along(sniff: &Sniff) -> String {
    let counted = |name| sniff.counted.get(name).copied().unwrap_or(0);
    format!(
        "the node reads along: {} followed, {} blind, {}, {} publications read, {} given to it",
        count(sniff.followed, "connection"),
        counted("blind"),
        count(sniff.filters, "filter"),
        counted("publications"),
        sniff.replayed
    )
}

/// Deliveries of a broker and of the node beside it.
fn compared(mirror: &Mirror) -> String {
    let kinds = mirror.differences.iter().filter(|(_, count)| **count > 0);
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    let differences = if kinds.is_empty() { "no differences".to_owned() } else { kinds.join(", ") };
    format!("{} alike, {differences}, {} not compared", mirror.alike, mirror.uncompared)
}

fn difference(one: &MirrorDifference) -> String {
    let MirrorDifference { kind, seconds, filter, topic, detail } = one;
    let (topic, filter) = (printable(topic), printable(filter));
    format!("{kind}, {} ago, {topic} by {filter}; {detail}", duration(*seconds))
}

/// `cluster.links` and how it stands.
fn link_line(status: &Status) -> String {
    let chosen = if status.link_mode == "manual" {
        format!(", {}", count(status.neighbours, "neighbour"))
    } else {
        String::new()
    };
    let connections = connections(status.link_connections, &status.link_order);
    format!("{}{chosen}, QoS {}{connections}", status.link_mode, status.link_qos)
}

/// How many connections a link has, unless it is one.
fn connections(count: u8, order: &str) -> String {
    if count > 1 { format!(", {count} connections a link by {order}") } else { String::new() }
}

pub(super) fn neighbours(neighbours: &Neighbours, names: &Names) -> String {
    let agreed = if neighbours.agreed { "" } else { "; not all nodes know the last change yet" };
    let Neighbours { links, overlay, link_qos, link_connections, link_order, .. } = neighbours;
    let connections = connections(*link_connections, link_order);
    let head = format!("links {links}, overlay {overlay}, QoS {link_qos}{connections}{agreed}");
    if neighbours.neighbours.is_empty() {
        return format!("{head}\n\nno neighbours");
    }
    let line = |neighbour: &Neighbour| {
        let name = neighbour.node.as_ref().map(|id| names.of(id));
        let text =
            |text: &Option<String>| text.as_ref().map_or_else(|| "-".to_owned(), |text| printable(text).to_string());
        let chosen = match (neighbour.chosen_here, neighbour.chosen_there) {
            (true, true) => "both",
            (true, false) => "here",
            (false, true) => "there",
            (false, false) => "-",
        };
        let number =
            |of: fn(&Link) -> u64| neighbour.link.as_ref().map_or_else(|| "-".to_owned(), |link| of(link).to_string());
        vec![
            text(&name),
            text(&neighbour.address),
            chosen.to_owned(),
            match &neighbour.link {
                Some(link) if link.connections > 1 => format!("up, {}", count(link.connections, "connection")),
                Some(_) => "up".to_owned(),
                None => "down".to_owned(),
            },
            number(|link| link.publications_sent),
            number(|link| link.publications_received),
        ]
    };
    let mut rows: Vec<Vec<String>> = neighbours.neighbours.iter().map(line).collect();
    rows.sort();
    format!("{head}\n\n{}", table(&["NODE", "ADDRESS", "CHOSEN", "LINK", "SENT", "RECEIVED"], &rows))
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

fn retained_line(status: &Status) -> String {
    let cleared = match status.retained_tombstones {
        0 => String::new(),
        count => format!("; {count} cleared topics, {}", bytes(status.retained_tombstone_bytes as u64)),
    };
    format!("{} messages, {}{cleared}", status.retained, bytes(status.retained_bytes as u64))
}

fn listening(status: &Status) -> String {
    let http = status.addresses.http.as_ref().map(|http| format!(", HTTP {http}")).unwrap_or_default();
    format!("MQTT {}, other nodes {}{http}", status.addresses.mqtt.join(" "), status.addresses.cluster)
}

/// A table whose last column is the broker behind the node of each row, if any node has one.
fn with_brokers(head: &[&str], rows: Vec<(Option<String>, Vec<String>)>) -> String {
    let (mut head, has_any) = (head.to_vec(), rows.iter().any(|(broker, _)| broker.is_some()));
    let full = |(broker, mut row): (Option<String>, Vec<String>)| {
        row.extend(has_any.then(|| broker.unwrap_or_else(|| "-".to_owned())));
        row
    };
    let rows: Vec<_> = rows.into_iter().map(full).collect();
    head.extend(has_any.then_some("BROKER"));
    table(&head, &rows)
}

/// All nodes, as each describes itself, and the link of the node that was asked to each.
fn members(cluster: &Cluster, all: &Members, names: &Names) -> String {
    let none = || "-".to_owned();
    let of = |id: &str| cluster.members.iter().find(|member| member.node == id);
    let row = |member: &MemberSummary| {
        let said = &member.summary;
        let name = if names.of(&said.node) == said.node { said.name.clone() } else { names.of(&said.node) };
        let cells = vec![
            name,
            member.address.clone(),
            format!("{}, {}", said.state, readiness(said.ready, &said.not_ready, &said.warnings)),
            said.totals.connections.to_string(),
            said.version.clone(),
            said.disk_free_bytes.map_or_else(none, bytes),
            member.clock_ahead_ms.map_or_else(none, |millis| format!("{millis:+} ms")),
            if member.this { "this node".to_owned() } else { link_to(of(&said.node), names) },
            member.rtt_micros.map_or_else(none, millis),
        ];
        (said.broker.clone(), cells)
    };
    let unknown = |name: String, state: &str, link: String, address: &str| {
        (None, vec![name, address.to_owned(), state.to_owned(), none(), none(), none(), none(), link, none()])
    };
    let quiet = |member: &SilentMember| {
        let link = link_to(of(&member.node), names);
        unknown(names.of(&member.node), "no answer", link, &member.address)
    };
    let dead = |dead: &DeadMember| {
        let since = format!("dead for {}", duration(dead.seconds));
        unknown(names.of(&dead.node), &since, none(), &dead.address)
    };
    let rows = all.members.iter().map(row);
    let rows: Vec<_> = rows.chain(all.silent.iter().map(quiet)).chain(all.dead.iter().map(dead)).collect();
    let head = ["NODE", "ADDRESS", "STATE", "CLIENTS", "VERSION", "DISK LEFT", "CLOCK", "LINK", "RTT"];
    let silent_names: Vec<_> = all.silent.iter().map(|member| names.of(&member.node)).collect();
    let orphans: String = all.dead.iter().map(|dead| orphans(dead, names)).collect();
    with_brokers(&head, rows) + &silent(&silent_names) + &orphans
}

/// Clients that a dead member had, and their filters.
fn orphans(dead: &DeadMember, names: &Names) -> String {
    let row = |orphan: &Orphan| vec![names.of(&dead.node), orphan.client.clone(), orphan.filters.join(" ")];
    if dead.orphans.is_empty() {
        return String::new();
    }
    "\n".to_owned() + &table(&["DEAD NODE", "ITS CLIENT", "FILTERS"], &dead.orphans.iter().map(row).collect::<Vec<_>>())
}

fn link_to(member: Option<&Member>, names: &Names) -> String {
    let link = member.and_then(|member| member.link.as_ref());
    link.map_or_else(|| "down".to_owned(), |link| state(link, names))
}

/// State of a link, and the node that carries it, if one does.
fn state(link: &Link, names: &Names) -> String {
    let state = if link.synced { "up" } else { "syncing" };
    link.via.as_ref().map_or_else(|| state.to_owned(), |via| format!("{state} via {}", names.of(via)))
}

pub(super) fn topology(topology: &Topology, names: &Names) -> String {
    let row = |node: &TopologyNode| (node.broker.clone(), vec![names.of(&node.node), node.address.clone()]);
    let nodes: Vec<_> = topology.nodes.iter().map(row).collect();
    let mut links: Vec<Vec<_>> = topology
        .links
        .iter()
        .map(|TopologyLink { from, to, link }| {
            let load = [link.publications_sent, link.publications_received].map(|count| count.to_string());
            let load = load.into_iter().chain([bytes(link.bytes_sent), bytes(link.bytes_received)]);
            let line = [names.of(from), names.of(to), state(link, names), millis(link.rtt_micros)];
            line.into_iter().chain(load).collect()
        })
        .collect();
    links.sort();
    let mut parts = vec![
        format!("overlay {}", topology.overlay),
        with_brokers(&["NODE", "ADDRESS"], nodes),
        table(&["FROM", "TO", "LINK", "RTT", "PUBLISHED", "TAKEN", "SENT", "RECEIVED"], &links),
    ];
    parts.extend(topology.trees.iter().map(|of| tree(of, names)));
    let line = |name: &str, node: &str, next: &str| vec![name.to_owned(), names.of(node), names.of(next)];
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
    parts.extend(topology.graph.as_ref().map(|part| graph(part, names)));
    parts.join("\n\n") + &silent(&topology.silent)
}

fn graph(graph: &TopologyGraph, names: &Names) -> String {
    let side = |side: &[TopologyVirtualNeighbour]| {
        let one = |one: &TopologyVirtualNeighbour| {
            format!("{} {}-{}", names.of(&one.node), one.lowest_level, one.highest_level)
        };
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

fn tree(tree: &TopologyTree, names: &Names) -> String {
    let topic =
        tree.topic.as_ref().map_or_else(|| "of all topics".to_owned(), |topic| format!("of {}", printable(topic)));
    let state = if tree.complete { "" } else { ", about to change" };
    let rows: Vec<_> = tree
        .nodes
        .iter()
        .map(|node| {
            let parent = node.parent.as_ref().map_or_else(|| "root".to_owned(), |parent| names.of(parent));
            vec![names.of(&node.node), parent, node.cost_micros.map_or_else(|| "-".to_owned(), millis)]
        })
        .collect();
    let head = format!("tree {topic}, epoch {}{state}", tree.epoch);
    format!("{head}\n{}", table(&["NODE", "PARENT", "FROM ROOT"], &rows))
}

pub(super) fn sessions(page: &Sessions, names: &Names) -> String {
    let row = |session: &Session| {
        let cells = vec![
            session.client.clone(),
            names.of(&session.node),
            session.peer.clone().unwrap_or_else(|| "-".to_owned()),
            session.protocol.clone(),
            expiry(session),
            session.subscriptions_total.to_string(),
            session.queued_messages.to_string(),
            session.inflight.to_string(),
        ];
        (session.broker.clone(), cells)
    };
    let head = ["CLIENT", "NODE", "CONNECTED FROM", "MQTT", "EXPIRY", "SUBSCRIPTIONS", "QUEUED", "IN FLIGHT"];
    let rows: Vec<_> = page.sessions.iter().map(row).collect();
    let rest = rest(page.total, page.offset, rows.len());
    with_brokers(&head, rows) + &rest + &silent(&page.silent)
}

pub(super) fn session(session: &Session, names: &Names) -> String {
    let mut lines = vec![
        ("client", session.client.clone()),
        ("connected", session.peer.clone().map_or_else(|| "no".to_owned(), |peer| format!("from {peer}"))),
        ("user", session.user.clone().unwrap_or_else(|| "-".to_owned())),
        ("protocol", format!("MQTT {}, keep alive {} s", session.protocol, session.keep_alive_seconds)),
        ("expiry", expiry(session)),
        ("queued", format!("{} messages, {}", session.queued_messages, bytes(session.queued_bytes as u64))),
        ("in flight", format!("{} to the client, {} QoS 2 from it", session.inflight, session.incoming_qos2)),
        ("will", if session.will { "yes" } else { "no" }.to_owned()),
        ("owner", format!("{}, shard {}, epoch {}", names.of(&session.node), session.shard, session.epoch)),
    ];
    lines.extend(session.broker.clone().map(|broker| ("broker", broker)));
    let row = |subscription: &sedge_daemon::http::model::Subscription| {
        let id = subscription.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        vec![subscription.qos.to_string(), id, subscription.filter.clone()]
    };
    let rows: Vec<_> = session.subscriptions.iter().map(row).collect();
    let cut = match session.subscriptions_total.saturating_sub(rows.len()) {
        0 => String::new(),
        more => format!("\n\nand {more} more; ask the node itself (--api) for all"),
    };
    format!("{}\n\n{}{cut}", pairs(&lines), table(&["QOS", "ID", "SUBSCRIPTION"], &rows))
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
    let differ = match page.differ.as_slice() {
        [] => String::new(),
        names => format!("\n\n{} held other retained messages at this moment", printable(&names.join(", "))),
    };
    let (rows, count) = (table(&head, &rows), rows.len());
    format!("{rows}\n\n{count} of {} retained messages{more}{differ}{}", page.total, silent(&page.silent))
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    let mut line: String = text.chars().take(60).collect();
    if text.chars().nth(60).is_some() {
        line.push_str(" ...");
    }
    line
}

pub(super) fn kicked(kicked: &Kicked, names: &Names) -> String {
    let peer = kicked.peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
    let session =
        if kicked.session_ended { "its session was ended, too" } else { "its session stays as it was agreed" };
    format!(
        "the connection of {}{peer} at node {} was ended; {session}",
        printable(&kicked.client),
        printable(&names.of(&kicked.node))
    )
}

pub(super) fn routes(page: &Routes, names: &Names) -> String {
    let row = |route: &sedge_daemon::http::model::Route| {
        let client = route.client.clone().unwrap_or_else(|| "-".to_owned());
        (route.broker.clone(), vec![names.of(&route.node), client, route.filter.clone()])
    };
    let rows: Vec<_> = page.routes.iter().map(row).collect();
    let rest = rest(page.total, page.offset, rows.len());
    with_brokers(&["NODE", "CLIENT", "FILTER"], rows) + &rest + &silent(&page.silent)
}

/// The line about the entries that a page leaves out.
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

pub(super) fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

pub(super) fn bytes(count: u64) -> String {
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
