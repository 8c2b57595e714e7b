//! One tree per topic, among the nodes that publish it or subscribe to it (overlay-trees section 8).
//!
//! A node has an *interest* in a topic if a client of it publishes the topic (until ten minutes after the last publication) or has a filter
//! that matches. When an interest begins, the node asks all others (the topic PINGREQ), all that began between two polls in one signal.
//! Every node confirms, behind a barrier of its own. Only the nodes that take part in the same topics also answer with the interest they
//! have announced in them (the topic PINGRESP), and only they keep the interest they have heard of:
//!
//! ```text
//!  A publishes t           B subscribes t/#          C has nothing to do with it
//!  │ ask 4: publishes t    │                         │
//!  ├──────────────────────►├─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ►│   To both: A's publications to t, for nobody has confirmed.
//!  │ answer: t/#           │ keeps: A publishes t    │ keeps nothing
//!  │◄──────────────────────┤                         │
//!  │ confirm 4             │                         │
//!  │◄──────────────────────┤                         │   To C only: it has not confirmed.
//!  │ confirm 4             │                         │
//!  │◄─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┼─────────────────────────┤   To B only, from now on.
//! ```
//!
//! # Nodes that have to know each other
//!
//! Two interests concern each other if some topic matches both ([`overlaps`]): that is decided when they meet, not when such a topic
//! is first heard of. So of all nodes with an interest in t each knows all others, subscribers with wildcards among
//! themselves too, and all compute the same **members** of t without asking again for each topic.
//!
//! Whichever side begins first, they find each other: an interest is in the table before it is announced, and links keep the order. If B
//! handles A's question before its own interest begins, then A's table holds A's interest when B's question arrives, and A answers. If B's
//! interest was there before, B keeps the interest that A asks with and answers. An ended interest counts until its end is announced, so
//! that one which ends and begins again unseen has missed nothing. A snapshot (when a link comes up) is not answered, because the other
//! side sends one as well; it is given to the link at once, so that all signals that arrive later meet its content.
//!
//! A subscription is settled when all linked nodes have confirmed it: those that publish a matching topic send there, and the others will
//! ask before they stop sending to everybody.
//!
//! # Trees
//!
//! There is one tree per set of members and root (FW-05), not a process per topic. Each node tells everybody the round trips to its
//! neighbours, its capacity and its clients (*facts*), and computes every tree to which it belongs from what was told: the shortest ways
//! from the root over links between members, so no other node relays (TR-19). Compared with running [`crate::spanning`] per tree:
//!
//! * Trees cost no signalling at all once the facts are told, however many there are. With claims, each change of a round trip costs
//!   a round of claims in each of them.
//! * All members compute from the same words. They differ for as long as a word takes to all of them; claims take as many rounds as the
//!   tree is deep.
//! * The facts told are steady: the rounded round trips of [`crate::spanning`], looked at every refresh, and loads that differ by more than
//!   a quarter. A node also computes from the facts that it has *told*, not from those that it has measured since.
//!
//! The price is that each node keeps the round trips between all nodes: 12 bytes for each link. While trees differ, a publication may
//! take a detour; nothing is lost by it (`docs/adr/0010-relayed-publications.md`). A way over a node whose link is down, and every way before there
//! is a tree, leads straight to the destination.
//!
//! # Roots
//!
//! The member with the lowest address elects and tells the other members; until they have heard, their ways lead straight to
//! the destination. An election stands until the members change. With [`RootPolicy::Capacity`] there is one for each *set of members*, so
//! topics whose members coincide share everything. With [`RootPolicy::Balance`] there is one for each *topic*, one after the
//! other, each counting those before it; members who share a set then share at most as many trees as there are members. How
//! many topics are rooted at a node is part of its facts, for electors that do not know all of them. A topic whose members change keeps its
//! root unless another weighs less.
//!
//! # Repair of wrong tables
//!
//! Every refresh a node tells each neighbour how many signals it has sent over the link, and the sum of all that it has announced. The
//! neighbour can keep the sum without keeping every announcement. If either differs, both sides send a snapshot. The digest renews the
//! lease on everything the node is believed to want.

mod config;
mod elections;
mod interest;
mod local;
mod machine;
mod organise;
mod overlaps;
mod peer;
mod signal;
mod status;
mod topics;
mod trees;

pub use config::{RootPolicy, TopicTreeConfig};
pub use machine::TopicTree;
#[cfg(any(test, fuzzing))]
pub(crate) use signal::fuzz_decode;
pub use status::{TopicTreeCounters, TopicView};
