//! One Sedge node without I/O: shards, links, interest, session directory and retained messages joined together (DESIGN section 3).

mod api;
pub mod durable;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod journal;
mod lineage;
pub mod link;
pub mod mail;
mod members;
mod mistrust;
mod node;
mod reception;
mod shard;
mod status;
pub mod sys;
#[cfg(test)]
mod testing;
mod wire;

pub use api::{Kick, LinkId, NodeEvent, NodeInput, NodeOutput, ShardInput, ShardOutput, UpstreamInput, UpstreamOutput};
pub use journal::{JournalError, Recovery, RestoredNode, RestoredShard};
pub use mistrust::Mistrust;
pub use node::{
    ASK_BYTES_MAX, MANUAL_OVERLAYS, NEIGHBOURS_MAX, NeighbourError, Node, NodeConfig, NodeConfigError, OVERLAYS,
    STANDSTILL,
};
pub use reception::{Reception, ReceptionResult, shard_of};
pub use sedge_membership::Config as MembershipConfig;
pub use sedge_membership::wire::is_datagram;
pub use sedge_overlay::skip_graph::{Base as SkipGraphBase, Key, Method as SkipGraphMethod, Role};
pub use sedge_overlay::{MeshConfig, RootPolicy, SkipGraphView, Table, Topology, TreeView, VirtualNeighbour};
pub use shard::{Shard, ShardBacklog, ShardConfig, ShardCounters};
pub use status::{
    DeadStatus, DrainEnd, DrainState, DrainStatus, LinkStatus, MemberStatus, NeighbourStatus, NeighboursStatus,
    NodeState, NodeStatus, Orphan, RefusedNode, RouteStatus,
};
