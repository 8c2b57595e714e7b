//! The Multi-key Skip Graph: publications reach subscribers over nodes that want them, and nothing is sent where nobody subscribes.
//!
//! Every topic a node publishes or subscribes to is a *virtual node* with a key of topic, role and node id. All virtual nodes of all
//! nodes form one list in key order; lists of higher levels, chosen by the digits of random membership vectors, are shortcuts.
//! The publishers and the subscribers of a topic are neighbours in it: a publication is a range query from one to the others,
//! and the right-most publisher sees at its neighbour whether there are subscribers at all.
//!
//! ```text
//!  level 1  [a PUB 3]---------------------[a SUB 2]-----------------[b SUB 3]
//!  level 0  [a PUB 3]-----[a PUB 7]-------[a SUB 2]----[a SUB 5]----[b SUB 3]
//!                         rendezvous point of a
//! ```
//!
//! [`Node`] is the part of one physical node: a machine without clock and sockets that hands out [`Message`]s for other nodes. They must arrive
//! in the order they were sent in between each two nodes, or not at all. [`crate::SkipGraphOverlay`] runs it in brokers.
//!
//! On level 0 a node joins with the consent of its left neighbour, which hands over its right one in the same step, and leaves the same
//! way. Higher levels are learnt: a node takes each virtual node that it hears of for those levels on which that one is nearest. Links that
//! are not right after failures and simultaneous changes are found by telling neighbours again, at growing intervals while nothing changes.
//! `docs/adr/0008-skip-graph.md` has the reasons.

mod cast;
mod interest;
mod join;
mod key;
mod leave;
mod machine;
mod message;
mod repair;
mod route;
mod status;
mod table;
mod vector;
mod way;

pub use cast::{Forward, Hop, Method, Note, Publication};
pub use key::{End, Key, Range, Role, Topic};
pub use machine::{Config, Counters, Input, Node, Output};
pub use message::{Errand, Message};
pub use status::Status;
pub use table::{Peer, Side};
pub use vector::{Base, Vector};
pub use way::Halves;
