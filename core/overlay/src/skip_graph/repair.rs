//! Repair after dead neighbours, lost messages and simultaneous changes (SG-32).

use std::collections::{BTreeSet, VecDeque};

use sedge_base::{Instant, NodeId};

use super::machine::Stage;
use super::{Errand, Key, Message, Node, Side, Topic};

/// Longest pause between two looks at the links of a virtual node, in ticks.
const MAX_PAUSE: u8 = 64;
/// A wish to join or leave that was not answered after so many ticks is sent again.
const ASK_AGAIN_TICKS: u32 = 3;
/// A virtual node that leaves asks its left neighbour so often again. After that it goes: its neighbour may be one that is about to join, and waits in turn.
const MAX_DEPARTURES: u8 = 4;
/// Introducers that are remembered; the oldest is forgotten first.
const MAX_INTRODUCERS: usize = 16;

/// For so many ticks after the death of a neighbour, a rendezvous point does not believe that there are no subscribers left: those
/// that are may be out of its sight until the list is mended.
const MOURNING_TICKS: u8 = 5;

/// When the links of a virtual node are looked at next: soon after a change, ever later while nothing changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    wait: u8,
    pause: u8,
    mourning: u8,
}

impl Default for Health {
    fn default() -> Self {
        Self { wait: 1, pause: 1, mourning: 0 }
    }
}

impl Health {
    /// Something has changed.
    pub(super) fn doubt(&mut self) {
        *self = Self { mourning: self.mourning, ..Self::default() };
    }

    /// A neighbour has died.
    fn mourn(&mut self) {
        *self = Self { mourning: MOURNING_TICKS, ..Self::default() };
    }

    /// Whether a neighbour has died lately.
    pub(super) const fn is_mourning(self) -> bool {
        self.mourning > 0
    }

    /// A tick of mourning has passed; says whether it was the last.
    fn recover(&mut self) -> bool {
        let before = self.mourning;
        self.mourning = before.saturating_sub(1);
        before == 1
    }

    /// A tick has passed; says whether it is time to look.
    fn tick(&mut self) -> bool {
        self.wait = self.wait.saturating_sub(1);
        let due = self.wait == 0;
        if due {
            self.pause = self.pause.saturating_mul(2).min(MAX_PAUSE);
            self.wait = self.pause;
        }
        due
    }
}

impl<T: Topic> Node<T> {
    pub(super) fn introduce(&mut self, node: NodeId) {
        if node == self.me || self.introducers.contains(&node) {
            return;
        }
        if self.introducers.len() == MAX_INTRODUCERS {
            self.introducers.pop_front();
        }
        self.introducers.push_back(node);
        // A virtual node that began alone looks for the others.
        for vnode in self.vnodes.values_mut() {
            vnode.health.doubt();
        }
    }

    /// Whether there is room for another node that could help to find a list again.
    pub(crate) fn needs_introducers(&self) -> bool {
        self.introducers.len() < MAX_INTRODUCERS
    }

    pub(super) fn node_down(&mut self, node: NodeId) {
        self.introducers.retain(|known| *known != node);
        self.outside.retain(|known| *known != node);
        self.drop_node(node);
    }

    /// Where all nodes that could help are waiting, too, the one with the smallest id begins the list.
    pub(super) fn on_outside(&mut self, node: NodeId) {
        if !self.outside.contains(&node) && self.introducers.contains(&node) {
            self.outside.push(node);
        }
    }

    /// Takes a node out of all tables. The next neighbour on each level takes its place until a nearer one is found.
    fn drop_node(&mut self, node: NodeId) {
        self.silent.remove(&node);
        let mut changed = Vec::new();
        for (key, vnode) in &mut self.vnodes {
            let left = vnode.left.retain(|peer| peer.key.node != node);
            let right = vnode.right.retain(|peer| peer.key.node != node);
            if left || right {
                vnode.health.mourn();
                changed.push(key.clone());
            }
        }
        for key in &changed {
            self.note_change(key);
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.ticks = self.ticks.wrapping_add(1);
        self.probe();
        self.ask_again();
        let mut due = Vec::new();
        for (key, vnode) in &mut self.vnodes {
            if vnode.health.recover() {
                self.changed.push(key.clone());
            }
            if vnode.stage == Stage::In && vnode.health.tick() {
                due.push(key.clone());
            }
        }
        for key in &due {
            self.look_at_links(key);
        }
        self.ask_neighbours(self.ticks.is_multiple_of(self.config.status_ticks));
        self.withdraw_idle(now);
    }

    fn probe(&mut self) {
        let rows = self.vnodes.values().flat_map(|vnode| vnode.left.peers().iter().chain(vnode.right.peers()));
        let neighbours: BTreeSet<NodeId> = rows.map(|peer| peer.key.node).collect();
        self.silent.retain(|node, _| neighbours.contains(node));
        for node in neighbours {
            let silent = self.silent.entry(node).or_insert(0);
            if *silent >= self.config.silent_ticks {
                self.counters.dead += 1;
                self.drop_node(node);
            } else {
                *silent += 1;
                self.send(node, Message::Ping);
            }
        }
    }

    /// Asks once more to be let go, or goes if nobody answers.
    fn depart_or_go(&mut self, key: &Key<T>) {
        let Some(vnode) = self.vnodes.get_mut(key) else { return };
        vnode.departures = vnode.departures.saturating_add(1);
        if vnode.departures > MAX_DEPARTURES {
            self.remove(key, None);
        } else {
            self.depart(key);
        }
    }

    /// Begins a list with the first virtual node that waits to join one; says which that was.
    pub(super) fn begin(&mut self) -> Option<Key<T>> {
        if !self.vnodes.is_empty() {
            return None;
        }
        let (key, joining) = self.joining.pop_first()?;
        self.place(&key, joining.life, None, None);
        Some(key)
    }

    fn ask_again(&mut self) {
        let mut waiting = Vec::new();
        for (key, joining) in &mut self.joining {
            joining.waited += 1;
            if joining.waited.is_multiple_of(ASK_AGAIN_TICKS) {
                waiting.push(key.clone());
            }
        }
        let (mut late, unwanted): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|key| self.is_wanted(key));
        if !unwanted.is_empty() {
            // The answer was lost: the nodes that believe these keys to be in the list have to hear that they are not.
            for key in &unwanted {
                self.joining.remove(key);
            }
            self.replay_early();
        }
        let nobody = self.introducers.iter().all(|node| *node > self.me && self.outside.contains(node));
        self.outside.clear();
        if nobody && let Some(key) = self.begin() {
            late.retain(|other| *other != key);
        }
        for key in late {
            self.ask_to_join(key);
        }
        if self.ticks.is_multiple_of(ASK_AGAIN_TICKS) {
            // By then, messages that were under way have come; and a farewell may have been wrong.
            self.farewells = VecDeque::new();
            let leaving = self.vnodes.iter().filter(|(_, vnode)| vnode.stage == Stage::Leaving);
            let leaving: Vec<Key<T>> = leaving.map(|(key, _)| key.clone()).collect();
            for key in leaving {
                self.depart_or_go(&key);
            }
        }
    }

    /// Tells all neighbours of a virtual node that they are, which finds nearer ones; walks from level to level once more, which finds
    /// those that no neighbour knows; and asks an introducer, which finds another list.
    fn look_at_links(&mut self, key: &Key<T>) {
        let Some(vnode) = self.vnodes.get(key) else { return };
        let mut links = Vec::new();
        for side in [Side::Left, Side::Right] {
            let row = vnode.row(side);
            links.extend(row.peers().iter().map(|peer| (peer.key.clone(), row.lowest_level(self.place, &peer.key))));
        }
        for (to, level) in links {
            let peer = self.peer_of(key.clone());
            self.send(to.node, Message::Link { to, peer, level });
        }
        self.present(key);
        let errand = Errand::Meet(self.peer_of(key.clone()));
        self.by_introducer(key.clone(), 0, errand);
    }
}
