//! `[discovery]`: how nodes find each other without being told.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::layers::together;
use super::{Config, Problem, services};

/// Group of a cluster that names none: of local scope (RFC 2365), so that no router of another organization passes it on.
pub const MULTICAST_GROUP: &str = "239.192.0.1";
/// Port of a group without one.
pub const MULTICAST_PORT: u16 = 7884;

/// `[discovery]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Where nodes of one network say where they are; `None`: nowhere.
    pub multicast: Option<Group>,
    /// Over which interface.
    pub multicast_interface: Interface,
    /// How many routers a beacon may pass, and one.
    pub multicast_ttl: u8,
    /// How often names are resolved again, and services asked.
    pub interval: Duration,
    /// Where etcd listens, as URLs; empty: nowhere.
    pub etcd: Vec<String>,
    /// Prefix of the cluster's keys in etcd.
    pub etcd_prefix: String,
    /// User of etcd; empty: none.
    pub etcd_user: String,
    /// File with the password.
    pub etcd_password_file: Option<PathBuf>,
    /// Authorities of etcd's certificate (PEM).
    pub etcd_ca_file: Option<PathBuf>,
    /// Certificate of this node for etcd (PEM).
    pub etcd_cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub etcd_cert_key_file: Option<PathBuf>,
    /// Kubernetes service of the nodes, `service` or `namespace/service`; empty: none.
    pub kubernetes_service: String,
    /// URL of Kubernetes' API; empty: what the environment of a pod says.
    pub kubernetes_api: String,
    /// Directory of the pod's service account.
    pub kubernetes_account: PathBuf,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            multicast: None,
            multicast_interface: Interface::Any,
            multicast_ttl: 1,
            interval: Duration::from_secs(10),
            etcd: Vec::new(),
            etcd_prefix: "/sedge".to_owned(),
            etcd_user: String::new(),
            etcd_password_file: None,
            etcd_ca_file: None,
            etcd_cert_file: None,
            etcd_cert_key_file: None,
            kubernetes_service: String::new(),
            kubernetes_api: String::new(),
            kubernetes_account: PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
        }
    }
}

impl DiscoveryConfig {
    /// Whether there is any way but `cluster.seeds`.
    pub(crate) fn is_used(&self) -> bool {
        self.multicast.is_some() || !self.etcd.is_empty() || !self.kubernetes_service.is_empty()
    }
}

/// A multicast group with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// That of the route.
    #[default]
    Any,
    /// The one with this address.
    Address(IpAddr),
    /// The one of this name.
    Name(String),
}

impl Interface {
    fn is_loopback(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Address(ip) => ip.is_loopback(),
            Self::Name(name) => name == "lo",
        }
    }
}

/// Settings of beacons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MulticastConfig {
    pub(crate) group: Group,
    pub(crate) interface: Interface,
    pub(crate) ttl: u8,
}

impl Config {
    /// How beacons travel, if there are any. Without a key only nodes of this machine are heard, and so the loopback interface does.
    pub(crate) fn multicast(&self) -> Option<MulticastConfig> {
        let discovery = &self.discovery;
        let group = discovery.multicast?;
        let loopback = || match group.ip {
            IpAddr::V4(_) => Interface::Address(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(_) => Interface::Name("lo".to_owned()),
        };
        let is_open = self.cluster.key.is_none() && discovery.multicast_interface == Interface::Any;
        let interface = if is_open { loopback() } else { discovery.multicast_interface.clone() };
        Some(MulticastConfig { group, interface, ttl: discovery.multicast_ttl })
    }

    pub(super) fn check_discovery(&self, problems: &mut Vec<Problem>) {
        self.check_multicast(problems);
        let services = services::problems(&self.discovery);
        problems.extend(services.into_iter().map(|(key, what)| together(&format!("discovery.{key}"), what)));
    }

    fn check_multicast(&self, problems: &mut Vec<Problem>) {
        let discovery = &self.discovery;
        let interface = &discovery.multicast_interface;
        let Some(group) = discovery.multicast else {
            if *interface != Interface::Any {
                problems.push(together(
                    "discovery.multicast_interface",
                    "is of no use without discovery.multicast".to_owned(),
                ));
            }
            return;
        };
        if self.cluster.key.is_none() && *interface != Interface::Any && !interface.is_loopback() {
            let what = "needs cluster.key or cluster.key_file: without it only nodes of this machine are accepted";
            problems.push(together("discovery.multicast_interface", what.to_owned()));
        }
        if let Interface::Address(ip) = interface
            && (group.ip.is_ipv6() || ip.is_ipv6())
        {
            let what = format!("{ip}: write the interface's name, such as \"eth0\", where IPv6 is in use");
            problems.push(together("discovery.multicast_interface", what));
        }
    }
}

/// Reads `address` or `address:port`; empty: none.
pub(super) fn parse_group(text: &str) -> Result<Option<Group>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "{text:?} is not a multicast group such as \"{MULTICAST_GROUP}:{MULTICAST_PORT}\" or \"[ff05::5ed9]:{MULTICAST_PORT}\""
        )
    };
    let bare = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let group = match (bare, text.parse::<std::net::SocketAddr>()) {
        (Ok(ip), _) => Group { ip, port: MULTICAST_PORT },
        (_, Ok(address)) => Group { ip: address.ip(), port: address.port() },
        _ => return Err(wrong()),
    };
    if group.ip.is_multicast() && group.port != 0 { Ok(Some(group)) } else { Err(wrong()) }
}

/// Reads an address or a name; empty: any.
pub(super) fn parse_interface(text: &str) -> Result<Interface, String> {
    if text.is_empty() {
        return Ok(Interface::Any);
    }
    if let Ok(ip) = text.parse() {
        return Ok(Interface::Address(ip));
    }
    let sane = text.len() < 16 && text.chars().all(|c| c.is_ascii_graphic() && c != '/');
    if sane { Ok(Interface::Name(text.to_owned())) } else { Err(format!("{text:?} is no interface's address or name")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_interfaces() {
        for (text, want) in [
            ("239.1.2.3", "239.1.2.3:7884"),
            ("239.1.2.3:9", "239.1.2.3:9"),
            ("ff05::1", "[ff05::1]:7884"),
            ("[ff05::1]", "[ff05::1]:7884"),
            ("[ff05::1]:9", "[ff05::1]:9"),
        ] {
            assert_eq!(parse_group(text).map(|group| group.map(|group| group.to_string())), Ok(Some(want.to_owned())));
        }
        assert_eq!(parse_group(""), Ok(None));
        for bad in ["10.0.0.1", "239.1.2.3:0", "239.1.2.3:x", "group", "::1", "on"] {
            assert!(parse_group(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_interface("eth0"), Ok(Interface::Name("eth0".to_owned())));
        assert_eq!(parse_interface("10.0.0.1"), Ok(Interface::Address([10, 0, 0, 1].into())));
        assert!(parse_interface("a name that is too long").is_err());
    }

    #[test]
    fn without_a_key_beacons_stay_on_this_machine() {
        let mut config = Config::default();
        assert_eq!(config.multicast(), None);
        config.discovery.multicast = parse_group("239.1.2.3").unwrap_or_default();
        assert_eq!(
            config.multicast().map(|multicast| multicast.interface),
            Some(Interface::Address([127, 0, 0, 1].into()))
        );
        assert!(config.clone().check().is_ok());
        config.discovery.multicast_interface = Interface::Name("eth0".to_owned());
        assert!(config.clone().check().is_err_and(|error| error.to_string().contains("needs cluster.key")));
        config.cluster.key = Some(crate::config::Secret::new("0123456789abcdef"));
        assert!(config.check().is_ok());
    }
}
