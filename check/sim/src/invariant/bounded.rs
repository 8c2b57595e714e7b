//! No session's queue exceeds its limit.

use crate::host::Host;

/// Name of the invariant.
pub(crate) const NAME: &str = "bounded";

/// Call at any time.
pub(crate) fn check(hosts: &[Host], limit: usize) -> Vec<String> {
    let mut over = Vec::new();
    for host in hosts.iter().filter(|host| host.up) {
        for shard in &host.shards {
            for session in shard.broker().sessions().filter(|session| session.queued > limit) {
                over.push(format!("{} messages wait for {}, limit {limit}", session.queued, session.client));
            }
        }
    }
    over
}
