//! Meshes whose links, shards and clock are moved by hand.

mod convergence;
mod net;
mod scenarios;
