//! Bridges: each `connection` as sections `[bridge.NAME]`, one for each direction, quality of service and pair of prefixes.

use std::collections::BTreeMap;

use sedge_daemon::Config;

use super::draft::{Draft, Fate, quoted};
use super::read::Line;

/// Purpose of one section: direction, quality of service, and the prefixes here and there.
type Group = (String, String, String, String);

const NO_OPTION: &str = "bridges of Sedge do not have it";

/// A line `topic pattern direction qos local-prefix remote-prefix`: its group and its pattern, or why it cannot be carried over.
fn topic(line: &Line) -> Result<(Group, String), &'static str> {
    let mut words = line.value.split_whitespace();
    let mut next = |default: &str| words.next().unwrap_or(default).trim_matches('"').to_owned();
    let (pattern, direction, qos) = (next(""), next("out"), next("0"));
    let (local, remote) = (next(""), next(""));
    let is_whole = |prefix: &str| prefix.is_empty() || prefix.ends_with('/');
    if pattern.is_empty() {
        return Err("a pattern without a word is not carried over: write a section [bridge.NAME] for it");
    }
    if !["out", "in", "both"].contains(&direction.as_str()) || !["0", "1", "2"].contains(&qos.as_str()) {
        return Err("Mosquitto would not take this line");
    }
    if !is_whole(&local) || !is_whole(&remote) {
        return Err("a prefix is a number of levels in Sedge: it has to end with a slash");
    }
    if direction == "both" && !local.is_empty() {
        return Err("both ways there is a prefix at the other end only: write two sections");
    }
    Ok(((direction, qos, local, remote), pattern))
}

/// Name of a section: the name of the connection, as far as Sedge allows its characters.
fn section_name(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().take(24).map(letter).collect();
    if name.is_empty() { "bridge".to_owned() } else { name }
}

/// Carries a connection over; its line comes first. One that Sedge would refuse is left out as a whole, with the reason.
pub(super) fn carry(draft: &mut Draft, lines: &[Line]) {
    let Some((connection, options)) = lines.split_first() else { return };
    let mut name = section_name(&connection.value);
    while draft.has(&format!("bridge.{name}.kind")) {
        name.push('x');
    }
    let mut alone = Draft::default();
    carry_as(&mut alone, &name, (connection, options));
    let problems = Config::from_toml(&alone.toml("")).err().map(|error| error.problems).unwrap_or_default();
    let Some(problem) = problems.first() else { return carry_as(draft, &name, (connection, options)) };
    let key = problem.key.rsplit('.').next().unwrap_or_default();
    draft.note(connection, Fate::lost(format!("it would be a bridge that Sedge refuses: {key}: {}", problem.what)));
    for line in options {
        draft.note(line, Fate::lost("its connection is not carried over"));
    }
}

fn carry_as(draft: &mut Draft, base: &str, (connection, options): (&Line, &[Line])) {
    let mut groups: BTreeMap<Group, Vec<(&Line, String)>> = BTreeMap::new();
    for line in options.iter().filter(|line| line.name == "topic") {
        match topic(line) {
            Ok((group, pattern)) => groups.entry(group).or_default().push((line, pattern)),
            Err(why) => draft.note(line, Fate::lost(why)),
        }
    }
    let has_address = options.iter().any(|line| matches!(line.name.as_str(), "address" | "addresses"));
    if groups.is_empty() || !has_address {
        let why = "it has no address, or no topic that can be carried over: nothing is exchanged with that broker";
        draft.note(connection, Fate::lost(why));
        // No bridge is left for the topics that could be carried over.
        let topics = groups.values().flatten().map(|(line, _)| *line);
        for line in options.iter().filter(|line| line.name != "topic").chain(topics) {
            draft.note(line, Fate::lost("its connection is not carried over"));
        }
        return;
    }
    draft.note(connection, Fate::as_it_is("it is a section [bridge.NAME]"));
    for (number, (group, topics)) in groups.iter().enumerate() {
        let name = if number == 0 { base.to_owned() } else { format!("{base}-{}", number + 1) };
        carry_group(draft, &format!("bridge.{name}"), group, topics);
        for line in options.iter().filter(|line| line.name != "topic") {
            carry_option(draft, &format!("bridge.{name}"), line, number);
        }
        // Mosquitto's version of MQTT for a bridge without `bridge_protocol_version`.
        if !draft.has(&format!("bridge.{name}.version")) {
            draft.imply(format!("bridge.{name}.version"), quoted("3.1.1"), "What bridges of Mosquitto speak.");
        }
    }
}

fn carry_group(draft: &mut Draft, section: &str, group: &Group, topics: &[(&Line, String)]) {
    let (direction, qos, local, remote) = group;
    let (here, there) = if direction == "in" { (remote, local) } else { (local, remote) };
    let from: Vec<String> = topics.iter().map(|(_, pattern)| quoted(&format!("{here}{pattern}"))).collect();
    let lines: Vec<String> = topics.iter().map(|(line, _)| format!("{}: topic {}", line.at, line.value)).collect();
    draft.imply(format!("{section}.kind"), quoted("mqtt"), "");
    draft.imply(format!("{section}.from"), format!("[{}]", from.join(", ")), &lines.join("; "));
    draft.imply(format!("{section}.direction"), quoted(direction), "");
    draft.imply(format!("{section}.qos"), qos.clone(), "");
    if !here.is_empty() {
        draft.imply(format!("{section}.strip"), quoted(here), "");
    }
    if !there.is_empty() {
        draft.imply(format!("{section}.topic"), quoted(there), "");
    }
}

/// An option of a connection, for the section of this number.
fn carry_option(draft: &mut Draft, section: &str, line: &Line, number: usize) {
    let key = |name: &str| format!("{section}.{name}");
    let value = line.value.as_str();
    let fate = match line.name.as_str() {
        "address" | "addresses" => {
            let all: Vec<String> = value.split_whitespace().map(quoted).collect();
            Fate::set(key("address"), format!("[{}]", all.join(", ")))
        }
        "username" | "remote_username" => Fate::set(key("username"), quoted(value)),
        "password" | "remote_password" if number == 0 => Fate::lost(
            "secrets stay where they are: put it into a file, and name that with password_file of [bridge.NAME]",
        ),
        "clientid" | "remote_clientid" if number == 0 => Fate::set(key("client_id"), quoted(value)),
        "clientid" | "remote_clientid" => Fate::set(key("client_id"), quoted(&format!("{value}-{}", number + 1))),
        "keepalive" | "keepalive_interval" if value.parse::<u16>().is_ok_and(|seconds| seconds > 0) => {
            Fate::set(key("keep_alive"), value)
        }
        "bridge_protocol_version" if value == "mqttv50" => Fate::set(key("version"), quoted("5.0")),
        "bridge_protocol_version" if value == "mqttv311" => Fate::set(key("version"), quoted("3.1.1")),
        "bridge_cafile" => {
            draft.imply(key("tls"), "true".to_owned(), "");
            Fate::set(key("ca_file"), quoted(value))
        }
        "bridge_tls_use_os_certs" if value == "true" => Fate::set(key("tls"), "true"),
        "bridge_certfile" => Fate::set(key("cert_file"), quoted(value)),
        "bridge_keyfile" => Fate::set(key("key_file"), quoted(value)),
        "notification_topic" => Fate::set(key("notifications"), quoted(value)),
        _ if number > 0 => return,
        "notifications" => Fate::as_it_is("notification_topic says where, if anywhere"),
        "restart_timeout" => Fate::as_it_is("pauses between attempts grow by themselves, up to reconnect_max"),
        "try_private" => Fate::as_it_is("nothing comes back to where it began"),
        "start_type" if value == "automatic" => Fate::as_it_is("bridges start with the node"),
        "cleansession" if value == "false" => Fate::as_it_is("sessions of bridges stay"),
        "bridge_insecure" if value == "false" => Fate::as_it_is("certificates are checked"),
        _ => Fate::lost(NO_OPTION),
    };
    draft.note(line, fate);
}
