//! `[listener.NAME]`: listeners for clients beside the plain one of `[mqtt]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::rates::{ListenerRates, RATE_MAX};
use super::value::Value;
use crate::transport::{Certificates, Files};

/// Most listeners beside the plain one.
pub(super) const LISTENERS_MAX: usize = 100;
/// Longest name of a listener.
const NAME_BYTES_MAX: usize = 32;
/// First part of every key here.
const SECTION: &str = "listener";

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Protocol of its clients; `None`: the one that the listener's name says.
    pub protocol: Option<Protocol>,
    /// Address of the listener.
    pub bind: IpAddr,
    /// Port; 0: any free one; `None`: the usual one of the protocol.
    pub port: Option<u16>,
    /// Path of a Unix socket, instead of address and port.
    pub socket: Option<PathBuf>,
    /// Permissions of its file, as `chmod` takes them.
    pub socket_mode: u32,
    /// Certificate of the node, and those between it and its authority (PEM).
    pub cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub key_file: Option<PathBuf>,
    /// Authorities that sign clients' certificates (PEM).
    pub ca_file: Option<PathBuf>,
    /// Whether clients show a certificate.
    pub client_cert: ClientCert,
    /// Part of a client's certificate that is the user name.
    pub username_from: UsernameFrom,
    /// Whether a load balancer says for whom it connects.
    pub proxy_protocol: ProxyProtocol,
    /// Balancers that are believed.
    pub proxy_trusted: Vec<IpNet>,
    /// Connections at the same time; 0: only `limits.max_connections` counts.
    pub max_connections: usize,
    /// Rates of its own.
    pub rates: ListenerRates,
    /// Paths of the WebSocket; empty: all.
    pub paths: Vec<String>,
    /// Origins whose pages may connect; empty: all.
    pub allowed_origins: Vec<String>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            protocol: None,
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: None,
            socket: None,
            socket_mode: 0o660,
            cert_file: None,
            key_file: None,
            ca_file: None,
            client_cert: ClientCert::None,
            username_from: UsernameFrom::None,
            proxy_protocol: ProxyProtocol::Off,
            proxy_trusted: Vec::new(),
            max_connections: 0,
            rates: ListenerRates::default(),
            paths: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}

/// Transport of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP or a Unix socket.
    Tcp,
    /// TLS.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

const PROTOCOLS: [(&str, Protocol); 4] =
    [("tcp", Protocol::Tcp), ("tls", Protocol::Tls), ("ws", Protocol::Ws), ("wss", Protocol::Wss)];

impl Protocol {
    /// Its name in configuration and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether the connection is encrypted.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether MQTT is in WebSocket frames.
    pub const fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// The port that clients expect.
    pub const fn port(self) -> u16 {
        match self {
            Self::Tcp => super::MQTT_PORT,
            Self::Tls => 8883,
            Self::Ws => 8083,
            Self::Wss => 8084,
        }
    }
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCert {
    /// They are not asked for one.
    #[default]
    None,
    /// They may; one that is shown has to be valid.
    Optional,
    /// Those without are refused.
    Required,
}

/// Part of a client's certificate that is the user name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsernameFrom {
    /// Nothing.
    #[default]
    None,
    /// The common name of its subject.
    Cn,
    /// The first of its alternative names that is a host, an address of mail or a URI.
    San,
}

/// Whether connections begin with a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// They do not.
    #[default]
    Off,
    /// Those of trusted balancers may.
    Optional,
    /// All do, and only trusted balancers may connect.
    Required,
}

type Set = fn(&mut ListenerConfig, &Value) -> Result<(), String>;

pub(super) struct ListenerKey {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) set: Set,
}

const fn key(name: &'static str, about: &'static str, set: Set) -> ListenerKey {
    ListenerKey { name, about, set }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

fn path(value: &Value) -> Result<Option<PathBuf>, String> {
    Ok(Some(value.text()?).filter(|text| !text.is_empty()).map(PathBuf::from))
}

pub(super) const LISTENER_KEYS: &[ListenerKey] = &[
    key("listener.NAME.protocol", "what clients speak: tcp, tls, ws or wss", |l, v| {
        put(&mut l.protocol, v.choice(&PROTOCOLS).map(Some))
    }),
    key("listener.NAME.bind", "address of the listener", |l, v| put(&mut l.bind, v.ip())),
    key("listener.NAME.port", "port of the listener; 0: any free one", |l, v| put(&mut l.port, v.port().map(Some))),
    key("listener.NAME.socket", "path of a Unix socket, instead of address and port", |l, v| {
        put(&mut l.socket, path(v))
    }),
    key("listener.NAME.socket_mode", "permissions of the Unix socket", |l, v| put(&mut l.socket_mode, mode(v))),
    key("listener.NAME.cert_file", "certificate chain (PEM)", |l, v| put(&mut l.cert_file, path(v))),
    key("listener.NAME.key_file", "private key (PEM)", |l, v| put(&mut l.key_file, path(v))),
    key("listener.NAME.ca_file", "authorities that sign clients' certificates (PEM)", |l, v| {
        put(&mut l.ca_file, path(v))
    }),
    key("listener.NAME.client_cert", "whether clients show a certificate", |l, v| {
        let words =
            [("none", ClientCert::None), ("optional", ClientCert::Optional), ("required", ClientCert::Required)];
        put(&mut l.client_cert, v.choice(&words))
    }),
    key("listener.NAME.username_from", "what of the client's certificate is its user name", |l, v| {
        let words = [("none", UsernameFrom::None), ("cn", UsernameFrom::Cn), ("san", UsernameFrom::San)];
        put(&mut l.username_from, v.choice(&words))
    }),
    key("listener.NAME.proxy_protocol", "whether a load balancer says for whom it connects", |l, v| {
        let words =
            [("off", ProxyProtocol::Off), ("optional", ProxyProtocol::Optional), ("required", ProxyProtocol::Required)];
        put(&mut l.proxy_protocol, v.choice(&words))
    }),
    key("listener.NAME.proxy_trusted", "addresses and networks of balancers that are believed", |l, v| {
        put(&mut l.proxy_trusted, networks(v))
    }),
    key("listener.NAME.max_connections", "connections of this listener; 0: no limit of its own", |l, v| {
        put(&mut l.max_connections, v.narrow(0, 1 << 31))
    }),
    key("listener.NAME.max_connect_rate", "as limits.max_connect_rate, for this listener", |l, v| {
        put(&mut l.rates.connect.per_second, v.number(0, RATE_MAX).map(Some))
    }),
    key("listener.NAME.max_connect_burst", "as limits.max_connect_burst, for this listener", |l, v| {
        put(&mut l.rates.connect.burst, v.number(0, 1 << 31).map(Some))
    }),
    key("listener.NAME.max_publish_rate", "as limits.max_publish_rate, for its clients", |l, v| {
        put(&mut l.rates.publish.per_second, v.number(0, RATE_MAX).map(Some))
    }),
    key("listener.NAME.max_publish_burst", "as limits.max_publish_burst, for its clients", |l, v| {
        put(&mut l.rates.publish.burst, v.number(0, 1 << 31).map(Some))
    }),
    key("listener.NAME.max_publish_byte_rate", "as limits.max_publish_byte_rate, for its clients", |l, v| {
        put(&mut l.rates.publish_bytes.per_second, v.size(0, RATE_MAX).map(Some))
    }),
    key("listener.NAME.max_publish_byte_burst", "as limits.max_publish_byte_burst, for its clients", |l, v| {
        put(&mut l.rates.publish_bytes.burst, v.size(0, RATE_MAX).map(Some))
    }),
    key("listener.NAME.path", "path of the WebSocket, or a list of them; empty: all", |l, v| {
        put(&mut l.paths, paths(v))
    }),
    key("listener.NAME.allowed_origins", "origins whose pages may connect; empty: all", |l, v| {
        put(&mut l.allowed_origins, v.list())
    }),
];

/// One path or several.
fn paths(value: &Value) -> Result<Vec<String>, String> {
    let several = value.list();
    if several.is_ok() {
        return several;
    }
    value.text().map_or(several, |path| Ok(vec![path]))
}

fn mode(value: &Value) -> Result<u32, String> {
    let text = value.text()?;
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not a mode such as \"660\""))
}

fn networks(value: &Value) -> Result<Vec<IpNet>, String> {
    let network = |text: &String| {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let wrong = || format!("{text:?} is not an address or a network such as \"10.0.0.0/8\"");
        text.parse::<IpNet>().ok().or_else(address).ok_or_else(wrong)
    };
    value.list()?.iter().map(network).collect()
}

/// Name of the listener and of the key in `listener.NAME.key`.
pub(super) fn split(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(SECTION)?.strip_prefix('.')?.rsplit_once('.')
}

pub(super) fn is_section(name: &str) -> bool {
    name == SECTION
}

pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name == "mqtt" {
        return Err("is the name of the listener of [mqtt]; choose another".to_owned());
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return Err(format!(
            "the name of a listener has 1 to {NAME_BYTES_MAX} letters a to z, digits, hyphens and underscores"
        ));
    }
    Ok(())
}

impl ListenerConfig {
    /// Protocol of the listener's clients: the configured one, or else the one that its name says.
    pub(crate) fn protocol(&self, name: &str) -> Protocol {
        let named = PROTOCOLS.iter().find(|(protocol, _)| *protocol == name).map(|&(_, protocol)| protocol);
        self.protocol.or(named).unwrap_or(Protocol::Tcp)
    }

    /// Address of the listener, unless it is on a Unix socket.
    pub(crate) fn address(&self, name: &str) -> Option<SocketAddr> {
        let port = self.port.unwrap_or_else(|| self.protocol(name).port());
        self.socket.is_none().then(|| SocketAddr::new(self.bind, port))
    }

    /// Its certificates, if it has some.
    pub(crate) fn files(&self, name: &str) -> Option<Files> {
        let (cert, key) = (self.cert_file.clone()?, self.key_file.clone()?);
        let files = Files { cert, key, ca: self.ca_file.clone(), client_cert: self.client_cert };
        self.protocol(name).is_tls().then_some(files)
    }

    /// Everything that does not go together: name of a key, and what is wrong.
    pub(super) fn problems(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut wrong = |key, what: &str| found.push((key, what.to_owned()));
        let default = Self::default();
        let protocol = self.protocol(name);
        if self.protocol.is_none() && !PROTOCOLS.iter().any(|(known, _)| *known == name) {
            wrong("protocol", "is missing: say \"tcp\", \"tls\", \"ws\" or \"wss\"");
        }
        if self.socket.is_some() && (self.port.is_some() || self.bind != default.bind) {
            wrong("socket", "is given with bind or port; a listener has one or the other");
        }
        if self.socket.is_none() && self.socket_mode != default.socket_mode {
            wrong("socket_mode", "is for Unix sockets: give socket, too");
        }
        if protocol.is_tls() {
            for (key, file) in [("cert_file", &self.cert_file), ("key_file", &self.key_file)] {
                if file.is_none() {
                    wrong(key, &format!("is missing: a listener for {} needs cert_file and key_file", protocol.name()));
                }
            }
        } else if self.cert_file.is_some() || self.key_file.is_some() || self.client_cert != ClientCert::None {
            let key = if self.cert_file.is_some() { "cert_file" } else { "key_file" };
            let key = if self.client_cert == ClientCert::None { key } else { "client_cert" };
            wrong(key, &format!("is for protocols tls and wss, and this listener speaks {}", protocol.name()));
        }
        if self.client_cert != ClientCert::None && self.ca_file.is_none() {
            wrong("client_cert", "needs ca_file: who signs the clients' certificates?");
        }
        if self.client_cert == ClientCert::None && self.ca_file.is_some() {
            wrong("ca_file", "is without effect while client_cert is \"none\"; say \"optional\" or \"required\"");
        }
        if self.client_cert == ClientCert::None && self.username_from != UsernameFrom::None {
            wrong("username_from", "needs client_cert = \"optional\" or \"required\"");
        }
        if self.proxy_protocol == ProxyProtocol::Off && !self.proxy_trusted.is_empty() {
            wrong("proxy_trusted", "is without effect while proxy_protocol is \"off\"");
        }
        if self.proxy_protocol != ProxyProtocol::Off && self.proxy_trusted.is_empty() && self.socket.is_none() {
            wrong("proxy_protocol", "needs proxy_trusted: addresses or networks of the balancers");
        }
        if let Some(path) = self.paths.iter().find(|path| !path.starts_with('/')) {
            wrong("path", &format!("{path:?} must begin with /"));
        }
        if !(protocol.is_websocket() || self.paths.is_empty() && self.allowed_origins.is_empty()) {
            let key = if self.paths.is_empty() { "allowed_origins" } else { "path" };
            wrong(key, &format!("is for protocols ws and wss, and this listener speaks {}", protocol.name()));
        }
        if found.is_empty()
            && let Some(Err(unusable)) = self.files(name).map(Certificates::load)
        {
            found.push(unusable);
        }
        found
    }
}
