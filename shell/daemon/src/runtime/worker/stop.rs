//! The last turns: clients first, then the node. And emptying the node before that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sedge_base::{Duration, Instant, ShardId};
use sedge_cluster::{NodeInput, ShardInput};
use sedge_mqtt::Utf8;

use super::Worker;
use crate::runtime::clients::Phase;
use crate::runtime::{DrainOrder, Letter};

/// How long clients have to read our good-bye.
const CLIENTS_GRACE: Duration = Duration::from_millis(1200);
/// How long other nodes have to read ours.
const NODES_GRACE: Duration = Duration::from_millis(600);

/// How far a thread has come with stopping.
pub(super) struct Stopping {
    clients_until: Instant,
    clients_done: bool,
    /// Set when the node has said good-bye.
    nodes_until: Option<Instant>,
    finished: bool,
}

impl Stopping {
    pub(super) fn next_deadline(&self) -> Instant {
        self.nodes_until.unwrap_or(self.clients_until)
    }
}

impl Worker {
    pub(super) fn is_finished(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.finished)
    }

    /// Begins to empty the node, or lets it serve on.
    pub(super) fn drain(&mut self, order: DrainOrder) {
        let Some(hub) = &mut self.hub else { return };
        let input = order.limit.map_or(NodeInput::CancelDrain, |limit| NodeInput::Drain { limit });
        hub.node.handle(self.now, input);
        // Whoever asked may have gone.
        let _ = order.answer.send(hub.node.status().drain);
    }

    /// The node is empty.
    pub(super) fn drained(&self) {
        if !self.shared.stop_when_drained.load(Ordering::Acquire) {
            return;
        }
        if let Some(stop) = self.shared.stopper.get() {
            stop();
        } else {
            tracing::warn!("the node is empty, but nobody has said how to stop its process");
        }
    }

    /// Lets nobody in any more and says good-bye to the clients.
    pub(super) fn start_stopping(&mut self, elsewhere: Arc<[Utf8]>) {
        if self.stopping.is_some() {
            return;
        }
        let clients_until = self.now.instant + CLIENTS_GRACE;
        self.stopping = Some(Stopping { clients_until, clients_done: false, nodes_until: None, finished: false });
        if let Some(door) = &mut self.door {
            door.close();
        }
        if let Some(hub) = &mut self.hub {
            hub.links.close_listener();
        }
        for id in self.clients.ids() {
            if self.clients.get_mut(id).is_some_and(|client| matches!(client.phase, Phase::Greeting(_))) {
                self.drop_client(id);
            }
        }
        self.shard.handle(self.now, ShardInput::Shutdown { elsewhere });
        self.settle();
    }

    /// Goes on with stopping at the end of a turn.
    pub(super) fn check_stopping(&mut self) {
        let Some(stopping) = &mut self.stopping else { return };
        let now = self.now.instant;
        if !stopping.clients_done && (self.clients.len() == 0 || now >= stopping.clients_until) {
            stopping.clients_done = true;
            self.shared.busy_shards.fetch_sub(1, Ordering::AcqRel);
            self.office.put(ShardId(0), Letter::Gone);
        }
        let Some(hub) = &mut self.hub else {
            stopping.finished = stopping.clients_done;
            return;
        };
        // The letters of the other shards to the node have come before the shards count as gone.
        let alone = self.shared.busy_shards.load(Ordering::Acquire) == 0;
        if stopping.nodes_until.is_none() && (alone || now >= stopping.clients_until + NODES_GRACE) {
            stopping.nodes_until = Some(now + NODES_GRACE);
            hub.node.handle(self.now, NodeInput::Shutdown);
            self.settle_all();
        }
        let links = self.hub.as_ref().map_or(0, |hub| hub.links.len());
        if let Some(stopping) = &mut self.stopping {
            stopping.finished = stopping.nodes_until.is_some_and(|until| links == 0 || now >= until);
        }
    }
}
