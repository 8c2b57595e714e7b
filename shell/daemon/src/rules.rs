//! Rules of the configuration that run in the cluster.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use sedge_bridge::{BridgeConfig, Rules};
use sedge_broker::QueueLimits;
use sedge_mqtt::TopicFilter;
use sedge_rules::Rule;

use crate::bridges::{Inside, MESSAGES_MAX};
use crate::runtime::Shared;
use crate::{Config, StartError};

/// Bytes that may wait for a rule; at the limit what comes is dropped and counted, as for every session.
const BUFFER_BYTES: usize = 64 << 20;

/// In front of the topics of what a rule puts out for the bridge that names it.
pub(crate) fn prefix(rule: &str) -> String {
    format!("$rule/{rule}/out/")
}

/// The rules that run: those with topics of their own, and those that bridges name.
fn running(config: &Config) -> BTreeMap<String, Arc<Rule>> {
    let own = config.rules.iter().filter(|(_, rule)| rule.has_topic());
    let own = own.map(|(name, rule)| (name.clone(), Arc::clone(rule)));
    let of_bridge = |bridge: &BridgeConfig| {
        let rule = config.rules.get(&bridge.rule)?;
        let from = bridge.from.iter().filter_map(|filter| TopicFilter::new(filter).ok()).collect();
        Some((bridge.rule.clone(), Arc::new(rule.below(from, &prefix(&bridge.rule)))))
    };
    own.chain(config.bridges.values().filter_map(of_bridge)).collect()
}

/// Limits of the queues of the rules' sessions, by client id. A log holds its rule's state twice at most, and the changes since.
pub(crate) fn queues(config: &Config) -> impl Iterator<Item = (Box<str>, QueueLimits)> {
    config.rules.iter().flat_map(|(name, rule)| {
        let limits = |bytes| QueueLimits { messages: MESSAGES_MAX, bytes, drops_oldest: false, refuses: false };
        let log = limits(BUFFER_BYTES + 4 * rule.limits().state_bytes);
        [(format!("$rule/{name}").into(), limits(BUFFER_BYTES)), (format!("$rule/{name}/log").into(), log)]
    })
}

/// Makes the rules those of this configuration.
pub(crate) fn change(rules: &Rules, config: &Config, shared: &Arc<Shared>) -> io::Result<()> {
    rules.change(&running(config), &Arc::new(Inside(Arc::clone(shared))))
}

/// Starts the rules of the configuration.
pub(crate) fn start(config: &Config, shared: &Arc<Shared>) -> Result<Arc<Rules>, StartError> {
    let rules = Rules::start(&running(config), &Arc::new(Inside(Arc::clone(shared))));
    let rules = Arc::new(rules.map_err(StartError::system("start a thread"))?);
    // There is no second one.
    let _ = shared.rules.set(Arc::downgrade(&rules));
    Ok(rules)
}
