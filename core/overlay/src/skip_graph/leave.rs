//! Leaving the list.

use super::machine::{Stage, Vnode};
use super::route::MAX_HOPS;
use super::{Key, Message, Node, Output, Peer, Side, Topic};

/// Virtual nodes that have left are remembered; the oldest is forgotten first.
const MAX_FORMER: usize = 16;

/// A virtual node of another node that wants to leave.
pub(super) struct Leaver<T> {
    pub(super) key: Key<T>,
    pub(super) life: u64,
    /// Its right neighbour.
    pub(super) right: Option<Peer<T>>,
}

impl<T: Topic> Node<T> {
    /// Begins to take an own virtual node out of the list. Until its left neighbour has let it go, the virtual node passes messages on; it
    /// lets no other join any more.
    pub(super) fn start_leave(&mut self, key: &Key<T>) {
        let Some(vnode) = self.vnodes.get_mut(key).filter(|vnode| vnode.stage == Stage::In) else { return };
        vnode.stage = Stage::Leaving;
        self.depart(key);
    }

    /// Asks the left neighbour to close the gap.
    pub(super) fn depart(&mut self, key: &Key<T>) {
        match self.leave_by(key) {
            Some(by) if by.key.node != self.me => {
                let right = self.neighbour(key, Side::Right);
                let Peer { key, life, .. } = self.peer_of(key.clone());
                self.send(by.key.node, Message::Leave { to: by.key, key, life, right, hops: 0 });
            }
            // The first virtual node of all need not ask, nor a virtual node whose left neighbour is of the same node.
            by => self.remove(key, by),
        }
    }

    /// The peer that has to let an own virtual node go: its left neighbour, or if that is an own one that leaves as well, the peer before
    /// that neighbour, to which the neighbour's wish is under way already.
    pub(super) fn leave_by(&self, key: &Key<T>) -> Option<Peer<T>> {
        let mut at = key;
        while let Some(vnode) = self.vnodes.get(at) {
            if let Some(foreign) = vnode.left.nearest() {
                return Some(foreign.clone());
            }
            let own = self.own_beside(at, Side::Left)?;
            if self.vnodes.get(own).is_some_and(|vnode| vnode.stage == Stage::In) {
                return Some(self.peer_of(own.clone()));
            }
            at = own;
        }
        None
    }

    pub(super) fn on_leave(&mut self, to: &Key<T>, leaver: Leaver<T>, hops: u16) {
        if hops >= MAX_HOPS {
            self.counters.lost += 1;
            return;
        }
        match self.who_lets_go(to, &leaver.key) {
            Some(by) if by.key.node == self.me => self.let_go(leaver, by),
            Some(by) => {
                let Leaver { key, life, right } = leaver;
                self.send(by.key.node, Message::Leave { to: by.key, key, life, right, hops: hops + 1 });
            }
            None => self.counters.lost += 1,
        }
    }

    /// The left neighbour of `key` as far as can be told from here; of this node, it lets it go.
    fn who_lets_go(&self, to: &Key<T>, key: &Key<T>) -> Option<Peer<T>> {
        if let Some(own) = self.own_beside(key, Side::Left) {
            let next = self.neighbour(own, Side::Right).filter(|next| next.key < *key);
            return if next.is_some() {
                next
            } else if self.vnodes.get(own).is_some_and(|vnode| vnode.stage == Stage::Leaving) {
                self.leave_by(own).or_else(|| Some(self.peer_of(own.clone())))
            } else {
                Some(self.peer_of(own.clone()))
            };
        }
        // Only virtual nodes behind it are here, but one before it was.
        if let Some((_, by)) = self.former.iter().rev().find(|(former, by)| former == to && by.key < *key) {
            return Some(by.clone());
        }
        let behind = self.own_beside(key, Side::Right)?;
        let left = self.neighbour(behind, Side::Left).filter(|left| left.key < *key);
        left.or_else(|| Some(self.peer_of(behind.clone())))
    }

    fn let_go(&mut self, leaver: Leaver<T>, by: Peer<T>) {
        let Leaver { key, life, right } = leaver;
        let was_next = by.key < key && self.neighbour(&by.key, Side::Right).is_some_and(|next| next.key == key);
        self.forget(&key, life);
        // Nothing is left between both, whatever virtual nodes were known there on higher levels: they have left before.
        if let Some(vnode) = self.vnodes.get_mut(&by.key).filter(|_| was_next) {
            vnode.right.retain(|peer| right.as_ref().is_some_and(|right| peer.key >= right.key));
        }
        if let Some(right) = &right {
            self.learn_for(Some(&by.key), right);
        }
        self.send(key.node, Message::Left { to: key, by });
    }

    pub(super) fn on_left(&mut self, to: &Key<T>, by: &Peer<T>) {
        let place = self.place;
        let own = self.me;
        let Some(vnode) = self.vnodes.get_mut(to).filter(|vnode| vnode.stage == Stage::Leaving) else { return };
        if by.key.node != own && by.key < *to {
            vnode.left.learn(Side::Left, place, by);
        }
        self.remove(to, Some(by.clone()));
    }

    /// Takes an own virtual node out and tells all nodes that have it in their tables which virtual node takes its place.
    pub(super) fn remove(&mut self, key: &Key<T>, by: Option<Peer<T>>) {
        let Some(vnode) = self.vnodes.remove(key) else { return };
        if let Some(by) = by.filter(|by| by.key.node != self.me) {
            if self.former.len() == MAX_FORMER {
                self.former.pop_front();
            }
            self.former.push_back((key.clone(), by));
        }
        let place = self.place;
        for side in [Side::Left, Side::Right] {
            self.tell_gone(key, &vnode, side);
            // Own virtual nodes on both sides have one gap between them again.
            let Some(own) = self.own_beside(key, side).cloned() else { continue };
            let Some(beside) = self.vnodes.get_mut(&own) else { continue };
            beside.row_mut(side.other()).merge(side.other(), place, vnode.row(side.other()));
            beside.health.doubt();
            self.note_change(&own);
        }
        self.outputs.push_back(Output::Removed(key.clone()));
        self.settle_after(key);
    }

    /// Tells the neighbours on one side which virtual nodes follow on the other.
    fn tell_gone(&mut self, key: &Key<T>, vnode: &Vnode<T>, side: Side) {
        let other = vnode.row(side.other());
        let beyond = self.own_beside(key, side.other()).map(|own| self.peer_of(own.clone()));
        let mut low = 0;
        for peer in vnode.row(side).peers() {
            let high = self.place.common(peer);
            let mut instead: Vec<Peer<T>> = other.on_levels(self.place, low, high).cloned().collect();
            let covered = instead.last().is_some_and(|last| self.place.common(last) >= high);
            instead.extend(beyond.clone().filter(|_| !covered));
            self.outputs.push_back(Output::Send {
                to: peer.key.node,
                message: Message::Gone { key: key.clone(), life: vnode.life, instead },
            });
            low = high + 1;
        }
    }

    pub(super) fn on_gone(&mut self, key: &Key<T>, life: u64, instead: &[Peer<T>]) {
        if key.node == self.me {
            return;
        }
        let near = [Side::Left, Side::Right].map(|side| self.own_beside(key, side).cloned());
        let beside = |node: &Self, own: &Option<Key<T>>, side| own.as_ref().and_then(|own| node.neighbour(own, side));
        let before = [beside(self, &near[0], Side::Right), beside(self, &near[1], Side::Left)];
        self.forget(key, life);
        for peer in instead {
            // The named peer may have left as well, so it is asked. Only to the right, where the list is exact, its answer is waited for:
            // without a left neighbour a virtual node would take itself for the first of all.
            self.link_if_useful(key, peer);
            if peer.key < *key {
                let own = self.own_beside(&peer.key, Side::Right).cloned();
                self.learn_for(own.as_ref(), peer);
            }
        }
        let after = [beside(self, &near[0], Side::Right), beside(self, &near[1], Side::Left)];
        for ((own, before), after) in near.into_iter().zip(before).zip(after) {
            // A nearer virtual node may have been left out for the one that is gone: the new neighbour knows it.
            if let (Some(own), Some(after)) = (own, after)
                && before.as_ref() != Some(&after)
                && after.key.node != self.me
            {
                let link = Message::Link { to: after.key.clone(), peer: self.peer_of(own), level: 0 };
                self.send(after.key.node, link);
            }
        }
    }
}
