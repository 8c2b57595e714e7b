//! The session directory with one client id (MQ-11): its home serialises claims and counts them in epochs; after a partition two nodes
//! may own it, and the home finds out when both register.
//!
//! A node's *view* is the set of members it knows. The home is the lowest node of a view (the code takes the highest hash). When a
//! view changes, a node forgets the entries, registrations and claims of gone nodes, registers its own ownership with its home, and sends a
//! claim that the former home has not answered to the new one. A home that does not know the owner waits until all of its view have
//! registered, and until it is the home as it sees it itself.
//!
//! Left out: the session that goes along, time-outs, and epochs that are clock readings (two sides may therefore count to the same
//! epoch, which is the harder case).

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::NodeIndex;
use crate::wires::Wires;

/// A mistake that the properties have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    Sound,
    /// The home keeps the owner it knows, and does not tell the other one.
    FirstStays,
    /// The home does not raise the epoch when both owners count the same.
    TieStays,
    /// A node does not register when its view changes.
    Unregistered,
    /// A node that is not the home in its own view grants a claim at once although it does not know the owner.
    GrantOutsideView,
}

/// Bounds of one check.
#[derive(Clone, Debug)]
pub struct Directory {
    /// How many nodes there are.
    pub nodes: usize,
    /// How often the client connects, each time at any node.
    pub connects: usize,
    /// Which nodes a partition cuts off from the others, once, until it heals.
    pub cut_off: Vec<NodeIndex>,
    /// How many nodes die.
    pub crashes: usize,
    /// Mistake that is planted in the model.
    pub flaw: Flaw,
}

type Epoch = u64;
type View = BTreeSet<NodeIndex>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mail {
    Claim,
    Granted { epoch: Epoch, former: Option<NodeIndex> },
    Relinquish { epoch: Epoch },
    Register { epoch: Epoch },
    Registered { view: View },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    view: View,
    /// Epoch of the node's ownership, if it owns the client.
    owned: Option<Epoch>,
    /// The home that it has asked.
    asked: Option<NodeIndex>,
    /// As a home: the owner of the client.
    entry: Option<(NodeIndex, Epoch)>,
    /// As a home: the nodes that have registered, and for which view.
    registered: Vec<(NodeIndex, View)>,
    /// As a home: claims that wait.
    delayed: Vec<NodeIndex>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Partition {
    Before,
    Cut,
    Healed,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    nodes: Vec<Node>,
    dead: BTreeSet<NodeIndex>,
    partition: Partition,
    connects: usize,
    /// A claim was granted as if nobody owned the client, while another node that the home knew and could reach did.
    overlooked: bool,
    /// A node that was told to give the client up has kept it, since its own epoch was the same.
    stubborn: bool,
    wires: Wires<Mail>,
}

/// An event that may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client connects.
    Connect(NodeIndex),
    /// The oldest message of a link arrives.
    Arrive(NodeIndex, NodeIndex),
    /// The network is cut; messages on their way across are lost.
    Cut,
    /// The network is whole again.
    Heal,
    /// A node dies.
    Crash(NodeIndex),
    /// A node learns which nodes can be reached.
    Learn(NodeIndex),
}

fn home(view: &View) -> NodeIndex {
    view.first().copied().unwrap_or_default()
}

impl Directory {
    fn side(&self, node: NodeIndex) -> bool {
        self.cut_off.contains(&node)
    }

    /// Nodes that `node` can reach.
    fn reachable(&self, moment: &Moment, node: NodeIndex) -> View {
        let same_side = |other: &NodeIndex| moment.partition != Partition::Cut || self.side(*other) == self.side(node);
        (0..self.nodes).filter(|other| !moment.dead.contains(other)).filter(same_side).collect()
    }

    fn send(&self, moment: &mut Moment, from: NodeIndex, to: NodeIndex, mail: Mail) {
        if from == to {
            self.arrive(moment, from, to, mail);
        } else if self.reachable(moment, from).contains(&to) {
            moment.wires.send(from, to, mail);
        }
    }

    fn claim(&self, moment: &mut Moment, node: NodeIndex) {
        let home = home(&moment.nodes[node].view);
        moment.nodes[node].asked = Some(home);
        self.send(moment, node, home, Mail::Claim);
    }

    fn learn(&self, moment: &mut Moment, node: NodeIndex) {
        let view = self.reachable(moment, node);
        let state = &mut moment.nodes[node];
        state.view.clone_from(&view);
        state.entry = state.entry.filter(|(owner, _)| view.contains(owner));
        state.registered.retain(|(of, _)| view.contains(of));
        state.delayed.retain(|of| view.contains(of));
        let (owned, asked) = (state.owned, state.asked);
        let home = home(&view);
        if let Some(epoch) = owned
            && self.flaw != Flaw::Unregistered
        {
            self.send(moment, node, home, Mail::Register { epoch });
        }
        for other in view.iter().filter(|other| **other != node) {
            self.send(moment, node, *other, Mail::Registered { view: view.clone() });
        }
        if asked.is_some_and(|asked| !view.contains(&asked)) {
            self.claim(moment, node);
        }
    }

    /// Grants the claims that waited, if this node has to know the owner by now.
    fn grant_delayed(&self, moment: &mut Moment, node: NodeIndex) {
        let state = &mut moment.nodes[node];
        let has = |other: &NodeIndex| state.registered.iter().any(|(of, view)| of == other && *view == state.view);
        let is_registered = state.view.iter().all(|other| *other == node || has(other));
        let is_home = home(&state.view) == node;
        let grants = if is_home { is_registered } else { self.flaw == Flaw::GrantOutsideView };
        if state.entry.is_some() || grants {
            for by in core::mem::take(&mut state.delayed) {
                self.grant(moment, node, by);
            }
        }
    }

    fn grant(&self, moment: &mut Moment, node: NodeIndex, by: NodeIndex) {
        let known = moment.nodes[node].entry;
        let epoch = known.map_or(0, |(_, epoch)| epoch) + 2;
        let former = known.map(|(owner, _)| owner).filter(|owner| *owner != by);
        let reachable = self.reachable(moment, node);
        let mut in_view = moment.nodes[node].view.intersection(&reachable);
        let overlooked = in_view.any(|other| *other != by && moment.nodes[*other].owned.is_some());
        moment.overlooked |= known.is_none() && overlooked;
        moment.nodes[node].entry = Some((by, epoch));
        self.send(moment, node, by, Mail::Granted { epoch, former });
        if let Some(former) = former {
            self.send(moment, node, former, Mail::Relinquish { epoch });
        }
    }

    fn register(&self, moment: &mut Moment, home: NodeIndex, owner: NodeIndex, epoch: Epoch) {
        let Some((known, other)) = moment.nodes[home].entry else {
            moment.nodes[home].entry = Some((owner, epoch));
            return;
        };
        if known == owner {
            moment.nodes[home].entry = Some((owner, epoch.max(other)));
            return;
        }
        if self.flaw == Flaw::FirstStays {
            return;
        }
        let (winner, loser) =
            if (epoch, owner) > (other, known) { ((owner, epoch), known) } else { ((known, other), owner) };
        let is_tie = epoch == other && self.flaw != Flaw::TieStays;
        let epoch = winner.1 + u64::from(is_tie);
        moment.nodes[home].entry = Some((winner.0, epoch));
        self.send(moment, home, winner.0, Mail::Granted { epoch, former: None });
        self.send(moment, home, loser, Mail::Relinquish { epoch });
    }

    fn arrive(&self, moment: &mut Moment, from: NodeIndex, to: NodeIndex, mail: Mail) {
        match mail {
            Mail::Claim => {
                moment.nodes[to].delayed.push(from);
                self.grant_delayed(moment, to);
            }
            Mail::Granted { epoch, former: _ } => {
                let state = &mut moment.nodes[to];
                if state.asked.take().is_some() {
                    state.owned = Some(epoch);
                    if home(&state.view) != from {
                        let home = home(&state.view);
                        self.send(moment, to, home, Mail::Register { epoch });
                    }
                } else if let Some(owned) = &mut state.owned {
                    *owned = epoch.max(*owned);
                }
            }
            Mail::Relinquish { epoch } => {
                let state = &mut moment.nodes[to];
                moment.stubborn |= state.owned == Some(epoch);
                state.owned = state.owned.filter(|mine| *mine >= epoch);
            }
            Mail::Register { epoch } => self.register(moment, to, from, epoch),
            Mail::Registered { view } => {
                let registered = &mut moment.nodes[to].registered;
                registered.retain(|(of, _)| *of != from);
                registered.push((from, view));
                registered.sort_unstable();
                self.grant_delayed(moment, to);
            }
        }
    }

    /// The nodes that own the client.
    fn owners(moment: &Moment) -> usize {
        let living = moment.nodes.iter().enumerate().filter(|(node, _)| !moment.dead.contains(node));
        living.filter(|(_, node)| node.owned.is_some()).count()
    }
}

impl Model for Directory {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        let all: View = (0..self.nodes).collect();
        let node = |me: NodeIndex| Node {
            view: all.clone(),
            registered: all.iter().filter(|other| **other != me).map(|other| (*other, all.clone())).collect(),
            ..Node::default()
        };
        vec![Moment {
            nodes: (0..self.nodes).map(node).collect(),
            dead: BTreeSet::new(),
            partition: Partition::Before,
            connects: 0,
            overlooked: false,
            stubborn: false,
            wires: Wires::new(),
        }]
    }

    fn actions(&self, moment: &Moment, events: &mut Vec<Event>) {
        let living = || (0..self.nodes).filter(|node| !moment.dead.contains(node));
        if moment.connects < self.connects {
            events.extend(living().filter(|node| moment.nodes[*node].asked.is_none()).map(Event::Connect));
        }
        events.extend(moment.wires.busy().map(|(from, to)| Event::Arrive(from, to)));
        let knows_all = living().all(|node| moment.nodes[node].view == self.reachable(moment, node));
        match moment.partition {
            Partition::Before if !self.cut_off.is_empty() => events.push(Event::Cut),
            // A cut that somebody does not notice loses nothing, since links go on where they were; a partition lasts longer than mail.
            Partition::Cut if knows_all && moment.wires.busy().next().is_none() => events.push(Event::Heal),
            Partition::Before | Partition::Cut | Partition::Healed => {}
        }
        if moment.dead.len() < self.crashes {
            events.extend(living().map(Event::Crash));
        }
        events.extend(
            living().filter(|node| moment.nodes[*node].view != self.reachable(moment, *node)).map(Event::Learn),
        );
    }

    fn next_state(&self, moment: &Moment, event: Event) -> Option<Moment> {
        let mut next = moment.clone();
        match event {
            Event::Connect(node) => {
                next.connects += 1;
                self.claim(&mut next, node);
            }
            Event::Arrive(from, to) => {
                let mail = next.wires.take(from, to)?;
                self.arrive(&mut next, from, to, mail);
            }
            Event::Cut => {
                next.partition = Partition::Cut;
                next.wires.lose(|from, to| self.side(from) != self.side(to));
            }
            Event::Heal => next.partition = Partition::Healed,
            Event::Crash(node) => {
                next.dead.insert(node);
                next.wires.lose(|from, to| from == node || to == node);
                next.nodes[node] = Node::default();
            }
            Event::Learn(node) => {
                self.learn(&mut next, node);
                self.grant_delayed(&mut next, node);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::eventually("one owner", |model: &Self, moment: &Moment| {
                let quiet = moment.connects == model.connects && moment.wires.busy().next().is_none();
                // An owner that has died has none after it here.
                quiet && (Self::owners(moment) == 1 || (Self::owners(moment) == 0 && !moment.dead.is_empty()))
            }),
            Property::always("a loser gives up when it is told once", |_, moment: &Moment| !moment.stubborn),
            // When sides meet, an owner that the former home has just granted may be; the epochs decide then.
            Property::always("an owner in view is not overlooked", |model: &Self, moment: &Moment| {
                !moment.overlooked || !model.cut_off.is_empty()
            }),
            Property::sometimes("two owners", |model: &Self, moment: &Moment| {
                model.cut_off.is_empty() || (Self::owners(moment) == 2 && moment.partition == Partition::Healed)
            }),
        ]
    }
}
