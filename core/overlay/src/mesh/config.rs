//! Settings of the mesh.

use sedge_base::Duration;

/// Settings of [`super::Mesh`].
#[derive(Clone, Copy, Debug)]
pub struct MeshConfig {
    /// After this time a change counts as settled even if a neighbour has not confirmed it.
    pub settle_timeout: Duration,
    /// Content of one signal, in bytes. 1 KiB to 1 MiB; other values are brought into this range.
    pub signal_bytes: usize,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self { settle_timeout: Duration::from_secs(2), signal_bytes: 64 * 1024 }
    }
}
