//! The Skip Graph as a cooperation algorithm of brokers (SG-34): [`crate::skip_graph`] behind the trait.
//!
//! Three things share the links, in this order at every poll:
//!
//! * **News and questions** about topics by name. A node tells all others which topics its clients begin and cease to subscribe to; a node
//!   with clients that publish to such a topic takes a note, every other node forgets it. A node whose clients begin to publish to a topic
//!   asks all others; until they have answered, its publications may be for everyone. So a publisher's node knows the subscribers of its
//!   topics, exactly, and sends nothing where nobody subscribes.
//! * **The graph**, with a virtual node for each topic that clients of this node publish or subscribe to. Its links are the ways: a
//!   publication goes from subscriber to subscriber, over the links that split-forward broadcasting uses (SG-25) or, if so set,
//!   those of multi-range forwarding (SG-24).
//! * **A mesh** ([`crate::Mesh`]) for interest that every node has to know: wildcards (SG-31), members of shared subscriptions, names that
//!   start with `$`. Every change that somebody waits for goes there as well, if only as a question. Signals of a link arrive in order, so
//!   a node that answers the question has had the news.
//!
//! ```text
//!  P, whose client publishes "a"            S, whose client subscribes to "a"
//!  │ ask a                                  │                               "a" may be for everyone
//!  ├───────────────────────────────────────►│
//!  │                              answer no │
//!  │◄───────────────────────────────────────┤                               P sends nothing
//!  │                                        │ Local { add "a", token }
//!  │                               news + a │
//!  │◄───────────────────────────────────────┤                               P sends "a" to S
//!  │                        mesh: adv, of nothing
//!  │◄───────────────────────────────────────┤
//!  │ mesh: ack                              │
//!  ├───────────────────────────────────────►│ Settled(token)
//! ```
//!
//! `docs/adr/0011-skip-graph-overlay.md` says why, `docs/protocol/skip-graph.md` draws the signals.

mod audience;
mod config;
mod interest;
mod machine;
mod peer;
mod signal;
mod view;

pub use config::SkipGraphConfig;
pub use machine::{SkipGraphCounters, SkipGraphOverlay};
#[cfg(any(test, fuzzing))]
pub(crate) use signal::fuzz_decode;
pub use view::{SkipGraphView, VirtualNeighbour, VirtualNode};
