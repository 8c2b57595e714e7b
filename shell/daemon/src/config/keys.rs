//! The table of all keys: the one place that knows their names, what they hold and how they are described.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use sedge_cluster::link::{CONNECTIONS_MAX, LinkOrder};
use sedge_cluster::{OVERLAYS, RootPolicy, SkipGraphBase, SkipGraphMethod};
use sedge_mqtt::QoS;

use super::bridge::{self, BRIDGE_KEYS};
use super::discovery;
use super::listener::{self, LISTENER_KEYS, ListenerKey};
use super::rates::RATE_MAX;
use super::value::Value;
use super::{
    Anonymous, Config, Durability, HttpOpen, LogFormat, SHARDS_MAX, Secret, SubackMode, UpstreamMode, UpstreamProxy,
};

/// A key as it is documented.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    /// `section.key`.
    pub name: &'static str,
    /// Purpose of the key, in a few words.
    pub about: &'static str,
}

/// All keys, by section. `NAME` stands for the name of a listener or bridge.
pub fn known_keys() -> impl Iterator<Item = KeyInfo> {
    let listeners = LISTENER_KEYS.iter().map(|key| KeyInfo { name: key.name, about: key.about });
    let bridges = BRIDGE_KEYS.iter().map(|key| KeyInfo { name: key.name, about: key.about });
    KEYS.iter().map(|key| KeyInfo { name: key.name, about: key.about }).chain(listeners).chain(bridges)
}

/// Sets the key `name` of `config`, an `Err(None)` if there is none of this name.
pub(super) fn set(config: &mut Config, name: &str, value: &Value) -> Result<(), Option<String>> {
    let unknown = None::<String>;
    if let Some((bridge, key)) = bridge::split(name) {
        let key = bridge::find(key).ok_or(unknown)?;
        bridge::check_name(bridge).map_err(Some)?;
        return (key.set)(config.bridges.entry(bridge.to_owned()).or_default(), value).map_err(Some);
    }
    let Some((listener, key)) = listener::split(name) else {
        let key = KEYS.iter().find(|key| key.name == name).ok_or(unknown)?;
        return (key.set)(config, value).map_err(Some);
    };
    let known = |known: &&ListenerKey| known.name.rsplit_once('.').is_some_and(|(_, name)| name == key);
    let key = LISTENER_KEYS.iter().find(known).ok_or(unknown)?;
    listener::check_name(listener).map_err(Some)?;
    let slot = config.listeners.entry(listener.to_owned()).or_default();
    (key.set)(slot, value).map_err(Some)
}

pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) set: fn(&mut Config, &Value) -> Result<(), String>,
}

/// Whether there is a key of this name.
pub(super) fn is_known(name: &str) -> bool {
    if let Some((_, key)) = bridge::split(name) {
        return bridge::find(key).is_some();
    }
    let listener =
        |key: &str| LISTENER_KEYS.iter().any(|known| known.name.rsplit_once('.').is_some_and(|k| k.1 == key));
    listener::split(name).map_or_else(|| KEYS.iter().any(|key| key.name == name), |(_, key)| listener(key))
}

pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(section, _)| section == name))
}

const fn key(name: &'static str, about: &'static str, set: fn(&mut Config, &Value) -> Result<(), String>) -> Key {
    Key { name, about, set }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

/// Values of `cluster.link_order`.
pub(crate) const LINK_ORDERS: [(&str, LinkOrder); 2] =
    [("publisher", LinkOrder::Publisher), ("round-robin", LinkOrder::RoundRobin)];

/// `"as-published"` or one of the three levels; a variable has both as plain text.
fn link_qos(value: &Value) -> Result<Option<QoS>, String> {
    let levels = [(0, Some(QoS::AtMostOnce)), (1, Some(QoS::AtLeastOnce)), (2, Some(QoS::ExactlyOnce))];
    let level = value.one_of(&levels).or_else(|_| value.choice(&[("as-published", None)]));
    level.map_err(|_neither| "must be \"as-published\", 0, 1 or 2".to_owned())
}

fn path(value: &Value) -> Result<Option<PathBuf>, String> {
    Ok(Some(value.text()?).filter(|text| !text.is_empty()).map(PathBuf::from))
}

/// The name of a user property or member; empty: none.
fn deadline_name(value: &Value) -> Result<String, String> {
    let name = value.text()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!("{name:?} is no name: up to 64 letters, digits, -, _ and ."));
    }
    Ok(name)
}

const COUNT_MAX: u64 = 1 << 31;
const SIZE_MAX: u64 = 1 << 40;
/// Room in the kernel for captured packets.
const CAPTURE_MIN: u64 = 64 * 1024;
const CAPTURE_MAX: u64 = 1 << 30;
const WEIGHT_MAX: u64 = 1_000;
/// Largest packet MQTT can express: remaining length 268,435,455 and a fixed header of five bytes.
const PACKET_MAX: u64 = 268_435_460;
const SHORT: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(365 * 24);

const KEYS: &[Key] = &[
    key("node.name", "name in listings", |c, v| put(&mut c.node.name, v.text())),
    key("node.id", "id of the node, 1 to 16 hexadecimal digits", |c, v| {
        put(&mut c.node.id, v.parsed("a node id, 1 to 16 hexadecimal digits").map(Some))
    }),
    key("node.data_dir", "directory for what survives a restart", |c, v| put(&mut c.node.data_dir, path(v))),
    key("node.durability", "what survives: memory, journal or fsync", |c, v| {
        let words = [("memory", Durability::Memory), ("journal", Durability::Journal), ("fsync", Durability::Fsync)];
        put(&mut c.node.durability, v.choice(&words).map(Some))
    }),
    key("node.max_journal_bytes", "largest size of the journal; 0: any", |c, v| {
        put(&mut c.node.max_journal_bytes, v.size(0, SIZE_MAX))
    }),
    key("node.shards", "number of threads for clients; 0: one a core, at most 4", |c, v| {
        put(&mut c.node.shards, v.narrow(0, u64::from(SHARDS_MAX)))
    }),
    key("mqtt.enabled", "whether there is the plain listener of this section", |c, v| {
        put(&mut c.mqtt.enabled, v.flag())
    }),
    key("mqtt.bind", "address for clients", |c, v| put::<IpAddr>(&mut c.mqtt.bind, v.ip())),
    key("mqtt.port", "port for clients; 0: any free one", |c, v| put(&mut c.mqtt.port, v.port())),
    key("mqtt.advertise", "host or host:port where clients of stopping nodes may go", |c, v| {
        put(&mut c.mqtt.advertise, v.text())
    }),
    key("auth.anonymous", "from where clients may come without proving who they are", |c, v| {
        let words = [("never", Anonymous::Never), ("loopback", Anonymous::Loopback), ("always", Anonymous::Always)];
        put(&mut c.auth.anonymous, v.choice(&words).map(Some))
    }),
    key("auth.password_file", "file with users and hashed passwords", |c, v| put(&mut c.auth.password_file, path(v))),
    key("auth.jwt_keys_file", "file with keys of tokens", |c, v| put(&mut c.auth.jwt_keys_file, path(v))),
    key("auth.jwt_issuer", "claim iss that tokens need", |c, v| put(&mut c.auth.jwt_issuer, v.text())),
    key("auth.jwt_audience", "claim aud that tokens need", |c, v| put(&mut c.auth.jwt_audience, v.text())),
    key("auth.jwt_user_claim", "claim that is the user name", |c, v| put(&mut c.auth.jwt_user_claim, v.text())),
    key("auth.jwt_client_claim", "claim that has to be the client id", |c, v| {
        put(&mut c.auth.jwt_client_claim, v.text())
    }),
    key("auth.http_url", "server that knows users", |c, v| put(&mut c.auth.http_url, v.text())),
    key("auth.http_timeout", "time for its answer", |c, v| put(&mut c.auth.http_timeout, v.duration(SHORT, HOUR))),
    key("auth.http_workers", "questions to it at the same time", |c, v| {
        put(&mut c.auth.http_workers, v.narrow(1, 256))
    }),
    key("auth.workers", "passwords hashed at the same time", |c, v| put(&mut c.auth.workers, v.narrow(1, 256))),
    key("auth.timeout", "time for an answer, the wait for others included", |c, v| {
        put(&mut c.limits.broker.auth_timeout, v.duration(SHORT, HOUR))
    }),
    key("auth.max_waiting", "clients that may wait for either", |c, v| {
        put(&mut c.auth.max_waiting, v.narrow(1, COUNT_MAX))
    }),
    key("auth.cache_time", "how long an answer is remembered", |c, v| {
        put(&mut c.auth.cache_time, v.duration(Duration::ZERO, YEAR))
    }),
    key("auth.max_cached", "how many answers are remembered", |c, v| {
        put(&mut c.auth.max_cached, v.narrow(0, COUNT_MAX))
    }),
    key("acl.file", "file with access rules", |c, v| put(&mut c.acl.file, path(v))),
    key("acl.disconnect", "whether a forbidden publication ends the connection", |c, v| {
        put(&mut c.acl.disconnect, v.flag())
    }),
    key("limits.max_connections", "connections of clients at the same time", |c, v| {
        put(&mut c.limits.max_connections, v.narrow(1, COUNT_MAX))
    }),
    key("limits.max_handshakes", "connections in the middle of TLS, WebSocket or PROXY handshakes", |c, v| {
        put(&mut c.limits.max_handshakes, v.narrow(1, COUNT_MAX))
    }),
    key("limits.max_connections_per_address", "connections of one address; 0: any number", |c, v| {
        put(&mut c.limits.max_connections_per_address, v.narrow(0, COUNT_MAX))
    }),
    key("limits.max_connections_per_user", "clients of one user; 0: any number", |c, v| {
        put(&mut c.limits.max_connections_per_user, v.narrow(0, COUNT_MAX))
    }),
    key("limits.max_connect_rate", "new connections a second at each listener; 0: any number", |c, v| {
        put(&mut c.limits.connect_rate.per_second, v.number(0, RATE_MAX))
    }),
    key("limits.max_connect_burst", "so many of them at once; 0: as many as in a second", |c, v| {
        put(&mut c.limits.connect_rate.burst, v.number(0, COUNT_MAX))
    }),
    key("limits.max_connect_rate_per_address", "new connections a second of one address; 0: any number", |c, v| {
        put(&mut c.limits.connect_rate_per_address.per_second, v.number(0, RATE_MAX))
    }),
    key("limits.max_connect_burst_per_address", "so many of them at once; 0: as many as in a second", |c, v| {
        put(&mut c.limits.connect_rate_per_address.burst, v.number(0, COUNT_MAX))
    }),
    key("limits.max_known_addresses", "addresses without a connection that are remembered", |c, v| {
        put(&mut c.limits.max_known_addresses, v.narrow(1, COUNT_MAX))
    }),
    key("limits.max_publish_rate", "publications a second of one client; 0: any number", |c, v| {
        put(&mut c.limits.publish_rate.messages.per_second, v.number(0, RATE_MAX))
    }),
    key("limits.max_publish_burst", "so many of them at once; 0: as many as in a second", |c, v| {
        put(&mut c.limits.publish_rate.messages.burst, v.number(0, COUNT_MAX))
    }),
    key("limits.max_publish_byte_rate", "bytes a second that one client publishes; 0: any number", |c, v| {
        put(&mut c.limits.publish_rate.bytes.per_second, v.size(0, RATE_MAX))
    }),
    key("limits.max_publish_byte_burst", "so many of them at once; 0: as many as in a second", |c, v| {
        put(&mut c.limits.publish_rate.bytes.burst, v.size(0, SIZE_MAX))
    }),
    key("limits.max_buffered_bytes", "bytes held for all clients together; 0: half of the memory", |c, v| {
        put(&mut c.limits.max_buffered_bytes, v.size(0, SIZE_MAX))
    }),
    key("limits.connect_timeout", "time for all handshakes and a complete CONNECT", |c, v| {
        put(&mut c.limits.broker.connect_timeout, v.duration(SHORT, HOUR))
    }),
    key("limits.maximum_packet_size", "largest packet from a client", |c, v| {
        put(&mut c.limits.broker.max_packet_bytes, v.size(128, PACKET_MAX))
    }),
    key("limits.maximum_keep_alive", "longest keep alive; 0: any", |c, v| {
        let seconds = v.seconds(u32::from(u16::MAX))?;
        put(&mut c.limits.broker.max_keep_alive, u16::try_from(seconds).ok().ok_or_else(|| "too long".to_owned()))
    }),
    key("limits.maximum_session_expiry", "longest session expiry", |c, v| {
        put(&mut c.limits.broker.max_session_expiry, v.seconds(u32::MAX))
    }),
    key(
        "limits.maximum_anonymous_session_expiry",
        "the same for clients without a user name that was proven",
        |c, v| put(&mut c.limits.broker.max_anonymous_session_expiry, v.seconds(u32::MAX)),
    ),
    key("limits.max_client_id_bytes", "bytes of a client id", |c, v| {
        put(&mut c.limits.broker.max_client_id_bytes, v.size(23, 65_535))
    }),
    key("limits.max_sessions", "sessions of the node that outlive their connections", |c, v| {
        put(&mut c.limits.broker.max_sessions, v.narrow(1, COUNT_MAX))
    }),
    key("limits.max_sessions_per_user", "the same of one user; 0: any number", |c, v| {
        put(&mut c.limits.broker.max_sessions_per_user, v.narrow(0, COUNT_MAX))
    }),
    key("limits.receive_maximum", "unanswered QoS 1 and 2 publications of one client", |c, v| {
        put(&mut c.limits.broker.receive_maximum, v.narrow(1, 65_535))
    }),
    key("limits.max_inflight", "QoS 1 and 2 messages on their way to one client", |c, v| {
        put(&mut c.limits.broker.max_inflight, v.narrow(1, 65_535))
    }),
    key("limits.topic_alias_maximum", "topic aliases a client may use", |c, v| {
        put(&mut c.limits.broker.topic_alias_maximum, v.narrow(0, 65_535))
    }),
    key("limits.outgoing_topic_aliases", "topic aliases used towards a client", |c, v| {
        put(&mut c.limits.broker.max_outgoing_aliases, v.narrow(0, 65_535))
    }),
    key("limits.max_subscriptions", "subscriptions of one client", |c, v| {
        put(&mut c.limits.broker.max_subscriptions, v.narrow(1, COUNT_MAX))
    }),
    key("limits.max_subscription_bytes", "bytes of the subscriptions of one client", |c, v| {
        put(&mut c.limits.broker.max_subscription_bytes, v.size(1024, SIZE_MAX))
    }),
    key("limits.max_node_subscription_bytes", "bytes of the subscriptions of all clients of the node", |c, v| {
        put(&mut c.limits.broker.max_node_subscription_bytes, v.size(1024, SIZE_MAX))
    }),
    key("limits.max_filter_levels", "levels of a topic filter", |c, v| {
        put(&mut c.limits.broker.max_filter_levels, v.narrow(1, 65_535))
    }),
    key("limits.max_topic_levels", "levels of a topic name", |c, v| {
        put(&mut c.limits.broker.max_topic_levels, v.narrow(1, 65_535))
    }),
    key("limits.max_queued_messages", "messages that may wait for one session", |c, v| {
        put(&mut c.limits.broker.queue_limit_messages, v.narrow(0, COUNT_MAX))
    }),
    key("limits.max_queued_bytes", "bytes that may wait for one session", |c, v| {
        put(&mut c.limits.broker.queue_limit_bytes, v.size(0, SIZE_MAX))
    }),
    key("limits.queue_drop", "what goes when there are more: the newest message or the oldest", |c, v| {
        put(&mut c.limits.broker.queue_drops_oldest, v.choice(&[("newest", false), ("oldest", true)]))
    }),
    key("limits.queue_qos0_offline", "whether QoS 0 messages wait for clients that are away", |c, v| {
        put(&mut c.limits.broker.queue_qos0_offline, v.flag())
    }),
    key("limits.max_outbox_bytes", "unsent bytes of one connection before messages queue", |c, v| {
        put(&mut c.limits.broker.outbox_high_water, v.size(4096, SIZE_MAX))
    }),
    key("limits.max_retained_messages", "retained messages", |c, v| {
        put(&mut c.limits.retained.max_messages, v.narrow(0, COUNT_MAX))
    }),
    key("limits.max_retained_bytes", "bytes of retained messages", |c, v| {
        put(&mut c.limits.retained.max_bytes, v.size(0, SIZE_MAX))
    }),
    key("limits.max_absent_bytes", "bytes kept for the sessions of each node that is gone or out of reach", |c, v| {
        put(&mut c.limits.absent_bytes, v.size(0, SIZE_MAX))
    }),
    key("limits.retained_tombstones", "how long a cleared topic is remembered", |c, v| {
        put(&mut c.limits.retained.tombstones, v.duration(SHORT, YEAR))
    }),
    key("limits.retained_tombstones_agreed", "the same once all nodes agree", |c, v| {
        put(&mut c.limits.retained.agreed_tombstones, v.duration(SHORT, YEAR))
    }),
    key("cluster.name", "name of the cluster", |c, v| put(&mut c.cluster.name, v.text())),
    key("cluster.bind", "address for other nodes", |c, v| put(&mut c.cluster.bind, v.ip())),
    key("cluster.port", "port for other nodes, TCP and UDP; 0: any free one", |c, v| {
        put(&mut c.cluster.port, v.port())
    }),
    key("cluster.advertise", "host or host:port that other nodes are told", |c, v| {
        put(&mut c.cluster.advertise, v.text())
    }),
    key("cluster.seeds", "nodes to ask first, host, host:port or srv:service", |c, v| {
        put(&mut c.cluster.seeds, v.list())
    }),
    key("cluster.key", "secret that all nodes share", |c, v| {
        put(&mut c.cluster.key, v.text().map(|text| Some(text).filter(|text| !text.is_empty()).map(Secret::new)))
    }),
    key("cluster.key_file", "file with the secret", |c, v| put(&mut c.cluster.key_file, path(v))),
    key("cluster.encryption", "whether links are encrypted where there is a key", |c, v| {
        put(&mut c.cluster.encryption, v.choice(&[("on", true), ("off", false)]))
    }),
    key("cluster.cert_file", "certificate of the node for links", |c, v| put(&mut c.cluster.cert_file, path(v))),
    key("cluster.cert_key_file", "its private key", |c, v| put(&mut c.cluster.cert_key_file, path(v))),
    key("cluster.ca_file", "authority of all nodes' certificates", |c, v| put(&mut c.cluster.ca_file, path(v))),
    key("cluster.overlay", "cooperation algorithm", |c, v| {
        put(&mut c.cluster.overlay, v.choice(&OVERLAYS.map(|name| (name, name))).map(str::to_owned))
    }),
    key(
        "cluster.links",
        "whether publications go over links that the overlay chooses, or that an operator does",
        |c, v| put(&mut c.cluster.manual_links, v.choice(&[("mesh", false), ("manual", true)])),
    ),
    key("cluster.neighbours", "nodes to which links are chosen, host:port, with links = \"manual\"", |c, v| {
        put(&mut c.cluster.neighbours, v.list())
    }),
    key("cluster.link_qos", "QoS of publications between nodes: \"as-published\", 0, 1 or 2", |c, v| {
        put(&mut c.cluster.link_qos, link_qos(v))
    }),
    key("cluster.link_connections", "connections with each neighbour, 1 to 16", |c, v| {
        put(&mut c.cluster.link_connections, v.narrow(1, CONNECTIONS_MAX.into()))
    }),
    key(
        "cluster.link_order",
        "which of several connections a publication takes: \"publisher\" or \"round-robin\"",
        |c, v| put(&mut c.cluster.link_order, v.choice(&LINK_ORDERS)),
    ),
    key("cluster.capacity", "what the node can carry, for overlays that choose roots; 0: measured", |c, v| {
        put(&mut c.cluster.capacity, v.narrow(0, u32::MAX.into()))
    }),
    key("cluster.topic_roots", "how topic trees choose their roots", |c, v| {
        let words = [("capacity", RootPolicy::Capacity), ("balance", RootPolicy::BALANCE)];
        put(&mut c.cluster.topic_roots, v.choice(&words))
    }),
    key("cluster.weight_cpu", "weight of an idle processor in what the node can carry, in percent points", |c, v| {
        put(&mut c.cluster.weights.cpu, v.narrow(0, WEIGHT_MAX))
    }),
    key("cluster.weight_memory", "weight of 64 MiB of free memory in what the node can carry", |c, v| {
        put(&mut c.cluster.weights.memory, v.narrow(0, WEIGHT_MAX))
    }),
    key("cluster.weight_roots", "weight of a topic rooted at a node, with topic_roots = \"balance\"", |c, v| {
        put(&mut c.cluster.weights.roots, v.narrow(0, WEIGHT_MAX))
    }),
    key("cluster.weight_clients", "weight of a client connected to a node, with topic_roots = \"balance\"", |c, v| {
        put(&mut c.cluster.weights.clients, v.narrow(0, WEIGHT_MAX))
    }),
    key("cluster.skip_graph_base", "digits of the membership vectors of the Skip Graph: 2, 4 or 16", |c, v| {
        let numbers = [(2, SkipGraphBase::Two), (4, SkipGraphBase::Four), (16, SkipGraphBase::Sixteen)];
        put(&mut c.cluster.skip_graph_base, v.one_of(&numbers))
    }),
    key("cluster.skip_graph_method", "how the Skip Graph divides what goes to many nodes", |c, v| {
        let words = [("sfb", SkipGraphMethod::Sfb), ("mrf", SkipGraphMethod::Mrf)];
        put(&mut c.cluster.skip_graph_method, v.choice(&words))
    }),
    key("cluster.suback", "whether SUBACK waits for the cluster", |c, v| {
        let words = [("cluster", SubackMode::Cluster), ("local", SubackMode::Local)];
        put(&mut c.cluster.suback, v.choice(&words))
    }),
    key("cluster.autoclean", "how long members that died are listed", |c, v| {
        put(&mut c.cluster.autoclean, v.duration(SHORT, DAY))
    }),
    key("cluster.recovery_timeout", "how long a node that starts waits for the members that it knows", |c, v| {
        put(&mut c.cluster.recovery_timeout, v.duration(SHORT, DAY))
    }),
    key("cluster.refresh", "how often a node tells others that what it wants is unchanged", |c, v| {
        put(&mut c.cluster.refresh, v.duration(SHORT, HOUR))
    }),
    key("cluster.lease", "how long what a node wants holds without a refresh", |c, v| {
        put(&mut c.cluster.lease, v.duration(SHORT, DAY))
    }),
    key(
        "cluster.link_ping",
        "a link is pinged twice in this time; one that is silent for 1.5 times as long is down",
        |c, v| put(&mut c.cluster.link_ping, v.duration(SHORT, MINUTE)),
    ),
    key("cluster.round_trip", "the longest round trip between nodes, loss and jitter included", |c, v| {
        put(&mut c.cluster.round_trip, v.duration(Duration::from_millis(1), Duration::from_secs(10)))
    }),
    key("cluster.clock_tolerance", "by how much a member's system clock may be off before the log says so", |c, v| {
        put(&mut c.cluster.clock_tolerance, v.duration(SHORT, DAY))
    }),
    key("cluster.compare", "how often a node compares its retained messages with those of a neighbour", |c, v| {
        put(&mut c.cluster.compare, v.duration(SHORT, DAY))
    }),
    key("cluster.copies", "nodes that hold a session", |c, v| put(&mut c.cluster.copies, v.narrow(1, 5))),
    key("discovery.multicast", "group where nodes of one network find each other, address or address:port", |c, v| {
        put(&mut c.discovery.multicast, v.text().and_then(|text| discovery::parse_group(&text)))
    }),
    key("discovery.multicast_interface", "address or name of the interface that it goes over", |c, v| {
        put(&mut c.discovery.multicast_interface, v.text().and_then(|text| discovery::parse_interface(&text)))
    }),
    key("discovery.multicast_ttl", "how many networks it may cross; 1: only its own", |c, v| {
        put(&mut c.discovery.multicast_ttl, v.narrow(1, 255))
    }),
    key("discovery.interval", "how often names are resolved again and services asked", |c, v| {
        put(&mut c.discovery.interval, v.duration(SHORT, HOUR))
    }),
    key("discovery.etcd", "URLs of etcd, where nodes register and find each other", |c, v| {
        put(&mut c.discovery.etcd, v.list())
    }),
    key("discovery.etcd_prefix", "what their keys there begin with", |c, v| {
        put(&mut c.discovery.etcd_prefix, v.text())
    }),
    key("discovery.etcd_user", "user of etcd", |c, v| put(&mut c.discovery.etcd_user, v.text())),
    key("discovery.etcd_password_file", "file with the user's password", |c, v| {
        put(&mut c.discovery.etcd_password_file, path(v))
    }),
    key("discovery.etcd_ca_file", "authorities of etcd's certificate", |c, v| {
        put(&mut c.discovery.etcd_ca_file, path(v))
    }),
    key("discovery.etcd_cert_file", "certificate of the node for etcd", |c, v| {
        put(&mut c.discovery.etcd_cert_file, path(v))
    }),
    key("discovery.etcd_cert_key_file", "its private key", |c, v| put(&mut c.discovery.etcd_cert_key_file, path(v))),
    key("discovery.kubernetes_service", "service of the nodes' pods, service or namespace/service", |c, v| {
        put(&mut c.discovery.kubernetes_service, v.text())
    }),
    key("discovery.kubernetes_api", "URL of Kubernetes' API", |c, v| put(&mut c.discovery.kubernetes_api, v.text())),
    key("discovery.kubernetes_account", "directory of the pod's service account", |c, v| {
        put(&mut c.discovery.kubernetes_account, v.text().map(PathBuf::from))
    }),
    key("upstream.address", "broker behind this node: host:port, mqtts://host:port or unix:/path", |c, v| {
        put(&mut c.upstream.address, v.text())
    }),
    key("upstream.make", "make and version of the broker, for status, where the broker does not say it", |c, v| {
        put(&mut c.upstream.make, v.text())
    }),
    key("upstream.inlets", "sessions through which publications of other nodes enter the broker", |c, v| {
        put(&mut c.upstream.inlets, v.narrow(1, 64))
    }),
    key("upstream.user", "user name of the inlets", |c, v| put(&mut c.upstream.user, v.text())),
    key("upstream.password_file", "file with the password of the inlets", |c, v| {
        put(&mut c.upstream.password_file, path(v))
    }),
    key("upstream.ca_file", "authority of the broker's certificate", |c, v| put(&mut c.upstream.ca_file, path(v))),
    key(
        "upstream.proxy_protocol",
        "whether the broker is told address and certificate name of the client: off or v2",
        |c, v| {
            let words = [("off", UpstreamProxy::Off), ("v2", UpstreamProxy::V2)];
            put(&mut c.upstream.proxy_protocol, v.choice(&words))
        },
    ),
    key("upstream.grace", "how long clients stay connected while the broker is away", |c, v| {
        put(&mut c.upstream.grace, v.duration(Duration::ZERO, HOUR))
    }),
    key(
        "upstream.mode",
        "whether the node stands in front of the broker, or beside it: proxy, mirror or sniff",
        |c, v| {
            let words =
                [("proxy", UpstreamMode::Proxy), ("mirror", UpstreamMode::Mirror), ("sniff", UpstreamMode::Sniff)];
            put(&mut c.upstream.mode, v.choice(&words))
        },
    ),
    key("upstream.mirror_filters", "filters whose deliveries are compared, with mode = \"mirror\"", |c, v| {
        put(&mut c.upstream.mirror_filters, v.list())
    }),
    key("upstream.capture_buffer", "room in the kernel for captured packets, with mode = \"sniff\"", |c, v| {
        put(&mut c.upstream.capture_buffer, v.size(CAPTURE_MIN, CAPTURE_MAX))
    }),
    key("deadlines.property", "user property with the milliseconds that a message may take", |c, v| {
        put(&mut c.deadlines.property, deadline_name(v))
    }),
    key("deadlines.payload_tag", "member of a JSON payload with the same", |c, v| {
        put(&mut c.deadlines.payload_tag, deadline_name(v))
    }),
    key("sparkplug.certificates", "whether births of Sparkplug edge nodes are kept as retained messages", |c, v| {
        put(&mut c.sparkplug.certificates, v.flag())
    }),
    key("sys.interval", "how often $SYS topics are brought up to date; 0: never", |c, v| {
        put(&mut c.sys.interval, v.duration_or_zero(SHORT, HOUR))
    }),
    key("otlp.endpoint", "address of a collector of OpenTelemetry, http://host:4318", |c, v| {
        put(&mut c.otlp.endpoint, v.text())
    }),
    key("otlp.topics", "topic filters of the publications that are traced", |c, v| put(&mut c.otlp.topics, v.list())),
    key("otlp.one_in", "one publication of so many is traced", |c, v| put(&mut c.otlp.one_in, v.narrow(1, 1_000_000))),
    key("otlp.header_file", "file with headers for the collector, one a line", |c, v| {
        put(&mut c.otlp.header_file, path(v))
    }),
    key("otlp.ca_file", "authority of the collector's certificate", |c, v| put(&mut c.otlp.ca_file, path(v))),
    key("http.enabled", "whether there is an HTTP listener", |c, v| put(&mut c.http.enabled, v.flag())),
    key("http.bind", "address of the HTTP listener", |c, v| put(&mut c.http.bind, v.ip())),
    key("http.port", "port of the HTTP listener; 0: any free one", |c, v| put(&mut c.http.port, v.port())),
    key("http.token", "what requests to the API have to show", |c, v| {
        put(&mut c.http.token, v.text().map(|text| Some(text).filter(|text| !text.is_empty()).map(Secret::new)))
    }),
    key("http.token_file", "file with the token", |c, v| put(&mut c.http.token_file, path(v))),
    key("http.operate_token_file", "file with tokens of those who may steer the node, one a line", |c, v| {
        put(&mut c.http.operate_token_file, path(v))
    }),
    key("http.view_token_file", "file with tokens of those who may only look, one a line", |c, v| {
        put(&mut c.http.view_token_file, path(v))
    }),
    key("http.names", "names of this node for requests without a token", |c, v| put(&mut c.http.names, v.list())),
    key("http.max_connections", "connections to the HTTP listener at the same time", |c, v| {
        put(&mut c.http.max_connections, v.narrow(1, 100_000))
    }),
    key(
        "http.request_timeout",
        "longest time of a request, from its first byte to the first one of its answer",
        |c, v| put(&mut c.http.request_timeout, v.duration(SHORT, HOUR)),
    ),
    key("http.idle_timeout", "longest time in which nothing is asked, or nothing of an answer is taken", |c, v| {
        put(&mut c.http.idle_timeout, v.duration(SHORT, HOUR))
    }),
    key("http.max_body_bytes", "bytes of a request's body", |c, v| {
        put(&mut c.http.max_body_bytes, v.size(1024, 1 << 30))
    }),
    key("http.open", "what answers without the token: health, metrics, reads", |c, v| {
        put(&mut c.http.open, v.list().and_then(|words| HttpOpen::of(&words)))
    }),
    key("log.level", "least level written: error, warn, info, debug or trace", |c, v| put(&mut c.log.level, v.text())),
    key("log.lines_per_second", "lines a second of each kind that clients and nodes can cause, per shard", |c, v| {
        put(&mut c.log.lines_per_second, v.narrow(0, 1_000_000))
    }),
    key("log.format", "how a line looks", |c, v| {
        put(&mut c.log.format, v.choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]))
    }),
];
