//! A listener for clients as its connections see it: their protocol, and their greatest number.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use sedge_base::{Instant, Rate, TokenBucket};
use sedge_broker::PublishRate;

use super::certificates;
use super::proxy::Preface;
use super::tls::Tls;
use super::websocket::WebSocket;
use super::{Certificates, Fault, Layers, Peer, Reason, Unusable, WebSocketSettings};
use crate::config::{ClientCert, LimitsConfig, ListenerConfig, ListenerRates, Protocol, ProxyProtocol, UsernameFrom};

/// See the module.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// `address:port`, or a path behind `unix:`.
    pub(crate) address: String,
    pub(crate) certificates: Option<Certificates>,
    websocket: Option<Arc<WebSocketSettings>>,
    proxy: ProxyProtocol,
    trusted: Vec<IpNet>,
    username_from: UsernameFrom,
    client_cert: ClientCert,
    connections_max: usize,
    connect_rate: Rate,
    bucket: Mutex<TokenBucket>,
    /// How fast each of its clients may publish.
    pub(crate) publish_rate: PublishRate,
    /// Present connections.
    pub(crate) connections: AtomicUsize,
    /// Connections accepted so far.
    pub(crate) accepted: AtomicU64,
    /// Connections closed at once because there were too many.
    pub(crate) over_limit: AtomicU64,
    /// Connections closed at once because they came too fast.
    pub(crate) over_rate: AtomicU64,
}

/// Why a connection is not taken.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The listener has as many as it may (`max_connections`).
    Full,
    /// The connection cannot be what the listener wants.
    Fault(Reason),
}

impl Listener {
    /// A listener of the plain kind.
    pub(crate) fn plain(name: &str, address: String, rates: &ListenerRates, limits: &LimitsConfig) -> Self {
        Self {
            name: name.to_owned(),
            protocol: Protocol::Tcp,
            address,
            certificates: None,
            websocket: None,
            proxy: ProxyProtocol::Off,
            trusted: Vec::new(),
            username_from: UsernameFrom::None,
            client_cert: ClientCert::None,
            connections_max: usize::MAX,
            connect_rate: rates.connect(limits),
            bucket: Mutex::default(),
            publish_rate: rates.publish(limits),
            connections: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
        }
    }

    /// The listener `name` that `config` describes.
    pub(crate) fn new(
        name: &str,
        address: String,
        config: &ListenerConfig,
        limits: &LimitsConfig,
    ) -> Result<Self, Unusable> {
        let protocol = config.protocol(name);
        let settings = || WebSocketSettings { paths: config.paths.clone(), origins: config.allowed_origins.clone() };
        Ok(Self {
            protocol,
            certificates: config.files(name).map(Certificates::load).transpose()?,
            websocket: protocol.is_websocket().then(|| Arc::new(settings())),
            proxy: config.proxy_protocol,
            trusted: config.proxy_trusted.clone(),
            username_from: config.username_from,
            client_cert: config.client_cert,
            connections_max: if config.max_connections == 0 { usize::MAX } else { config.max_connections },
            ..Self::plain(name, address, &config.rates, limits)
        })
    }

    /// Whether its connections begin with something that is not MQTT.
    pub(crate) fn has_handshakes(&self) -> bool {
        self.certificates.is_some() || self.websocket.is_some() || self.proxy != ProxyProtocol::Off
    }

    /// Whether one more connection does not come too fast; counts it.
    pub(crate) fn has_token(&self, now: Instant) -> bool {
        if !self.connect_rate.is_limited() {
            return true;
        }
        let has_one = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).try_take(self.connect_rate, now);
        self.over_rate.fetch_add(u64::from(!has_one), Ordering::Relaxed);
        has_one
    }

    /// Whether a balancer is to name the client of a connection from there.
    pub(crate) fn awaits_source(&self, peer: Peer) -> bool {
        match (self.proxy, peer) {
            (ProxyProtocol::Off, _) => false,
            (_, Peer::Local | Peer::Inside) => true,
            (_, Peer::Network(address)) => self.trusts(address.ip()),
        }
    }

    /// The layers of a new connection; it counts from here until [`Self::gone`].
    pub(crate) fn welcome(&self, peer: Peer) -> Result<Option<Box<Layers>>, Refused> {
        if self.connections.load(Ordering::Relaxed) >= self.connections_max {
            self.over_limit.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        let layers = if self.has_handshakes() { self.layers(peer).map_err(Refused::Fault)? } else { None };
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(layers)
    }

    /// A connection has ended.
    pub(crate) fn gone(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn layers(&self, peer: Peer) -> Result<Option<Box<Layers>>, Reason> {
        let trusted = match peer {
            Peer::Local | Peer::Inside => true,
            Peer::Network(address) => self.trusts(address.ip()),
        };
        let proxy = match self.proxy {
            ProxyProtocol::Required if !trusted => return Err(Reason::Proxy),
            ProxyProtocol::Required => Some(Preface::new(false)),
            ProxyProtocol::Optional if trusted => Some(Preface::new(true)),
            ProxyProtocol::Optional | ProxyProtocol::Off => None,
        };
        let tls = self.certificates.as_ref().map(|certificates| Tls::new(certificates.current()));
        let tls = tls.transpose().map_err(|error| {
            tracing::error!(%error, listener = self.name, "cannot begin TLS");
            Reason::Tls
        })?;
        let websocket = self.websocket.clone().map(WebSocket::new);
        let layers = Layers::new(proxy, tls, websocket);
        Ok(if layers.is_spent() { None } else { Some(Box::new(layers)) })
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The user that the client's certificate names, where the listener takes it from there.
    pub(crate) fn user(&self, layers: Option<&Layers>) -> Result<Option<String>, Fault> {
        if self.username_from == UsernameFrom::None {
            return Ok(None);
        }
        let Some(certificate) = layers.and_then(Layers::client_certificate) else {
            return if self.client_cert == ClientCert::Required { Err(Fault::Nameless) } else { Ok(None) };
        };
        certificates::user(certificate, self.username_from).map(Some).ok_or(Fault::Nameless)
    }
}
