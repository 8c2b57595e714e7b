//! One Sedge node without I/O: shards, links, interest, session directory and retained messages joined together (DESIGN section 3).

mod api;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod journal;
pub mod link;
pub mod mail;
mod members;
mod node;
mod reception;
mod shard;
mod status;
pub mod sys;
#[cfg(test)]
mod testing;
mod wire;

pub use api::{Kick, LinkId, NodeEvent, NodeInput, NodeOutput, ShardInput, ShardOutput};
pub use journal::{JournalError, Recovery, RestoredNode, RestoredShard};
pub use node::{Node, NodeConfig, NodeConfigError, OVERLAYS, STANDSTILL};
pub use reception::{Reception, ReceptionResult};
pub use sedge_membership::Config as MembershipConfig;
pub use sedge_overlay::skip_graph::{Base as SkipGraphBase, Key, Method as SkipGraphMethod, Role};
pub use sedge_overlay::{RootPolicy, SkipGraphView, Table, Topology, TreeView, VirtualNeighbour};
pub use shard::{Shard, ShardConfig, ShardCounters};
pub use status::{
    DeadStatus, DrainEnd, DrainState, DrainStatus, LinkStatus, MemberStatus, NodeState, NodeStatus, RefusedNode,
    RouteStatus,
};
