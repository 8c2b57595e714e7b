//! Draws from distributions.

use sedge_base::Rng;

use crate::num;

/// A number in (0, 1].
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (num::real(rng.below(1 << 53)) + 1.0) / num::real(1 << 53)
}

/// One draw of the standard normal distribution (Box and Muller).
pub(crate) fn standard_normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * unit(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(rng)).cos()
}
