//! From the configuration to what the node's machine is made of.

use std::net::SocketAddr;

use sedge_cluster::link::LinkConfig;
use sedge_cluster::{MeshConfig, NodeConfig, RootPolicy};
use sedge_mqtt::Utf8;

use crate::capacity;
use crate::config::{CLUSTER_PORT, SubackMode, advertised_to_clients};
use crate::discovery::{self, Found};
use crate::host_port::HostPort;
use crate::identity::Identity;
use crate::runtime::sockets;

use crate::{Config, StartError};

/// The settings of the node that listens for others on `bound`.
pub(crate) fn build(
    config: &Config,
    identity: &Identity,
    name: &str,
    bound: SocketAddr,
    found: &Found,
) -> Result<NodeConfig, StartError> {
    let seeds: Vec<SocketAddr> = found.addresses().into_iter().collect();
    let discovers = config.discovery.is_used() || !found.unresolved.is_empty();
    let advertised = advertised(config, bound, &seeds)?;
    if config.cluster.key.is_none() && (!advertised.ip().is_loopback() && !seeds.is_empty() || discovers) {
        tracing::warn!("cluster.key is not set: only nodes on this machine are accepted");
    }
    let wrong = |what: String| StartError::Setting { key: "mqtt.advertise", what };
    let client_address = advertised_to_clients(&config.mqtt).map_err(wrong)?;
    let weights = config.cluster.weights;
    let key = config.cluster.key.as_ref().map(|key| key.expose().as_bytes().to_vec());
    let settings = NodeConfig {
        node: identity.node,
        name: Utf8::new(name).ok(),
        incarnation: identity.incarnation,
        shards: config.node.shard_count(),
        swim_addr: advertised,
        link_addr: advertised,
        client_address: client_address.and_then(|address| Utf8::new(&address).ok()),
        seeds,
        discovers,
        overlay: config.cluster.overlay.clone(),
        by_hand: config.cluster.manual_links.then(|| neighbours(&config.cluster.neighbours)),
        link_qos: config.cluster.link_qos,
        topic_roots: match config.cluster.topic_roots {
            RootPolicy::Capacity => RootPolicy::Capacity,
            RootPolicy::Balance { .. } => RootPolicy::Balance { gamma: weights.roots, delta: weights.clients },
        },
        skip_graph_base: config.cluster.skip_graph_base,
        skip_graph_method: config.cluster.skip_graph_method,
        capacity: capacity::capacity(config.cluster.capacity, weights),
        copies: config.cluster.copies,
        suback_cluster: config.cluster.suback == SubackMode::Cluster,
        links: LinkConfig {
            encrypted: config.cluster.is_encrypted(),
            // Two pings in this time, and silence for three of them, which is 1.5 times as long (IL-19).
            keep_alive: config.cluster.link_ping / 2,
            connections: config.cluster.link_connections,
            order: config.cluster.link_order,
            ..LinkConfig::new(&config.cluster.name, key)
        },
        mesh: MeshConfig { refresh: config.cluster.refresh, lease: config.cluster.lease, ..MeshConfig::default() },
        clock_tolerance: config.cluster.clock_tolerance,
        retained_sync_period: config.cluster.compare,
        max_absent_bytes: config.limits.absent_bytes,
        membership: sedge_cluster::MembershipConfig { autoclean: config.cluster.autoclean, ..Default::default() },
        recovery_timeout: config.cluster.recovery_timeout,
        has_upstream: config.upstream.is_used(),
        retained: config.limits.retained.clone(),
        ..NodeConfig::default()
    };
    Ok(settings.with_round_trip(config.cluster.round_trip))
}

/// Where the neighbours are that the configuration names. Those that cannot be found are named in the log.
fn neighbours(named: &[String]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for name in named {
        let found = HostPort::parse(name, CLUSTER_PORT).and_then(|host| {
            host.resolve().map_err(|error| error.to_string())?.into_iter().next().ok_or_else(|| "no address".to_owned())
        });
        match found {
            Ok(address) => addresses.push(address),
            Err(why) => tracing::warn!(
                neighbour = %name, %why,
                "cluster.neighbours: a name leads nowhere; sedge neighbour add chooses the link when it does"
            ),
        }
    }
    addresses
}

/// The address that other nodes are told.
fn advertised(config: &Config, bound: SocketAddr, seeds: &[SocketAddr]) -> Result<SocketAddr, StartError> {
    let cluster = &config.cluster;
    if !cluster.advertise.is_empty() {
        let wrong = |what: String| StartError::Setting { key: "cluster.advertise", what };
        let host = HostPort::parse(&cluster.advertise, bound.port()).map_err(wrong)?;
        let addresses = host.resolve().map_err(|error| wrong(format!("cannot resolve {host}: {error}")))?;
        return addresses.first().copied().ok_or_else(|| wrong(format!("{host} has no address")));
    }
    if !bound.ip().is_unspecified() {
        return Ok(bound);
    }
    // Without a key, nodes of other machines are refused anyway, so that the loopback address does for all who may come.
    let own = if cluster.key.is_none() && seeds.iter().all(|seed| seed.ip().is_loopback()) {
        std::net::Ipv4Addr::LOCALHOST.into()
    } else if let Some(ip) = config.multicast().and_then(|multicast| discovery::own_ip(&multicast)) {
        ip
    } else {
        sockets::own_ip(seeds.iter().find(|seed| !seed.ip().is_loopback()).copied())
    };
    Ok(SocketAddr::new(own, bound.port()))
}
