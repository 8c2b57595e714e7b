//! Which nodes a request is about.

use sedge_base::NodeId;
use sedge_cluster::{MemberStatus, Node};
use serde::Deserialize;

use super::ask::ask_node;
use super::error::ApiError;
use super::server::Api;

/// Value that stands for all members.
pub(super) const EVERYBODY: &str = "*";

/// The nodes that a request names.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Name or id of the node, `*` for all; the one that is asked if nothing is said.
    pub(super) node: Option<String>,
}

/// Nodes that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The node that was asked.
    Here,
    /// Another member.
    One(NodeId),
    /// All members: those other than the node that was asked.
    All(Vec<NodeId>),
}

impl Scope {
    /// The other members that the request is about, and whether it is about the node that was asked, too.
    pub(super) fn parts(self) -> (Vec<NodeId>, bool) {
        match self {
            Self::Here => (Vec::new(), true),
            Self::One(node) => (vec![node], false),
            Self::All(others) => (others, true),
        }
    }
}

/// Meaning of the parameter `node` of a request: absent: the node itself; `*`: all members; else a name or an id.
pub(super) async fn scope(api: &Api, node: Option<&str>) -> Result<Scope, ApiError> {
    let Some(wanted) = node else { return Ok(Scope::Here) };
    let (me, members) = ask_node(&api.shared, |node| (node.status().node, members(node))).await?;
    if wanted == EVERYBODY {
        return Ok(Scope::All(members.iter().map(|member| member.node).filter(|node| *node != me).collect()));
    }
    let called = |member: &&MemberStatus| member.node.to_string() == wanted || member.name.as_deref() == Some(wanted);
    let found: Vec<NodeId> = members.iter().filter(called).map(|member| member.node).collect();
    match found.as_slice() {
        [node] if *node == me => Ok(Scope::Here),
        [node] => Ok(Scope::One(*node)),
        [] => {
            let known = members.iter().map(label).collect::<Vec<_>>().join(", ");
            Err(ApiError::NotFound(format!("no member is called {wanted:?}; members are {known}")))
        }
        several => {
            let ids = several.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
            Err(ApiError::BadRequest(format!("several members are called {wanted:?}: give an id, one of {ids}")))
        }
    }
}

/// The members as the node sees them.
pub(super) fn members(node: &Node) -> Vec<MemberStatus> {
    node.status().members
}

/// Label of a member: its name, or its id where it has not said one.
pub(super) fn label(member: &MemberStatus) -> String {
    member.name.clone().unwrap_or_else(|| member.node.to_string())
}

/// Labels of these nodes.
pub(super) async fn labels(api: &Api, nodes: &[NodeId]) -> Result<Vec<String>, ApiError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = nodes.to_vec();
    ask_node(&api.shared, move |node| nodes.iter().map(|id| name(node, *id)).collect()).await
}

/// Label of a node: its name, or its id where the name is not known.
pub(super) fn name(node: &Node, id: NodeId) -> String {
    node.name_of(id).map_or_else(|| id.to_string(), |name| name.as_str().to_owned())
}
