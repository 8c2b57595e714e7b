//! `cluster.seeds`: names are resolved at the start, and again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Post, Source, srv};
use crate::config::CLUSTER_PORT;
use crate::host_port::HostPort;

/// How long the start waits for names of seeds.
const START_PATIENCE: Duration = Duration::from_secs(1);
/// How long a round waits for them later: resolvers ask a second server after some seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Prefix of seeds that are services.
const SRV: &str = "srv:";

/// A seed as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seed {
    /// A host.
    Host(HostPort),
    /// A service with SRV records.
    Service(String),
}

impl Seed {
    /// Reads `host`, `host:port` or `srv:service`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(service) = text.strip_prefix(SRV) else {
            return HostPort::parse(text, CLUSTER_PORT).map(Self::Host);
        };
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        };
        let name = service.strip_suffix('.').unwrap_or(service);
        if name.len() <= 253 && name.split('.').all(label) {
            return Ok(Self::Service(service.to_owned()));
        }
        Err("no name of a service; write srv:_sedge._tcp.example.org".to_owned())
    }

    /// The address, if it is one already.
    fn literal(&self) -> Option<SocketAddr> {
        if let Self::Host(host) = self { host.literal() } else { None }
    }

    /// All addresses; asks resolvers and may take seconds.
    fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let service = match self {
            Self::Host(host) => return host.resolve().map_err(|error| error.to_string()),
            Self::Service(service) => service,
        };
        let (mut addresses, mut failure) = (Vec::new(), None);
        for host in srv::lookup(service)? {
            match host.resolve() {
                Ok(found) => addresses.extend(found),
                Err(error) => failure = Some(format!("{host}: {error}")),
            }
        }
        // One host without an address takes nothing from the others.
        failure.filter(|_| addresses.is_empty()).map_or(Ok(addresses), Err)
    }
}

/// Addresses behind the configured seeds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    by_seed: BTreeMap<String, Vec<SocketAddr>>,
    /// Seeds without an address, and why.
    pub(crate) unresolved: Vec<(String, String)>,
}

impl Found {
    /// All addresses, each once.
    pub(crate) fn addresses(&self) -> BTreeSet<SocketAddr> {
        self.by_seed.values().flatten().copied().collect()
    }

    /// Takes over the newer addresses. A name that cannot be resolved keeps its former addresses.
    fn update(&mut self, newer: Self) {
        self.by_seed.extend(newer.by_seed);
        self.unresolved = newer.unresolved;
    }

    fn failure(&self) -> Option<String> {
        let texts: Vec<String> = self.unresolved.iter().map(|(seed, why)| format!("{seed}: {why}")).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Resolves all seeds side by side and waits for the resolver only so long: a node serves its clients also when DNS is down.
pub(crate) fn resolve_all(seeds: &[String]) -> Found {
    resolve_within(START_PATIENCE, seeds)
}

fn resolve_within(patience: Duration, seeds: &[String]) -> Found {
    let mut found = Found::default();
    let (sender, answers) = mpsc::channel();
    let mut asked = Vec::new();
    for seed in seeds {
        let parsed = match Seed::parse(seed) {
            Ok(parsed) => parsed,
            Err(why) => {
                found.unresolved.push((seed.clone(), why));
                continue;
            }
        };
        if let Some(address) = parsed.literal() {
            found.by_seed.insert(seed.clone(), vec![address]);
            continue;
        }
        let (sender, name) = (sender.clone(), seed.clone());
        let resolve = move || {
            // Nobody listens any more when this took too long.
            let _ = sender.send((name, parsed.resolve()));
        };
        match thread::Builder::new().name("sedge-resolve".to_owned()).spawn(resolve) {
            Ok(_) => asked.push(seed.clone()),
            Err(error) => found.unresolved.push((seed.clone(), error.to_string())),
        }
    }
    drop(sender);
    let deadline = Instant::now() + patience;
    while let Ok((name, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        asked.retain(|seed| *seed != name);
        match answer {
            Ok(addresses) => drop(found.by_seed.insert(name, addresses)),
            Err(why) => found.unresolved.push((name, why)),
        }
    }
    found.unresolved.extend(asked.into_iter().map(|seed| (seed, "the resolver takes too long".to_owned())));
    found.unresolved.sort_unstable();
    found
}

/// Resolves seeds that are names again and again and tells the node what is new, until it is dropped: a name may be unknown while a
/// site starts up, and containers come back with other addresses.
#[derive(Debug)]
pub(crate) struct SeedWatch {
    /// Dropped, it ends the thread after its present round; nobody waits for that, since a resolver takes its time.
    _stop: Option<mpsc::Sender<()>>,
}

impl SeedWatch {
    /// Watches those of `seeds` that are names; `found` is what the node knows of them already.
    pub(super) fn start(seeds: &[String], found: Found, period: Duration, post: Post) -> std::io::Result<Self> {
        post.found(Source::Seeds, found.addresses(), found.failure());
        let is_name = |seed: &&String| Seed::parse(seed).is_ok_and(|seed| seed.literal().is_none());
        let names: Vec<String> = seeds.iter().filter(is_name).cloned().collect();
        if names.is_empty() {
            return Ok(Self { _stop: None });
        }
        let mut found = found;
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
                found.update(resolve_within(PATIENCE, &names));
                post.found(Source::Seeds, found.addresses(), found.failure());
            }
        };
        thread::Builder::new().name("sedge-seeds".to_owned()).spawn(watch)?;
        Ok(Self { _stop: Some(stop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_services() {
        let service = |name: &str| Ok(Seed::Service(name.to_owned()));
        assert_eq!(Seed::parse("srv:_sedge._tcp.example.org"), service("_sedge._tcp.example.org"));
        assert_eq!(Seed::parse("srv:_sedge._tcp."), service("_sedge._tcp."));
        assert!(matches!(Seed::parse("gw-1"), Ok(Seed::Host(_))));
        for bad in ["srv:", "srv:.", "srv:a..b", "srv:a b", "srv:_sedge._tcp:7883"] {
            assert!(Seed::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_told_and_the_rest_found() {
        let seeds = ["127.0.0.1:9", "localhost:9", "no-such-host.invalid"].map(str::to_owned);
        let found = resolve_all(&seeds);
        assert!(found.addresses().contains(&SocketAddr::from(([127, 0, 0, 1], 9))), "{found:?}");
        assert_eq!(found.unresolved.len(), 1, "{found:?}");
    }

    /// EL-02: a name that changes is followed, and one that is unknown for a while loses nothing.
    #[test]
    fn newer_answers_take_the_place_of_older_ones() {
        let answer =
            |port| Found { by_seed: [("a".to_owned(), vec![([10, 0, 0, 1], port).into()])].into(), ..Found::default() };
        let mut found = answer(1);
        found.update(answer(2));
        assert_eq!(found.addresses(), BTreeSet::from([SocketAddr::from(([10, 0, 0, 1], 2))]));
        found.update(Found { unresolved: vec![("a".to_owned(), "no answer".to_owned())], ..Found::default() });
        assert_eq!((found.addresses().len(), found.failure().as_deref()), (1, Some("a: no answer")));
    }
}
