//! Settings of a node.

use core::net::{Ipv4Addr, SocketAddr};

use sedge_base::{Duration, Incarnation, NodeId};
use sedge_broker::RetainedConfig;
use sedge_mqtt::Utf8;
use sedge_overlay::skip_graph::{Base, Method};
use sedge_overlay::{MeshConfig, RootPolicy};

use crate::link::LinkConfig;

/// Settings of a [`crate::Node`]. The default is a node that is alone.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Id of the node; not 0.
    pub node: NodeId,
    /// Which life of it; grows at every start.
    pub incarnation: Incarnation,
    /// How many shards there are; at least 1.
    pub shards: u16,
    /// What the node can carry, in any unit that all nodes share; trees choose roots by it.
    pub capacity: u32,
    /// Where other nodes reach this one by datagram.
    pub swim_addr: SocketAddr,
    /// Where other nodes connect to.
    pub link_addr: SocketAddr,
    /// Where clients reach this node, as a server reference of MQTT 5.0 without spaces; other nodes tell it their clients when they stop.
    pub client_address: Option<Utf8>,
    /// Addresses of nodes that are asked until they answer; may include this node's own.
    pub seeds: Vec<SocketAddr>,
    /// Whether addresses come later, too, with [`crate::NodeInput::Seeds`]: the node gives them as much time as seeds.
    pub discovers: bool,
    /// Name of the cooperation algorithm, one of [`crate::OVERLAYS`].
    pub overlay: String,
    /// How topic trees choose their roots.
    pub topic_roots: RootPolicy,
    /// Base of the membership vectors of the Skip Graph; the same at all nodes.
    pub skip_graph_base: Base,
    /// How the Skip Graph divides what goes to many nodes.
    pub skip_graph_method: Method,
    /// How many nodes hold a session and what waits for it before anything of it is acknowledged, 1 to 5, as far as there are as many.
    pub copies: u8,
    /// Whether SUBACK waits until every reachable node routes accordingly (DESIGN section 1).
    pub suback_cluster: bool,
    /// How long a client may wait for the directory and for the session's former owner, before it is served with what is here.
    pub claim_timeout: Duration,
    /// How long a home of the directory waits for the others' registrations when the members have changed: longer than it takes until
    /// one that has died silently is no member any more, or its clients would get new sessions beside those that are taken over.
    pub register_timeout: Duration,
    /// The longest time spent in [`crate::NodeState::Recovery`] for members that are known, or remembered from the node's former life.
    pub recovery_timeout: Duration,
    /// The longest time spent in [`crate::NodeState::Recovery`] for seeds that do not answer.
    pub seed_timeout: Duration,
    /// How often the retained messages are compared with those of one neighbour.
    pub retained_sync_period: Duration,
    /// Settings of the links; name and key of the cluster among them.
    pub links: LinkConfig,
    /// Limits of the retained messages.
    pub retained: RetainedConfig,
    /// Settings of membership; its seeds are overwritten by those above.
    pub membership: sedge_membership::Config,
    /// Settings of the mesh.
    pub mesh: MeshConfig,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 7883));
        Self {
            node: NodeId::new(1),
            incarnation: Incarnation::new(1),
            shards: 1,
            capacity: 1,
            swim_addr: local,
            link_addr: local,
            client_address: None,
            seeds: Vec::new(),
            discovers: false,
            overlay: "mesh".to_owned(),
            topic_roots: RootPolicy::Capacity,
            skip_graph_base: Base::default(),
            skip_graph_method: Method::default(),
            copies: 2,
            suback_cluster: true,
            claim_timeout: Duration::from_secs(2),
            register_timeout: Duration::from_millis(1_600),
            recovery_timeout: Duration::from_mins(1),
            seed_timeout: Duration::from_secs(1),
            retained_sync_period: Duration::from_secs(30),
            links: LinkConfig::new("sedge", None),
            retained: RetainedConfig::default(),
            membership: sedge_membership::Config::default(),
            mesh: MeshConfig::default(),
        }
    }
}

/// Why a node cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// There is no cooperation algorithm of this name.
    #[error("there is no overlay {0:?}; there is {all}", all = crate::node::overlay::OVERLAYS.join(", "))]
    Overlay(String),
    /// A node has at least one shard.
    #[error("a node has at least one shard")]
    Shards,
    /// See [`sedge_membership::ConfigError`].
    #[error(transparent)]
    Membership(#[from] sedge_membership::ConfigError),
}
