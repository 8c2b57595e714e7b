//! Whole clusters on a virtual clock and network, from seeds.

mod churn;
mod determinism;
mod kept;
mod planted;
mod sweep;
