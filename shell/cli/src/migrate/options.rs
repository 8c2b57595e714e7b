//! Every option of Mosquitto 2.0 and 2.1, and its counterpart in Sedge: the table to extend when Sedge learns something.

use super::draft::{Draft, Fate};
use super::read::Line;

/// Finds the outcome for a value.
type Carry = fn(&str) -> Fate;

const COUNT_MAX: u64 = 1 << 31;
const SIZE_MAX: u64 = 1 << 40;
/// The key of the largest packet.
const PACKET_SIZE: &str = "limits.maximum_packet_size";
/// The largest packet MQTT can express.
const PACKET_MAX: u64 = 268_435_460;
/// Bytes of a packet beside its payload: a topic name, and some room for properties.
const AROUND_PAYLOAD: u64 = 65_536 + 4_096;

/// Options for all clients; those of listeners are in [`super::listeners`].
const OPTIONS: &[(&str, Carry)] = &[
    ("max_inflight_messages", |v| number_or("limits.max_inflight", v, 1, 65_535, 65_535)),
    ("max_inflight_bytes", |v| zero(v, "what is on its way to a client is counted in messages: limits.max_inflight")),
    ("max_keepalive", |v| number("limits.maximum_keep_alive", v, 0, 65_535)),
    ("max_queued_bytes", |v| number_or("limits.max_queued_bytes", v, 0, SIZE_MAX, SIZE_MAX)),
    ("max_queued_messages", |v| number_or("limits.max_queued_messages", v, 0, COUNT_MAX, COUNT_MAX)),
    ("queue_qos0_messages", |v| flag("limits.queue_qos0_offline", v)),
    ("persistent_client_expiration", expiration),
    ("sys_interval", |v| number("sys.interval", v, 0, 3_600)),
    ("log_type", log_type),
    ("log_dest", log_dest),
    ("log_facility", |_| Fate::lost("the log goes to standard error; let systemd or a log shipper pass it on")),
    ("log_timestamp", |v| switch(v, true, "each line of the log has its time")),
    ("log_timestamp_format", |_| Fate::lost("times in the log are RFC 3339")),
    ("connection_messages", |v| connection_messages(v)),
    ("websockets_log_level", |_| Fate::lost("there is no such library in Sedge; see log.level")),
    ("allow_zero_length_clientid", |v| switch(v, true, "clients may let the broker choose their id")),
    ("allow_duplicate_messages", |v| switch(v, false, "a client gets a message once for overlapping subscriptions")),
    ("auto_id_prefix", |_| Fate::lost("ids that the broker chooses begin with sedge-")),
    ("check_retain_source", |v| switch(v, false, "a retained message stays, whatever its publisher may do later")),
    ("psk_file", |_| Fate::lost("there is no TLS with pre-shared keys")),
    ("per_listener_settings", |v| switch(v, false, "accounts and rights would be the same for all clients")),
    ("enable_control_api", |_| Fate::lost("there is no $CONTROL topic; see sedge --help and the HTTP API")),
    ("global_max_clients", |_| Fate::lost("sessions are limited by what is held for them: limits.max_buffered_bytes")),
    ("global_max_connections", |_| Fate::lost("set limits.max_connections")),
    ("packet_buffer_size", |_| Fate::as_it_is("buffers have the size of what is in them")),
    ("retain_expiry_interval", |_| Fate::lost("retained messages expire when their publisher says so")),
    ("retained_persistence", |_| Fate::lost("retained messages survive with everything else: node.data_dir")),
    ("retry_interval", |_| Fate::as_it_is("MQTT has messages repeated after a reconnection only")),
    ("auth_plugin_deny_special_chars", |_| Fate::lost("there are no plugins")),
    ("persistence", persistence),
    ("persistence_location", |v| Fate::roughly("node.data_dir", super::draft::quoted(v), DATA_DIR)),
    ("persistence_file", |_| Fate::lost("Sedge does not read Mosquitto's database")),
    ("autosave_interval", |_| Fate::as_it_is(SAVED)),
    ("autosave_on_changes", |_| Fate::as_it_is(SAVED)),
    ("retain_available", |v| switch(v, true, "retained messages are served")),
    ("upgrade_outgoing_qos", |v| switch(v, false, "the QoS of a message is never raised")),
    ("set_tcp_nodelay", |v| switch(v, true, "TCP_NODELAY is always set")),
    ("memory_limit", |_| Fate::lost("what is held for clients has a limit: limits.max_buffered_bytes")),
    ("user", |_| Fate::lost("start sedge as the user it is to run as; deploy/sedge.service does")),
    ("pid_file", |_| Fate::lost("no file names the process; systemd knows it")),
    ("include_dir", |_| Fate::lost("Mosquitto reads this in the main file only")),
];

const DATA_DIR: &str = "A directory of its own is better: Sedge does not read what Mosquitto has there.";

const SAVED: &str =
    "nothing is saved at intervals: with node.data_dir each change is written before it is acknowledged";

/// Options of bridges.
const BRIDGE: [&str; 50] = [
    "bridge_ciphers",
    "bridge_ciphers_tls1.3",
    "bridge_max_topic_alias",
    "bridge_receive_maximum",
    "bridge_session_expiry_interval",
    "bridge_tcp_keepalive",
    "bridge_tcp_user_timeout",
    "bridge_tls_use_os_certs",
    "address",
    "addresses",
    "bridge_alpn",
    "bridge_attempt_unsubscribe",
    "bridge_bind_address",
    "bridge_cafile",
    "bridge_capath",
    "bridge_certfile",
    "bridge_identity",
    "bridge_insecure",
    "bridge_keyfile",
    "bridge_max_packet_size",
    "bridge_outgoing_retain",
    "bridge_protocol_version",
    "bridge_psk",
    "bridge_require_ocsp",
    "bridge_tls_version",
    "cleansession",
    "clientid",
    "connection",
    "idle_timeout",
    "keepalive_interval",
    "local_clientid",
    "local_cleansession",
    "local_password",
    "local_username",
    "notification_topic",
    "notifications",
    "notifications_local_only",
    "password",
    "remote_clientid",
    "remote_password",
    "remote_username",
    "restart_timeout",
    "round_robin",
    "start_type",
    "threshold",
    "topic",
    "try_private",
    "username",
    "bridge_reload_type",
    "keepalive",
];

/// Whether it is an option of a bridge.
pub(super) fn is_bridge_option(name: &str) -> bool {
    BRIDGE.contains(&name)
}

/// Outcome for an option that is not a listener's.
pub(super) fn fate(name: &str, value: &str) -> Fate {
    if name.starts_with("auth_opt_") || name.starts_with("plugin_opt_") {
        return Fate::lost("there are no plugins");
    }
    match OPTIONS.iter().find(|(known, _)| *known == name) {
        Some((_, carry)) => carry(value),
        None => Fate::lost("Mosquitto 2.0 and 2.1 have no such option"),
    }
}

/// A number for `key`, if it is between `least` and `most`; the nearest that Sedge takes otherwise.
pub(super) fn number(key: impl Into<String>, value: &str, least: u64, most: u64) -> Fate {
    let Ok(wanted) = value.trim().parse::<u64>() else { return Fate::lost(format!("{value:?} is not a number")) };
    let taken = wanted.clamp(least, most);
    if taken == wanted {
        return Fate::set(key, taken.to_string());
    }
    Fate::roughly(key, taken.to_string(), format!("Sedge takes {least} to {most}."))
}

/// The same, 0 standing for "no limit".
fn number_or(key: &'static str, value: &str, least: u64, most: u64, unlimited: u64) -> Fate {
    if value.trim() == "0" {
        return Fate::roughly(key, unlimited.to_string(), "Each limit has a value; this is the largest.");
    }
    number(key, value, least, most)
}

/// An option that Sedge has only the value 0 of.
fn zero(value: &str, otherwise: &str) -> Fate {
    if value.trim() == "0" { Fate::as_it_is("there is no such limit") } else { Fate::lost(otherwise) }
}

fn flag(key: &'static str, value: &str) -> Fate {
    match value {
        "true" | "false" => Fate::set(key, value),
        _ => Fate::lost(format!("{value:?} is neither true nor false")),
    }
}

/// An option that Sedge has only one value of.
pub(super) fn switch(value: &str, fixed: bool, what: &str) -> Fate {
    match value {
        "true" | "false" if (value == "true") == fixed => Fate::as_it_is(what),
        "true" | "false" => Fate::lost(what),
        _ => Fate::lost(format!("{value:?} is neither true nor false")),
    }
}

/// `node.data_dir` switches persistence on; see [`super::carry`] for a directory that is not used.
fn persistence(value: &str) -> Fate {
    match value {
        "true" => Fate::as_it_is("it comes with node.data_dir, and node.durability says how much survives"),
        "false" => Fate::as_it_is("nothing survives without node.data_dir"),
        _ => Fate::lost(format!("{value:?} is neither true nor false")),
    }
}

fn connection_messages(value: &str) -> Fate {
    match value {
        "true" => Fate::as_it_is("connections are in the log, as far as log.lines_per_second allows"),
        "false" => Fate::roughly("log.lines_per_second", "0", "Clients that are refused are not in the log, either."),
        _ => Fate::lost(format!("{value:?} is neither true nor false")),
    }
}

/// The two options that limit the size of a packet, of which the smaller counts.
#[derive(Debug)]
pub(super) struct Sizes {
    /// The name of the option that counts; none if there is no limit.
    counts: Option<&'static str>,
}

impl Sizes {
    pub(super) fn new(lines: &[Line]) -> Self {
        let of = |name: &'static str| {
            let value = lines.iter().rfind(|line| line.name == name)?.value.parse::<u64>().ok()?;
            let around = if name == "message_size_limit" { AROUND_PAYLOAD } else { 0 };
            (value > 0).then(|| (value.saturating_add(around), name))
        };
        let smaller = of("max_packet_size").into_iter().chain(of("message_size_limit")).min();
        Self { counts: smaller.map(|(_, name)| name) }
    }

    pub(super) fn fate(&self, line: &Line) -> Fate {
        let Ok(wanted) = line.value.parse::<u64>() else {
            return Fate::lost(format!("{:?} is not a number", line.value));
        };
        match (wanted, self.counts) {
            (0, _) => Fate::as_it_is("there is no such limit"),
            (_, None) => Fate::as_it_is("a later line takes the limit away"),
            (_, Some(name)) if name != line.name => Fate::as_it_is(format!("{name} is the smaller limit")),
            _ if line.name == "max_packet_size" => number(PACKET_SIZE, &line.value, 128, PACKET_MAX),
            _ => {
                let packet = wanted.saturating_add(AROUND_PAYLOAD).min(PACKET_MAX);
                let remark = "The limit is for the whole packet, topic and properties included; a larger one ends the connection.";
                Fate::roughly(PACKET_SIZE, packet.to_string(), remark)
            }
        }
    }

    /// Where nothing is said, packets are as large as before.
    pub(super) fn imply(&self, draft: &mut Draft) {
        if self.counts.is_none() {
            let why = "Without a limit Mosquitto 2.0 takes any packet that MQTT can express (2.1: 2000000 bytes). Lower it to what clients send.";
            draft.imply(PACKET_SIZE, PACKET_MAX.to_string(), why);
        }
    }
}

/// Mosquitto's units: hours, days, weeks, months, years.
fn expiration(value: &str) -> Fate {
    let wrong = || Fate::lost(format!("{value:?} is not a number with one of h, d, w, m, y"));
    let Some((number, unit)) = value.len().checked_sub(1).and_then(|at| value.split_at_checked(at)) else {
        return wrong();
    };
    let hours = match unit {
        "h" => 1,
        "d" => 24,
        "w" => 7 * 24,
        "m" => 30 * 24,
        "y" => 365 * 24,
        _ => return wrong(),
    };
    let Ok(number) = number.parse::<u64>() else { return wrong() };
    let seconds = number.saturating_mul(hours * 3_600).min(u64::from(u32::MAX));
    Fate::roughly("limits.maximum_session_expiry", seconds.to_string(), "In seconds.")
}

/// The least severe type that is asked for; several lines are joined before.
fn log_type(value: &str) -> Fate {
    let rank = |kind: &str| match kind {
        "none" => Some(0),
        "error" => Some(1),
        "warning" => Some(2),
        "notice" | "information" => Some(3),
        "subscribe" | "unsubscribe" | "websockets" | "debug" | "all" => Some(4),
        _ => None,
    };
    let mut most = 0;
    for kind in value.split_whitespace() {
        let Some(rank) = rank(kind) else { return Fate::lost(format!("{kind:?} is no type of message")) };
        most = most.max(rank);
    }
    let level = ["off", "error", "warn", "info", "debug"].get(most).copied().unwrap_or("info");
    Fate::roughly("log.level", super::draft::quoted(level), "Levels include those that matter more.")
}

fn log_dest(value: &str) -> Fate {
    match value.split_whitespace().next() {
        Some("stderr") => Fate::as_it_is("the log goes to standard error"),
        Some("none") => Fate::set("log.level", super::draft::quoted("off")),
        Some("topic") => Fate::lost("the log is not published; it goes to standard error"),
        _ => Fate::lost("the log goes to standard error; let systemd or a log shipper pass it on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_is_set_exists() {
        let known: Vec<&str> = sedge_daemon::config::known_keys().map(|key| key.name).collect();
        for (name, carry) in OPTIONS {
            for value in ["0", "1", "100", "true", "false", "1d", "none", "all", "/x"] {
                if let Fate::Set(key, _) | Fate::Roughly(key, ..) = carry(value) {
                    assert!(known.contains(&key.as_str()), "{name} {value}: {key}");
                }
            }
        }
    }

    #[test]
    fn no_option_is_listed_twice() {
        let mut names: Vec<&str> = OPTIONS.iter().map(|(name, _)| *name).collect();
        names.extend(BRIDGE);
        names.extend(super::super::listeners::OPTIONS);
        names.extend(super::super::access::OPTIONS);
        names.extend(["max_packet_size", "message_size_limit"]);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn values_with_units_and_limits() {
        for (name, value, want) in [
            ("persistent_client_expiration", "2w", "1209600"),
            ("persistent_client_expiration", "999y", "4294967295"),
            ("max_queued_messages", "0", "2147483648"),
            ("log_type", "error", "\"error\""),
            ("log_type", "error notice subscribe", "\"debug\""),
            ("sys_interval", "86400", "3600"),
        ] {
            let (Fate::Set(_, got) | Fate::Roughly(_, got, _)) = fate(name, value) else { panic!("{name} {value}") };
            assert_eq!(got, want, "{name} {value}");
        }
        for (name, value) in [
            ("persistent_client_expiration", ""),
            ("persistent_client_expiration", "2x"),
            ("persistent_client_expiration", "ü"),
            ("max_queued_messages", "many"),
            ("queue_qos0_messages", "yes"),
            ("log_type", "loud"),
            ("topic", "a/# both"),
            ("auth_opt_x", "y"),
            ("no_such_option", "1"),
        ] {
            assert!(matches!(fate(name, value), Fate::Lost(_)), "{name} {value}");
        }
    }
}
