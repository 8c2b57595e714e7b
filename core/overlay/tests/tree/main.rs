//! Flooding and routing along one tree, with links, shards and clock moved by hand.

mod convergence;
mod flood;
mod net;
mod scenarios;
mod trees;
