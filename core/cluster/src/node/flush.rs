//! One turn: the work that an event has set off is done until everything is quiet.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, NodeId, Now, ShardId};
use sedge_broker::{InterestChange, InterestOp, Ticket};
use sedge_mqtt::ReasonCode;
use sedge_overlay::{Advert, Input, Token};

use crate::link::{ControlTopic, Frame, FrameSeq, SendError};
use crate::mail::{Interest, SessionStep, Settled, ToShard};
use crate::node::Node;
use crate::node::delivery::waiters::{Reached, Waiter};
use crate::reception::shard_of;
use crate::sys;
use crate::wire::WireError;
use crate::{NodeEvent, NodeOutput};

impl Node {
    pub(in crate::node) fn begin(&mut self, now: Now) {
        self.now = now;
        if self.started.is_none() {
            self.started = Some(now.instant);
            self.next_comparison = Some(now.instant + self.config.retained_sync_period);
            self.next_seed_check = Some(now.instant + self.config.seed_timeout);
            self.members_changed(None);
            self.announce_wait();
            self.tell_load();
        }
    }

    /// Lets the machines act on each other until none has anything to say.
    pub(in crate::node) fn turn(&mut self) {
        loop {
            // The links first: no signal of the overlay may go to a neighbour that is known to have begun anew.
            if let Some(output) = self.links.poll_output() {
                self.link_output(output);
            } else if let Some(output) = self.overlay.poll_output() {
                self.overlay_output(output);
            } else if let Some(output) = self.membership.poll_output() {
                self.membership_output(output);
            } else if let Some(mail) = self.local_mail.pop_front() {
                self.directory_mail(self.config.node, mail);
            } else if !self.open_next_fence() {
                break;
            }
        }
        self.grant_delayed();
        while let Some(mail) = self.local_mail.pop_front() {
            self.directory_mail(self.config.node, mail);
        }
        self.answer_askers();
        self.check_recovery();
    }

    /// Lets the events that were fed take effect, and hands out what was gathered, until there is an output or nothing to do.
    pub(in crate::node) fn flush(&mut self) {
        loop {
            self.turn();
            self.hand_out_answered();
            self.flush_table();
            self.check_restoration();
            if let Some(barrier) = self.settles.next_barrier(self.config.shards) {
                self.tell_all_shards(|| ToShard::Barrier(barrier));
            }
            self.flush_accepted();
            self.let_settled_go();
            self.drain_on();
            self.send_marks();
            self.tell_copies();
            self.acknowledge_arrivals();
            self.links.flush(self.now.instant);
            self.turn();
            let quiet = self.table.is_empty() && self.accepted.iter().all(Vec::is_empty);
            if quiet || !self.outputs.is_empty() {
                break;
            }
        }
    }

    fn flush_accepted(&mut self) {
        for shard in 0..self.config.shards {
            let Some(accepted) = self.accepted.get_mut(usize::from(shard)) else { continue };
            if !accepted.is_empty() {
                let accepted = core::mem::take(accepted);
                self.tell_shard(ShardId(shard), ToShard::Accepted(accepted));
            }
        }
    }

    pub(in crate::node) fn flush_table(&mut self) {
        if !self.table.is_empty() {
            let changes: Arc<[_]> = core::mem::take(&mut self.table).into();
            self.tell_all_shards(|| ToShard::Table(Arc::clone(&changes)));
        }
    }

    pub(in crate::node) fn tell_shard(&mut self, shard: ShardId, mail: ToShard) {
        self.outputs.push_back(NodeOutput::ToShard(shard, mail));
    }

    pub(in crate::node) fn tell_all_shards(&mut self, mail: impl Fn() -> ToShard) {
        for shard in 0..self.config.shards {
            self.tell_shard(ShardId(shard), mail());
        }
    }

    pub(in crate::node) fn accepted(&mut self, shard: ShardId, ticket: Ticket, reason: ReasonCode) {
        if let Some(accepted) = self.accepted.get_mut(usize::from(shard.0)) {
            accepted.push((ticket, reason));
        }
    }

    pub(in crate::node) fn event(&mut self, warning: bool, message: String) {
        self.outputs.push_back(NodeOutput::Event(NodeEvent { warning, message }));
    }

    /// Sends a control frame. One that cannot be sent would leave the neighbour with half the truth: the link begins anew then.
    pub(in crate::node) fn send_control(
        &mut self,
        to: NodeId,
        topic: ControlTopic,
        payload: Bytes,
    ) -> Option<FrameSeq> {
        let is_promise = topic != ControlTopic::Overlay || self.overlay.promises(to, &payload);
        if topic != ControlTopic::Relay && is_promise {
            if topic.rests_on_publications() {
                self.hand_out_for(to);
            }
            self.fence_off(to);
        }
        match self.links.send(self.now.instant, to, Frame::Control { topic, payload }) {
            Ok(seq) => Some(seq),
            Err(SendError::NoChannel) => {
                self.counters.control_lost += 1;
                None
            }
            Err(error @ (SendError::Full | SendError::TooLarge)) => {
                self.counters.control_lost += 1;
                self.reset_link(to, &error.to_string());
                None
            }
        }
    }

    /// A node that plays one of an older version knows nothing of newer mail.
    pub(in crate::node) fn check_known(&self, since: u32) -> Result<(), WireError> {
        if since > self.config.links.protocol.version { Err(WireError::UNKNOWN) } else { Ok(()) }
    }

    /// A client's subscriptions have changed.
    pub(in crate::node) fn interest_changed(&mut self, shard: ShardId, interest: Interest) {
        let Interest { client, mut changes, ticket } = interest;
        if ticket.is_none() {
            // Drops withdrawals that a former move has left and whose filter the coming session wants.
            changes.retain(|change| change.op != InterestOp::Remove || !self.claims.awaits(&client, &change.filter));
        }
        let effect = self.interest.apply(shard, &client, &changes);
        self.table.extend(effect.table);
        let retained = changes.into_iter().enumerate().filter_map(|(at, change)| match change.op {
            InterestOp::Add { retained: true, .. } => Some((at, change.filter)),
            InterestOp::Add { .. } | InterestOp::Remove => None,
        });
        let waiter = ticket.map(|ticket| Waiter::Client { shard, ticket, retained: retained.collect() });
        let token = match waiter {
            Some(waiter) if self.config.suback_cluster => self.wait(waiter, !effect.adverts.is_empty()),
            Some(waiter) => {
                self.finish_wait(waiter);
                None
            }
            None => None,
        };
        self.advertise(effect.adverts, token);
    }

    pub(in crate::node) fn advertise(&mut self, changes: Vec<Advert>, token: Option<Token>) {
        if !changes.is_empty() {
            self.overlay.handle(self.now, Input::Local { changes, token });
        }
    }

    /// Changes the interest of a client for the node's own reasons, and waits until every neighbour and every shard has answered, whether
    /// anything changes or not.
    pub(in crate::node) fn change_and_wait_for_all(
        &mut self,
        client: &ClientId,
        changes: &[InterestChange],
        waiter: Waiter,
    ) {
        let adverts = self.change(client, changes);
        self.advertise(adverts, None);
        let token = self.wait(waiter, true);
        self.overlay.handle(self.now, Input::Local { changes: Vec::new(), token });
    }

    fn change(&mut self, client: &ClientId, changes: &[InterestChange]) -> Vec<Advert> {
        let effect = self.interest.apply(shard_of(client, self.config.shards), client, changes);
        self.table.extend(effect.table);
        effect.adverts
    }

    /// Waits for the overlay, if it has anything to do, and for the other shards, if there are any.
    pub(in crate::node) fn wait(&mut self, waiter: Waiter, overlay: bool) -> Option<Token> {
        let shards = self.config.shards > 1;
        if !overlay && !shards {
            self.finish_wait(waiter);
            return None;
        }
        let number = self.settles.wait(waiter, overlay, shards);
        overlay.then_some(Token(number))
    }

    pub(in crate::node) fn barrier_reached(&mut self, number: u64) {
        match self.settles.reached(number) {
            Reached::NotYet => {}
            Reached::Overlay(barrier) => self.overlay.handle(self.now, Input::BarrierReached(barrier)),
            Reached::Settled(waiters) => waiters.into_iter().for_each(|waiter| self.finish_wait(waiter)),
        }
    }

    /// Everybody routes as the waiter wants. Retained messages are looked up now and not before, so that none is missed: one that
    /// was routed by an older table is in the store already.
    pub(in crate::node) fn finish_wait(&mut self, waiter: Waiter) {
        let (shard, ticket, retained) = match waiter {
            Waiter::Client { shard, ticket, retained } => (shard, ticket, retained),
            Waiter::Departure(departure) => return self.departs(departure),
            Waiter::Adoption(handed) => return self.adoption_settled(handed),
            Waiter::Flush(handed) => return self.tell_behind_all(&handed, SessionStep::Flush),
            Waiter::Leftovers(handed) => return self.tell_behind_all(&handed, SessionStep::Collect),
            Waiter::Release(client, from) => return self.reunion_is_answered(client, from),
            Waiter::Reunion(client, from) => return self.reunited(client, from),
            Waiter::Inheritance(life) => return self.inheritance_is_caught(life),
            Waiter::Takeover(life) => return self.takeover_is_known(life),
        };
        let mut found = Vec::new();
        for (at, filter) in retained {
            let mut messages = Vec::new();
            let store = if sys::asks_for_a_node(&filter) { &self.sys } else { &self.retained };
            store.matching(&filter, self.now.wall, |message| messages.push(Arc::clone(message)));
            if !messages.is_empty() {
                found.push((at, messages));
            }
        }
        self.tell_shard(shard, ToShard::Settled(Box::new(Settled { ticket, retained: found })));
    }
}
