//! Configuration: one TOML file, overridden by the environment, overridden by flags.

mod access;
mod bridge;
mod cluster;
mod digests;
mod discovery;
mod error;
mod keys;
mod layers;
mod listener;
mod nearest;
mod otlp;
mod rates;
mod rules;
mod services;
mod settings;
mod upstream;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sedge_base::{NodeId, Rate};
use sedge_bridge::BridgeConfig;
use sedge_broker::{BrokerConfig, DeadlineNames, PublishRate, RetainedConfig};
use sedge_cluster::link::LinkOrder;
use sedge_cluster::{RootPolicy, SkipGraphBase, SkipGraphMethod};
use sedge_mqtt::QoS;
use sedge_rules::Rule;

pub use access::{AclConfig, Anonymous, AuthConfig};
pub use digests::Digests;
pub(crate) use digests::is_exchanged;
pub(crate) use discovery::MulticastConfig;
pub use discovery::{DiscoveryConfig, Group, Interface, MULTICAST_GROUP, MULTICAST_PORT};
pub use error::{ConfigError, Origin, Problem};
pub(crate) use keys::LINK_ORDERS;
pub use keys::{KeyInfo, known_keys};
pub use layers::Overrides;
pub(crate) use layers::advertised_to_clients;
pub use listener::{ClientCert, ListenerConfig, Protocol, ProxyProtocol, UsernameFrom};
pub use otlp::OtlpConfig;
pub use rates::{ListenerRates, OwnRate};
pub use rules::read_rules;
pub use settings::{Setting, Source, default_file};
pub(crate) use upstream::UpstreamAddress;
pub use upstream::{UpstreamConfig, UpstreamMode, UpstreamProxy};

/// Everything a node is told before it starts. Every key of the file has its field here; see `docs/configuration.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[node]`: this process.
    pub node: NodeConfig,
    /// `[mqtt]`: where clients connect.
    pub mqtt: MqttConfig,
    /// `[listener.NAME]`: more listeners for clients, by name.
    pub listeners: BTreeMap<String, ListenerConfig>,
    /// `[bridge.NAME]`: other services that messages go to or come from, by name.
    pub bridges: BTreeMap<String, BridgeConfig>,
    /// `[auth]`: who a client is.
    pub auth: AuthConfig,
    /// `[acl]`: what clients may do.
    pub acl: AclConfig,
    /// `[limits]`: what one client and all of them together may take.
    pub limits: LimitsConfig,
    /// `[cluster]`: the other nodes.
    pub cluster: ClusterConfig,
    /// `[discovery]`: how nodes find each other.
    pub discovery: DiscoveryConfig,
    /// `[rule.NAME]`: rules over publications, by name.
    pub rules: BTreeMap<String, Arc<Rule>>,
    /// `[deadlines]`: how publishers say until when a message is of use.
    pub deadlines: DeadlinesConfig,
    /// `[sparkplug]`: births of Sparkplug edge nodes.
    pub sparkplug: SparkplugConfig,
    /// `[upstream]`: a foreign broker behind this node.
    pub upstream: UpstreamConfig,
    /// `[sys]`: what the node tells MQTT clients about itself.
    pub sys: SysConfig,
    /// `[otlp]`: traces for a collector of OpenTelemetry.
    pub otlp: OtlpConfig,
    /// `[http]`: API, metrics and health.
    pub http: HttpConfig,
    /// `[log]`: what is written to standard error.
    pub log: LogConfig,
}

/// `[node]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// Name for listings; the host's name if empty.
    pub name: String,
    /// Id of the node; `None`: kept in the data directory, or random without one.
    pub id: Option<NodeId>,
    /// Where the node keeps what survives a restart; `None`: nothing does.
    pub data_dir: Option<PathBuf>,
    /// State that survives a restart; `None`: `journal` with a data directory, `memory` without.
    pub durability: Option<Durability>,
    /// Largest size of the journals of all shards together; 0: any.
    pub max_journal_bytes: u64,
    /// Number of shards (threads with an event loop each); 0: one for each core, but not more than four.
    pub shards: u16,
}

/// How much of sessions and messages survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing.
    #[default]
    Memory,
    /// The end of the process: everything is written before it is acknowledged.
    Journal,
    /// The end of the power supply, too: everything is on the medium before it is acknowledged.
    Fsync,
}

/// `[mqtt]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttConfig {
    /// Whether there is this listener.
    pub enabled: bool,
    /// Address of the listener.
    pub bind: IpAddr,
    /// Port of the listener; 0: any free one.
    pub port: u16,
    /// `host` or `host:port` that other nodes tell their clients when they stop; empty: they do not.
    pub advertise: String,
}

/// `[limits]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Connections of clients at the same time; one more is closed at once.
    pub max_connections: usize,
    /// Connections that have not finished what comes before MQTT: PROXY header, TLS, WebSocket.
    pub max_handshakes: usize,
    /// Connections of one address at the same time; 0: any number.
    pub max_connections_per_address: usize,
    /// Clients of one user at the same time; 0: any number.
    pub max_connections_per_user: usize,
    /// How fast connections may come in at each listener.
    pub connect_rate: Rate,
    /// How fast they may come from one address.
    pub connect_rate_per_address: Rate,
    /// Addresses without a connection that are remembered.
    pub max_known_addresses: usize,
    /// How fast each client may publish.
    pub publish_rate: PublishRate,
    /// Bytes held for all clients together; 0: half of the memory of the machine or the control group.
    pub max_buffered_bytes: usize,
    /// Limits of each client.
    pub broker: BrokerConfig,
    /// Limits of the retained messages.
    pub retained: RetainedConfig,
    /// Bytes kept for the sessions of each node that is gone or out of reach.
    pub absent_bytes: usize,
}

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Name of the cluster; nodes of another name are refused.
    pub name: String,
    /// Address on which other nodes reach this one.
    pub bind: IpAddr,
    /// Port for links (TCP) and datagrams (UDP); 0: any that is free for both.
    pub port: u16,
    /// `host` or `host:port` that other nodes are told to use; empty: found out.
    pub advertise: String,
    /// `host` or `host:port` of nodes to ask first.
    pub seeds: Vec<String>,
    /// The secret all nodes share.
    pub key: Option<Secret>,
    /// File that holds the secret.
    pub key_file: Option<PathBuf>,
    /// Whether links are encrypted where there is a key.
    pub encryption: bool,
    /// The node's certificate for links, and those between it and [`ClusterConfig::ca_file`].
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub cert_key_file: Option<PathBuf>,
    /// The authority of all nodes' certificates.
    pub ca_file: Option<PathBuf>,
    /// Cooperation algorithm.
    pub overlay: String,
    /// Publications go only over links that operators choose.
    pub manual_links: bool,
    /// `host` or `host:port` of the nodes to which links are chosen from the start.
    pub neighbours: Vec<String>,
    /// QoS of publications between nodes; `None`: their own.
    pub link_qos: Option<QoS>,
    /// Connections with each neighbour.
    pub link_connections: u8,
    /// Which of them a publication takes.
    pub link_order: LinkOrder,
    /// How topic trees choose their roots.
    pub topic_roots: RootPolicy,
    /// Weights of the quantities by which roots are chosen.
    pub weights: Weights,
    /// Base of the membership vectors of the Skip Graph.
    pub skip_graph_base: SkipGraphBase,
    /// How the Skip Graph divides what goes to many nodes.
    pub skip_graph_method: SkipGraphMethod,
    /// Capacity of the node; 0: measured at the start.
    pub capacity: u32,
    /// When SUBACK is sent.
    pub suback: SubackMode,
    /// How many nodes hold a session and what waits for it.
    pub copies: u8,
    /// How long members that died are listed.
    pub autoclean: Duration,
    /// How long a node that starts waits for the members that it knows before it lets clients in.
    pub recovery_timeout: Duration,
    /// How often a node tells the others that what it wants is unchanged.
    pub refresh: Duration,
    /// How long what a node wants holds without a refresh; at least three times as long.
    pub lease: Duration,
    /// The longest round trip between nodes, loss and jitter included.
    pub round_trip: Duration,
    /// By how much a member's system clock may be off before operators are told.
    pub clock_tolerance: Duration,
    /// How often a node compares its retained messages with those of one neighbour.
    pub compare: Duration,
    /// A link is pinged twice in this time, and down after 1.5 times as long without a byte (spec IL-19).
    pub link_ping: Duration,
}

/// When a subscription is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubackMode {
    /// When every reachable node routes accordingly.
    #[default]
    Cluster,
    /// At once.
    Local,
}

/// `[deadlines]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlinesConfig {
    /// The user property with the milliseconds that a message may take; empty: none.
    pub property: String,
    /// The member of a JSON payload with the same; empty: none.
    pub payload_tag: String,
}

impl DeadlinesConfig {
    /// As the broker wants it; `None`: no message has a deadline.
    pub(crate) fn of_broker(&self) -> Option<Arc<DeadlineNames>> {
        let name = |text: &String| (!text.is_empty()).then(|| text.as_str().into());
        let deadlines = DeadlineNames { property: name(&self.property), payload_tag: name(&self.payload_tag) };
        (deadlines != DeadlineNames::default()).then(|| Arc::new(deadlines))
    }
}

/// `[sparkplug]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparkplugConfig {
    /// Whether births are kept as retained messages.
    pub certificates: bool,
}

/// `[sys]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysConfig {
    /// How often the topics below `$SYS` are brought up to date; 0: there are none.
    pub interval: Duration,
}

/// `[http]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Whether there is an HTTP listener.
    pub enabled: bool,
    /// Its address.
    pub bind: IpAddr,
    /// Its port; 0: any free one.
    pub port: u16,
    /// Token that requests have to show; `None` here and in `token_file`: no token.
    pub token: Option<Secret>,
    /// File with the token, read again on a reload.
    pub token_file: Option<PathBuf>,
    /// File with tokens of those who steer the node, read again on a reload.
    pub operate_token_file: Option<PathBuf>,
    /// File with tokens of those who only look.
    pub view_token_file: Option<PathBuf>,
    /// Requests that are answered without the token.
    pub open: HttpOpen,
    /// Names of this node that requests without a token may have in their `Host`.
    pub names: Vec<String>,
    /// Connections at the same time.
    pub max_connections: usize,
    /// Longest time of a request, from its first byte to the first one of its answer.
    pub request_timeout: Duration,
    /// Longest time in which nothing is asked, or nothing of an answer is taken.
    pub idle_timeout: Duration,
    /// Most bytes of a request's body.
    pub max_body_bytes: usize,
}

/// Parts of HTTP that answer without the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOpen {
    /// `/health/...`
    pub health: bool,
    /// `/metrics`
    pub metrics: bool,
    /// Requests that change nothing (GET, HEAD), from this machine.
    pub reads: bool,
}

impl HttpOpen {
    /// Of the words `health`, `metrics` and `reads`.
    pub(crate) fn of(words: &[String]) -> Result<Self, String> {
        if let Some(word) = words.iter().find(|word| !["health", "metrics", "reads"].contains(&word.as_str())) {
            return Err(format!("{word:?} is not \"health\", \"metrics\" or \"reads\""));
        }
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        Ok(Self { health: has("health"), metrics: has("metrics"), reads: has("reads") })
    }
}

impl Default for HttpOpen {
    fn default() -> Self {
        Self { health: true, metrics: true, reads: false }
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Least level that is written, or `tracing` directives such as `info,sedge_daemon=debug`.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
    /// Lines a second of each kind that others can cause, per shard.
    pub lines_per_second: u32,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `time level message key=value ...`
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` out of logs.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Port of listeners for clients.
pub const MQTT_PORT: u16 = 1883;
/// Port for links and datagrams between nodes; also what a seed without a port means.
pub const CLUSTER_PORT: u16 = 7883;
/// How long the session of a client that nobody knows outlives its connection: a week.
const ANONYMOUS_SESSION_SECS: u32 = 7 * 86_400;
/// Port of the HTTP API.
pub const HTTP_PORT: u16 = 8080;

impl Default for MqttConfig {
    fn default() -> Self {
        Self { enabled: true, bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: MQTT_PORT, advertise: String::new() }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let broker = BrokerConfig {
            connect_timeout: Duration::from_secs(10),
            max_anonymous_session_expiry: ANONYMOUS_SESSION_SECS,
            ..BrokerConfig::default()
        };
        Self {
            max_connections: 1_000_000,
            max_handshakes: 1000,
            max_connections_per_address: 0,
            max_connections_per_user: 0,
            connect_rate: Rate::default(),
            connect_rate_per_address: Rate::default(),
            max_known_addresses: 100_000,
            publish_rate: PublishRate::default(),
            max_buffered_bytes: 0,
            broker,
            retained: RetainedConfig::default(),
            absent_bytes: 64 * 1024 * 1024,
        }
    }
}

/// Weights of the quantities by which roots are chosen (TR-07, TR-21); 0 to 1,000 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// A percent of a processor that is idle (the source's alpha).
    pub cpu: u32,
    /// 64 MiB of free memory (beta).
    pub memory: u32,
    /// A topic that is rooted at the node (gamma).
    pub roots: u32,
    /// A client that is connected to it (delta).
    pub clients: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { cpu: 1, memory: 1, roots: 10, clients: 1 }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            name: "sedge".to_owned(),
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: CLUSTER_PORT,
            advertise: String::new(),
            seeds: Vec::new(),
            key: None,
            key_file: None,
            encryption: true,
            cert_file: None,
            cert_key_file: None,
            ca_file: None,
            overlay: "mesh".to_owned(),
            manual_links: false,
            neighbours: Vec::new(),
            link_qos: None,
            link_connections: 1,
            link_order: LinkOrder::Publisher,
            topic_roots: RootPolicy::Capacity,
            weights: Weights::default(),
            skip_graph_base: SkipGraphBase::Two,
            skip_graph_method: SkipGraphMethod::Sfb,
            capacity: 0,
            suback: SubackMode::Cluster,
            copies: 2,
            autoclean: Duration::from_mins(5),
            recovery_timeout: Duration::from_mins(1),
            refresh: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            round_trip: Duration::from_millis(120),
            clock_tolerance: Duration::from_secs(2),
            compare: Duration::from_secs(30),
            link_ping: Duration::from_secs(1),
        }
    }
}

impl Default for SysConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10) }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        // The API can end connections: it is offered to this machine only until told otherwise.
        let bind = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            enabled: true,
            bind,
            port: HTTP_PORT,
            token: None,
            token_file: None,
            operate_token_file: None,
            view_token_file: None,
            open: HttpOpen::default(),
            names: Vec::new(),
            max_connections: 100,
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            max_body_bytes: 64 * 1024,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text, lines_per_second: 20 }
    }
}

/// Most shards a node may have: a connection's number has ten bits for its shard.
pub const SHARDS_MAX: u16 = 256;
/// Shards that a node has when it may choose.
const SHARDS_CHOSEN_MAX: usize = 4;

impl NodeConfig {
    /// State that survives a restart of this node.
    pub fn durability(&self) -> Durability {
        let default = if self.data_dir.is_some() { Durability::Journal } else { Durability::Memory };
        self.durability.unwrap_or(default)
    }

    /// The number of shards this node is to have on this machine: the same for the whole life of the process, whoever changes the processors
    /// that it may use meanwhile (a control group, `taskset`).
    pub fn shard_count(&self) -> u16 {
        static CHOSEN: OnceLock<u16> = OnceLock::new();
        if self.shards != 0 {
            return self.shards;
        }
        *CHOSEN.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            u16::try_from(cores.min(SHARDS_CHOSEN_MAX)).unwrap_or(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::NodeConfig;

    /// Parts of a node that had asked before and after a control group was set disagreed, and one shard told another nothing.
    #[test]
    fn the_number_of_shards_stays_whatever_processors_the_process_loses() {
        let (config, all) = (NodeConfig::default(), sched_getaffinity(None).unwrap());
        let before = config.shard_count();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        // Of this thread only, which ends with the test.
        sched_setaffinity(None, &one).unwrap();
        assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
        assert_eq!(config.shard_count(), before);
    }
}
