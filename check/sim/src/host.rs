//! One simulated process: a node and its shards, as the daemon has them.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;

use bytes::BytesMut;
use sedge_base::{ConnId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId};
use sedge_broker::{BrokerConfig, Place};
use sedge_cluster::link::{LinkConfig, LinkOrder};
use sedge_cluster::{LinkId, Node, NodeConfig, Recovery, Shard, ShardConfig};

use crate::Options;
use crate::disk::{Disk, Log, Thread};
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
    /// Until when it does nothing.
    pub(crate) still_until: Instant,
    /// Whether outputs of the node wait for the end of a turn.
    pub(crate) turn_open: bool,
    /// For each shard whether it read nothing from clients when it was looked at last.
    pub(crate) reads_nothing: Vec<bool>,
    pub(crate) id: NodeId,
    pub(crate) node: Node,
    pub(crate) shards: Vec<Shard>,
    pub(crate) conns: BTreeMap<ConnId, WireId>,
    pub(crate) links: BTreeMap<LinkId, WireId>,
    pub(crate) timers: BTreeMap<Actor, Instant>,
    /// The threads, with their output that waits for the journal; no threads if the disk takes no time.
    pub(crate) threads: Vec<Thread>,
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
    /// Goes on from a disk, with the time on its clocks, if it has one.
    pub(crate) fn start(index: usize, life: u64, options: &Options, rng: &mut Rng, disk: Option<(&Disk, Now)>) -> Self {
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
            links: LinkConfig {
                connections: options.connections,
                order: if index.is_multiple_of(2) { LinkOrder::RoundRobin } else { LinkOrder::Publisher },
                ..LinkConfig::new("simulated", Some(b"a key of all nodes".to_vec()))
            },
            ..NodeConfig::default()
        };
        let mut shards: Vec<Shard> = (0..options.shards)
            .map(|shard| {
                let place = Place { node: id, incarnation, shard: ShardId(shard), shards: options.shards };
                Shard::new(ShardConfig { broker: broker.clone(), upstream: None }, place, rng.split(u64::from(shard)))
            })
            .collect();
        let mut node = Node::new(config, rng.split(1_000)).unwrap_or_else(|error| unreachable!("{error}"));
        if options.disks {
            let empty = Disk::default();
            let (disk, now) = disk.unwrap_or_else(|| (&empty, Now::default()));
            let (restored, restored_node) = Recovery::deal(disk.read(options.shards), now.wall, options.shards);
            node.keep_journal();
            node.restore(restored_node, true);
            for (shard, restored) in shards.iter_mut().zip(restored) {
                shard.keep_journal();
                shard.restore(now, restored);
            }
        }
        let is_late = options.sync_delay > Duration::ZERO;
        let threads = (0..options.shards).filter(|_| is_late).map(|_| Thread::new(options.shards)).collect();
        Self {
            life,
            up: true,
            stops: false,
            still_until: Instant::ZERO,
            turn_open: false,
            reads_nothing: vec![false; usize::from(options.shards)],
            id,
            node,
            shards,
            conns: BTreeMap::new(),
            links: BTreeMap::new(),
            timers: BTreeMap::new(),
            threads,
            next_conn: 0,
            next_link: LinkId::ACCEPTED,
        }
    }

    /// Writes the changes of the shards and the node.
    pub(crate) fn write_to(&mut self, disk: &mut Disk) {
        disk.logs.resize_with(self.shards.len().max(disk.logs.len()), Log::default);
        for (at, (shard, log)) in self.shards.iter_mut().zip(&mut disk.logs).enumerate() {
            let mut batch = BytesMut::new();
            shard.write_records(&mut batch);
            if at == 0 {
                self.node.write_records(&mut batch);
            }
            if !batch.is_empty() {
                log.write(batch.freeze());
            }
        }
    }

    /// Whether a shard that read nothing from clients when it was looked at last reads again.
    pub(crate) fn reads_again(&mut self, shard: ShardId) -> bool {
        let at = usize::from(shard.0);
        let stands_still = self.shards[at].stands_still();
        core::mem::replace(&mut self.reads_nothing[at], stands_still) && !stands_still
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
