//! Whole clusters of nodes and shards, driven by hand on a virtual clock.

#[path = "../common/mod.rs"]
mod common;

mod beginnings;
mod behind;
mod by_hand;
mod clocks;
mod crash;
mod drain;
mod failures;
mod graphs;
mod groups;
mod moves;
mod operate;
mod paths;
mod publications;
mod random;
mod relays;
mod retained;
mod routes;
mod seeds;
mod sessions;
mod sys;
mod takeover;
mod topics;
mod versions;
