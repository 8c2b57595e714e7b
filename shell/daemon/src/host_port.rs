//! `host` and `host:port` as configured, and the addresses behind them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A host with a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    /// Name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

impl HostPort {
    /// Reads `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what}; write host or host:port"));
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self { host: text.to_owned(), port: default_port });
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => {
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').unwrap_or("")) })
            }
            Some(_) => return wrong("not an IPv6 address in brackets"),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(sane) {
            return wrong("no host name");
        }
        let port = match port.map(str::parse::<u16>) {
            None => default_port,
            Some(Ok(port)) if port != 0 => port,
            Some(_) => return wrong("the port is not between 1 and 65535"),
        };
        Ok(Self { host: host.to_owned(), port })
    }

    /// The address, if the host is one already.
    pub(crate) fn literal(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    /// All addresses behind the name; asks the system's resolver and may take seconds.
    pub(crate) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        let parse = |text| HostPort::parse(text, 7883).map(|seed| seed.to_string());
        for (text, want) in [
            ("gw-1", "gw-1:7883"),
            ("gw-1.site:9", "gw-1.site:9"),
            ("10.0.0.1", "10.0.0.1:7883"),
            ("::1", "[::1]:7883"),
            ("[::1]", "[::1]:7883"),
            ("[fe80::2]:80", "[fe80::2]:80"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(want), "{text}");
        }
        for bad in ["", ":80", "a:b", "a:0", "a:70000", "[a]:1", "[::1]x", "a b", "http://a"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
