//! Links by hand over every algorithm that goes with them, with links, shards and clock moved by hand.

#[expect(dead_code, reason = "the tests of trees use the rest")]
#[path = "../tree/net.rs"]
mod net;
mod tables;
mod wanted;
mod world;
