//! Links that operators choose.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Link;

/// Links of a node (`/api/v1/neighbours`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Neighbours {
    /// `mesh`: each node has a link to each other; `manual`: publications go only over links that operators have chosen.
    pub links: String,
    /// Cooperation algorithm.
    pub overlay: String,
    /// QoS of publications between nodes: `as-published`, `0`, `1` or `2`.
    pub link_qos: String,
    /// Whether all linked nodes know what was chosen here, and route by it.
    pub agreed: bool,
    /// The links.
    pub neighbours: Vec<Neighbour>,
}

/// A link of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Neighbour {
    /// The other end; none where no node has answered at the address.
    pub node: Option<String>,
    /// Where it listens for other nodes.
    pub address: Option<String>,
    /// Whether an operator has chosen it at this node.
    pub chosen_here: bool,
    /// Whether an operator has chosen it at the other end.
    pub chosen_there: bool,
    /// The link, if it is up.
    pub link: Option<Link>,
}
