//! The settings of a node's links.

use core::fmt;
use core::net::SocketAddr;

use sedge_base::{Duration, Incarnation, NodeId};

/// A node as it introduces itself over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its id.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The load that the node can carry, for algorithms that choose roots by it. No unit; 1 if unknown.
    pub capacity: u32,
    /// Where it listens for links, as other nodes reach it.
    pub link_addr: SocketAddr,
}

/// Versions of the link protocol (`docs/protocol/link.md`, "Versions").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The newest that a node speaks.
    pub version: u32,
    /// The oldest that it speaks.
    pub since: u32,
}

impl Protocol {
    /// The versions of the protocol that this program speaks.
    pub const CURRENT: Self = Self { version: 2, since: 1 };
    /// The version with which nodes began to move sessions by themselves, and to carry links of others.
    pub(super) const SECOND: u32 = 2;

    /// The version that nodes of these two protocols speak with each other, if there is one.
    pub fn common(self, other: Self) -> Option<u32> {
        let common = self.version.min(other.version);
        (common >= self.since.max(other.since)).then_some(common)
    }
}

/// Which of several connections with a neighbour a publication takes. The receiver puts frames in order again in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkOrder {
    /// All publications of one publisher take the same.
    #[default]
    Publisher,
    /// Each takes the next.
    RoundRobin,
}

/// Settings of the links. The same on all nodes of a cluster, but for times.
#[derive(Clone)]
pub struct LinkConfig {
    /// Name of the cluster; links to other clusters are refused. At most 255 bytes count.
    pub cluster: String,
    /// Name of the cooperation algorithm; the same at all nodes.
    pub overlay: String,
    /// Secret shared by all nodes (`cluster.key`). Without it only loopback addresses are linked.
    pub key: Option<Vec<u8>>,
    /// Whether the driver encrypts every connection ([`crate::link::Links::secured`]); others are refused. Needs a key: it is what
    /// tells the other end of the encrypted connection from somebody between.
    pub encrypted: bool,
    /// Whether publications with QoS 0 are sent again, too, where a neighbour has forgotten what it had.
    pub keeps_all: bool,
    /// Connections with each neighbour that this node has dialled, 1 to [`super::CONNECTIONS_MAX`].
    pub connections: u8,
    /// How publications are spread over them.
    pub order: LinkOrder,
    /// How often a ping measures the round trip; a link that is silent for three times as long is down.
    pub keep_alive: Duration,
    /// Longest time from dialling or accepting to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Wait before the first redial; doubled with every failure, up to [`LinkConfig::redial_max`]; jittered by a half.
    pub redial_min: Duration,
    /// Longest wait between redials.
    pub redial_max: Duration,
    /// How long the node with the higher id waits for the other to dial before it dials itself.
    pub dial_patience: Duration,
    /// Most bytes of frames that one channel keeps unacknowledged; beyond, [`crate::link::Links::send`] says Full.
    pub send_log_bytes: usize,
    /// Most bytes encoded ahead of the socket per link; the rest waits in the send log.
    pub outbox_bytes: usize,
    /// Largest packet in bytes that is taken from or sent to an authenticated node.
    pub max_packet_bytes: u32,
    /// Most accepted connections that have not finished their handshake.
    pub max_strangers: usize,
    /// How long a channel whose link is down outlives it when this node itself does not want the link.
    pub unwanted_linger: Duration,
    /// The version that the node speaks; another one than [`Protocol::CURRENT`] only where a node of another version is played.
    pub protocol: Protocol,
}

impl LinkConfig {
    /// The settings of a cluster of this name with this key; everything else as in production.
    pub fn new(cluster: &str, key: Option<Vec<u8>>) -> Self {
        Self {
            cluster: cluster.to_owned(),
            overlay: super::greeting::MESH.to_owned(),
            key,
            encrypted: false,
            keeps_all: false,
            connections: 1,
            order: LinkOrder::Publisher,
            keep_alive: Duration::from_millis(500),
            handshake_timeout: Duration::from_secs(5),
            redial_min: Duration::from_millis(4),
            redial_max: Duration::from_secs(2),
            dial_patience: Duration::from_secs(3),
            send_log_bytes: 64 * 1024 * 1024,
            outbox_bytes: 1024 * 1024,
            max_packet_bytes: 17 * 1024 * 1024,
            max_strangers: 256,
            unwanted_linger: Duration::from_secs(10),
            protocol: Protocol::CURRENT,
        }
    }

    /// Whether a link with this address can be trusted: by a key, or because it does not leave the machine.
    pub(crate) fn may_link(&self, addr: SocketAddr) -> bool {
        self.key.is_some() || addr.ip().to_canonical().is_loopback()
    }

    /// Silence after which a link is down.
    pub(super) fn silence(&self) -> Duration {
        self.keep_alive * 3
    }
}

impl fmt::Debug for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of every log.
        f.debug_struct("LinkConfig")
            .field("cluster", &self.cluster)
            .field("key", &self.key.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}
