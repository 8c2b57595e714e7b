//! Clients that connect before their node knows the cluster wait here (FT-26), and nothing is read from clients after a standstill until the
//! node knows what the others did meanwhile.

use std::collections::VecDeque;

use sedge_base::{ClientId, ConnId, Now};

use super::Shard;
use crate::ShardOutput;
use crate::mail::ToNode;

/// A client that has sent CONNECT on this connection, with or without clean start.
type Waiting = (ClientId, ConnId, bool);

/// Whether clients are let in.
#[derive(Debug)]
pub(super) enum Gate {
    /// The node does not know the cluster.
    Starting(VecDeque<Waiting>),
    /// The process stood still: bytes that clients have sent meanwhile may be outdated.
    Still(VecDeque<Waiting>),
    /// The same, and the others took the node for dead: connections that come meanwhile end when clients are let in.
    Dead {
        /// See [`crate::mail::ToShard::TakenForDead`].
        had_copies: bool,
    },
    /// The node knows the cluster.
    Open,
}

impl Default for Gate {
    fn default() -> Self {
        Self::Starting(VecDeque::new())
    }
}

impl Shard {
    /// Whether the process stood still and the node does not know yet what the others did meanwhile: the driver reads nothing from clients.
    pub const fn stands_still(&self) -> bool {
        matches!(self.gate, Gate::Still(_) | Gate::Dead { .. })
    }

    /// A client has sent CONNECT: it may claim its session, or waits until the node knows the cluster.
    pub(super) fn claim(&mut self, client: ClientId, conn: ConnId, clean_start: bool) {
        match &mut self.gate {
            Gate::Starting(waiting) | Gate::Still(waiting) => waiting.push_back((client, conn, clean_start)),
            // Its connection ends.
            Gate::Dead { .. } => {}
            Gate::Open => self.tell_node(ToNode::Claim { client, conn, clean_start }),
        }
    }

    /// The process stood still, as this shard's driver, or the node, has noticed.
    pub(super) fn stand_still(&mut self, is_news: bool) {
        if matches!(self.gate, Gate::Open) {
            self.gate = Gate::Still(VecDeque::new());
            self.broker.stand_still();
            if is_news {
                self.tell_node(ToNode::StoodStill);
            }
        }
    }

    /// The process stood still, and the backups had been sent batches up to `sent` before. A publisher may have gone on at a node that took its
    /// session over from such a copy, and have sent its QoS 2 publications again there. Those that are in no such batch count as not read:
    /// nothing of them has left this shard. Connections that were given something since may have been given them, and end.
    pub(super) fn unread(&mut self, now: Now, sent: u64) {
        let Some(hold) = &mut self.hold else { return };
        let (reads, given) = hold.take_read_since(sent);
        if reads.is_empty() {
            return;
        }
        for (ticket, _) in &reads {
            self.exacts.forget(*ticket);
        }
        let ended = self.broker.unread(now, &reads, given);
        self.outputs.extend(ended.into_iter().map(ShardOutput::Close));
    }

    /// The others took this node for dead while it stood still: all its clients have to come back, to whatever node.
    pub(super) fn taken_for_dead(&mut self, now: Now, had_copies: bool) {
        if self.stands_still() {
            self.gate = Gate::Dead { had_copies };
            if let Some(hold) = self.hold.as_mut().filter(|_| had_copies) {
                hold.passes_nothing_on();
            }
            self.end_all(now, had_copies);
        }
    }

    /// Ends all connections without a word.
    fn end_all(&mut self, now: Now, had_copies: bool) {
        let ended = self.broker.taken_for_dead(now, had_copies);
        self.outputs.extend(ended.into_iter().map(ShardOutput::Close));
    }

    /// The node knows the cluster: clients that are still connected claim their sessions.
    pub(super) fn open(&mut self, now: Now) {
        self.begins_to_serve();
        let gate = core::mem::replace(&mut self.gate, Gate::Open);
        let waiting = match gate {
            Gate::Starting(waiting) | Gate::Still(waiting) => waiting,
            Gate::Dead { had_copies } => {
                self.end_all(now, had_copies);
                VecDeque::new()
            }
            Gate::Open => return,
        };
        self.broker.go_on(now);
        for (client, conn, clean_start) in waiting {
            if self.broker.goes_on_claiming(now, &client, conn) {
                self.claim(client, conn, clean_start);
            }
        }
    }
}
