//! Settings of the tree.

use sedge_base::Duration;

use crate::MeshConfig;

/// No node may advertise more topics; others close the link to one that does.
pub(super) const MAX_TOPICS: usize = 65_536;

/// Settings of [`super::Tree`].
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// How tables are exchanged and kept alive.
    pub exchange: MeshConfig,
    /// So many topics with publishers at this node are advertised, at most 65,536. Publications to others go to every node. A topic that
    /// has had one publication only makes room for a new one after [`TreeConfig::single`].
    pub topics: usize,
    /// A topic is withdrawn when nobody has published to it for so long.
    pub idle: Duration,
    /// See [`TreeConfig::topics`].
    pub single: Duration,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self {
            exchange: MeshConfig::default(),
            topics: 16_384,
            idle: Duration::from_mins(10),
            single: Duration::from_mins(1),
        }
    }
}

impl TreeConfig {
    pub(super) fn topic_limit(&self) -> usize {
        self.topics.min(MAX_TOPICS)
    }
}
