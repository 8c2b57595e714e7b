//! Transports of MQTT: sockets, and on them the PROXY protocol, TLS and WebSocket.
//!
//! Plain TCP has no layers and pays for none: a connection has `Option<Box<Layers>>`, and `None` is read and written as if
//! this module did not exist.

mod certificates;
mod cluster;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod layers;
mod listener;
mod proxy;
mod secured;
mod socket;
mod tls;
mod upgrade;
mod upstream;
mod websocket;

pub(crate) use certificates::{Certificates, Files, Unusable};
pub(crate) use cluster::{ClusterTls, NodeFiles};
pub(crate) use layers::Layers;
pub(crate) use listener::{Listener, Refused};
pub(crate) use secured::{Secured, explain};
pub(crate) use socket::{Acceptor, Peer, Socket};
pub(crate) use upgrade::Settings as WebSocketSettings;
pub(crate) use upstream::{UpstreamTls, proxy_header};

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It may.
    Open,
    /// The other side has said its last word.
    End,
}

/// A fault of a connection below MQTT.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// No or a wrong PROXY header.
    #[error("{0}")]
    Proxy(&'static str),
    /// TLS does not come about, or is broken.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The client's certificate names no user.
    #[error("the client's certificate names no user")]
    Nameless,
    /// The request for a WebSocket was refused.
    #[error("WebSocket: {0}")]
    Upgrade(&'static str),
    /// A frame that breaks the rules.
    #[error("WebSocket: {0}")]
    Frame(&'static str),
}

/// Why a connection came to nothing below MQTT, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No or a wrong PROXY header, or a balancer that is not trusted.
    Proxy,
    /// The bytes are no TLS, or a kind of TLS that the node does not speak.
    Tls,
    /// The client has shown no certificate, or one that is not accepted or names no user.
    ClientCertificate,
    /// The client has refused our certificate or ended the handshake.
    Alert,
    /// The request for a WebSocket was refused.
    Upgrade,
    /// A frame that breaks the rules.
    Frame,
    /// The handshake took longer than `limits.connect_timeout`.
    Timeout,
    /// The client went away before it had said who it is.
    Ended,
    /// Too many handshakes at the same time (`limits.max_handshakes`).
    Crowded,
}

impl Reason {
    /// All, with their names in metrics.
    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::Proxy, "proxy_header"),
        (Self::Tls, "tls"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::Alert, "tls_alert"),
        (Self::Upgrade, "websocket_request"),
        (Self::Frame, "websocket_frame"),
        (Self::Timeout, "timeout"),
        (Self::Ended, "ended"),
        (Self::Crowded, "too_many"),
    ];
}

impl Fault {
    /// The key of the configuration that decides; empty: none does.
    pub(crate) const fn key(&self) -> &'static str {
        match (self, self.reason()) {
            (Self::Nameless, _) => "listener.NAME.username_from",
            (_, Reason::ClientCertificate) => "listener.NAME.client_cert",
            (_, Reason::Proxy) => "listener.NAME.proxy_protocol",
            (_, Reason::Alert) => "listener.NAME.cert_file",
            (_, Reason::Tls) => "listener.NAME.protocol",
            // The words name it.
            _ => "",
        }
    }

    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Proxy(_) => Reason::Proxy,
            Self::Tls(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
            | Self::Nameless => Reason::ClientCertificate,
            Self::Tls(rustls::Error::AlertReceived(_)) => Reason::Alert,
            Self::Tls(_) => Reason::Tls,
            Self::Upgrade(_) => Reason::Upgrade,
            Self::Frame(_) => Reason::Frame,
        }
    }
}
