//! The load generator from outside, against a broker inside the test.

mod carriers;
mod common;
mod experiments;
mod figures;
mod metrics;
mod partition;
mod raw;
mod sessions;
mod simulated;
