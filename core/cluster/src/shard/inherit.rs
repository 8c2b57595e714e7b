//! Sessions of a node that is gone, until everything is here that was on its way to them. As with a session that moves (see
//! `handover.rs`), the shard catches what matches meanwhile; the former owner's part is played by all who were sending to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Now, ShardId};
use sedge_broker::{InterestChange, InterestOp, RestoredSession};
use sedge_mqtt::{Message, TopicFilter};

use super::Shard;
use crate::journal::Heard;
use crate::mail::{Arriving, Inherit, Life, SessionStep};

/// Sessions that are coming.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    lives: BTreeMap<Life, Coming>,
    clients: BTreeMap<ClientId, Life>,
}

#[derive(Debug, Default)]
struct Coming {
    sessions: Vec<(ShardId, RestoredSession)>,
    /// What sessions wanted whose client has a newer one here.
    outdated: Vec<(ClientId, Vec<TopicFilter>)>,
    strays: Arc<[Arc<Message>]>,
    heard: Arc<BTreeMap<ShardId, Heard>>,
    /// Shards whose mail is in.
    shards: u16,
    /// What else is to happen with them, in order.
    deferred: Vec<SessionStep>,
}

impl Inheritance {
    /// Keeps back what concerns a session that is coming.
    pub(super) fn defer(&mut self, client: &ClientId, step: SessionStep) -> Option<SessionStep> {
        if self.clients.is_empty() {
            return Some(step);
        }
        let Some(coming) = self.clients.get(client).and_then(|life| self.lives.get_mut(life)) else {
            return Some(step);
        };
        coming.deferred.push(step);
        None
    }
}

impl Shard {
    /// Sessions are about to come.
    pub(super) fn inherit(&mut self, inherit: Inherit) {
        let Inherit { of, sessions } = inherit;
        let coming = self.inheritance.lives.entry(of).or_default();
        let mut filters: Vec<(ClientId, u64, Vec<TopicFilter>)> = Vec::new();
        for (shard, session) in sessions {
            let state = &session.state;
            if self.broker.session(&state.client).is_some_and(|known| known.epoch >= state.epoch) {
                let filters = state.subscriptions.iter().map(|subscription| subscription.filter.clone());
                coming.outdated.push((state.client.clone(), filters.collect()));
                continue;
            }
            let plain = state.subscriptions.iter().map(|subscription| &subscription.filter);
            let plain = plain.filter(|filter| filter.share_group().is_none()).cloned().collect();
            filters.push((state.client.clone(), state.epoch, plain));
            self.inheritance.clients.insert(state.client.clone(), of);
            coming.sessions.push((shard, session));
        }
        for (client, epoch, filters) in filters {
            let left = self.handovers.adopt(&client, epoch, filters);
            self.withdraw(&client, left);
        }
    }

    /// The node has advertised what a former session of the client wanted.
    fn withdraw_outdated(&mut self, client: &ClientId, filters: Vec<TopicFilter>) {
        let wanted: BTreeSet<String> = self
            .broker
            .session(client)
            .map(|session| session.subscriptions.iter().map(|one| one.filter.to_string()).collect())
            .unwrap_or_default();
        let unwanted = filters.into_iter().filter(|filter| !wanted.contains(filter.as_str()));
        let changes = unwanted.map(|filter| InterestChange { filter, op: InterestOp::Remove }).collect();
        self.withdraw(client, changes);
    }

    /// What else is for them is here.
    pub(super) fn arriving(&mut self, arriving: Arriving) {
        if let Some(coming) = self.inheritance.lives.get_mut(&arriving.of) {
            (coming.strays, coming.heard) = (arriving.strays, arriving.heard);
        }
    }

    /// Nothing that was sent twice is on its way from one of the shards.
    pub(super) fn arrive(&mut self, now: Now, life: Life) {
        let Some(coming) = self.inheritance.lives.get_mut(&life) else { return };
        coming.shards += 1;
        if coming.shards < self.place.shards {
            return;
        }
        let Some(coming) = self.inheritance.lives.remove(&life) else { return };
        let Coming { sessions, outdated, strays, heard, deferred, .. } = coming;
        for stray in strays.iter() {
            self.handovers.catch_stray(stray);
        }
        let mut restored = Vec::with_capacity(sessions.len());
        for (shard, mut session) in sessions {
            self.inheritance.clients.remove(&session.state.client);
            let heard = heard.get(&shard);
            let had = |message: &Message| {
                let id = message.id;
                let last = heard.and_then(|heard| heard.get(&(id.node, id.incarnation, id.shard)));
                let own = (id.node, id.incarnation, id.shard) == (life.node, life.incarnation, shard);
                own || last.is_some_and(|last| id.seq <= *last)
            };
            let left = self.handovers.arrive_inherited(&mut session.state, had);
            self.withdraw(&session.state.client.clone(), left);
            restored.push(session);
        }
        for (client, filters) in outdated {
            self.withdraw_outdated(&client, filters);
        }
        self.broker.restore(now, restored, None);
        self.drain_broker(now);
        for step in deferred {
            self.session_step(now, step);
            self.drain_broker(now);
        }
        self.has_inherited(life);
    }
}
