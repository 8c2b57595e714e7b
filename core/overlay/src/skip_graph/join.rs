//! Joining the list, and becoming known on the higher levels.

use super::machine::{Joining, Stage, Vnode};
use super::repair::Health;
use super::table::Row;
use super::{Errand, Key, Message, Node, Output, Peer, Role, Side, Status, Topic};

impl<T: Topic> Node<T> {
    /// Begins to insert an own virtual node.
    pub(super) fn start_join(&mut self, key: Key<T>) {
        self.lives += 1;
        let life = self.lives;
        if self.vnodes.is_empty() && self.introducers.is_empty() {
            self.place(&key, life, None, None);
            return;
        }
        self.joining.insert(key.clone(), Joining { waited: 0, life });
        self.ask_to_join(key);
    }

    /// Sends the first wish to join a list to this node.
    pub(super) fn join_by(&mut self, node: sedge_base::NodeId) {
        let Some(target) = self.joining.keys().next().cloned().filter(|_| self.vnodes.is_empty()) else { return };
        let errand = Errand::Join(self.peer_of(target.clone()));
        self.send(node, Message::Route { to: None, target, hops: 0, errand });
    }

    /// Sends the wish on its way, from an own virtual node or by the next introducer.
    pub(super) fn ask_to_join(&mut self, key: Key<T>) {
        let errand = Errand::Join(self.peer_of(key.clone()));
        if self.vnodes.is_empty() {
            self.by_introducer(key, 0, errand);
        } else {
            self.route(key, 0, errand);
        }
    }

    pub(super) fn by_introducer(&mut self, target: Key<T>, hops: u16, errand: Errand<T>) {
        if let Some(to) = self.introducers.front().copied() {
            self.introducers.rotate_left(1);
            self.send(to, Message::Route { to: None, target, hops, errand });
        }
    }

    /// Lets a virtual node join to the right of the own one, or to the left if it becomes the first of all.
    pub(super) fn admit(&mut self, beside: &Key<T>, peer: &Peer<T>) {
        if peer.key.node == self.me {
            if let Some(joining) = self.joining.remove(&peer.key) {
                self.place(&peer.key, joining.life, None, None);
            }
            return;
        }
        let status = self.status_for(beside, &peer.key);
        let own = self.peer_of(beside.clone());
        let (left, right) = if *beside < peer.key {
            let behind = self.first_behind(beside, &peer.key);
            (Some(own), behind)
        } else {
            (None, Some(own))
        };
        let learnt = self.learn(peer);
        let to = peer.key.clone();
        self.send(to.node, Message::Joined { to, left, right, status });
        // The other own virtual node beside the new one need not be its neighbour in the list, but is on some level.
        self.tell_of_others(Some(beside), learnt, peer);
    }

    /// Takes in a neighbour of an own virtual node, which hears from that one. If the one on its other side has it in its table since now, too, it is
    /// told: a walk that comes later would find nothing new.
    pub(super) fn learn_for(&mut self, own: Option<&Key<T>>, peer: &Peer<T>) {
        let learnt = self.learn(peer);
        self.tell_of_others(own, learnt, peer);
    }

    /// Tells a virtual node which own ones have it in their tables since now, except the own one that it hears from anyway.
    fn tell_of_others(&mut self, own: Option<&Key<T>>, learnt: [Option<Key<T>>; 2], peer: &Peer<T>) {
        for other in learnt.into_iter().flatten().filter(|other| Some(other) != own) {
            self.say_linked(peer, other, None);
        }
    }

    /// The first in the list behind `joiner` that the own virtual node knows. A joiner that asks again may be in the table already.
    fn first_behind(&self, own: &Key<T>, joiner: &Key<T>) -> Option<Peer<T>> {
        let row = self.vnodes.get(own).map_or(&[][..], |vnode| vnode.right.peers());
        let foreign = row.iter().find(|peer| peer.key > *joiner).cloned();
        foreign.or_else(|| self.own_beside(own, Side::Right).map(|own| self.peer_of(own.clone())))
    }

    pub(super) fn on_joined(
        &mut self,
        from: sedge_base::NodeId,
        to: Key<T>,
        left: Option<&Peer<T>>,
        right: Option<&Peer<T>>,
        status: Option<Status>,
    ) {
        if let Some(joining) = self.joining.remove(&to) {
            self.adopt_status(&to, status);
            self.place(&to, joining.life, left, right);
        } else if self.vnodes.contains_key(&to) {
            for peer in left.into_iter().chain(right) {
                self.learn_for(Some(&to), peer);
            }
        } else {
            self.send(from, Message::Gone { key: to, life: self.lives, instead: right.into_iter().cloned().collect() });
        }
    }

    /// Puts an own virtual node into the list and presents it to both sides.
    pub(super) fn place(&mut self, key: &Key<T>, life: u64, left: Option<&Peer<T>>, right: Option<&Peer<T>>) {
        let mut vnode = Vnode {
            left: Row::default(),
            right: Row::default(),
            stage: Stage::In,
            departures: 0,
            life,
            health: Health::default(),
        };
        // Between two own virtual nodes there is one table for each side: the new one takes its part of both.
        for side in [Side::Left, Side::Right] {
            let Some(own) = self.own_beside(key, side).cloned() else { continue };
            let Some(beside) = self.vnodes.get_mut(&own) else { continue };
            let beyond = beside.row_mut(side.other()).split_off(side.other(), key);
            *vnode.row_mut(side.other()) = beyond;
            beside.health.doubt();
            self.note_change(&own);
        }
        self.vnodes.insert(key.clone(), vnode);
        for peer in left.into_iter().chain(right) {
            self.learn_for(Some(key), peer);
        }
        self.note_change(key);
        self.present(key);
        self.replay_early();
        self.outputs.push_back(Output::Inserted(key.clone()));
        self.settle_after(key);
    }

    /// Starts a walk to each side.
    pub(super) fn present(&mut self, key: &Key<T>) {
        for side in [Side::Left, Side::Right] {
            let Some(first) = self.vnodes.get(key).and_then(|vnode| vnode.row(side).nearest()).cloned() else {
                continue;
            };
            let peer = self.peer_of(key.clone());
            self.send(first.key.node, Message::Walk { to: first.key, peer, side });
        }
    }

    /// A virtual node presents itself: it is taken in, and goes on to the next that shares as many digits with it as this node. So
    /// it climbs from level to level.
    pub(super) fn on_walk(&mut self, to: &Key<T>, peer: &Peer<T>, side: Side) {
        if peer.key.node == self.me {
            return;
        }
        if !self.vnodes.contains_key(to) {
            self.say_gone(to.clone(), peer);
        }
        self.learn_for(None, peer);
        let level = self.place.common(peer);
        let mut at = if self.vnodes.contains_key(to) { Some(to) } else { self.own_beside(to, side) };
        while let Some((key, vnode)) = at.and_then(|key| self.vnodes.get_key_value(key)) {
            if let Some(next) = vnode.row(side).at_level(self.place, level) {
                let next = next.key.clone();
                if next.node != peer.key.node {
                    self.send(next.node, Message::Walk { to: next, peer: peer.clone(), side });
                }
                return;
            }
            at = self.own_beside(key, side);
        }
    }

    /// A virtual node takes one of ours for its neighbour from `level` on.
    pub(super) fn on_link(&mut self, to: Key<T>, peer: &Peer<T>, level: u32) {
        if peer.key.node == self.me {
            return;
        }
        if !self.vnodes.contains_key(&to) {
            self.say_gone(to, peer);
            return;
        }
        let side = if to > peer.key { Side::Right } else { Side::Left };
        // The nearest own one on this side: it may be nearer than the one that is meant.
        let Some(own) = self.own_beside(&peer.key, side).cloned() else { return };
        let hint = self.between(&own, peer, level);
        self.greet(peer, &own, hint);
    }

    /// Takes in a virtual node and answers as `own`; every other own virtual node that has it in its table now answers, too.
    fn greet(&mut self, peer: &Peer<T>, own: &Key<T>, hint: Option<Peer<T>>) {
        let beyond = self.beyond(own, &peer.key);
        let learnt = self.learn(peer);
        // The node whose place it takes is likely to be its neighbour on the other side.
        let displaced = beyond.filter(|_| learnt.contains(&Some(own.clone())));
        self.say_linked(peer, own.clone(), hint.or(displaced));
        self.tell_of_others(Some(own), learnt, peer);
    }

    /// The one nearest to `peer` between it and an own virtual node that shares enough digits with it.
    fn between(&self, own: &Key<T>, peer: &Peer<T>, level: u32) -> Option<Peer<T>> {
        let towards = if *own > peer.key { Side::Left } else { Side::Right };
        let row = self.vnodes.get(own)?.row(towards).peers();
        let suits = |known: &&Peer<T>| {
            towards.is_nearer(&known.key, &peer.key) && self.place.base.common(known.vector, peer.vector) >= level
        };
        row.iter().rev().find(suits).cloned()
    }

    /// The one nearest to `key` that an own virtual node knows on the other side of it.
    fn beyond(&self, own: &Key<T>, key: &Key<T>) -> Option<Peer<T>> {
        let towards = if own > key { Side::Left } else { Side::Right };
        self.vnodes.get(own)?.row(towards).peers().iter().find(|known| towards.is_nearer(key, &known.key)).cloned()
    }

    /// An own virtual node is gone: the peer that took it for a neighbour is told, and the virtual node in its place gets to know the peer.
    fn say_gone(&mut self, key: Key<T>, peer: &Peer<T>) {
        self.send(peer.key.node, Message::Gone { key, life: self.lives, instead: Vec::new() });
        self.route(peer.key.clone(), 0, Errand::Meet(peer.clone()));
    }

    /// A node has a virtual node of ours in a table that does not exist any more.
    pub(super) fn tell_if_gone(&mut self, node: sedge_base::NodeId, key: Key<T>) {
        if !self.vnodes.contains_key(&key) && !self.joining.contains_key(&key) {
            self.send(node, Message::Gone { key, life: self.lives, instead: Vec::new() });
        }
    }

    pub(super) fn say_linked(&mut self, peer: &Peer<T>, own: Key<T>, hint: Option<Peer<T>>) {
        let status = self.status_for(&own, &peer.key);
        let to = peer.key.clone();
        let own = self.peer_of(own);
        self.send(to.node, Message::Linked { to, peer: own, hint, status });
    }

    pub(super) fn on_linked(&mut self, to: Key<T>, peer: &Peer<T>, hint: Option<Peer<T>>, status: Option<Status>) {
        if !self.vnodes.contains_key(&to) {
            self.say_gone(to, peer);
            return;
        }
        self.learn_for(Some(&to), peer);
        if status.is_some() && self.adopt_status(&to, status) {
            self.note_change(&to);
        }
        if let Some(hint) = hint {
            self.link_if_useful(&to, &hint);
        }
    }

    /// Presents an own virtual node to one it has heard of, if that would be its neighbour on the side of `from`.
    pub(super) fn link_if_useful(&mut self, from: &Key<T>, peer: &Peer<T>) {
        let side = if *from < peer.key { Side::Right } else { Side::Left };
        let Some(own) = self.own_beside(&peer.key, side.other()).cloned() else { return };
        // A virtual node that is leaving wants no new neighbours.
        let Some(vnode) = self.vnodes.get(&own).filter(|vnode| vnode.stage == Stage::In) else { return };
        let mut row = vnode.row(side).clone();
        if peer.key.node != self.me && row.learn(side, self.place, peer) {
            let level = row.lowest_level(self.place, &peer.key);
            let to = peer.key.clone();
            let own = self.peer_of(own);
            self.send(to.node, Message::Link { to, peer: own, level });
        }
    }

    /// Meets a virtual node whose place is here, but perhaps in another list. That node may have left meanwhile, so it is asked.
    pub(super) fn meet(&mut self, own: &Key<T>, peer: &Peer<T>) {
        self.link_if_useful(own, peer);
    }

    /// The status of its topic to tell a publisher: the own status, if the own virtual node publishes to the topic, too.
    fn status_for(&self, own: &Key<T>, other: &Key<T>) -> Option<Status> {
        let topic = own.topic.as_ref().filter(|_| own.role == Role::Publisher && own.is_of_group(other))?;
        self.status(topic)
    }
}
