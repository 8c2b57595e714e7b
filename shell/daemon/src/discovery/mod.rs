//! How a node finds others: sources, each with a thread of its own, yield addresses, and all of them together are the node's seeds.

mod beacon;
mod found;
mod multicast;
mod names;
mod srv;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sedge_base::ShardId;

pub(crate) use found::Discovered;
pub(crate) use multicast::{Speaker, own_ip};
pub(crate) use names::{Found, Seed, resolve_all};

use crate::runtime::{Letter, Shared};
use multicast::Multicast;
use names::SeedWatch;

/// Where addresses come from. Where there is not room for all, those of the first ones have precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// `cluster.seeds`.
    Seeds,
    /// `discovery.multicast`.
    Multicast,
}

impl Source {
    /// As it is called in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seeds => "seeds",
            Self::Multicast => "multicast",
        }
    }

    /// The setting that it comes from.
    const fn key(self) -> &'static str {
        match self {
            Self::Seeds => "cluster.seeds",
            Self::Multicast => "discovery.multicast",
        }
    }
}

/// What a node looks for.
pub(crate) struct Wanted {
    /// `cluster.seeds`.
    pub(crate) seeds: Vec<String>,
    /// What is known of them so far.
    pub(crate) found: Found,
    /// How often sources are asked that have to be asked.
    pub(crate) period: Duration,
    pub(crate) multicast: Option<Speaker>,
}

/// The threads of all sources, until it is dropped.
#[derive(Debug)]
pub(crate) struct Discovery {
    _seeds: SeedWatch,
    _multicast: Option<Multicast>,
}

impl Discovery {
    pub(crate) fn start(wanted: Wanted, shared: &Arc<Shared>) -> io::Result<Self> {
        let post = || Post(Arc::clone(shared));
        Ok(Self {
            _seeds: SeedWatch::start(&wanted.seeds, wanted.found, wanted.period, post())?,
            _multicast: wanted.multicast.map(|speaker| Multicast::start(speaker, post())).transpose()?,
        })
    }
}

/// Where sources tell what they find.
struct Post(Arc<Shared>);

impl Post {
    /// The source knows these addresses and no others, although something may have failed.
    fn found(&self, source: Source, addresses: BTreeSet<SocketAddr>, failure: Option<String>) {
        let tell = |all| self.0.post(ShardId(0), Letter::Seeds(all));
        self.0.discovered.found(source, addresses, failure, tell);
    }

    /// The source cannot be asked, and why.
    fn failed(&self, source: Source, why: String) {
        self.0.discovered.failed(source, why);
    }

    /// Something has come that no node of this cluster has made.
    fn refused(&self) {
        self.0.discovered.refused.fetch_add(1, Ordering::Relaxed);
    }
}
