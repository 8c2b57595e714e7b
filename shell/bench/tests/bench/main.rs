//! The load generator from outside, against a broker inside the test.

mod common;
mod experiments;
mod figures;
mod partition;
mod simulated;
