//! Where the nodes stand and how long signals take between them.

use sedge_base::{Rng, mix};

/// Nodes of one site.
const SITE: usize = 20;

/// Sites on a plane; the nodes of a site are close together.
#[derive(Debug)]
pub(super) struct Map {
    seed: u64,
    /// Of each site, in microseconds from the edges.
    places: Vec<(u64, u64)>,
}

impl Map {
    pub(super) fn new(nodes: usize, rng: &mut Rng) -> Self {
        let places = (0..=nodes / SITE).map(|_| (rng.below(20_000), rng.below(20_000))).collect();
        Self { seed: rng.next_u64(), places }
    }

    /// Microseconds from one node to another, without noise: 0.3 ms within a site, and up to 37 ms between sites.
    pub(super) fn delay(&self, one: usize, other: usize) -> u64 {
        let (low, high) = (one.min(other), one.max(other));
        let ((x, y), (u, v)) = (self.places[low / SITE], self.places[high / SITE]);
        let distance = (x.abs_diff(u).pow(2) + y.abs_diff(v).pow(2)).isqrt();
        // No two ways through a network are alike.
        let drawn = mix(self.seed ^ mix(low as u64) ^ high as u64) % 300;
        300 + distance + distance * drawn / 1_000
    }
}
