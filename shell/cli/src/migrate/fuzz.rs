//! Body of the fuzz target: a `mosquitto.conf` may hold anything. A stable test runs it, too, over the committed corpus and over mutations
//! of it.

use sedge_daemon::Config;

use super::{carry, read};

/// Migrates a file that includes no others.
///
/// Holds: no panic; each line is named in the result, the new file is right, and it opens nothing: anonymous clients are let in only if a line
/// says so and none of those that could refuse somebody was lost.
pub(crate) fn mosquitto(data: &[u8]) {
    let lines = read::lines("m", data);
    let (is_closed, says_so) = {
        let has = |names: &[&str]| lines.iter().any(|line| names.contains(&line.name.as_str()));
        let is_plugin =
            |name: &str| ["plugin", "auth_plugin", "global_plugin", "plugin_load", "plugin_use"].contains(&name);
        let decides = lines.iter().any(|line| is_plugin(&line.name) && !line.value.contains("mosquitto_persist_"));
        let says = |name: &str, value: &str| lines.iter().any(|line| line.name == name && line.value == value);
        (decides || has(&["clientid_prefixes"]), says("allow_anonymous", "true"))
    };
    let places: Vec<String> = lines.iter().map(|line| line.at.to_string()).collect();
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    let draft = carry(lines);
    let toml = draft.toml("m");
    for (place, name) in places.iter().zip(&names) {
        // Types of messages add up; the last line stands for them.
        assert!(name == "log_type" || toml.contains(place), "{place} {name}");
    }
    let is_open = toml.contains("\nanonymous = \"always\"\n");
    assert!(!is_open || (says_so && !is_closed), "{toml}");
    assert!(!is_closed || !toml.lines().any(|line| line.starts_with("password_file = ")), "{toml}");
    let settings: Vec<&str> = toml.lines().filter(|line| line.starts_with("mount_point")).collect();
    assert!(settings.is_empty(), "{settings:?}");
    let config = Config::from_toml(&toml);
    assert!(config.is_ok(), "{config:?}\n{toml}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_mosquitto_corpus_and_mutations_of_it_pass() {
        super::replay::replay(env!("CARGO_MANIFEST_DIR"), "mosquitto", 3_000, super::mosquitto);
    }
}

#[cfg(test)]
#[path = "../../../../check/replay/mod.rs"]
mod replay;
