//! Rendezvous points: whether publications to a topic are sent at all.

use super::cast::Step;
use super::machine::Stage;
use super::{Errand, Key, Message, Node, Note, Output, Range, Role, Side, Topic};

/// Whether publishers of a topic send (SG-10, SG-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether they do.
    pub active: bool,
    /// Grows with each change, so that the later of two wins.
    pub epoch: u64,
}

impl<T: Topic> Node<T> {
    /// Whether this node is the rendezvous point of the topic: its right-most publisher, as far as can be seen from here (SG-09).
    pub fn is_rendezvous_point(&self, topic: &T) -> bool {
        let key = Key::new(topic.clone(), Role::Publisher, self.me);
        let is_in = self.vnodes.get(&key).is_some_and(|vnode| vnode.stage == Stage::In);
        is_in && self.neighbour(&key, Side::Right).is_none_or(|right| !right.key.is_of_group(&key))
    }

    /// The right neighbour of a publisher may be another than before. The right-most publisher of a topic is its rendezvous point
    /// (SG-09): it sees whether there are subscribers, and tells the others when that changes.
    pub(super) fn check_status(&mut self, key: &Key<T>) {
        let Some(topic) = key.topic.clone().filter(|_| key.role == Role::Publisher) else { return };
        let Some(vnode) = self.vnodes.get(key).filter(|vnode| vnode.stage == Stage::In) else { return };
        let mourning = vnode.health.is_mourning();
        let right = self.neighbour(key, Side::Right);
        if right.as_ref().is_some_and(|right| right.key.is_of_group(key)) {
            return;
        }
        let present = right.is_some_and(|right| right.key.topic == key.topic && right.key.role == Role::Subscriber);
        match self.status(&topic) {
            // Too many messages are better than lost ones.
            _ if mourning && !present => {}
            Some(status) if status.active == present => {}
            Some(status) => self.decide(&topic, Status { active: present, epoch: status.epoch.saturating_add(1) }),
            None => {
                let left = self.neighbour(key, Side::Left);
                // Another publisher knows, and has said so or will be asked; the only one decides alone (SG-13), and so does one
                // whose neighbour does not know either.
                let asked = self.topics.get(&topic).is_some_and(|interest| interest.asked);
                if asked || left.is_none_or(|left| !left.key.is_of_group(key)) {
                    self.decide(&topic, Status { active: present, epoch: 0 });
                }
            }
        }
    }

    /// As rendezvous point, sets the status of all publishers.
    fn decide(&mut self, topic: &T, status: Status) {
        self.set_status(topic, status);
        let whole = Range::group(topic, Role::Publisher);
        let Step::Split(parts) = self.step(&whole) else { return };
        for (peer, piece) in parts {
            let note = Note { whole: whole.clone(), piece, source: self.me, hops: 1 };
            self.send(peer.key.node, Message::Cast { note, topic: topic.clone(), status });
        }
    }

    pub(super) fn on_cast(&mut self, note: &Note<T>, topic: &T, status: Status) {
        let forward = self.forward(note);
        for hop in forward.hops {
            self.send(hop.node, Message::Cast { note: hop.note, topic: topic.clone(), status });
        }
        if forward.deliver {
            self.on_order(topic, status);
        }
    }

    pub(super) fn on_order(&mut self, topic: &T, status: Status) {
        if self.status(topic).is_none_or(|mine| status.epoch >= mine.epoch) {
            self.set_status(topic, status);
            self.note_change(&Key::new(topic.clone(), Role::Publisher, self.me));
        }
    }

    /// Takes over the status that a neighbour told while this publisher joined (SG-12); says whether it was news.
    pub(super) fn adopt_status(&mut self, key: &Key<T>, status: Option<Status>) -> bool {
        let (Some(topic), Some(status)) = (&key.topic, status) else { return false };
        let unknown = key.role == Role::Publisher && self.status(topic).is_none();
        if unknown {
            self.set_status(&topic.clone(), status);
        }
        unknown
    }

    fn set_status(&mut self, topic: &T, status: Status) {
        let Some(interest) = self.topics.get_mut(topic) else { return };
        let before = interest.status.replace(status);
        if before.is_none_or(|before| before.active != status.active) {
            self.outputs.push_back(Output::Status { topic: topic.clone(), active: status.active });
        }
    }

    /// A publication found no subscribers. If that is so at the rendezvous point, the publisher has missed being suspended (SG-15).
    pub(super) fn on_empty(&mut self, beside: &Key<T>, note: &Note<T>) {
        let Some(topic) = beside.topic.clone() else { return };
        if beside.role != Role::Publisher || note.whole != Range::group(&topic, Role::Subscriber) {
            return;
        }
        self.check_status(beside);
        if let Some(status) = self.status(&topic).filter(|status| !status.active) {
            self.send(note.source, Message::Order { topic, status });
        }
    }

    /// Asks the right neighbours of publishers that are suspended, or do not know whether they are.
    pub(super) fn ask_neighbours(&mut self, suspended: bool) {
        let publishers: Vec<Key<T>> = self
            .topics
            .iter()
            .filter(|(_, interest)| match interest.status {
                None => !interest.subscribed,
                Some(status) => suspended && !status.active,
            })
            .map(|(topic, _)| Key::new(topic.clone(), Role::Publisher, self.me))
            .filter(|key| self.vnodes.contains_key(key))
            .collect();
        for key in publishers {
            let interest = key.topic.as_ref().and_then(|topic| self.topics.get_mut(topic));
            let unknown = interest.is_some_and(|interest| {
                let unknown = interest.status.is_none();
                // There was a tick for the answer.
                let again = core::mem::replace(&mut interest.asked, unknown);
                if again && unknown {
                    self.changed.push(key.clone());
                }
                unknown
            });
            // Only a publisher that knows nothing asks to the left: there the news comes from the right.
            for side in if unknown { &[Side::Right, Side::Left][..] } else { &[Side::Right] } {
                let neighbour = self.neighbour(&key, *side);
                if let Some(publisher) = neighbour.filter(|neighbour| neighbour.key.is_of_group(&key)) {
                    let to = publisher.key;
                    self.send(to.node, Message::Ask { to, from: key.clone() });
                }
            }
        }
    }

    pub(super) fn on_ask(&mut self, to: &Key<T>, from: Key<T>) {
        if !self.vnodes.contains_key(to) {
            self.tell_if_gone(from.node, to.clone());
        } else if let Some(status) = to.topic.as_ref().and_then(|topic| self.status(topic)) {
            self.send(from.node, Message::Answer { to: from, status });
        }
    }

    pub(super) fn on_answer(&mut self, to: &Key<T>, status: Status) {
        if self.adopt_status(to, Some(status)) {
            self.note_change(to);
            return;
        }
        let Some(topic) = &to.topic else { return };
        // The rendezvous point knows which of both is right (SG-16).
        if status.active && self.status(topic).is_some_and(|mine| !mine.active) {
            self.report(topic);
        }
    }

    /// Asks the rendezvous point to look whether the status is right.
    pub(super) fn report(&mut self, topic: &T) {
        let beyond = Range::group(topic, Role::Subscriber).low.key;
        self.route(beyond, 0, Errand::Report(topic.clone()));
    }

    pub(super) fn on_report(&mut self, key: &Key<T>, topic: &T) {
        if key.role != Role::Publisher || key.topic.as_ref() != Some(topic) {
            return;
        }
        let before = self.status(topic);
        self.check_status(key);
        // The status is right at this node, so other nodes have missed it.
        if let Some(status) = self.status(topic).filter(|status| before == Some(*status)) {
            self.decide(topic, Status { epoch: status.epoch.saturating_add(1), ..status });
        }
    }
}
