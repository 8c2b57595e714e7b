//! `cluster.seeds`: names are resolved at the start, and again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Post, Source};
use crate::config::CLUSTER_PORT;
use crate::host_port::HostPort;

/// How long the start waits for names of seeds.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(1);

/// What is behind the configured seeds.
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

    /// What is known now. A name that cannot be resolved leads where it led before.
    fn update(&mut self, newer: Self) {
        self.by_seed.extend(newer.by_seed);
        self.unresolved = newer.unresolved;
    }

    fn failure(&self) -> Option<String> {
        let (seed, why) = self.unresolved.first()?;
        Some(format!("{seed}: {why}"))
    }
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
            found.by_seed.insert(seed.clone(), vec![address]);
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
            Ok(addresses) => drop(found.by_seed.insert(name, addresses)),
            Err(error) => found.unresolved.push((name, error.to_string())),
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
    /// Dropped first: wakes the thread and ends it.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SeedWatch {
    /// Watches those of `seeds` that are names; `found` is what the node knows of them already.
    pub(super) fn start(seeds: &[String], found: Found, period: Duration, post: Post) -> std::io::Result<Self> {
        post.found(Source::Seeds, found.addresses(), found.failure());
        let is_name = |seed: &&String| HostPort::parse(seed, CLUSTER_PORT).is_ok_and(|host| host.literal().is_none());
        let names: Vec<String> = seeds.iter().filter(is_name).cloned().collect();
        if names.is_empty() {
            return Ok(Self { stop: None, thread: None });
        }
        let mut found = found;
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
                found.update(resolve_all(&names));
                post.found(Source::Seeds, found.addresses(), found.failure());
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
