//! `host` and `host:port` as configured, and the addresses behind them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::config::CLUSTER_PORT;

/// How long the start waits for names of seeds.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(1);

/// How often names of seeds are resolved again.
const RESOLVE_PERIOD: Duration = Duration::from_secs(10);

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

/// Resolves seeds that are names again and again and tells the node what is new, until it is dropped: a name may be unknown while a
/// site starts up, and containers come back with other addresses.
#[derive(Debug)]
pub(crate) struct SeedWatch {
    /// Dropped first: wakes the thread and ends it.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SeedWatch {
    /// Watches those of `seeds` that are names; `known` are addresses that the node asks by itself.
    pub(crate) fn start(
        seeds: &[String],
        known: &[SocketAddr],
        announce: impl Fn(SocketAddr) + Send + 'static,
    ) -> std::io::Result<Self> {
        let is_name = |seed: &&String| HostPort::parse(seed, CLUSTER_PORT).is_ok_and(|host| host.literal().is_none());
        let names: Vec<String> = seeds.iter().filter(is_name).cloned().collect();
        if names.is_empty() {
            return Ok(Self { stop: None, thread: None });
        }
        let known = known.to_vec();
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            while stopped.recv_timeout(RESOLVE_PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
                let found = resolve_all(&names).addresses;
                found.into_iter().filter(|address| !known.contains(address)).for_each(&announce);
            }
        };
        let thread = thread::Builder::new().name("sedge-seeds".to_owned()).spawn(watch)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SeedWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if the resolver does; there is nothing to do about it at the end.
            let _ = thread.join();
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

    #[test]
    fn what_cannot_be_resolved_is_told_and_the_rest_found() {
        let seeds = ["127.0.0.1:9", "localhost:9", "no-such-host.invalid"].map(str::to_owned);
        let found = resolve_all(&seeds);
        assert!(found.addresses.contains(&SocketAddr::from(([127, 0, 0, 1], 9))), "{found:?}");
        assert_eq!(found.unresolved.len(), 1, "{found:?}");
    }
}
