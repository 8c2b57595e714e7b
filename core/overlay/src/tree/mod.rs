//! One tree for everything, and publications only where they are wanted: advertisements lead subscriptions to the publishers.
//!
//! A node advertises each topic that its clients publish to, to all nodes. A node whose clients subscribe to a filter tells it to the nodes
//! that advertise a matching topic, and to the relays between; so a publisher knows which nodes want its topics, and no node has to know
//! about topics that nobody publishes to. Publications go along the tree over all nodes.
//!
//! ```text
//!  A                                        B          A client of B subscribes to #, later one of A publishes to t.
//!  │ destinations(t): everyone              │
//!  │ advertise t                        (7) │
//!  ├───────────────────────────────────────►│ SRT: t at A
//!  │                             want #     │
//!  │◄───────────────────────────────────────┤ Barrier
//!  │ PRT: # at B                 ack 7      │ BarrierReached
//!  │◄───────────────────────────────────────┤
//!  │ destinations(t): B                     │          A node that has answered and does not want t gets none.
//! ```
//!
//! No publication is lost on the way: until a node has answered an advertisement it counts among those that want the topic, and a
//! subscription is settled when all those have confirmed it whose advertisements have arrived. So either the subscriber knows of the
//! publisher, or the publisher still asks.
//!
//! Tables are exchanged as in the mesh: a snapshot when a link comes up, numbered changes that are confirmed behind a barrier, a digest
//! every ten seconds that keeps them alive and finds faults. Interest that all nodes have to know (members of shared subscriptions, filters
//! that begin with `$`) is told to all of them by a mesh. `docs/protocol/tree.md` draws the signals.

mod config;
mod digest;
mod exchange;
mod interest;
mod joint;
mod machine;
mod peer;
mod publishes;
mod signal;

pub use config::TreeConfig;
pub use machine::{Tree, TreeCounters};
#[cfg(any(test, fuzzing))]
pub(crate) use signal::fuzz_decode;
