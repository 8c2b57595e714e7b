//! A node that reads a broker's traffic: `upstream.mode = "sniff"`.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

use sedge_bridge::Sniffing;
use sedge_broker::QueueLimits;

use crate::bridges::{Inside, MESSAGES_MAX};
use crate::mirror::{self, QUEUE_BYTES};
use crate::runtime::Shared;
use crate::{Config, StartError};

/// Limits of the queue of the session that gets the messages for the broker's clients.
pub(crate) fn queues(config: &Config, node: &str) -> BTreeMap<Box<str>, QueueLimits> {
    let limits = QueueLimits { messages: MESSAGES_MAX, bytes: QUEUE_BYTES, drops_oldest: true, refuses: false };
    config.upstream.sniffs().then(|| (Sniffing::session_id(node).into_boxed_str(), limits)).into_iter().collect()
}

/// Begins to read along, if the configuration says so.
pub(crate) fn start(config: &Config, node: &str, shared: &Arc<Shared>) -> Result<Option<Arc<Sniffing>>, StartError> {
    if !config.upstream.sniffs() {
        return Ok(None);
    }
    let settings = mirror::settings(&config.upstream, node)?;
    let unknown = |what| StartError::Setting { key: "upstream.address", what };
    let (host, _) = config.upstream.network_place().map_err(unknown)?;
    let addresses = host.resolve().map_err(|error| unknown(format!("{host}: {error}")))?;
    let host = Arc::new(Inside(Arc::clone(shared)));
    let sniff = Sniffing::start(settings, addresses, (node, config.upstream.capture_buffer), &host);
    let sniff = sniff.map_err(|error| StartError::Setting { key: "upstream.mode", what: explain(&error) })?;
    let sniff = Arc::new(sniff);
    // There is no second one.
    let _ = shared.sniff.set(Arc::downgrade(&sniff));
    Ok(Some(sniff))
}

fn explain(error: &Error) -> String {
    if error.kind() == ErrorKind::PermissionDenied {
        "\"sniff\" needs the right to capture packets: run the node as root, or give it CAP_NET_RAW (systemd: AmbientCapabilities=CAP_NET_RAW)".to_owned()
    } else if error.kind() == ErrorKind::Unsupported {
        "\"sniff\" works on Linux only; use \"proxy\"".to_owned()
    } else {
        format!("cannot capture packets: {error}")
    }
}
