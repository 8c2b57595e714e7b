//! `[bridge.NAME]`: what leaves the cluster for another service and comes from one (MQ-18, DP-01 to DP-06).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sedge_bridge::{Ack, BridgeConfig, Direction, Full, Key, Kind, Sasl, Secret};
use sedge_mqtt::{QoS, Version};

use super::value::Value;

/// Most bridges.
pub(super) const BRIDGES_MAX: usize = 100;
/// Longest name of a bridge.
const NAME_BYTES_MAX: usize = 32;
/// First part of every key here.
const SECTION: &str = "bridge";
const BUFFER_MAX: u64 = 1 << 40;

type Set = fn(&mut BridgeConfig, &Value) -> Result<(), String>;

pub(super) struct BridgeKey {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) set: Set,
}

const fn key(name: &'static str, about: &'static str, set: Set) -> BridgeKey {
    BridgeKey { name, about, set }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

fn path(value: &Value) -> Result<Option<PathBuf>, String> {
    Ok(Some(value.text()?).filter(|text| !text.is_empty()).map(PathBuf::from))
}

pub(super) const BRIDGE_KEYS: &[BridgeKey] = &[
    key("bridge.NAME.kind", "what is at the other end: mqtt or kafka", |b, v| {
        put(&mut b.kind, v.choice(&[("mqtt", Kind::Mqtt), ("kafka", Kind::Kafka)]).map(Some))
    }),
    key("bridge.NAME.address", "host or host:port of the other end, the preferred one first", |b, v| {
        put(&mut b.address, v.list())
    }),
    key("bridge.NAME.direction", "which way messages go: out, in or both", |b, v| {
        let words = [("out", Direction::Out), ("in", Direction::In), ("both", Direction::Both)];
        put(&mut b.direction, v.choice(&words))
    }),
    key("bridge.NAME.from", "topic filters of what goes", |b, v| put(&mut b.from, v.list())),
    key("bridge.NAME.topic", "what topics are called where they go: a prefix or a template", |b, v| {
        put(&mut b.topic, v.text())
    }),
    key("bridge.NAME.key", "key of Kafka's records: topic, client or a field of JSON", |b, v| {
        put(&mut b.key, Key::parse(&v.text()?))
    }),
    key("bridge.NAME.transactional", "whether messages get into Kafka in transactions", |b, v| {
        put(&mut b.transactional, v.flag())
    }),
    key("bridge.NAME.strip", "levels taken away from the front of topics before that", |b, v| {
        put(&mut b.strip, v.text())
    }),
    key("bridge.NAME.rule", "rule whose outputs go instead of what comes", |b, v| put(&mut b.rule, v.text())),
    key(
        "bridge.NAME.ack",
        "when publishers are acknowledged: when the buffer has a message, or the remote end",
        |b, v| put(&mut b.ack, v.choice(&[("buffer", Ack::Buffer), ("remote", Ack::Remote)])),
    ),
    key("bridge.NAME.buffer.max_bytes", "bytes that may wait for the other end", |b, v| {
        put(&mut b.buffer_bytes, v.size(1, BUFFER_MAX))
    }),
    key("bridge.NAME.buffer.full", "what happens when the buffer is full", |b, v| {
        let words = [("drop-qos0", Full::DropQos0), ("drop-oldest", Full::DropOldest), ("refuse", Full::Refuse)];
        put(&mut b.buffer_full, v.choice(&words))
    }),
    key("bridge.NAME.version", "version of MQTT at the other end", |b, v| {
        put(&mut b.version, v.choice(&[("5.0", Version::V5), ("5", Version::V5), ("3.1.1", Version::V311)]))
    }),
    key("bridge.NAME.client_id", "client id at the other end", |b, v| put(&mut b.client_id, v.text())),
    key("bridge.NAME.sasl", "how the user is proven to Kafka: plain, scram-sha-256 or scram-sha-512", |b, v| {
        let words =
            [("plain", Sasl::Plain), ("scram-sha-256", Sasl::ScramSha256), ("scram-sha-512", Sasl::ScramSha512)];
        put(&mut b.sasl, v.choice(&words))
    }),
    key("bridge.NAME.username", "user name at the other end", |b, v| put(&mut b.username, v.text())),
    key("bridge.NAME.password", "password there", |b, v| put(&mut b.password, v.text().map(|p| Some(Secret::new(p))))),
    key("bridge.NAME.password_file", "file with it", |b, v| put(&mut b.password_file, path(v))),
    key("bridge.NAME.tls", "whether the connection is encrypted", |b, v| put(&mut b.tls.enabled, v.flag())),
    key("bridge.NAME.ca_file", "authorities that the other end is trusted by (PEM)", |b, v| {
        put(&mut b.tls.ca_file, path(v))
    }),
    key("bridge.NAME.cert_file", "certificate of the bridge (PEM)", |b, v| put(&mut b.tls.cert_file, path(v))),
    key("bridge.NAME.key_file", "its private key (PEM)", |b, v| put(&mut b.tls.key_file, path(v))),
    key("bridge.NAME.keep_alive", "silence after which the other end is asked whether it lives", |b, v| {
        let time = v.duration(Duration::from_secs(1), Duration::from_secs(u64::from(u16::MAX)))?;
        put(&mut b.keep_alive, u16::try_from(time.as_secs()).ok().ok_or_else(|| "too long".to_owned()))
    }),
    key("bridge.NAME.qos", "highest quality of service", |b, v| {
        let levels = [(0, QoS::AtMostOnce), (1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)];
        put(&mut b.qos, v.one_of(&levels))
    }),
    key("bridge.NAME.max_inflight", "QoS 1 and 2 messages on their way at the same time", |b, v| {
        put(&mut b.max_inflight, v.narrow(1, u64::from(u16::MAX)))
    }),
    key("bridge.NAME.max_hops", "bridges that a message may cross", |b, v| put(&mut b.max_hops, v.narrow(1, 1000))),
    key("bridge.NAME.reconnect_max", "longest pause between attempts to connect", |b, v| {
        put(&mut b.reconnect_max, v.duration(Duration::from_millis(200), Duration::from_hours(1)))
    }),
    key("bridge.NAME.notifications", "topic that says whether the bridge is connected", |b, v| {
        put(&mut b.notifications, v.text())
    }),
];

/// A bridge without an address has that of the other bridges of its kind, if all of those have the same.
pub(super) fn share_addresses(bridges: &mut BTreeMap<String, BridgeConfig>) {
    let written: Vec<_> = bridges.values().map(|bridge| (bridge.kind, bridge.address.clone())).collect();
    for bridge in bridges.values_mut().filter(|bridge| bridge.address.is_empty()) {
        let mut others = written.iter().filter(|(kind, address)| *kind == bridge.kind && !address.is_empty());
        if let Some((_, first)) = others.next()
            && others.all(|(_, other)| other == first)
        {
            bridge.address.clone_from(first);
        }
    }
}

/// Name of the bridge and of the key in `bridge.NAME.key`.
pub(super) fn split(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(SECTION)?.strip_prefix('.')?.split_once('.')
}

pub(super) fn is_section(name: &str) -> bool {
    name == SECTION
}

/// The key of this name within a section.
pub(super) fn find(key: &str) -> Option<&'static BridgeKey> {
    BRIDGE_KEYS.iter().find(|known| split(known.name).is_some_and(|(_, name)| name == key))
}

pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return Err(format!(
            "the name of a bridge has 1 to {NAME_BYTES_MAX} letters a to z, digits, hyphens and underscores"
        ));
    }
    Ok(())
}
