//! Settings of the mesh.

use sedge_base::Duration;

/// Below this a signal is mostly overhead.
const MIN_SIGNAL_BYTES: usize = 1024;
/// With the longest possible entry behind it a signal still fits 1 MiB.
const MAX_SIGNAL_BYTES: usize = 768 * 1024;

/// Settings of [`super::Mesh`].
#[derive(Clone, Copy, Debug)]
pub struct MeshConfig {
    /// After this time a change counts as settled even if a neighbour has not confirmed it.
    pub settle_timeout: Duration,
    /// From this size on a signal is not filled further, in bytes. 1 KiB to 768 KiB; other values are brought into this range.
    pub signal_bytes: usize,
    /// How often each neighbour is told the digest of all local subscriptions (FT-15: 10 s).
    pub refresh: Duration,
    /// The interest of a node is forgotten when it has sent no digest for this long, linked or not (FT-16: three missed refreshes).
    pub lease: Duration,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            settle_timeout: Duration::from_secs(2),
            signal_bytes: 64 * 1024,
            refresh: Duration::from_secs(10),
            lease: Duration::from_secs(30),
        }
    }
}

impl MeshConfig {
    pub(crate) fn signal_limit(&self) -> usize {
        self.signal_bytes.clamp(MIN_SIGNAL_BYTES, MAX_SIGNAL_BYTES)
    }
}
