//! Empties nodes and tells nodes to stop, as an operator who restarts one after the other does.

use std::sync::Arc;

use sedge_base::{Duration, ShardId};
use sedge_cluster::{DrainState, NodeInput, ShardInput};

use super::World;
use crate::schedule::Event;

/// How long a process that stops waits for its clients and neighbours.
const GRACE: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn drain(&mut self) {
        if self.calm {
            return;
        }
        let next = self.now + Duration::from_millis(100 + self.drain_rng.below(1_000));
        self.schedule.at(next, Event::Drain);
        let draining = (0..self.hosts.len()).find(|host| self.is_draining(*host));
        if let Some(host) = draining {
            if self.drain_rng.chance(1, 10) {
                self.serve_on(host);
            }
            return;
        }
        let all_up = self.hosts.iter().all(|host| host.up && !host.stops && host.node.is_ready());
        if !all_up || (self.options.spaced && !self.is_copied()) {
            return;
        }
        let host = self.drain_rng.index(self.hosts.len());
        if self.drain_rng.chance(1, 4) {
            self.trace.note(self.now, format_args!("host {host} is told to stop"));
            self.stop(host);
            return;
        }
        self.trace.note(self.now, format_args!("host {host} is to be emptied"));
        self.node_input(host, NodeInput::Drain { limit: Duration::from_secs(30) });
    }

    pub(super) fn is_draining(&self, host: usize) -> bool {
        self.hosts[host].up && self.hosts[host].node.status().drain.state != DrainState::Off
    }

    /// The operator has changed its mind.
    pub(super) fn serve_on(&mut self, host: usize) {
        if self.hosts[host].up {
            self.node_input(host, NodeInput::CancelDrain);
        }
    }

    /// A host is empty: it stops, most of the time.
    pub(super) fn drained(&mut self, host: usize) {
        self.trace.note(self.now, format_args!("host {host} is empty"));
        let left: Vec<String> = self.hosts[host]
            .shards
            .iter()
            .flat_map(|shard| shard.broker().sessions())
            .map(|session| session.client.to_string())
            .collect();
        if !left.is_empty() {
            self.oracle.protocol.push(format!("host {host} says that it is empty and has sessions of {left:?}"));
        }
        if self.drain_rng.chance(3, 4) {
            self.stop(host);
        }
    }

    /// As a process that gets SIGTERM: clients are told, then the other nodes, then it ends.
    fn stop(&mut self, host: usize) {
        self.hosts[host].stops = true;
        for shard in 0..self.options.shards {
            self.shard_input(host, ShardId(shard), ShardInput::Shutdown { elsewhere: Arc::from([]) });
        }
        let life = self.hosts[host].life;
        self.schedule.at(self.now + GRACE, Event::Stopped { host, life });
    }

    pub(super) fn stopped(&mut self, host: usize, life: u64) {
        if !self.hosts[host].up || self.hosts[host].life != life {
            return;
        }
        self.trace.note(self.now, format_args!("host {host} has stopped"));
        self.node_input(host, NodeInput::Shutdown);
        self.hosts[host].up = false;
        for (wire, side) in self.network.of_host(host) {
            self.close_end(wire, side, true);
        }
        let again = self.now + Duration::from_millis(100 + self.drain_rng.below(5_000));
        self.schedule.at(again, Event::Restart { host });
    }
}
