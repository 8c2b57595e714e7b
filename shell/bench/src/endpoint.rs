//! Addresses of brokers.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Transport that carries MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// TCP: `mqtt://` or nothing.
    Tcp,
    /// TLS: `mqtts://`.
    Tls,
    /// WebSocket: `ws://`.
    Ws,
    /// WebSocket over TLS: `wss://`.
    Wss,
}

impl Carrier {
    /// Whether the connection is encrypted.
    pub(crate) const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether MQTT is in WebSocket frames.
    pub(crate) const fn is_ws(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    const fn names(self) -> (&'static str, u16) {
        match self {
            Self::Tcp => ("mqtt", 1883),
            Self::Tls => ("mqtts", 8883),
            Self::Ws => ("ws", 8083),
            Self::Wss => ("wss", 8084),
        }
    }
}

/// Address of a broker: `HOST:PORT`, `mqtt://HOST`, `mqtts://HOST`, `ws://HOST/PATH` or `wss://HOST/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// Transport that carries MQTT.
    pub(crate) carrier: Carrier,
    /// Name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Path of the WebSocket.
    pub(crate) path: String,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: no broker address such as HOST:PORT, mqtts://HOST or ws://HOST/mqtt");
        let (carrier, rest) = match text.split_once("://") {
            None => (Carrier::Tcp, text),
            Some(("mqtt" | "tcp", rest)) => (Carrier::Tcp, rest),
            Some(("mqtts" | "tls" | "ssl", rest)) => (Carrier::Tls, rest),
            Some(("ws", rest)) => (Carrier::Ws, rest),
            Some(("wss", rest)) => (Carrier::Wss, rest),
            Some(_) => return Err(wrong()),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, format!("/{path}")),
            None => (rest, "/mqtt".to_owned()),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.starts_with('[') && host.ends_with(']') => {
                (host, port.parse().ok().ok_or_else(wrong)?)
            }
            _ => (authority, carrier.names().1),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || port == 0 {
            return Err(wrong());
        }
        Ok(Self { carrier, host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.carrier {
            Carrier::Tcp => write!(f, "{host}:{}", self.port),
            Carrier::Tls => write!(f, "mqtts://{host}:{}", self.port),
            Carrier::Ws | Carrier::Wss => write!(f, "{}://{host}:{}{}", self.carrier.names().0, self.port, self.path),
        }
    }
}

impl Endpoint {
    /// Host and port, as a request names them.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// The first address that the name has.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, BenchError> {
        let none = || BenchError::NoAddress(self.to_string());
        (self.host.as_str(), self.port).to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("localhost", "localhost:1883"),
            ("10.0.0.1:1884", "10.0.0.1:1884"),
            ("mqtt://h", "h:1883"),
            ("mqtts://h", "mqtts://h:8883"),
            ("[::1]:99", "[::1]:99"),
            ("::1", "[::1]:1883"),
            ("ws://h:80/x/y", "ws://h:80/x/y"),
            ("wss://h", "wss://h:8084/mqtt"),
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), written);
            assert_eq!(written.parse::<Endpoint>(), Ok(endpoint));
        }
        for text in ["", ":1883", "h:x", "http://h", "h:0"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
