//! `[upstream]`: a foreign broker behind this node.

use std::path::PathBuf;
use std::time::Duration;

use super::layers::together;
use super::{Config, Problem};
use crate::host_port::HostPort;
use crate::transport::UpstreamTls;

/// Begins the address of a broker that listens at a Unix socket.
const UNIX: &str = "unix:";
/// Port of a broker that is named without one.
const MQTT_PORT: u16 = 1883;
/// The same with TLS.
const MQTTS_PORT: u16 = 8883;

/// `[upstream]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// `host:port`, `mqtt://host:port`, `mqtts://host:port` or `unix:/path`; empty: the node is a broker itself.
    pub address: String,
    /// Make and version of the broker, in words; empty: what it says itself.
    pub make: String,
    /// Sessions through which publications of other nodes enter the broker.
    pub inlets: u16,
    /// User name of the inlets; empty: none.
    pub user: String,
    /// File with the inlets' password.
    pub password_file: Option<PathBuf>,
    /// The authority of the broker's certificate, with `mqtts://`; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Whether the broker is told the client's address, and how.
    pub proxy_protocol: UpstreamProxy,
    /// How long clients stay connected while the broker is away.
    pub grace: Duration,
    /// How the node stands to the broker.
    pub mode: UpstreamMode,
    /// Topic filters whose messages [`UpstreamMode::Mirror`] compares.
    pub mirror_filters: Vec<String>,
    /// Bytes that the kernel keeps of captured packets with [`UpstreamMode::Sniff`].
    pub capture_buffer: usize,
}

/// Where a broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamAddress {
    /// At a TCP port.
    Network {
        /// Its host.
        host: HostPort,
        /// Whether it is reached by TLS.
        encrypted: bool,
    },
    /// At a Unix socket of this machine.
    Local(PathBuf),
}

/// How a broker behind the node is told the addresses of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProxy {
    /// Nothing.
    #[default]
    Off,
    /// A header of version 2 of the PROXY protocol ahead of each conversation.
    V2,
}

/// How a node stands to a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamMode {
    /// In front of it.
    #[default]
    Proxy,
    /// Beside it: the node compares deliveries and serves nobody.
    Mirror,
    /// Beside it: the node reads packets of the broker's clients, and serves nobody.
    Sniff,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            make: String::new(),
            inlets: 2,
            user: String::new(),
            password_file: None,
            ca_file: None,
            proxy_protocol: UpstreamProxy::Off,
            grace: Duration::from_secs(5),
            mode: UpstreamMode::Proxy,
            mirror_filters: vec!["#".to_owned()],
            capture_buffer: 16 * 1024 * 1024,
        }
    }
}

impl UpstreamConfig {
    /// Whether there is a broker behind the node.
    pub fn is_used(&self) -> bool {
        !self.address.is_empty() && self.mode == UpstreamMode::Proxy
    }

    /// Whether the node stands beside a broker.
    pub fn mirrors(&self) -> bool {
        !self.address.is_empty() && self.mode == UpstreamMode::Mirror
    }

    /// Whether the node reads packets of a broker's clients.
    pub fn sniffs(&self) -> bool {
        !self.address.is_empty() && self.mode == UpstreamMode::Sniff
    }

    /// Whether the node serves clients: beside a broker it does not.
    pub fn serves(&self) -> bool {
        !self.mirrors() && !self.sniffs()
    }

    /// Where the broker is.
    pub(crate) fn place(&self) -> Result<UpstreamAddress, String> {
        match self.address.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => Ok(UpstreamAddress::Local(PathBuf::from(path))),
            Some(_) => Err(format!("not an absolute path; write {UNIX}/path/of/the/socket")),
            None => self.network_place().map(|(host, encrypted)| UpstreamAddress::Network { host, encrypted }),
        }
    }

    /// The broker's host, and whether it is reached by TLS.
    pub(crate) fn network_place(&self) -> Result<(HostPort, bool), String> {
        let (rest, encrypted) = match (self.address.strip_prefix("mqtts://"), self.address.strip_prefix("mqtt://")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => (self.address.as_str(), false),
        };
        let port = if encrypted { MQTTS_PORT } else { MQTT_PORT };
        HostPort::parse(rest, port).map(|place| (place, encrypted))
    }

    /// The inlets' password.
    pub(crate) fn password(&self) -> Result<Option<Vec<u8>>, String> {
        let Some(file) = &self.password_file else { return Ok(None) };
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).as_bytes().to_vec()))
    }
}

impl Config {
    pub(super) fn check_upstream(&self, problems: &mut Vec<Problem>) {
        let upstream = &self.upstream;
        let mut problem = |key: &str, what: String| problems.push(together(&format!("upstream.{key}"), what));
        if upstream.address.is_empty() {
            if *upstream != UpstreamConfig::default() {
                problem("address", "is missing: write where the broker is, such as \"127.0.0.1:1884\"".to_owned());
            }
            return;
        }
        match upstream.place() {
            Err(what) => problem("address", format!("{:?}: {what}", upstream.address)),
            Ok(UpstreamAddress::Network { encrypted: false, .. } | UpstreamAddress::Local(_))
                if upstream.ca_file.is_some() =>
            {
                problem("ca_file", "is of no use without TLS: write mqtts:// in upstream.address".to_owned());
            }
            Ok(UpstreamAddress::Network { host, encrypted: true }) => {
                if let Err(what) = UpstreamTls::load(&host.host, upstream.ca_file.as_deref()) {
                    problem("ca_file", what);
                }
            }
            Ok(UpstreamAddress::Local(_)) if upstream.mode != UpstreamMode::Proxy => {
                let what = "is a Unix socket, which works with upstream.mode = \"proxy\" only: write host:port";
                problem("address", what.to_owned());
            }
            Ok(_) => {}
        }
        if let Err(what) = upstream.password() {
            problem("password_file", what);
        }
        if upstream.password_file.is_some() && upstream.user.is_empty() {
            problem("user", "is missing: upstream.user and upstream.password_file belong together".to_owned());
        }
        if upstream.mirrors() {
            self.check_mirror(problems);
            return;
        }
        if upstream.sniffs() {
            if matches!(upstream.place(), Ok(UpstreamAddress::Network { encrypted: true, .. })) {
                let what = "is \"sniff\", which reads plain TCP only: TLS hides what clients say; use \"proxy\", or let clients connect without TLS";
                problem("mode", what.to_owned());
            }
            return;
        }
        let own = [self.mqtt.port].into_iter().filter(|_| self.mqtt.enabled);
        let is_me = |host: &HostPort| {
            host.literal()
                .is_some_and(|address| address.ip().is_loopback() && own.clone().any(|port| port == address.port()))
        };
        if matches!(upstream.place(), Ok(UpstreamAddress::Network { host, .. }) if is_me(&host)) {
            problem("address", format!("{:?} is this node's own listener (mqtt.port)", upstream.address));
        }
        if let Ok(UpstreamAddress::Local(path)) = upstream.place() {
            let own = self.listeners.iter().find(|(_, listener)| listener.socket.as_ref() == Some(&path));
            if let Some((name, _)) = own {
                let address = &upstream.address;
                problem("address", format!("{address:?} is this node's own listener (listener.{name}.socket)"));
            }
        }
        if self.sparkplug.certificates {
            let what =
                "the broker behind this node has the retained messages: leave this out, or let that broker keep births";
            problems.push(together("sparkplug.certificates", what.to_owned()));
        }
        if self.node.shards > 1 {
            let what = "a node before a broker has one thread for clients: leave node.shards out, or set it to 1";
            problems.push(together("node.shards", what.to_owned()));
        }
    }

    fn check_mirror(&self, problems: &mut Vec<Problem>) {
        for filter in &self.upstream.mirror_filters {
            if sedge_mqtt::TopicFilter::new(filter).is_err() {
                let what = format!("{filter:?} is no topic filter; write filters that your clients subscribe to");
                problems.push(together("upstream.mirror_filters", what));
            }
        }
        if self.upstream.mirror_filters.is_empty() {
            problems.push(together("upstream.mirror_filters", "names nothing to compare; write [\"#\"]".to_owned()));
        }
        if !self.cluster.seeds.is_empty() || !self.cluster.neighbours.is_empty() {
            let what = "a node beside a broker (upstream.mode = \"mirror\") stands alone: leave this out";
            problems.push(together("cluster.seeds", what.to_owned()));
        }
    }
}
