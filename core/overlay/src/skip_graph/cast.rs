//! Range queries: how a publication finds the subscribers of its topic.

use core::ops::Bound;

use sedge_base::{Instant, NodeId};

use super::machine::Stage;
use super::route::MAX_HOPS;
use super::table::Row;
use super::{End, Key, Node, Peer, Range, Role, Side, Topic};

/// How a range is divided among the nodes in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Multi-range forwarding: each node that is reached cuts the range at its own key and gives each half to the farthest neighbour in it.
    /// At most two messages a node (SG-24).
    Mrf,
    /// Split-forward broadcasting: the range is cut at the keys of all neighbours in it, and each gets the part from itself to the
    /// next one farther out. Fewer hops, more messages a node (SG-25).
    #[default]
    Sfb,
}

/// Note that travels with each copy: the part of the range that its receiver has to see to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note<T> {
    /// The whole range.
    pub whole: Range<T>,
    /// The part.
    pub piece: Range<T>,
    /// Where the query began.
    pub source: NodeId,
    /// Hops to the receiver.
    pub hops: u16,
}

/// A copy to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop<T> {
    /// The receiver of the copy.
    pub node: NodeId,
    /// Note that goes with the copy.
    pub note: Note<T>,
}

/// Outcome of a publication of this node's own clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication<T> {
    /// The publication goes to these nodes.
    Cast(Vec<Hop<T>>),
    /// Nobody subscribes to the topic elsewhere: nothing leaves the node (SG-10).
    Suspended,
    /// Whether anybody subscribes to the topic is not known yet: [`super::Output::Status`] will tell (SG-13).
    Undecided,
}

/// Outcome of a copy from another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward<T> {
    /// Whether the copy is for this node, too.
    pub deliver: bool,
    /// Receivers to which the copy goes on.
    pub hops: Vec<Hop<T>>,
}

/// One step of a range query.
pub(super) enum Step<T> {
    /// The range is divided among these.
    Split(Vec<(Peer<T>, Range<T>)>),
    /// The range lies elsewhere, in the direction of this one.
    On(Peer<T>),
    /// The range is empty, as this own virtual node beside it knows.
    Empty(Option<Key<T>>),
}

impl<T: Topic> Range<T> {
    /// The part from `key` on when one goes to `side`, and the part before it.
    fn cut(&self, side: Side, key: &Key<T>) -> (Self, Self) {
        let (at, beside) = (End::at(key.clone()), End::beside(key.clone()));
        let (low, high) = (self.low.clone(), self.high.clone());
        match side {
            Side::Left => (Self { low, high: at }, Self { low: beside, high }),
            Side::Right => (Self { low: at, high }, Self { low, high: beside }),
        }
    }
}

impl<T: Topic> Node<T> {
    /// A client of this node publishes to `topic` (SG-07). The first time, a virtual node is inserted for it. Poll for outputs
    /// afterwards.
    pub fn publish(&mut self, now: Instant, topic: &T) -> Publication<T> {
        self.advertise(now, topic);
        self.run();
        let is_in = |role| {
            let vnode = self.vnodes.get(&Key::new(topic.clone(), role, self.me));
            vnode.is_some_and(|vnode| vnode.stage == Stage::In)
        };
        if !is_in(Role::Subscriber) {
            match self.status(topic).filter(|_| is_in(Role::Publisher)) {
                None => return Publication::Undecided,
                Some(status) if !status.active => return Publication::Suspended,
                Some(_) => {}
            }
        }
        Publication::Cast(self.query(Range::group(topic, Role::Subscriber)))
    }

    /// Begins a range query: a message for every node with a virtual node in the range, this one excepted (SG-03).
    pub fn query(&mut self, range: Range<T>) -> Vec<Hop<T>> {
        let note = Note { whole: range.clone(), piece: range, source: self.me, hops: 0 };
        self.forward(&note).hops
    }

    /// A copy with this note has come: is it for this node, and where does it go on to? Poll for outputs afterwards.
    pub fn forward(&mut self, note: &Note<T>) -> Forward<T> {
        let deliver = self.is_for_me(note);
        let parts = match self.step(&note.piece) {
            Step::Split(parts) => parts,
            Step::On(peer) => vec![(peer, note.piece.clone())],
            Step::Empty(beside) => {
                if let Some(key) = beside {
                    self.on_empty(&key, note);
                    self.run();
                }
                Vec::new()
            }
        };
        if note.hops >= MAX_HOPS {
            self.counters.lost += 1;
            return Forward { deliver, hops: Vec::new() };
        }
        let hops = parts.into_iter().map(|(peer, piece)| Hop {
            node: peer.key.node,
            note: Note { whole: note.whole.clone(), piece, source: note.source, hops: note.hops + 1 },
        });
        Forward { deliver, hops: hops.collect() }
    }

    /// Parts do not overlap, so a node with several virtual nodes in the range takes the copy that comes with the part that has the lowest
    /// of them (SG-04).
    fn is_for_me(&self, note: &Note<T>) -> bool {
        let lowest = self.own_from(&note.whole).find(|(_, vnode)| vnode.stage == Stage::In);
        lowest.is_some_and(|(key, _)| note.whole.contains(key) && note.piece.contains(key))
    }

    fn own_from(&self, range: &Range<T>) -> impl Iterator<Item = (&Key<T>, &super::machine::Vnode<T>)> {
        let low = if range.low.included { Bound::Included(&range.low.key) } else { Bound::Excluded(&range.low.key) };
        self.vnodes.range((low, Bound::Unbounded))
    }

    /// The range is cut at all own virtual nodes in it, and each gap between them divided as the method says.
    pub(super) fn step(&self, range: &Range<T>) -> Step<T> {
        let mut own = self.own_from(range).take_while(|(key, _)| range.contains(key)).peekable();
        let Some((first, vnode)) = own.peek() else { return self.approach(range) };
        let mut parts = Vec::new();
        let gap = Range { low: range.low.clone(), high: End::beside((*first).clone()) };
        self.divide(&vnode.left, Side::Left, gap, &mut parts);
        while let Some((key, vnode)) = own.next() {
            let high = own.peek().map_or_else(|| range.high.clone(), |(next, _)| End::beside((*next).clone()));
            self.divide(&vnode.right, Side::Right, Range { low: End::beside(key.clone()), high }, &mut parts);
        }
        Step::Split(parts)
    }

    fn divide(&self, row: &Row<T>, side: Side, mut gap: Range<T>, parts: &mut Vec<(Peer<T>, Range<T>)>) {
        let within = row.within(side, &gap);
        match self.config.method {
            Method::Mrf => parts.extend(within.last().map(|farthest| (farthest.clone(), gap))),
            // The delegate's key goes with its part: the rest ends before that key, so that it gets smaller each time.
            Method::Sfb => {
                for peer in within.iter().rev() {
                    let (part, rest) = gap.cut(side, &peer.key);
                    parts.push((peer.clone(), part));
                    gap = rest;
                }
            }
        }
    }

    /// One step towards a range in which this node has nothing: as far as it goes without overshooting.
    fn approach(&self, range: &Range<T>) -> Step<T> {
        let before = self.vnodes.range(..=&range.low.key).next_back();
        let (found, key) = if let Some((key, vnode)) = before {
            (vnode.right.peers().iter().rev().find(|peer| !range.ends_before(&peer.key)), Some(key))
        } else if let Some((key, vnode)) = self.vnodes.first_key_value() {
            (vnode.left.peers().iter().rev().find(|peer| !range.starts_after(&peer.key)), Some(key))
        } else {
            (None, None)
        };
        found.map_or_else(|| Step::Empty(key.cloned()), |peer| Step::On(peer.clone()))
    }
}
