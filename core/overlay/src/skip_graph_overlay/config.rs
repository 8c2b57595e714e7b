//! Settings of the Skip Graph.

use sedge_base::Duration;

use crate::MeshConfig;
use crate::skip_graph::{Base, Method};

/// Below this a signal is mostly overhead.
const MIN_SIGNAL_BYTES: usize = 1024;
/// With the longest possible entry behind it a signal still fits 1 MiB.
const MAX_SIGNAL_BYTES: usize = 512 * 1024;

/// Settings of [`super::SkipGraphOverlay`].
#[derive(Clone, Copy, Debug)]
pub struct SkipGraphConfig {
    /// Base of the membership vectors: the more, the smaller the tables and the longer the paths (SG-21). Has to be the same at all nodes:
    /// a link to a node with another one is closed.
    pub base: Base,
    /// Method by which publications go over the subscribers of a topic, and SUSPEND and RESUME over its publishers. Nodes may differ.
    pub method: Method,
    /// How often neighbours in the graph are probed and doubtful links looked at.
    pub tick: Duration,
    /// Ticks without a word from a neighbour after which it is left out of the graph.
    pub silent_ticks: u8,
    /// A topic without publications of this node's clients for so long is forgotten; the next publication begins anew.
    pub publisher_idle: Duration,
    /// Topics that clients of this node publish to and whose subscribers are known. Publications to more topics go to everyone
    /// ([`super::SkipGraphCounters::untracked`]).
    pub max_topics: usize,
    /// The mesh for interest that every node has to know: wildcards and shared subscriptions; and for changes that wait to be settled. Its
    /// [`MeshConfig::signal_bytes`] counts for all signals, here 1 KiB to 512 KiB.
    pub mesh: MeshConfig,
}

impl Default for SkipGraphConfig {
    fn default() -> Self {
        Self {
            base: Base::default(),
            method: Method::default(),
            tick: Duration::from_secs(1),
            silent_ticks: 3,
            publisher_idle: Duration::from_mins(10),
            max_topics: 65_536,
            mesh: MeshConfig::default(),
        }
    }
}

impl SkipGraphConfig {
    pub(super) fn signal_limit(&self) -> usize {
        self.mesh.signal_bytes.clamp(MIN_SIGNAL_BYTES, MAX_SIGNAL_BYTES)
    }
}
