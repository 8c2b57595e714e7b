//! File, environment and flags, laid over each other, and what must hold for the result.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin, Problem};
use super::keys;
use super::nearest::nearest;
use super::settings::{Setting, settings, written};
use super::value::Value;
use super::{Config, MqttConfig, bridge, listener, rates, rules};

/// Every key can be given as `SEDGE_<SECTION>__<KEY>`.
const ENV_PREFIX: &str = "SEDGE_";
/// Stands for the dot. Variables without it are none of ours: container platforms make up names such as `SEDGE_PORT_1883_TCP`
/// for a service called sedge.
const ENV_DOT: &str = "__";

/// Values from flags, which win over everything else.
#[derive(Clone, Debug, Default)]
pub struct Overrides(Vec<(String, String, String)>);

impl Overrides {
    /// No overrides.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` (`section.key`) to `value`, which was given by `flag` (for messages).
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>, flag: impl Into<String>) {
        self.0.push((key.into(), value.into(), flag.into()));
    }
}

/// Address of this node that other nodes tell their clients; `None`: none is configured.
pub(crate) fn advertised_to_clients(mqtt: &MqttConfig) -> Result<Option<String>, String> {
    if mqtt.advertise.is_empty() {
        return Ok(None);
    }
    let default = if mqtt.port == 0 { super::MQTT_PORT } else { mqtt.port };
    crate::host_port::HostPort::parse(&mqtt.advertise, default).map(|address| Some(address.to_string()))
}

impl Config {
    /// The defaults, overlaid by the file at `path`, then by the variables in `env`, then by `overrides`. Reports everything that
    /// is wrong, not only the first thing.
    pub fn load(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        Layers::gather(path, env, overrides).finish()
    }

    /// As [`Config::load`], but neither looks into the files that keys name nor at how keys go together: for what is done while such
    /// files are missing.
    pub fn load_unchecked(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        let Layers { config, problems, .. } = Layers::gather(path, env, overrides);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// As [`Config::load`]; the result is every key with its value and the origin of that value.
    pub fn explain(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Vec<Setting>, ConfigError> {
        let layers = Layers::gather(path, env, overrides);
        let values = layers.values();
        let with_value = |(key, origin): &(String, Origin)| (key.clone(), origin.clone(), values.get(key).cloned());
        let given: Vec<_> = layers.origins.iter().map(with_value).collect();
        layers.finish().map(|config| settings(&config, &given))
    }

    /// The defaults, overlaid by a file with this content.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        layers.file(Path::new("sedge.toml"), text);
        layers.finish()
    }

    /// Checks what no single key can show, and reads the key file. Done by [`Config::load`]; for configurations made by hand.
    pub fn check(mut self) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        if let Err(what) = advertised_to_clients(&self.mqtt) {
            problems.push(together("mqtt.advertise", format!("{:?}: {what}", self.mqtt.advertise)));
        }
        self.check_listeners(&mut problems);
        bridge::share_addresses(&mut self.bridges);
        self.check_bridges(&mut problems);
        problems.extend(rules::problems(&self).into_iter().map(|(key, what)| together(&key, what)));
        self.check_cluster(&mut problems);
        self.check_discovery(&mut problems);
        self.check_access(&mut problems);
        self.check_http(&mut problems);
        problems.extend(self.otlp.problems().into_iter().map(|(key, what)| together(key, what)));
        self.check_upstream(&mut problems);
        if self.upstream.is_used() {
            self.node.shards = 1;
            // The broker behind says who comes in, unless this node has accounts of its own.
            if !self.auth.has_accounts() {
                self.auth.anonymous.get_or_insert(super::Anonymous::Always);
            }
        }
        problems.extend(rates::problems(&self.limits).into_iter().map(|(key, what)| together(key, what)));
        if self.node.data_dir.is_none() && self.node.durability() != super::Durability::Memory {
            problems
                .push(together("node.durability", "needs node.data_dir: the journal has to be somewhere".to_owned()));
        }
        if let Err(error) = crate::logging::parse_level(&self.log.level) {
            problems.push(together("log.level", error));
        }
        if problems.is_empty() { Ok(self) } else { Err(ConfigError { problems }) }
    }

    fn check_listeners(&self, problems: &mut Vec<Problem>) {
        if !self.mqtt.enabled && self.listeners.is_empty() {
            problems.push(together(
                "mqtt.enabled",
                "is false, and there is no [listener.NAME]: nobody could connect".to_owned(),
            ));
        }
        if let Some((name, _)) = self.listeners.iter().nth(listener::LISTENERS_MAX) {
            let what = format!("there are more than {} listeners", listener::LISTENERS_MAX);
            problems.push(together(&format!("listener.{name}"), what));
        }
        let mqtt = self.mqtt.enabled.then_some(SocketAddr::new(self.mqtt.bind, self.mqtt.port));
        let mut taken: Vec<(SocketAddr, &str)> = mqtt.into_iter().map(|address| (address, "mqtt")).collect();
        for (name, listener) in &self.listeners {
            for (key, what) in listener.problems(name).into_iter().chain(listener.rates.problems(&self.limits)) {
                problems.push(together(&format!("listener.{name}.{key}"), what));
            }
            let Some(address) = listener.address(name).filter(|address| address.port() != 0) else { continue };
            match taken.iter().find(|(other, _)| *other == address) {
                Some((_, other)) => {
                    let what = format!("{address} is the address of listener {other:?}; each needs one of its own");
                    problems.push(together(&format!("listener.{name}.port"), what));
                }
                None => taken.push((address, name)),
            }
        }
    }

    fn check_bridges(&self, problems: &mut Vec<Problem>) {
        if let Some((name, _)) = self.bridges.iter().nth(bridge::BRIDGES_MAX) {
            let what = format!("there are more than {} bridges", bridge::BRIDGES_MAX);
            problems.push(together(&format!("bridge.{name}"), what));
        }
        for (name, bridge) in &self.bridges {
            for (key, what) in bridge.problems() {
                problems.push(together(&format!("bridge.{name}.{key}"), what));
            }
        }
    }

    fn check_access(&self, problems: &mut Vec<Problem>) {
        problems
            .extend(crate::access::problems(&self.auth, &self.acl).into_iter().map(|(key, what)| together(key, what)));
        let url = &self.auth.http_url;
        if !url.is_empty() && (!url.starts_with("http://") || url.contains(char::is_whitespace)) {
            problems.push(together(
                "auth.http_url",
                format!("{url:?}: write http://host:port/path; https is not supported"),
            ));
        }
    }

    fn check_http(&self, problems: &mut Vec<Problem>) {
        let http = &self.http;
        if http.token.is_some() && http.token_file.is_some() {
            problems.push(together("http.token_file", "give either this or http.token".to_owned()));
        }
        if let Some(what) = http.token.as_ref().and_then(|token| crate::http::wrong_token(token.expose())) {
            problems.push(together("http.token", what));
        }
        if let Err((key, what)) = crate::http::Tokens::read(http) {
            problems.push(together(key, what));
        }
    }
}

pub(super) fn together(key: &str, what: String) -> Problem {
    Problem { origin: Origin::Together, key: key.to_owned(), what, nearest: None }
}

#[derive(Default)]
pub(super) struct Layers {
    config: Config,
    problems: Vec<Problem>,
    /// Where each key was set last.
    origins: Vec<(String, Origin)>,
    /// The value to which each key was set, as a file would write it.
    values: Vec<(String, String)>,
}

impl Layers {
    /// All layers, one over the other.
    pub(super) fn gather(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Self {
        let mut layers = Self::default();
        if let Some(path) = path {
            match std::fs::read_to_string(path) {
                Ok(text) => layers.file(path, &text),
                Err(error) => {
                    layers.problem(Origin::Path(path.to_owned()), "", format!("cannot read this file: {error}"));
                }
            }
        }
        layers.env(env);
        for (key, value, flag) in &overrides.0 {
            layers.set(&Origin::Flag(flag.clone()), key, &Value::Plain(value.clone()));
        }
        layers
    }

    /// The value to which each key was set; later layers win.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        self.values.iter().cloned().collect()
    }

    fn file(&mut self, path: &Path, text: &str) {
        let source = Source { path: path.to_owned(), text };
        let document = match source.parse() {
            Ok(document) => document,
            Err(problem) => return self.problems.push(problem),
        };
        for (name, value) in document.get_ref() {
            let section = name.get_ref().as_ref();
            if let Some(listeners) = value.get_ref().as_table().filter(|_| listener::is_section(section)) {
                self.listeners(&source, listeners);
                continue;
            }
            if rules::is_section(section) {
                for (name, _) in value.get_ref().as_table().into_iter().flatten() {
                    self.origins.push((format!("{section}.{}", name.get_ref()), source.origin(name.span())));
                }
                let (rules, problems) = rules::read(&source, value);
                self.config.rules = rules;
                self.problems.extend(problems);
                continue;
            }
            if let Some(bridges) = value.get_ref().as_table().filter(|_| bridge::is_section(section)) {
                self.bridges(&source, bridges);
                continue;
            }
            match value.get_ref().as_table().filter(|_| keys::is_section(section)) {
                Some(entries) => self.section(&source, section, entries),
                None => self.unknown_section(&source, name.span(), section, value),
            }
        }
    }

    fn listeners(&mut self, source: &Source<'_>, listeners: &DeTable<'_>) {
        for (name, value) in listeners {
            let section = format!("listener.{}", name.get_ref());
            match value.get_ref().as_table() {
                // An empty section is a listener, too: that of its name, with defaults.
                Some(entries) if entries.is_empty() => self.missing(source.origin(name.span()), &section),
                Some(entries) => self.section(source, &section, entries),
                None => self.problem(source.origin(name.span()), &section, format!("is a section: write [{section}]")),
            }
        }
    }

    /// The sections of bridges, whose keys may be tables.
    fn bridges(&mut self, source: &Source<'_>, bridges: &DeTable<'_>) {
        for (name, value) in bridges {
            let section = format!("bridge.{}", name.get_ref());
            let Some(entries) = value.get_ref().as_table() else {
                self.problem(source.origin(name.span()), &section, format!("is a section: write [{section}]"));
                continue;
            };
            if let Err(what) = bridge::check_name(name.get_ref()) {
                self.problem(source.origin(name.span()), &section, what);
                continue;
            }
            // A section without a word is a bridge, too, in which everything is missing.
            self.config.bridges.entry(name.get_ref().to_string()).or_default();
            self.origins.push((section.clone(), source.origin(name.span())));
            self.section(source, &section, entries);
        }
    }

    fn missing(&mut self, origin: Origin, section: &str) {
        match keys::set(&mut self.config, &format!("{section}.max_connections"), &Value::Plain("0".to_owned())) {
            Ok(()) => self.origins.push((section.to_owned(), origin)),
            Err(what) => self.problem(origin, section, what.unwrap_or_default()),
        }
    }

    fn section(&mut self, source: &Source<'_>, section: &str, entries: &DeTable<'_>) {
        for (name, value) in entries {
            let key = format!("{section}.{}", name.get_ref());
            if let Some(inner) = value.get_ref().as_table().filter(|_| bridge::split(&key).is_some()) {
                self.section(source, &key, inner);
                continue;
            }
            let known = keys::is_known(&key);
            let span = if known { value.span() } else { name.span() };
            self.set(&source.origin(span), &key, &Value::from_toml(value.get_ref()));
        }
    }

    fn unknown_section(&mut self, source: &Source<'_>, span: Range<usize>, name: &str, value: &Spanned<DeValue<'_>>) {
        let origin = source.origin(span);
        if keys::is_section(name) {
            return self.problem(origin, name, format!("is a section: write [{name}]"));
        }
        let kind = if value.get_ref().is_table() { "section" } else { "key" };
        let sections = || keys::known_keys().filter_map(|key| key.name.split_once('.'));
        let as_key = sections().find(|(_, key)| *key == name).map(|(section, key)| format!("{section}.{key}"));
        let names = || sections().map(|(section, _)| section).chain(["rule.NAME"]);
        let meant = as_key.or_else(|| nearest(name, names()).map(|s| format!("[{s}]")));
        let problem = Problem { origin, key: name.to_owned(), what: format!("unknown {kind}"), nearest: meant };
        self.problems.push(problem);
    }

    fn env(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        let mut variables: Vec<(String, String)> =
            env.into_iter().filter(|(name, _)| name.starts_with(ENV_PREFIX) && name.contains(ENV_DOT)).collect();
        variables.sort_unstable();
        for (name, value) in variables {
            // Compose files pass variables that nobody has set as empty.
            if value.is_empty() {
                continue;
            }
            let bare = name.strip_prefix(ENV_PREFIX).unwrap_or(&name);
            let key = bare.to_ascii_lowercase().replacen(ENV_DOT, ".", 1);
            let key = if key.starts_with("bridge.") { key.replace(ENV_DOT, ".") } else { key };
            let key = if key.starts_with("listener.") { key.replacen(ENV_DOT, ".", 1) } else { key };
            if keys::is_known(&key) {
                self.set(&Origin::Env(name), &key, &Value::Plain(value));
            } else {
                let meant = nearest(&key, keys::known_keys().map(|key| key.name)).map(env_name);
                let what = "unknown configuration key".to_owned();
                self.problems.push(Problem { origin: Origin::Env(name), key: String::new(), what, nearest: meant });
            }
        }
    }

    fn set(&mut self, origin: &Origin, name: &str, value: &Value) {
        match keys::set(&mut self.config, name, value) {
            Ok(()) => {
                self.origins.push((name.to_owned(), origin.clone()));
                self.values.push((name.to_owned(), written(name, value)));
            }
            Err(Some(what)) => self.problem(origin.clone(), name, what),
            Err(None) => {
                let listener = bridge::split(name).or_else(|| listener::split(name)).map_or("NAME", |(name, _)| name);
                let known: Vec<String> = keys::known_keys().map(|key| key.name.replace("NAME", listener)).collect();
                let meant = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
                let what = "unknown key".to_owned();
                self.problems.push(Problem { origin: origin.clone(), key: name.to_owned(), what, nearest: meant });
            }
        }
    }

    fn problem(&mut self, origin: Origin, key: &str, what: String) {
        self.problems.push(Problem { origin, key: key.to_owned(), what, nearest: None });
    }

    /// Says of problems that show only in the whole where their key was set.
    pub(super) fn finish(self) -> Result<Config, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError { problems: self.problems });
        }
        self.config.check().map_err(|mut error| {
            for problem in &mut error.problems {
                let set = self.origins.iter().rev().find(|(key, _)| *key == problem.key);
                // A key that is missing belongs to the section where others are.
                let section = || {
                    let (section, _) = problem.key.rsplit_once('.').filter(|(section, _)| section.contains('.'))?;
                    self.origins.iter().find(|(key, _)| key.starts_with(section))
                };
                let set = set.or_else(section);
                problem.origin = set.map_or(Origin::Together, |(_, origin)| origin.clone());
            }
            error
        })
    }
}

fn env_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replacen('.', ENV_DOT, 1).to_ascii_uppercase())
}

pub(super) struct Source<'a> {
    pub(super) path: PathBuf,
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    /// The text as TOML.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>, Problem> {
        DeTable::parse(self.text).map_err(|error| {
            let what = format!("not TOML: {}", error.message().replace('\n', ", "));
            let origin = self.origin(error.span().unwrap_or(0..0));
            Problem { origin, key: String::new(), what, nearest: None }
        })
    }

    pub(super) fn origin(&self, span: Range<usize>) -> Origin {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        Origin::File { path: self.path.clone(), line, column }
    }
}
