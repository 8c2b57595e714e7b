//! The value of each key, in a form that can be compared and tells no secret: a reload reports with it which keys have changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::layers::Layers;
use super::settings::default_of;
use super::{Config, ConfigError, Overrides};

/// Keys that a reload exchanges; a dot at the end stands for all keys that begin so.
const EXCHANGED: &[&str] = &["bridge.", "cluster.link_connections", "cluster.link_order", "log.level", "rule."];

/// The keys that are not at their default, each with a hash of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests(BTreeMap<String, u64>);

impl Digests {
    /// Keys whose value differs here and there, in order.
    pub(crate) fn changed(&self, other: &Self) -> Vec<String> {
        let differs = |key: &&String| self.0.get(*key) != other.0.get(*key);
        let mut keys: Vec<String> = self.0.keys().chain(other.0.keys()).filter(differs).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Takes over the value that `key` has in `other`.
    pub(crate) fn take(&mut self, key: &str, other: &Self) {
        match other.0.get(key) {
            Some(digest) => self.0.insert(key.to_owned(), *digest),
            None => self.0.remove(key),
        };
    }

    fn of(config: &Config, values: BTreeMap<String, String>) -> Self {
        let is_set = |(key, value): &(String, String)| default_of(key) != Ok(value.as_str());
        let rules = config.rules.iter().map(|(name, rule)| (format!("rule.{name}"), format!("{rule:?}")));
        let all = values.into_iter().filter(is_set).chain(rules);
        Self(all.map(|(key, value)| (key, digest(&value))).collect())
    }
}

fn digest(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether a reload exchanges this key; any other counts from the next start on.
pub(crate) fn is_exchanged(key: &str) -> bool {
    EXCHANGED.iter().any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)))
}

impl Config {
    /// As [`Config::load`], with what a later load is compared with.
    pub fn load_comparable(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<(Self, Digests), ConfigError> {
        let layers = Layers::gather(path, env, overrides);
        let values = layers.values();
        layers.finish().map(|config| {
            let digests = Digests::of(&config, values);
            (config, digests)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Digests {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::load_comparable(Some(file.path()), [], &Overrides::new()).unwrap().1
    }

    /// OP-09
    #[test]
    fn keys_that_changed_are_named_and_defaults_are_no_change() {
        let before = read("[mqtt]\nport = 1884\n[cluster]\nname = \"a\"\n");
        let after = read("[mqtt]\nport = 1883\n[cluster]\nname = \"a\"\n[rule.hot]\nfrom = [\"in\"]\nto = \"out\"\n");
        assert_eq!(before.changed(&after), ["mqtt.port", "rule.hot"]);
        assert_eq!(after.changed(&read("[cluster]\nname = \"a\"\n")), ["rule.hot"]);
        let mut taken = before.clone();
        taken.take("mqtt.port", &after);
        assert_eq!(taken.changed(&after), ["rule.hot"]);
        assert!(!format!("{:?}", read("[http]\ntoken = \"0123456789abcdef\"\n")).contains("0123456789abcdef"));
    }

    #[test]
    fn bridges_and_rules_are_exchanged_and_others_are_not() {
        assert!(is_exchanged("bridge.cloud.qos") && is_exchanged("rule.hot") && is_exchanged("log.level"));
        assert!(!is_exchanged("bridges") && !is_exchanged("log.level_of") && !is_exchanged("mqtt.port"));
    }
}
