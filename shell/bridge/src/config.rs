//! Configuration of a bridge.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sedge_mqtt::{QoS, TopicFilter, TopicName, Version};

use crate::template::Template;

/// Bytes of a buffer if nothing is said.
const BUFFER_DEFAULT: u64 = 256 * 1024 * 1024;

/// Kind of the system at the other end of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A broker that speaks MQTT 3.1.1 or 5.0.
    Mqtt,
    /// Kafka, or a broker that speaks its protocol.
    Kafka,
}

/// Which way messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the cluster to the other end.
    #[default]
    Out,
    /// From the other end into the cluster.
    In,
    /// Both ways.
    Both,
}

impl Direction {
    /// Whether messages leave.
    pub const fn goes_out(self) -> bool {
        matches!(self, Self::Out | Self::Both)
    }

    /// Whether messages come in.
    pub const fn comes_in(self) -> bool {
        matches!(self, Self::In | Self::Both)
    }

    /// Its name in configuration and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Both => "both",
        }
    }
}

/// Handling of messages when the buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// QoS 0 messages are dropped first; then new messages find no room.
    #[default]
    DropQos0,
    /// QoS 0 messages go first, then those that have waited longest.
    DropOldest,
    /// Publishers of messages that the bridge takes are refused (0x97), publishers with 3.1.1 not acknowledged, until there is room again.
    Refuse,
}

/// When a publisher is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// When the buffer has the message, at as many nodes as have to have it.
    #[default]
    Buffer,
    /// When the other end has it.
    Remote,
}

/// How a bridge proves to Kafka who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sasl {
    /// It does not, or by its certificate.
    #[default]
    None,
    /// With the password itself.
    Plain,
    /// Without showing it, by SHA-256.
    ScramSha256,
    /// Without showing it, by SHA-512.
    ScramSha512,
}

impl Sasl {
    /// Its name in configuration and in Kafka's protocol; `None`: there is none.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Plain => Some("PLAIN"),
            Self::ScramSha256 => Some("SCRAM-SHA-256"),
            Self::ScramSha512 => Some("SCRAM-SHA-512"),
        }
    }

    /// Whether it needs a library for encryption.
    const fn needs_tls(self) -> bool {
        matches!(self, Self::ScramSha256 | Self::ScramSha512)
    }
}

/// Source of the key of a Kafka record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The topic.
    #[default]
    Topic,
    /// The client id of the publisher.
    Client,
    /// A field of the payload, which is JSON: the names on the way to it.
    Json(Vec<String>),
}

impl Key {
    /// Reads `topic`, `client` or `$.name.name`. The error says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not \"topic\", \"client\" or a field such as \"$.device.id\"");
        match text {
            "topic" => Ok(Self::Topic),
            "client" => Ok(Self::Client),
            _ => {
                let path: Vec<String> =
                    text.strip_prefix("$.").ok_or_else(wrong)?.split('.').map(str::to_owned).collect();
                if path.iter().any(String::is_empty) { Err(wrong()) } else { Ok(Self::Json(path)) }
            }
        }
    }
}

/// Protocol version in which the bridge speaks to the remote broker.
pub type Protocol = Version;

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` out of logs.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// How the connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether it is.
    pub enabled: bool,
    /// Authorities that the other end is trusted by (PEM); `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The bridge's certificate (PEM).
    pub cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub key_file: Option<PathBuf>,
}

/// `[bridge.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Kind of the system at the other end; `None`: not configured.
    pub kind: Option<Kind>,
    /// `host` or `host:port`, the preferred one first.
    pub address: Vec<String>,
    /// Which way messages go.
    pub direction: Direction,
    /// Topic filters of the messages that cross the bridge, at the end where the messages come from.
    pub from: Vec<String>,
    /// Topic filters of the publications that publishers send for the bridge, where a rule stands between; empty: as `from`.
    pub takes: Vec<String>,
    /// Template of the topic names at the receiving end.
    pub topic: String,
    /// Source of the key of a Kafka record.
    pub key: Key,
    /// Whether messages get into Kafka in transactions.
    pub transactional: bool,
    /// Prefix that is removed from topics before `topic` is applied.
    pub strip: String,
    /// When publishers of the messages that the bridge takes are acknowledged.
    pub ack: Ack,
    /// Name of the rule whose outputs go instead of the messages that come; empty: none.
    pub rule: String,
    /// Protocol version.
    pub version: Protocol,
    /// Client id at the other end; empty: `sedge-CLUSTER-NAME`.
    pub client_id: String,
    /// How the user is proven to Kafka.
    pub sasl: Sasl,
    /// User name at the other end; empty: none.
    pub username: String,
    /// Password; `None` here and in `password_file`: none.
    pub password: Option<Secret>,
    /// File with it, read at each connection.
    pub password_file: Option<PathBuf>,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// Seconds without a word after which the other end is asked whether it lives.
    pub keep_alive: u16,
    /// Highest quality of service.
    pub qos: QoS,
    /// QoS 1 and 2 messages on their way at the same time.
    pub max_inflight: u16,
    /// How many bridges a message may cross.
    pub max_hops: u32,
    /// Longest pause between two attempts to connect.
    pub reconnect_max: Duration,
    /// Topic at both ends that says 1 or 0: connected or not; empty: none.
    pub notifications: String,
    /// Bytes that may wait.
    pub buffer_bytes: u64,
    /// Handling of further messages when the buffer is full.
    pub buffer_full: Full,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self {
            kind: None,
            address: Vec::new(),
            direction: Direction::Out,
            from: Vec::new(),
            takes: Vec::new(),
            topic: String::new(),
            key: Key::Topic,
            transactional: false,
            strip: String::new(),
            ack: Ack::Buffer,
            rule: String::new(),
            version: Version::V5,
            client_id: String::new(),
            sasl: Sasl::None,
            username: String::new(),
            password: None,
            password_file: None,
            tls: Tls::default(),
            keep_alive: 10,
            qos: QoS::ExactlyOnce,
            max_inflight: 256,
            max_hops: 3,
            reconnect_max: Duration::from_secs(30),
            notifications: String::new(),
            buffer_bytes: BUFFER_DEFAULT,
            buffer_full: Full::DropQos0,
        }
    }
}

/// A contradiction in the configuration: name of the key within the bridge's section, and the fault with its remedy.
pub type Problem = (&'static str, String);

impl BridgeConfig {
    /// Client id of the session of the bridge with this name.
    pub fn session_id(name: &str) -> String {
        format!("$bridge/{name}")
    }

    /// Name of the kind of system at the other end.
    pub const fn kind_name(&self) -> &'static str {
        match self.kind {
            Some(Kind::Mqtt) | None => "mqtt",
            Some(Kind::Kafka) => "kafka",
        }
    }

    /// The template of topic names that `topic` gives.
    pub(crate) fn template(&self) -> Result<Template, String> {
        Template::parse(&self.topic)
    }

    /// Everything that is wrong with the configuration.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let port = if self.kind == Some(Kind::Kafka) { 9092 } else { 1883 };
        if self.address.is_empty() {
            found.push(("address", format!("is missing: write address = [\"host:{port}\"]")));
        }
        match self.kind {
            None => found.push(("kind", "is missing: write kind = \"mqtt\" or \"kafka\"".to_owned())),
            Some(Kind::Kafka) if !cfg!(feature = "kafka") => {
                let what = "kafka is not built into this program: build it without --no-default-features";
                return vec![("kind", what.to_owned())];
            }
            Some(Kind::Kafka) => {
                self.kafka_problems(&mut found);
                self.ack_problems(&mut found);
            }
            Some(Kind::Mqtt) => {
                self.ack_problems(&mut found);
                self.filter_problems(&mut found);
                self.topic_problems(&mut found);
                self.access_problems(&mut found);
                if self.key != Key::Topic {
                    found.push(("key", "is for Kafka; leave it out".to_owned()));
                }
                if self.sasl != Sasl::None {
                    found.push(("sasl", "is for Kafka; leave it out".to_owned()));
                }
                if self.transactional {
                    found.push(("transactional", "is for Kafka; leave it out".to_owned()));
                }
            }
        }
        found
    }

    fn kafka_problems(&self, found: &mut Vec<Problem>) {
        let template = match self.template() {
            Ok(template) => template,
            Err(what) => return found.push(("topic", what)),
        };
        if template.is_empty() {
            found
                .push(("topic", "is missing: write a topic of Kafka, or with direction = \"in\" \"{key}\"".to_owned()));
        }
        match self.direction {
            Direction::Both => found.push(("direction", "both is for MQTT; write two bridges".to_owned())),
            Direction::Out => {
                self.filter_problems(found);
                self.level_problems(&template, found);
                if template.wants_key() {
                    found.push((
                        "topic",
                        "{key} is for direction = \"in\"; write {topic} or a level such as {1}".to_owned(),
                    ));
                }
            }
            Direction::In => {
                let is_name = |name: &String| {
                    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
                };
                if let Some(bad) = self.from.iter().find(|name| !is_name(name)) {
                    found.push((
                        "from",
                        format!(
                            "{bad:?} is no topic of Kafka: those have letters, digits, dots, hyphens and underscores"
                        ),
                    ));
                }
                if self.from.is_empty() {
                    found.push(("from", "is missing: write the topics of Kafka that come in".to_owned()));
                }
            }
        }
        if self.transactional && self.direction == Direction::In {
            found.push(("transactional", "is for what goes out; leave it out".to_owned()));
        }
        if self.transactional && self.qos == QoS::AtMostOnce {
            found.push(("transactional", "needs qos = 1 or 2: QoS 0 may be lost before it is there".to_owned()));
        }
        self.sasl_problems(found);
        self.access_problems(found);
        if !self.notifications.is_empty() {
            found.push(("notifications", "is for MQTT; leave it out".to_owned()));
        }
    }

    fn sasl_problems(&self, found: &mut Vec<Problem>) {
        let with_tls = cfg!(feature = "kafka-tls");
        let build = "is not in this program: build it with --features kafka-tls (docs/bridges.md#kafka)";
        if self.tls.enabled && !with_tls {
            found.push(("tls", format!("TLS to Kafka {build}")));
        }
        if self.sasl.needs_tls() && !with_tls {
            found.push(("sasl", format!("SCRAM {build}, or write \"plain\"")));
        }
        let has_password = self.password.is_some() || self.password_file.is_some();
        match self.sasl {
            Sasl::None if !self.username.is_empty() => {
                found.push((
                    "sasl",
                    "is missing, but there is a username: write sasl = \"plain\" or \"scram-sha-512\"".to_owned(),
                ));
            }
            Sasl::Plain | Sasl::ScramSha256 | Sasl::ScramSha512 if self.username.is_empty() || !has_password => {
                found.push(("sasl", "needs username and password_file".to_owned()));
            }
            Sasl::None | Sasl::Plain | Sasl::ScramSha256 | Sasl::ScramSha512 => {}
        }
    }

    /// The password, read anew if it is in a file. The error says what is wrong with that.
    pub(crate) fn read_password(&self) -> Result<Option<String>, String> {
        match (&self.password, &self.password_file) {
            (Some(password), _) => Ok(Some(password.expose().to_owned())),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| format!("password_file {}: {error}", path.display()))?;
                Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            (None, None) => Ok(None),
        }
    }

    fn ack_problems(&self, found: &mut Vec<Problem>) {
        if self.ack == Ack::Buffer {
            return;
        }
        let why = match self {
            Self { direction: Direction::In, .. } => "is for what goes out; leave it out",
            Self { rule, .. } if !rule.is_empty() => {
                "\"remote\" does not go with a rule, which may keep a message; write \"buffer\""
            }
            Self { qos: QoS::AtMostOnce, .. } => "\"remote\" needs qos = 1 or 2: nobody acknowledges QoS 0",
            Self { buffer_full, .. } if *buffer_full != Full::Refuse => {
                "\"remote\" needs buffer.full = \"refuse\": what a full buffer drops never arrives"
            }
            _ => return,
        };
        found.push(("ack", why.to_owned()));
    }

    fn filter_problems(&self, found: &mut Vec<Problem>) {
        if self.from.is_empty() {
            found.push(("from", "is missing: write from = [\"#\"], or the filters of what is to go".to_owned()));
        }
        for text in &self.from {
            match TopicFilter::new(text) {
                Err(error) => found.push(("from", format!("{text:?} is no topic filter: {error}"))),
                Ok(filter) if filter.share_group().is_some() => {
                    found.push((
                        "from",
                        format!("{text:?}: one node runs the bridge, so that $share is not needed; leave it out"),
                    ));
                }
                Ok(_) => {}
            }
        }
    }

    fn topic_problems(&self, found: &mut Vec<Problem>) {
        let template = match self.template() {
            Ok(template) => template,
            Err(what) => return found.push(("topic", what)),
        };
        if template.wants_key() {
            found.push(("topic", "{key} is the key of a Kafka record; MQTT has none: write {topic}".to_owned()));
        }
        if template.is_constant() && self.topic.contains(['+', '#']) {
            found.push(("topic", format!("{:?} has a wildcard; it is a name, not a filter", self.topic)));
        }
        self.level_problems(&template, found);
        if self.direction == Direction::Both {
            if !template.is_constant() {
                found.push((
                    "topic",
                    "has a template, which cannot be undone on the way in; write a prefix, or two bridges".to_owned(),
                ));
            }
            if !self.strip.is_empty() {
                found.push(("strip", "does not go with direction = \"both\"; write two bridges".to_owned()));
            }
        }
    }

    fn level_problems(&self, template: &Template, found: &mut Vec<Problem>) {
        let short = self.from.iter().filter_map(|text| TopicFilter::new(text).ok());
        for filter in short {
            // A filter that ends with # matches topics that are deep enough, too.
            let levels = filter.level_count();
            let open = filter.filter().ends_with('#');
            let stripped = self.strip.trim_end_matches('/').split('/').filter(|level| !level.is_empty()).count();
            let left = levels.saturating_sub(stripped);
            if let Some(deepest) = template.deepest().filter(|deepest| !open && *deepest >= left) {
                found.push(("topic", format!(
                    "asks for level {{{deepest}}}, but topics of {:?} have only {left}, counted from 0; take a lower number or leave the filter out",
                    filter.as_str()
                )));
            }
        }
    }

    fn access_problems(&self, found: &mut Vec<Problem>) {
        if self.password.is_some() && self.password_file.is_some() {
            found.push(("password_file", "give either this or password".to_owned()));
        }
        if self.username.is_empty() && (self.password.is_some() || self.password_file.is_some()) {
            found.push(("username", "is missing, but there is a password".to_owned()));
        }
        let tls = &self.tls;
        if !tls.enabled && (tls.ca_file.is_some() || tls.cert_file.is_some()) {
            found.push(("tls", "is false, but there are files for it: write tls = true".to_owned()));
        }
        if tls.cert_file.is_some() != tls.key_file.is_some() {
            found.push(("cert_file", "and key_file belong together: give both or none".to_owned()));
        }
        if !self.notifications.is_empty() && TopicName::new(&self.notifications).is_err() {
            found.push(("notifications", format!("{:?} is no topic name", self.notifications)));
        }
        if self.client_id.len() > usize::from(u16::MAX) {
            found.push(("client_id", "is longer than 65,535 bytes".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> BridgeConfig {
        BridgeConfig {
            kind: Some(Kind::Mqtt),
            address: vec!["cloud:1883".to_owned()],
            from: vec!["plant/+/temperature".to_owned(), "alarm/#".to_owned()],
            ..BridgeConfig::default()
        }
    }

    /// DP-03
    #[test]
    fn an_acknowledgement_of_the_other_end_needs_a_way_to_it() {
        let with = |change: fn(&mut BridgeConfig)| {
            let mut config = BridgeConfig { ack: Ack::Remote, buffer_full: Full::Refuse, ..good() };
            change(&mut config);
            config.problems().into_iter().map(|(key, what)| format!("{key} {what}")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(with(|_| {}), "");
        for (change, fix) in [
            ((|c| c.direction = Direction::In) as fn(&mut BridgeConfig), "leave it out"),
            (|c| c.rule = "mean".to_owned(), "write \"buffer\""),
            (|c| c.qos = QoS::AtMostOnce, "qos = 1 or 2"),
            (|c| c.buffer_full = Full::DropOldest, "buffer.full = \"refuse\""),
        ] {
            let said = with(change);
            assert!(said.starts_with("ack ") && said.contains(fix), "{said}");
        }
    }

    /// MQ-18
    #[test]
    fn what_cannot_work_is_said_with_the_fix() {
        assert_eq!(good().problems(), []);
        let with = |change: fn(&mut BridgeConfig)| {
            let mut config = good();
            change(&mut config);
            config.problems().into_iter().map(|(key, what)| format!("{key}: {what}")).collect::<Vec<_>>().join("\n")
        };
        for (change, key, fix) in [
            ((|c| c.kind = None) as fn(&mut BridgeConfig), "kind", "kind = \"mqtt\""),
            (|c| c.address.clear(), "address", "host:1883"),
            (|c| c.from.clear(), "from", "from = "),
            (|c| c.from = vec!["a/#/b".to_owned()], "from", "no topic filter"),
            (|c| c.from = vec!["$share/g/a".to_owned()], "from", "leave it out"),
            (|c| c.topic = "x-{3}".to_owned(), "topic", "lower number"),
            (|c| c.topic = "x-{name}".to_owned(), "topic", "{topic}"),
            (|c| c.topic = "a/+".to_owned(), "topic", "not a filter"),
            (|c| (c.topic, c.direction) = ("{1}".to_owned(), Direction::Both), "topic", "two bridges"),
            (|c| c.password = Some(Secret::new("x".to_owned())), "username", "missing"),
            (|c| c.tls.ca_file = Some("ca.pem".into()), "tls", "tls = true"),
            (|c| c.notifications = "a/#".to_owned(), "notifications", "no topic name"),
            (|c| c.transactional = true, "transactional", "leave it out"),
        ] {
            let said = with(change);
            assert!(said.starts_with(key) && said.contains(fix), "{said}");
        }
    }

    /// DP-01, DP-05
    #[test]
    fn what_kafka_cannot_do_is_said() {
        let kafka = |change: fn(&mut BridgeConfig)| {
            let mut config = BridgeConfig { kind: Some(Kind::Kafka), topic: "plant-{1}".to_owned(), ..good() };
            config.from = vec!["plant/+".to_owned()];
            change(&mut config);
            config.problems().into_iter().map(|(key, what)| format!("{key}: {what}")).collect::<Vec<_>>().join("\n")
        };
        if !cfg!(feature = "kafka") {
            assert!(kafka(|_| {}).contains("--no-default-features"));
            return;
        }
        assert_eq!(kafka(|_| {}), "");
        for (change, key, fix) in [
            ((|c| c.topic = String::new()) as fn(&mut BridgeConfig), "topic", "is missing"),
            (|c| c.topic = "{2}".to_owned(), "topic", "lower number"),
            (|c| c.topic = "{key}".to_owned(), "topic", "{topic}"),
            (|c| c.direction = Direction::Both, "direction", "two bridges"),
            (|c| c.direction = Direction::In, "from", "no topic of Kafka"),
            (|c| c.username = "site".to_owned(), "sasl", "sasl = "),
            (|c| c.sasl = Sasl::Plain, "sasl", "password_file"),
            (|c| c.notifications = "a".to_owned(), "notifications", "leave it out"),
            (|c| (c.transactional, c.qos) = (true, QoS::AtMostOnce), "transactional", "qos = 1 or 2"),
            (
                |c| {
                    (c.transactional, c.direction) = (true, Direction::In);
                    c.from = vec!["commands".to_owned()];
                },
                "transactional",
                "leave it out",
            ),
        ] {
            let said = kafka(change);
            assert!(said.starts_with(key) && said.contains(fix), "{said}");
        }
    }

    #[test]
    fn keys_are_read() {
        assert_eq!(Key::parse("topic"), Ok(Key::Topic));
        assert_eq!(Key::parse("$.device.id"), Ok(Key::Json(vec!["device".to_owned(), "id".to_owned()])));
        for bad in ["", "device", "$.", "$.a..b"] {
            assert!(Key::parse(bad).unwrap_err().contains("$.device.id"), "{bad}");
        }
    }
}
