//! A node beside a broker: `upstream.mode = "mirror"`.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_bridge::{BridgeConfig, Mirroring};
use sedge_broker::QueueLimits;

use crate::bridges::{Inside, MESSAGES_MAX};
use crate::config::UpstreamConfig;
use crate::runtime::Shared;
use crate::{Config, StartError};

/// Bytes that may wait for what is compared: a node that is slow differs from a broker that drops.
pub(crate) const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Seconds of silence after which the broker may take the node for gone.
const KEEP_ALIVE: u16 = 60;

/// Limits of the queues of the sessions that get the messages to compare.
pub(crate) fn queues(config: &Config) -> BTreeMap<Box<str>, QueueLimits> {
    let limits = QueueLimits { messages: MESSAGES_MAX, bytes: QUEUE_BYTES, drops_oldest: false, refuses: false };
    let count = if config.upstream.mirrors() { config.upstream.mirror_filters.len() } else { 0 };
    (0..count).map(|filter| (Mirroring::session_id(filter).into_boxed_str(), limits)).collect()
}

/// Begins to compare, if the configuration says so.
pub(crate) fn start(config: &Config, node: &str, shared: &Arc<Shared>) -> Result<Option<Arc<Mirroring>>, StartError> {
    if !config.upstream.mirrors() {
        return Ok(None);
    }
    let settings = settings(&config.upstream, node)?;
    let filters = config.upstream.mirror_filters.clone();
    let mirror = Mirroring::start(settings, filters, &Arc::new(Inside(Arc::clone(shared))));
    let mirror = Arc::new(mirror.map_err(StartError::system("start a thread"))?);
    // There is no second one.
    let _ = shared.mirror.set(Arc::downgrade(&mirror));
    Ok(Some(mirror))
}

/// How the broker is reached.
pub(crate) fn settings(upstream: &UpstreamConfig, node: &str) -> Result<BridgeConfig, StartError> {
    let wrong = |what| StartError::Setting { key: "upstream.address", what };
    let (host, encrypted) = upstream.network_place().map_err(wrong)?;
    let mut settings = BridgeConfig {
        address: vec![host.to_string()],
        client_id: format!("sedge-mirror-{node}-"),
        username: upstream.user.clone(),
        password_file: upstream.password_file.clone(),
        keep_alive: KEEP_ALIVE,
        ..BridgeConfig::default()
    };
    settings.tls.enabled = encrypted;
    settings.tls.ca_file.clone_from(&upstream.ca_file);
    Ok(settings)
}
