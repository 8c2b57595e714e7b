//! Time, ids, randomness, printable text and bounded containers that every core machine shares.
//!
//! Nothing in this crate reads a clock, a socket or the operating system's randomness: time is an argument,
//! randomness is a seeded generator handed in by the owner.

mod bounded;
mod buffers;
mod deadlines;
mod durations;
mod heavy;
mod ids;
mod lookup;
mod outbox;
mod printable;
mod rate;
mod rng;
mod stable;
mod time;

pub use bounded::{BoundedQueue, Full};
pub use buffers::BufferPool;
pub use deadlines::Deadlines;
pub use durations::{Durations, Fine};
pub use heavy::{Heavy, HeavyHitters};
pub use ids::{ClientId, ConnId, Incarnation, NodeId, ParseNodeIdError, ShardId};
pub use lookup::{LookupMap, Seed, SeededHasher};
pub use outbox::Outbox;
pub use printable::{Printable, printable, printable_json, printable_lines};
pub use rate::{Rate, TokenBucket};
pub use rng::Rng;
pub use stable::{StableHash, mix};
pub use time::{Duration, Instant, Now, Timestamp};
