//! Cooperation algorithms with a thousand nodes that come and go: the very machines that brokers run, on a virtual clock, without
//! brokers around them. Every node is linked with every other, as in the daemon.
//!
//! ```text
//! all nodes start    clients subscribe    publications    churn             publications
//! ├──────────────────┼────────────────────┼───────────────┼─────────────────┼──────────►
//!  until all agree                         delivery test   1 % each second   delivery test, when all agree again
//! ```
//!
//! A publication is carried as the owner of the machine does it: [`sedge_overlay::Overlay::destinations`] is asked where it enters and
//! [`sedge_overlay::Overlay::way`] at each node that it passes. Publications on their way to a node that dies are lost here; the owner would
//! send them once more over the direct link. So the publications that arrive show what the ways of an algorithm achieve by themselves.

mod figures;
mod host;
mod map;
mod publication;
mod world;

pub use figures::{Delivery, Figures, Traffic};
pub use world::{ChurnOptions, churn};
