//! `host` and `host:port` as configured, and the addresses behind them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::config::CLUSTER_PORT;

/// How long the start waits for names of seeds.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(1);

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

/// What is behind the configured seeds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Seeds without an address, and why.
    pub(crate) unresolved: Vec<(String, String)>,
}

/// Resolves all seeds side by side and waits for the resolver only so long: a node serves its clients also when DNS is down.
pub(crate) fn resolve_all(seeds: &[String]) -> Found {
    let mut found = Found::default();
    let (sender, answers) = mpsc::channel();
    let mut asked = Vec::new();
    for seed in seeds {
        let host = match HostPort::parse(seed, CLUSTER_PORT) {
            Ok(host) => host,
            Err(why) => {
                found.unresolved.push((seed.clone(), why));
                continue;
            }
        };
        if let Some(address) = host.literal() {
            found.addresses.push(address);
            continue;
        }
        let (sender, name) = (sender.clone(), seed.clone());
        let resolve = move || {
            // Nobody listens any more when this took too long.
            let _ = sender.send((name, host.resolve()));
        };
        match thread::Builder::new().name("sedge-resolve".to_owned()).spawn(resolve) {
            Ok(_) => asked.push(seed.clone()),
            Err(error) => found.unresolved.push((seed.clone(), error.to_string())),
        }
    }
    drop(sender);
    let deadline = Instant::now() + RESOLVE_PATIENCE;
    while let Ok((name, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        asked.retain(|seed| *seed != name);
        match answer {
            Ok(addresses) => found.addresses.extend(addresses),
            Err(error) => found.unresolved.push((name, error.to_string())),
        }
    }
    found.unresolved.extend(asked.into_iter().map(|seed| (seed, "the resolver takes too long".to_owned())));
    found.addresses.sort_unstable();
    found.addresses.dedup();
    found
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

    #[test]
    fn what_cannot_be_resolved_is_told_and_the_rest_found() {
        let seeds = ["127.0.0.1:9", "localhost:9", "no-such-host.invalid"].map(str::to_owned);
        let found = resolve_all(&seeds);
        assert!(found.addresses.contains(&SocketAddr::from(([127, 0, 0, 1], 9))), "{found:?}");
        assert_eq!(found.unresolved.len(), 1, "{found:?}");
    }
}
