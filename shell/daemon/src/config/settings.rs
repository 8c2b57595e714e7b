//! Every key with the value that holds and who said so: `sedge config default` and `sedge config show`.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use super::error::Origin;
use super::keys::{self, known_keys};
use super::value::Value;
use super::{Config, KeyInfo};

/// The tables of all keys; the tests compare what they call defaults with those of the program.
const MANUAL: &str = include_str!("../../../../docs/configuration.md");
/// Keys whose value nobody is shown.
const SECRETS: &[&str] = &["cluster.key", "http.token", "password"];
/// Stands in names of keys for that of a listener or bridge.
const ANY_NAME: &str = ".NAME.";

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, a variable or a flag.
    Given(Origin),
    /// Nobody.
    Default,
    /// Another key, named here, leaves no choice.
    Key(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(origin) => origin.fmt(f),
            Self::Default => f.write_str("default"),
            Self::Key(name) => write!(f, "because of {name}"),
        }
    }
}

/// One key as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `section.key`.
    pub key: String,
    /// The value, in a form that is TOML and JSON; `None`: a default that is no constant, or a secret.
    pub value: Option<String>,
    /// Words that stand for a value that is `None`.
    pub words: String,
    /// Where it comes from.
    pub source: Source,
}

/// Default of a key, as docs/configuration.md has it: a constant of TOML, or words.
pub(super) fn default_of(key: &str) -> Result<&'static str, &'static str> {
    let cell = MANUAL.lines().find_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` |")?;
        (name == key).then(|| rest.split(" |").next().unwrap_or_default().trim())
    });
    let cell = cell.unwrap_or("none");
    let bare = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).filter(|inner| !inner.contains('`'));
    let bare = bare.unwrap_or(cell);
    let starts_as_text = (bare.starts_with('"') || bare.starts_with('[')) && !bare.contains('`');
    let is_constant = starts_as_text || matches!(bare, "true" | "false") || bare.parse::<i64>().is_ok();
    if is_constant { Ok(bare) } else { Err(cell) }
}

/// A text as TOML and JSON write it.
fn quoted(text: &str) -> String {
    let mut line = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => line.extend(['\\', letter]),
            letter if letter.is_control() && u32::from(letter) < 0x1_0000 => {
                let _ = write!(line, "\\u{:04x}", u32::from(letter));
            }
            letter => line.push(letter),
        }
    }
    line.push('"');
    line
}

fn listed<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(quoted).collect::<Vec<_>>().join(", "))
}

/// `value` of `key` as the file would hold it; the value of a variable or flag takes the form that the key needs.
pub(super) fn written(key: &str, value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::List(texts) => listed(texts.iter().map(String::as_str)),
        Value::Other(_) => String::new(),
        Value::Plain(text) => {
            let takes = |value: &Value| keys::set(&mut Config::default(), key, value).is_ok();
            if text.parse().is_ok_and(|number| takes(&Value::Integer(number))) {
                return text.trim_start_matches('+').to_owned();
            }
            if takes(&Value::Bool(true)) {
                return matches!(text.as_str(), "true" | "1" | "yes" | "on").to_string();
            }
            let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
            if takes(&Value::Text(text.clone())) { quoted(text) } else { listed(parts.into_iter()) }
        }
    }
}

fn is_secret(key: &str) -> bool {
    SECRETS.iter().any(|secret| key == *secret || key.rsplit_once('.').is_some_and(|(_, last)| last == *secret))
}

/// Every key that `config` has, in the order of the documentation. `given`: the values that were set, later entries win.
pub(super) fn settings(config: &Config, given: &[(String, Origin, Option<String>)]) -> Vec<Setting> {
    let given: BTreeMap<&str, (&Origin, Option<&String>)> =
        given.iter().map(|(key, origin, value)| (key.as_str(), (origin, value.as_ref()))).collect();
    let one = |name: &'static str, key: String| {
        if let Some((origin, value)) = given.get(key.as_str()) {
            let value = value.filter(|_| !is_secret(&key)).cloned();
            return Setting { key, value, words: "(secret)".to_owned(), source: Source::Given((*origin).clone()) };
        }
        let default = default_of(name);
        let value = default.ok().map(str::to_owned);
        Setting { key, value, words: default.err().unwrap_or_default().to_owned(), source: Source::Default }
    };
    let mut all: Vec<Setting> = Vec::new();
    for KeyInfo { name, .. } in known_keys().filter(|key| !key.name.contains(ANY_NAME)) {
        all.push(one(name, name.to_owned()));
    }
    let names = |section: &str| -> Vec<&String> {
        if section == "listener" { config.listeners.keys().collect() } else { config.bridges.keys().collect() }
    };
    for section in ["listener", "bridge"] {
        for name in names(section) {
            let keys = known_keys().filter(|key| key.name.starts_with(section) && key.name.contains(ANY_NAME));
            all.extend(keys.map(|key| one(key.name, key.name.replace(ANY_NAME, &format!(".{name}.")))));
        }
    }
    for name in config.rules.keys() {
        let key = format!("rule.{name}");
        let Some((origin, _)) = given.get(key.as_str()) else { continue };
        let words = "a rule, as the file has it".to_owned();
        all.push(Setting { key, value: None, words, source: Source::Given((*origin).clone()) });
    }
    for setting in &mut all {
        if config.upstream.is_used() && setting.key == "node.shards" {
            *setting =
                Setting { value: Some("1".to_owned()), source: Source::Key("upstream.address"), ..setting.clone() };
        }
    }
    all
}

/// A file that says nothing: each key as a comment with what it is for and its default, below the head of its section.
pub fn default_file() -> String {
    let mut text = String::from("# Every key of Sedge with its default. A line counts once its # is gone.\n");
    let mut section = "";
    for KeyInfo { name, about } in known_keys() {
        let dot = name.find(ANY_NAME).map_or_else(|| name.find('.'), |at| Some(at + ANY_NAME.len() - 1));
        let (head, key) = dot.and_then(|at| name.split_at_checked(at)).unwrap_or(("", name));
        let key = key.trim_start_matches('.');
        if head != section {
            section = head;
            let comment = if name.contains(ANY_NAME) { "# " } else { "" };
            let _ = write!(text, "\n{comment}[{section}]\n");
        }
        match default_of(name) {
            Ok(value) => _ = write!(text, "# {about}\n#{key} = {value}\n"),
            Err(words) => _ = write!(text, "# {about}; not set: {words}\n#{key} =\n"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_of_the_documentation_is_that_of_the_program() {
        let mut constants = 0;
        for KeyInfo { name, .. } in known_keys() {
            let Ok(text) = default_of(name) else { continue };
            constants += 1;
            let key = name.replace(ANY_NAME, ".tls.");
            let (section, last) = key.split_once('.').unwrap();
            let (section, last) = if name.contains(ANY_NAME) {
                let (name, last) = last.split_once('.').unwrap();
                (format!("{section}.{name}"), last)
            } else {
                (section.to_owned(), last)
            };
            let file = format!("[{section}]\n{last} = {text}\n");
            let document = toml::de::DeTable::parse(&file).unwrap_or_else(|error| panic!("{name} = {text}: {error}"));
            let mut value = document.get_ref().iter().next().unwrap().1.get_ref();
            while let Some(table) = value.as_table() {
                value = table.iter().next().unwrap().1.get_ref();
            }
            let value = Value::from_toml(value);
            let mut config = Config::default();
            if name.contains(ANY_NAME) {
                // An entry of defaults, to compare with.
                config.listeners.entry("tls".to_owned()).or_default();
                config.bridges.entry("tls".to_owned()).or_default();
            }
            let before = config.clone();
            keys::set(&mut config, &key, &value).unwrap_or_else(|error| panic!("{name} = {text}: {error:?}"));
            assert_eq!(config, before, "docs/configuration.md says that {name} is {text} if nobody sets it");
        }
        assert!(constants > 90, "{constants}");
    }

    #[test]
    fn the_file_of_defaults_holds_every_key_and_says_nothing() {
        let text = default_file();
        assert_eq!(Config::from_toml(&text), Ok(Config::default()));
        for KeyInfo { name, about } in known_keys() {
            assert!(text.contains(about), "{name}");
        }
        assert!(text.contains("\n[mqtt]\n") && text.contains("\n#port = 1883\n"), "{text}");
    }

    #[test]
    fn text_is_written_so_that_toml_and_json_read_it() {
        assert_eq!(quoted("a\"b\\c\u{1b}\u{7f}"), "\"a\\\"b\\\\c\\u001b\\u007f\"");
        assert_eq!(written("cluster.seeds", &Value::Plain("a, b".to_owned())), "[\"a\", \"b\"]");
        assert_eq!(written("mqtt.port", &Value::Plain("1884".to_owned())), "1884");
        assert_eq!(written("node.name", &Value::Plain("17".to_owned())), "\"17\"");
        assert_eq!(written("acl.disconnect", &Value::Plain("yes".to_owned())), "true");
        assert_eq!(written("limits.maximum_packet_size", &Value::Plain("2MiB".to_owned())), "\"2MiB\"");
    }
}
