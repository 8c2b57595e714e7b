//! One simulated process: a node and its shards, as the daemon has them.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;

use sedge_base::{ConnId, Incarnation, Instant, NodeId, Rng, ShardId};
use sedge_broker::{BrokerConfig, Place};
use sedge_cluster::link::LinkConfig;
use sedge_cluster::{LinkId, Node, NodeConfig, Shard, ShardConfig};

use crate::Options;
use crate::network::WireId;
use crate::schedule::Actor;

/// Port between nodes.
const PORT: u16 = 7883;

/// One simulated process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) life: u64,
    pub(crate) up: bool,
    /// It was told to stop.
    pub(crate) stops: bool,
    pub(crate) id: NodeId,
    pub(crate) node: Node,
    pub(crate) shards: Vec<Shard>,
    pub(crate) conns: BTreeMap<ConnId, WireId>,
    pub(crate) links: BTreeMap<LinkId, WireId>,
    pub(crate) timers: BTreeMap<Actor, Instant>,
    next_conn: u64,
    next_link: u64,
}

/// Where a host is reached by other hosts.
pub(crate) fn address(host: usize) -> SocketAddr {
    let last = u8::try_from(host + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), PORT))
}

/// The host with this address.
pub(crate) fn host_at(address: SocketAddr) -> Option<usize> {
    match address {
        SocketAddr::V4(v4) => usize::from(v4.ip().octets()[3]).checked_sub(1),
        SocketAddr::V6(_) => None,
    }
}

impl Host {
    /// The process of host `index` in its `life`th life.
    pub(crate) fn start(index: usize, life: u64, options: &Options, rng: &mut Rng) -> Self {
        let id = NodeId::new(index as u64 + 1);
        let incarnation = Incarnation::new(1_000 + life);
        let broker = BrokerConfig { queue_limit_messages: options.queue_limit, ..BrokerConfig::default() };
        let config = NodeConfig {
            node: id,
            incarnation,
            shards: options.shards,
            swim_addr: address(index),
            link_addr: address(index),
            seeds: (0..options.nodes).map(address).collect(),
            overlay: options.overlay.to_owned(),
            links: LinkConfig::new("simulated", Some(b"a key of all nodes".to_vec())),
            ..NodeConfig::default()
        };
        let shards = (0..options.shards)
            .map(|shard| {
                let place = Place { node: id, incarnation, shard: ShardId(shard), shards: options.shards };
                Shard::new(ShardConfig { broker: broker.clone() }, place, rng.split(u64::from(shard)))
            })
            .collect();
        let node = Node::new(config, rng.split(1_000)).unwrap_or_else(|error| unreachable!("{error}"));
        Self {
            life,
            up: true,
            stops: false,
            id,
            node,
            shards,
            conns: BTreeMap::new(),
            links: BTreeMap::new(),
            timers: BTreeMap::new(),
            next_conn: 0,
            next_link: LinkId::ACCEPTED,
        }
    }

    /// A number for a client connection.
    pub(crate) fn next_conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    /// A number for an accepted link.
    pub(crate) fn next_link(&mut self) -> LinkId {
        self.next_link += 1;
        LinkId(self.next_link)
    }

    /// The shard with this number.
    pub(crate) fn shard(&mut self, shard: ShardId) -> &mut Shard {
        &mut self.shards[usize::from(shard.0)]
    }
}
