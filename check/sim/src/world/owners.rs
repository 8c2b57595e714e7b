//! Watches which hosts hold a session of which client.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use crate::host::Host;

impl World {
    /// Tells the oracle which clients have sessions at two hosts. To be called whenever sessions may have come or gone.
    pub(super) fn note_owners(&mut self) {
        let mut owners = BTreeMap::<String, usize>::new();
        // A host that stands still holds sessions that others have taken over, and delivers nothing.
        let is_about = |host: &&Host| {
            host.up && host.still_until <= self.now && !host.shards.iter().any(sedge_cluster::Shard::stands_still)
        };
        for host in self.hosts.iter().filter(is_about) {
            for session in host.shards.iter().flat_map(|shard| shard.broker().sessions()) {
                *owners.entry(session.client.to_string()).or_default() += 1;
            }
        }
        let twice = |id: &String| owners.get(id).is_some_and(|hosts| *hosts > 1);
        let clients: BTreeSet<usize> =
            self.clients.iter().filter(|client| twice(&client.id())).map(|client| client.index).collect();
        self.oracle.split(self.now, &clients);
    }
}
