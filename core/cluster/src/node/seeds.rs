//! Seeds that do not answer: an operator is told, since a wrong address is not to be told from a node that is down.

use core::net::SocketAddr;

use sedge_base::Duration;

use crate::NodeState;
use crate::node::Node;

/// How long until an operator hears again of a seed that still does not answer.
const REMINDER: Duration = Duration::from_mins(10);

impl Node {
    /// Other addresses than before are asked from here on.
    pub(in crate::node) fn set_seeds(&mut self, seeds: Vec<SocketAddr>) {
        let seeds = self.neighbours.with_seeds(seeds);
        self.only_own_seeds &= seeds.iter().all(|seed| *seed == self.config.swim_addr);
        if !self.only_own_seeds {
            // A seed that was found may be old and gone soon: it is not named as soon as a seed that an operator has written.
            self.next_seed_check.get_or_insert(self.now.instant + REMINDER);
        }
        let seeds = self.beginning.set_seeds(seeds);
        self.membership.handle(self.now, sedge_membership::Input::Seeds(seeds));
    }

    /// Names the seeds that have had their time and did not answer.
    pub(in crate::node) fn check_seeds(&mut self) {
        if self.next_seed_check.is_none_or(|at| at > self.now.instant) {
            return;
        }
        if self.only_own_seeds || self.state == NodeState::Leaving {
            self.next_seed_check = None;
            return;
        }
        self.next_seed_check = Some(self.now.instant + REMINDER);
        for seed in self.unreached_seeds() {
            if self.mistrusted.cause(self.now.instant, seed).is_some() {
                // It has answered, and the log has named what is wrong.
                continue;
            }
            let key = if self.config.links.may_link(seed) {
                ""
            } else {
                "; without cluster.key only nodes of this machine are linked: set the same cluster.key_file on all nodes"
            };
            let message = format!("Seed {seed} does not answer; this node serves without it and goes on asking{key}");
            self.event(true, message);
        }
    }

    /// Seeds that have not answered. Addresses that the node only remembers are named by what it waits for.
    pub(in crate::node) fn unreached_seeds(&self) -> Vec<SocketAddr> {
        let unreached = self.membership.unreached_seeds();
        unreached.filter(|seed| !self.beginning.is_only_remembered(*seed)).collect()
    }
}
