//! Cooperation algorithms: how the nodes of a cluster learn where publications have to go, behind one trait (DESIGN section 5).
//!
//! An algorithm is a machine like every other. It never sees a socket: neighbours are nodes to which a link is up, signals are
//! bytes that the link carries in order and without loss while it stands. `docs/adr/0003-overlay-trait.md` walks each of
//! the five algorithms through the trait.

mod api;
mod backbone;
mod by_hand;
mod detour;
mod flood;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod mesh;
pub mod skip_graph;
mod skip_graph_overlay;
pub mod spanning;
mod status;
mod topic_tree;
mod tree;
mod trunk;
mod wire;

pub use api::{Advert, AdvertOp, Advertised, Barrier, Input, Neighbour, Output, Overlay, RouteEntry, Token, Way};
pub use by_hand::{ByHand, Chosen};
pub use detour::Detour;
pub use flood::{Flood, FloodCounters};
pub use mesh::{Mesh, MeshConfig, MeshCounters};
pub use skip_graph_overlay::{
    SkipGraphConfig, SkipGraphCounters, SkipGraphOverlay, SkipGraphView, VirtualNeighbour, VirtualNode,
};
pub use status::{AdvertLine, InterestLine, Table, Topology, TreeNode, TreeView};
pub use topic_tree::{RootPolicy, TopicTree, TopicTreeConfig, TopicTreeCounters, TopicView};
pub use tree::{Tree, TreeConfig, TreeCounters};
pub use trunk::TrunkCounters;
