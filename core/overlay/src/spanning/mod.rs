//! One tree among a set of nodes that all hear each other: the strongest is the root, and each node's way to it is the fastest.
//!
//! Every member says a [`Claim`] to all others: the member that it takes for the root, its distance from there and its parent. It picks as
//! parent the member over which the way to the root takes the least time, going by the claims of the members and by its own round trips to
//! them (Bellman and Ford's algorithm). As every claim reaches every member, each of them knows the whole tree.
//!
//! ```text
//!         claim of epoch 7              round trip from here     over it
//!  A      root A, cost 0                        9 ms               9 ms
//!  B      root A, cost 2 ms, parent A           3 ms               5 ms   <- parent, and the claim says root A, cost 5 ms, parent B
//!  C      root A, cost 8 ms, parent A           1 ms               9 ms
//! ```
//!
//! The figures of the computation are frozen for an *epoch*: round trips in steps ([`Spanning::round_trip`]) and the strength each member
//! claims. Within an epoch costs only fall, so a parent is always nearer to the root than its child, whichever claims are still under way,
//! and there are no cycles. A change that would raise a cost begins the next epoch: a member that leaves, or a lost link to the parent. The
//! last complete tree stays in use until the members agree on the next one (make before break).
//!
//! A member that joins begins no epoch: more ways only lower costs. With 64 other members or more the tree is *large*: a member that loses
//! its parent takes another that is nearer to the root than it has ever claimed to be itself, none of which can be behind it, without
//! raising its claim; so only the end of the root begins an epoch. The ways of a large tree need not be the shortest then, and nodes that
//! have just come do not keep the others from using the tree they agree on.
//!
//! From the moment every member knows of the last epoch, a tree is complete after two rounds of claims if all have links to the root,
//! and final after as many as the deepest node has ancestors, and one more in which all hear of it.

mod claim;
pub(crate) mod cost;
mod machine;
mod members;
mod rank;
#[cfg(test)]
mod tests;
mod used;

pub use claim::Claim;
pub use cost::UNREACHABLE;
pub use machine::Spanning;
pub use rank::Rank;
