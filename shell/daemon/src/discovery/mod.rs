//! How a node finds others: sources, each with a thread of its own, yield addresses, and all of them together are the node's seeds.

mod beacon;
mod etcd;
mod found;
mod kubernetes;
mod multicast;
mod names;
mod rounds;
mod srv;
pub(crate) mod web;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sedge_base::ShardId;

#[cfg(any(test, fuzzing))]
pub(crate) use beacon::fuzz as beacon_fuzz;
pub(crate) use etcd::EtcdSettings;
pub(crate) use found::{Discovered, SourceState};
pub(crate) use kubernetes::KubernetesSettings;
pub(crate) use multicast::{Speaker, own_ip};
pub(crate) use names::{Found, Seed, resolve_all};

use crate::StartError;
use crate::runtime::{Letter, Shared};
use etcd::Etcd;
use found::ADDRESSES_MAX;
use kubernetes::Kubernetes;
use multicast::Multicast;
use names::SeedWatch;
use rounds::Rounds;

/// Where addresses come from. Where there is not room for all, those of the first ones have precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// `cluster.seeds`.
    Seeds,
    /// `discovery.multicast`.
    Multicast,
    /// `discovery.etcd`.
    Etcd,
    /// `discovery.kubernetes_service`.
    Kubernetes,
}

impl Source {
    /// As it is called in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seeds => "seeds",
            Self::Multicast => "multicast",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The setting that it comes from.
    const fn key(self) -> &'static str {
        match self {
            Self::Seeds => "cluster.seeds",
            Self::Multicast => "discovery.multicast",
            Self::Etcd => "discovery.etcd",
            Self::Kubernetes => "discovery.kubernetes_service",
        }
    }
}

/// Sources in which a node looks for others.
pub(crate) struct Wanted {
    /// `cluster.seeds`.
    pub(crate) seeds: Vec<String>,
    /// Addresses of the seeds that are known so far.
    pub(crate) found: Found,
    /// How often sources are asked that have to be asked.
    pub(crate) period: Duration,
    pub(crate) multicast: Option<Speaker>,
    pub(crate) etcd: Option<EtcdSettings>,
    pub(crate) kubernetes: Option<KubernetesSettings>,
}

/// Addresses that a source has found.
#[derive(Debug, Default)]
struct Addresses {
    addresses: BTreeSet<SocketAddr>,
    /// A failure that happened nevertheless.
    failure: Option<String>,
}

/// The threads of all sources, until it is dropped.
#[derive(Debug)]
pub(crate) struct Discovery {
    _seeds: SeedWatch,
    _multicast: Option<Multicast>,
    _etcd: Option<Rounds>,
    _kubernetes: Option<Rounds>,
}

impl Discovery {
    pub(crate) fn start(wanted: Wanted, shared: &Arc<Shared>) -> Result<Self, StartError> {
        let post = || Post(Arc::clone(shared));
        let thread = || StartError::system("start a thread");
        let period = wanted.period;
        let etcd = wanted.etcd.map(Etcd::new).transpose();
        let etcd = etcd.map_err(|what| StartError::Setting { key: "discovery.etcd", what })?;
        let kubernetes = wanted.kubernetes.map(Kubernetes::new);
        let etcd = etcd.map(|etcd| Rounds::start(etcd, Source::Etcd, period, post()));
        let kubernetes = kubernetes.map(|service| Rounds::start(service, Source::Kubernetes, period, post()));
        Ok(Self {
            _seeds: SeedWatch::start(&wanted.seeds, wanted.found, period, post()).map_err(thread())?,
            _multicast: wanted.multicast.map(|it| Multicast::start(it, post())).transpose().map_err(thread())?,
            _etcd: etcd.transpose().map_err(thread())?,
            _kubernetes: kubernetes.transpose().map_err(thread())?,
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
