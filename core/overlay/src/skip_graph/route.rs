//! Finding the place of a key.

use super::machine::Stage;
use super::{Errand, Key, Message, Node, Peer, Side, Topic};

/// A message that was passed on more often is given up: paths are some tens of hops long even among millions of nodes.
pub(super) const MAX_HOPS: u16 = 512;

enum Step<T> {
    /// The message belongs to this virtual node.
    Here(Key<T>),
    Next(Peer<T>),
    Lost,
}

impl<T: Topic> Node<T> {
    /// Passes an errand on, or does it.
    pub(super) fn route(&mut self, target: Key<T>, hops: u16, errand: Errand<T>) {
        if let Errand::Join(peer) = &errand
            && self.vnodes.is_empty()
            && self.started
        {
            self.send(peer.key.node, Message::Outside);
            return;
        }
        match self.step_towards(&target) {
            Step::Here(key) => match errand {
                Errand::Join(peer) => self.admit(&key, &peer),
                Errand::Meet(peer) => self.meet(&key, &peer),
                Errand::Report(topic) => self.on_report(&key, &topic),
            },
            Step::Next(peer) if hops < MAX_HOPS => {
                let Peer { key, .. } = peer;
                self.send(key.node, Message::Route { to: Some(key), target, hops: hops + 1, errand });
            }
            Step::Lost if hops < MAX_HOPS && !self.introducers.is_empty() && matches!(errand, Errand::Meet(_)) => {
                self.by_introducer(target, hops + 1, errand);
            }
            Step::Next(_) | Step::Lost => self.counters.lost += 1,
        }
    }

    fn step_towards(&self, target: &Key<T>) -> Step<T> {
        if let Some(key) = self.own_beside(target, Side::Left) {
            let Some(vnode) = self.vnodes.get(key) else { return Step::Lost };
            let ahead = vnode.right.peers().iter().rev().find(|peer| peer.key < *target);
            return match (ahead, vnode.stage) {
                (Some(peer), _) => Step::Next(peer.clone()),
                (None, Stage::In) => Step::Here(key.clone()),
                (None, Stage::Leaving) => self.step_back(key),
            };
        }
        let Some(key) = self.vnodes.keys().find(|key| *key != target) else { return Step::Lost };
        let Some(vnode) = self.vnodes.get(key) else { return Step::Lost };
        let row = vnode.left.peers();
        let ahead = row.iter().rev().find(|peer| peer.key > *target);
        match ahead.or_else(|| row.iter().find(|peer| peer.key < *target)) {
            Some(peer) => Step::Next(peer.clone()),
            None if vnode.stage == Stage::In => Step::Here(key.clone()),
            None => Step::Lost,
        }
    }

    /// The step of a virtual node that is leaving: its left neighbour, which has been told before, takes the step for it.
    fn step_back(&self, leaving: &Key<T>) -> Step<T> {
        match self.leave_by(leaving) {
            Some(peer) if peer.key.node == self.me => Step::Here(peer.key),
            Some(peer) => Step::Next(peer),
            None => Step::Lost,
        }
    }
}
