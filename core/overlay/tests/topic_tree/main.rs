//! Topic trees whose links, shards and clock are moved by hand.

mod convergence;
mod net;
mod scenarios;
mod trees;
