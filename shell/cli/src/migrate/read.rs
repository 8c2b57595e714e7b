//! The lines of a `mosquitto.conf` and of the files it includes, as Mosquitto reads them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Rc<str>,
    pub(super) number: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.number)
    }
}

/// An option and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Place,
    pub(super) name: String,
    /// May hold spaces; empty if there was none.
    pub(super) value: String,
}

/// All lines of a file; at each `include_dir` those of the files there.
pub(super) fn read(path: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in lines_of(path)? {
        if line.name != "include_dir" || line.value.is_empty() {
            lines.push(line);
            continue;
        }
        for file in files_in(Path::new(&line.value)).map_err(|error| in_file(&line.at.to_string(), &error))? {
            lines.extend(lines_of(&file)?);
        }
    }
    Ok(lines)
}

fn in_file(place: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{place}: {error}"))
}

fn lines_of(path: &Path) -> io::Result<Vec<Line>> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| in_file(&name, &error))?;
    Ok(lines(&name, &bytes))
}

/// The lines of a file with this content; files that it includes are not looked at.
pub(super) fn lines(name: &str, bytes: &[u8]) -> Vec<Line> {
    let file: Rc<str> = name.into();
    let text = String::from_utf8_lossy(bytes);
    let line = |(at, text): (usize, &str)| parse(text).map(|(name, value)| (at + 1, name, value));
    let found = text.lines().enumerate().filter_map(line);
    let line = |(number, name, value)| Line { at: Place { file: Rc::clone(&file), number }, name, value };
    found.map(line).collect()
}

/// Options that Mosquitto reads one word of, whatever follows it in the line, a remark for example.
const WORDS: [&str; 40] = [
    "autosave_interval",
    "bridge_max_packet_size",
    "bridge_max_topic_alias",
    "bridge_receive_maximum",
    "bridge_reload_type",
    "bridge_session_expiry_interval",
    "bridge_tcp_keepalive",
    "bridge_tcp_user_timeout",
    "connection",
    "enable_proxy_protocol",
    "global_max_clients",
    "global_max_connections",
    "idle_timeout",
    "keepalive_interval",
    "log_facility",
    "log_type",
    "max_connections",
    "max_inflight_bytes",
    "max_inflight_messages",
    "max_keepalive",
    "max_packet_size",
    "max_qos",
    "max_queued_bytes",
    "max_queued_messages",
    "max_topic_alias",
    "max_topic_alias_broker",
    "maximum_qos",
    "memory_limit",
    "message_size_limit",
    "packet_buffer_size",
    "persistent_client_expiration",
    "port",
    "protocol",
    "retain_expiry_interval",
    "socket_domain",
    "start_type",
    "sys_interval",
    "threshold",
    "websockets_headers_size",
    "websockets_log_level",
];

/// The same, for options that are true or false, which may be written 1 and 0.
const SWITCHES: [&str; 34] = [
    "allow_anonymous",
    "allow_duplicate_messages",
    "allow_zero_length_clientid",
    "auth_plugin_deny_special_chars",
    "autosave_on_changes",
    "bridge_attempt_unsubscribe",
    "bridge_insecure",
    "bridge_outgoing_retain",
    "bridge_require_ocsp",
    "bridge_tls_use_os_certs",
    "check_retain_source",
    "cleansession",
    "connection_messages",
    "disable_client_cert_date_checks",
    "enable_control_api",
    "listener_allow_anonymous",
    "local_cleansession",
    "log_timestamp",
    "notifications",
    "notifications_local_only",
    "per_listener_settings",
    "persistence",
    "proxy_protocol_v2_require_tls",
    "queue_qos0_messages",
    "require_certificate",
    "retain_available",
    "retained_persistence",
    "round_robin",
    "set_tcp_nodelay",
    "try_private",
    "upgrade_outgoing_qos",
    "use_identity_as_username",
    "use_subject_as_username",
    "use_username_as_clientid",
];

/// The part of an option's value that Mosquitto 2.0 and 2.1 take.
fn taken(name: &str, value: &str) -> String {
    let mut words = value.split_whitespace();
    let first = words.next().unwrap_or_default();
    if name == "listener" {
        let host = words.next().filter(|host| !host.starts_with('#'));
        return host.map_or_else(|| first.to_owned(), |host| format!("{first} {host}"));
    }
    match first {
        "1" if SWITCHES.contains(&name) => "true".to_owned(),
        "0" if SWITCHES.contains(&name) => "false".to_owned(),
        first if SWITCHES.contains(&name) || WORDS.contains(&name) => first.to_owned(),
        _ => value.to_owned(),
    }
}

/// Name and value of a line that is neither empty nor a comment. A `#` later in the line begins none, but most options are read to
/// the first space only.
fn parse(text: &str) -> Option<(String, String)> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let (name, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    // An older name of the same.
    let name = if name == "maximum_qos" { "max_qos" } else { name };
    Some((name.to_owned(), taken(name, value.trim_start())))
}

/// Files whose names end with `.conf`: alphabetically, upper case of a letter before lower case.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| in_file(&directory.display().to_string(), &error))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            files.push(path);
        }
    }
    files.sort_by_cached_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        (name.to_lowercase(), name)
    });
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_spaces_and_values() {
        let parsed = |text| parse(text).map(|(name, value)| format!("{name}={value}"));
        for (text, want) in [
            ("", None),
            ("  # x", None),
            ("port 1883\r", Some("port=1883")),
            ("  log_dest   file /a b.log  ", Some("log_dest=file /a b.log")),
            ("user", Some("user=")),
            ("topic a/# out", Some("topic=a/# out")),
            ("allow_anonymous true # for a test", Some("allow_anonymous=true")),
            ("allow_anonymous 0", Some("allow_anonymous=false")),
            ("listener 1883 # all", Some("listener=1883")),
            ("listener 1883  10.0.0.1 # one", Some("listener=1883 10.0.0.1")),
            ("listener 0 /run/m.sock #", Some("listener=0 /run/m.sock")),
            ("max_connections 10 # few", Some("max_connections=10")),
            ("protocol websockets#", Some("protocol=websockets#")),
            // Paths go on to the end of the line, also in Mosquitto.
            ("password_file /etc/my passwords # x", Some("password_file=/etc/my passwords # x")),
        ] {
            assert_eq!(parsed(text).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn included_files_come_in_their_order_where_they_are_included() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        for name in ["b.conf", "A.conf", "01.conf", "a.conf", "B.conf", "00.conf", "c.txt"] {
            write(name, &format!("port {}\ninclude_dir nowhere\n", name.trim_end_matches(".conf")));
        }
        let main = dir.path().join("main");
        fs::write(&main, format!("user x\ninclude_dir {}\nuser y\n", dir.path().display())).unwrap();
        let lines = read(&main).unwrap();
        let values: Vec<&str> =
            lines.iter().filter(|line| line.name != "include_dir").map(|line| line.value.as_str()).collect();
        assert_eq!(values, ["x", "00", "01", "A", "a", "B", "b", "y"]);
        assert_eq!(lines.iter().filter(|line| line.name == "include_dir").count(), 6, "only the main file includes");
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("none: "));
    }
}
