//! The Skip Graph behind the trait: brokers whose links, shards and clock are moved by hand.

mod convergence;
mod limits;
mod net;
mod scenarios;
mod ways;
