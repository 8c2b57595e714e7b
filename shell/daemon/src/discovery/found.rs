//! The addresses that all sources have found, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Source;

/// Most addresses that are asked: as many as there may be members. Addresses beyond this number are left out and counted.
pub(super) const ADDRESSES_MAX: usize = 1024;

/// Addresses and failures of each source. Shared by the sources' threads and the metrics.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    table: Mutex<Table>,
    /// Datagrams that no node of this cluster has made.
    pub(crate) refused: AtomicU64,
    /// Addresses for which there was no room.
    pub(crate) over_limit: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    sources: BTreeMap<Source, SourceState>,
    told: BTreeSet<SocketAddr>,
}

/// Addresses and failures of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceState {
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// Times that the source could not be asked.
    pub(crate) failures: u64,
    /// Reason of the last failure; `None`: the last attempt did not fail.
    pub(crate) failure: Option<String>,
}

impl SourceState {
    /// The log hears of it when the reason is another one than the last time.
    fn fail(&mut self, source: Source, why: String) {
        self.failures += 1;
        if self.failure.as_ref() != Some(&why) {
            tracing::warn!(key = source.key(), why, "discovery does not work; it is tried again");
            self.failure = Some(why);
        }
    }
}

impl Discovered {
    /// `source` knows these addresses, although something may have failed. `tell` gets all that are known, if they are others than
    /// before: it is called for one source at a time.
    pub(super) fn found(
        &self,
        source: Source,
        addresses: BTreeSet<SocketAddr>,
        failure: Option<String>,
        tell: impl FnOnce(Vec<SocketAddr>),
    ) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let state = table.sources.entry(source).or_default();
        state.addresses = addresses;
        match failure {
            Some(why) => state.fail(source, why),
            None if state.failure.take().is_some() => tracing::info!(key = source.key(), "discovery works again"),
            None => {}
        }
        let (told, over) = limited(table.sources.values().flat_map(|state| &state.addresses).copied());
        if told == table.told {
            return;
        }
        if over > 0 {
            self.over_limit.fetch_add(over, Ordering::Relaxed);
            tracing::warn!(over, "discovery finds more than {ADDRESSES_MAX} addresses; the rest is left out");
        }
        table.told.clone_from(&told);
        tell(told.into_iter().collect());
    }

    /// `source` cannot be asked; its former addresses stay.
    pub(super) fn failed(&self, source: Source, why: String) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.sources.entry(source).or_default().fail(source, why);
    }

    /// Every source that has said something, and what it knows.
    pub(crate) fn states(&self) -> Vec<(Source, SourceState)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.sources.iter().map(|(source, state)| (*source, state.clone())).collect()
    }
}

/// As many addresses as there is room for, and the number of those left out. The first ones stay.
fn limited(all: impl Iterator<Item = SocketAddr>) -> (BTreeSet<SocketAddr>, u64) {
    let (mut kept, mut over) = (BTreeSet::new(), 0);
    for address in all {
        if kept.len() < ADDRESSES_MAX || kept.contains(&address) {
            kept.insert(address);
        } else {
            over += 1;
        }
    }
    (kept, over)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ports: std::ops::Range<u16>) -> BTreeSet<SocketAddr> {
        ports.map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect()
    }

    fn told(found: &Discovered, source: Source, addresses: BTreeSet<SocketAddr>) -> Option<Vec<SocketAddr>> {
        let mut told = None;
        found.found(source, addresses, None, |all| told = Some(all));
        told
    }

    #[test]
    fn what_sources_find_is_one_list_and_a_failure_takes_nothing_away() {
        let found = Discovered::default();
        assert_eq!(told(&found, Source::Seeds, addresses(1..3)).map(|all| all.len()), Some(2));
        assert_eq!(told(&found, Source::Multicast, addresses(2..4)).map(|all| all.len()), Some(3));
        assert_eq!(told(&found, Source::Multicast, addresses(2..4)), None, "nothing new");
        found.failed(Source::Multicast, "no network".to_owned());
        found.failed(Source::Multicast, "no network".to_owned());
        let states = found.states();
        assert_eq!((states[1].1.failures, states[1].1.addresses.len()), (2, 2));
        assert_eq!(told(&found, Source::Multicast, BTreeSet::new()).map(|all| all.len()), Some(2));
    }

    #[test]
    fn there_is_a_limit_and_the_first_source_has_precedence() {
        let found = Discovered::default();
        let all = told(&found, Source::Multicast, addresses(1000..3000)).expect("something new");
        assert_eq!((all.len(), found.over_limit.load(Ordering::Relaxed)), (ADDRESSES_MAX, 2000 - 1024));
        let all = told(&found, Source::Seeds, addresses(5000..5001)).expect("something new");
        assert!(all.len() == ADDRESSES_MAX && all.contains(&SocketAddr::from(([10, 0, 0, 1], 5000))));
    }
}
