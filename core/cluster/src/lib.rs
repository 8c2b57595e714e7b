//! One Sedge node without I/O: shards, links, interest, session directory and retained messages joined together (DESIGN section 3).

mod api;
mod status;

pub use api::{LinkId, NodeEvent, NodeInput, NodeOutput, ShardInput, ShardOutput};
pub use status::{LinkStatus, MemberStatus, NodeState, NodeStatus, RouteStatus};
