//! Settings of a node.

use core::net::{Ipv4Addr, SocketAddr};

use sedge_base::{Duration, Incarnation, NodeId};
use sedge_broker::RetainedConfig;
use sedge_mqtt::{QoS, Utf8};
use sedge_overlay::skip_graph::{Base, Method};
use sedge_overlay::{MeshConfig, RootPolicy};

use crate::link::LinkConfig;

/// Settings of a [`crate::Node`]. The default is a node that is alone.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Id of the node; not 0.
    pub node: NodeId,
    /// The name that its operator gives the node; other nodes are told. `None`: nobody is told anything.
    pub name: Option<Utf8>,
    /// Which life of it; grows at every start.
    pub incarnation: Incarnation,
    /// How many shards there are; at least 1.
    pub shards: u16,
    /// The load that the node can carry, in any unit that all nodes share; trees choose roots by it.
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
    /// Publications go only over links that operators choose ([`crate::Node::neighbour`]), from the start to the nodes at these addresses;
    /// `None`: the algorithm chooses.
    pub by_hand: Option<Vec<SocketAddr>>,
    /// With which QoS publications go from node to node; `None`: with their own.
    pub link_qos: Option<QoS>,
    /// How topic trees choose their roots.
    pub topic_roots: RootPolicy,
    /// Base of the membership vectors of the Skip Graph; the same at all nodes.
    pub skip_graph_base: Base,
    /// How the Skip Graph divides what goes to many nodes.
    pub skip_graph_method: Method,
    /// The number of nodes that hold a session and its waiting messages before anything of it is acknowledged, 1 to 5, as far as there are as many.
    pub copies: u8,
    /// Whether SUBACK waits until every reachable node routes accordingly (DESIGN section 1).
    pub suback_cluster: bool,
    /// How long a client may wait for the directory and for the session's former owner, before it is served with what is here: longer than it
    /// takes until a node that has died silently is known to be dead, and the clients that it had have registered elsewhere.
    pub claim_timeout: Duration,
    /// How long a home of the directory waits for the others' registrations when the members have changed: longer than it takes until
    /// one that has died silently is no member any more, or its clients would get new sessions beside those that are taken over.
    pub register_timeout: Duration,
    /// The longest time spent in [`crate::NodeState::Recovery`] for members that are known, or remembered from the node's former life.
    pub recovery_timeout: Duration,
    /// The longest time spent in [`crate::NodeState::Recovery`] for seeds that do not answer.
    pub seed_timeout: Duration,
    /// Bytes kept for the sessions of each node that is gone or out of reach; more are dropped and counted.
    pub max_absent_bytes: usize,
    /// By how much a member's system clock may be off before operators are told.
    pub clock_tolerance: Duration,
    /// How often the retained messages are compared with those of one neighbour.
    pub retained_sync_period: Duration,
    /// Settings of the links; name and key of the cluster among them.
    pub links: LinkConfig,
    /// Whether a foreign broker behind this node gets all retained messages; there is one shard then.
    pub has_upstream: bool,
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
            name: None,
            incarnation: Incarnation::new(1),
            shards: 1,
            capacity: 1,
            swim_addr: local,
            link_addr: local,
            client_address: None,
            seeds: Vec::new(),
            discovers: false,
            overlay: "mesh".to_owned(),
            by_hand: None,
            link_qos: None,
            topic_roots: RootPolicy::Capacity,
            skip_graph_base: Base::default(),
            skip_graph_method: Method::default(),
            copies: 2,
            suback_cluster: true,
            claim_timeout: Duration::from_secs(5),
            register_timeout: Duration::from_millis(1_600),
            recovery_timeout: Duration::from_mins(1),
            seed_timeout: Duration::from_secs(1),
            max_absent_bytes: 64 * 1024 * 1024,
            clock_tolerance: Duration::from_secs(2),
            retained_sync_period: Duration::from_secs(30),
            links: LinkConfig::new("sedge", None),
            has_upstream: false,
            retained: RetainedConfig::default(),
            membership: sedge_membership::Config::default(),
            mesh: MeshConfig::default(),
        }
    }
}

/// The longest round trip that the usual times allow for: that of a busy local network.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(120);

impl NodeConfig {
    /// Settings of the links with this algorithm. Nodes whose links are chosen by hand understand none whose links are not.
    pub(in crate::node) fn link_config(&self, overlay: &str) -> LinkConfig {
        let by_hand = if self.by_hand.is_some() { ", links by hand" } else { "" };
        let keeps_all = self.link_qos > Some(QoS::AtMostOnce);
        LinkConfig { overlay: format!("{overlay}{by_hand}"), keeps_all, ..self.links.clone() }
    }

    /// Stretches all times that wait for an answer of another node, if datagrams and links take up to `round_trip` there and back, loss and jitter
    /// included: probes, suspicion, silence of a link, handshakes, claims, registrations. Shorter round trips than 120 ms change nothing. A process
    /// that is killed is known as fast as before wherever its host says so.
    #[must_use]
    pub fn with_round_trip(mut self, round_trip: Duration) -> Self {
        let factor = round_trip.div_duration_f64(USUAL_ROUND_TRIP);
        if factor <= 1.0 {
            return self;
        }
        let stretched = |time: Duration| time.mul_f64(factor);
        let membership = &mut self.membership;
        membership.probe_period = stretched(membership.probe_period);
        membership.probe_rtt = stretched(membership.probe_rtt);
        membership.suspicion = stretched(membership.suspicion);
        membership.confirm_timeout = stretched(membership.confirm_timeout);
        membership.refused_timeout = membership.refused_timeout.max(round_trip);
        membership.seed_retry_min = membership.seed_retry_min.max(round_trip);
        self.links.keep_alive = self.links.keep_alive.max(round_trip);
        self.links.handshake_timeout = self.links.handshake_timeout.max(round_trip * 8);
        self.links.dial_patience = self.links.dial_patience.max(round_trip * 8);
        self.claim_timeout = self.claim_timeout.max(round_trip * 6);
        self.register_timeout = stretched(self.register_timeout);
        self.seed_timeout = self.seed_timeout.max(round_trip * 2);
        self.mesh.settle_timeout = self.mesh.settle_timeout.max(round_trip * 4);
        self
    }
}

/// Why a node cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// There is no cooperation algorithm of this name.
    #[error("there is no overlay {0:?}; there is {all}", all = crate::node::overlay::OVERLAYS.join(", "))]
    Overlay(String),
    /// The algorithm chooses its links by itself.
    #[error("the overlay {0:?} chooses its links by itself; links by hand go with {all}", all = crate::node::overlay::MANUAL_OVERLAYS.join(", "))]
    ManualLinks(String),
    /// A node has at least one shard.
    #[error("a node has at least one shard")]
    Shards,
    /// See [`sedge_membership::ConfigError`].
    #[error(transparent)]
    Membership(#[from] sedge_membership::ConfigError),
}
