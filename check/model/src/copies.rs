//! The two-copy rule (ADR 0007) with one session: a publication is acknowledged when the session's node and its backups have it;
//! when the node dies, its first backup goes on with the session.
//!
//! 1. The node where a publication enters keeps it until the session's owner has accepted it, and sends it again to a new owner.
//! 2. The owner appends it to the session and streams the change to its backups, in order.
//! 3. When every backup that has everything has the change, the owner accepts, and the publisher is acknowledged.
//! 4. The owner replaces a backup that is dead: the new one gets everything, and counts when it has it.
//! 5. When the owner is dead, the first of its backups that lives is the owner, with the copy it has; it chooses backups as in 4.
//!
//! Left out: acknowledgements of the subscriber (it takes nothing, so that everything has to be held), more than one session, and how the
//! others learn in which order backups take over (they all know at once).

use stateright::{Model, Property};

use crate::NodeIndex;
use crate::wires::Wires;

/// A mistake that the properties have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    Sound,
    /// The owner accepts before its backups have the publication.
    AcceptAhead,
    /// A new backup counts at once.
    CountEmpty,
    /// A publication is forgotten where it entered when it has been sent.
    ForgetEarly,
    /// The owner does not look whether it has a publication already.
    TakeTwice,
}

/// Bounds of one check.
#[derive(Clone, Debug)]
pub struct Copies {
    /// How many nodes there are; node 0 owns the session at first.
    pub nodes: usize,
    /// How many of them are to hold it.
    pub copies: usize,
    /// Where publications enter, one after the other.
    pub entries: Vec<NodeIndex>,
    /// How many nodes die.
    pub crashes: usize,
    /// Whether no more than `copies - 1` nodes die before the survivors have all copies again. The alternative is the window that the
    /// decision names: a second crash while a backup is being filled.
    pub spaced: bool,
    /// Mistake that is planted in the model.
    pub flaw: Flaw,
}

/// A publication: its number is its place in [`Copies::entries`].
type Number = usize;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mail {
    /// To the owner.
    Publication(Number),
    /// From the owner, where it entered.
    Accepted(Number),
    /// To a backup that is new: everything, as of this ownership.
    Everything(Vec<Number>),
    /// To a backup.
    Change(Number),
    /// From a backup: how many publications it has.
    Copied(usize),
    /// From a new owner, to all.
    IOwn,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Backup {
    node: NodeIndex,
    copied: usize,
    /// It has everything that there was when it became a backup.
    whole: bool,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    alive: Vec<bool>,
    crashes: usize,
    /// Crashes since all copies were there, and whether a survivor has acted on one.
    volley: (usize, bool),
    owner: NodeIndex,
    backups: Vec<Backup>,
    /// The session as each node has it.
    images: Vec<Vec<Number>>,
    /// How much of the session has been accepted by this owner.
    accepted: usize,
    /// The node that each node takes for the owner.
    sends_to: Vec<NodeIndex>,
    /// Publications that each node keeps until the owner has accepted them.
    kept: Vec<Vec<Number>>,
    published: usize,
    acknowledged: Vec<Number>,
    wires: Wires<Mail>,
}

/// An event that may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next publication enters.
    Publish,
    /// The oldest message of a link arrives.
    Arrive(NodeIndex, NodeIndex),
    /// A node dies; the messages on their way to and from it are lost.
    Crash(NodeIndex),
    /// The owner replaces backups that are dead.
    Replace,
    /// A backup goes on with the session of an owner that is dead.
    TakeOver(NodeIndex),
}

impl Moment {
    /// The node that has the session, or will have it when it notices that those before it are dead.
    fn holder(&self) -> Option<NodeIndex> {
        let successors = self.backups.iter().filter(|backup| backup.whole).map(|backup| backup.node);
        core::iter::once(self.owner).chain(successors).find(|node| self.alive[*node])
    }

    fn living(&self) -> usize {
        self.alive.iter().filter(|alive| **alive).count()
    }

    /// All copies are there that can be, and hold all publications that were accepted meanwhile.
    fn is_whole(&self, copies: usize) -> bool {
        let wanted = (copies - 1).min(self.living().saturating_sub(1));
        let has_all = |backup: &&Backup| backup.whole && backup.copied >= self.accepted && self.alive[backup.node];
        let whole = self.backups.iter().filter(has_all).count();
        self.alive[self.owner] && whole == wanted && self.backups.len() == wanted
    }
}

impl Copies {
    fn crash(moment: &mut Moment, node: NodeIndex) {
        moment.alive[node] = false;
        moment.crashes += 1;
        moment.volley.0 += 1;
        moment.images[node].clear();
        moment.kept[node].clear();
        moment.wires.lose(|from, to| from == node || to == node);
    }

    /// The backups that live are kept, others are chosen where some are missing.
    fn choose_backups(&self, moment: &mut Moment) {
        let (owner, alive) = (moment.owner, moment.alive.clone());
        moment.backups.retain(|backup| alive[backup.node]);
        for step in 1..self.nodes {
            let node = (owner + step) % self.nodes;
            let is_new = alive[node] && moment.backups.iter().all(|backup| backup.node != node);
            if is_new && moment.backups.len() < self.copies - 1 {
                let whole = self.flaw == Flaw::CountEmpty;
                let copied = if whole { moment.images[owner].len() } else { 0 };
                moment.backups.push(Backup { node, copied, whole });
                moment.wires.send(owner, node, Mail::Everything(moment.images[owner].clone()));
            }
        }
        self.accept(moment);
    }

    /// The owner accepts the publications that every backup with the whole session has.
    fn accept(&self, moment: &mut Moment) {
        let owner = moment.owner;
        let whole = moment.backups.iter().filter(|backup| backup.whole).map(|backup| backup.copied);
        let has = moment.images[owner].len();
        let copied = if self.flaw == Flaw::AcceptAhead { has } else { whole.min().unwrap_or(has) };
        while moment.accepted < copied {
            let number = moment.images[owner][moment.accepted];
            moment.accepted += 1;
            let entry = self.entries[number];
            if moment.alive[entry] {
                moment.wires.send(owner, entry, Mail::Accepted(number));
            }
        }
    }

    fn arrive(&self, moment: &mut Moment, from: NodeIndex, to: NodeIndex, mail: Mail) {
        match mail {
            Mail::Publication(number) => {
                let known = moment.images[to].iter().position(|known| *known == number);
                match known.filter(|_| self.flaw != Flaw::TakeTwice) {
                    Some(at) if at < moment.accepted => moment.wires.send(to, from, Mail::Accepted(number)),
                    Some(_) => {}
                    None => {
                        moment.images[to].push(number);
                        for backup in &moment.backups {
                            if moment.alive[backup.node] {
                                moment.wires.send(to, backup.node, Mail::Change(number));
                            }
                        }
                        self.accept(moment);
                    }
                }
            }
            Mail::Accepted(number) => {
                moment.kept[to].retain(|kept| *kept != number);
                if !moment.acknowledged.contains(&number) {
                    moment.acknowledged.push(number);
                    moment.acknowledged.sort_unstable();
                }
            }
            Mail::Everything(image) => {
                let copied = image.len();
                moment.images[to] = image;
                moment.wires.send(to, from, Mail::Copied(copied));
            }
            Mail::Change(number) => {
                moment.images[to].push(number);
                let copied = moment.images[to].len();
                moment.wires.send(to, from, Mail::Copied(copied));
            }
            Mail::Copied(copied) => {
                if let Some(backup) = moment.backups.iter_mut().find(|backup| backup.node == from) {
                    backup.copied = copied;
                    backup.whole = true;
                }
                self.accept(moment);
            }
            Mail::IOwn => {
                moment.sends_to[to] = from;
                for number in moment.kept[to].clone() {
                    moment.wires.send(to, from, Mail::Publication(number));
                }
            }
        }
    }

    fn take_over(&self, moment: &mut Moment, node: NodeIndex) {
        moment.owner = node;
        moment.accepted = 0;
        moment.backups.clear();
        for other in (0..self.nodes).filter(|other| moment.alive[*other]) {
            moment.wires.send(node, other, Mail::IOwn);
        }
        self.choose_backups(moment);
    }
}

impl Model for Copies {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        let backups = (1..self.copies).map(|node| Backup { node, copied: 0, whole: true }).collect();
        vec![Moment {
            alive: vec![true; self.nodes],
            crashes: 0,
            volley: (0, false),
            owner: 0,
            backups,
            images: vec![Vec::new(); self.nodes],
            accepted: 0,
            sends_to: vec![0; self.nodes],
            kept: vec![Vec::new(); self.nodes],
            published: 0,
            acknowledged: Vec::new(),
            wires: Wires::new(),
        }]
    }

    fn actions(&self, moment: &Moment, events: &mut Vec<Event>) {
        if moment.published < self.entries.len() {
            events.push(Event::Publish);
        }
        events.extend(moment.wires.busy().map(|(from, to)| Event::Arrive(from, to)));
        let (volley, acted) = moment.volley;
        if moment.crashes < self.crashes && (!self.spaced || (volley + 1 < self.copies && !acted)) {
            events.extend((0..self.nodes).filter(|node| moment.alive[*node]).map(Event::Crash));
        }
        let owner_lives = moment.alive[moment.owner];
        if owner_lives && moment.backups.iter().any(|backup| !moment.alive[backup.node]) {
            events.push(Event::Replace);
        }
        if !owner_lives && let Some(node) = moment.holder() {
            events.push(Event::TakeOver(node));
        }
    }

    fn next_state(&self, moment: &Moment, event: Event) -> Option<Moment> {
        let mut next = moment.clone();
        match event {
            Event::Publish => {
                let number = next.published;
                next.published += 1;
                let entry = self.entries[number];
                if next.alive[entry] {
                    let owner = next.sends_to[entry];
                    if self.flaw != Flaw::ForgetEarly {
                        next.kept[entry].push(number);
                    }
                    if next.alive[owner] {
                        next.wires.send(entry, owner, Mail::Publication(number));
                    }
                }
            }
            Event::Arrive(from, to) => {
                let mail = next.wires.take(from, to)?;
                self.arrive(&mut next, from, to, mail);
            }
            Event::Crash(node) => Self::crash(&mut next, node),
            Event::Replace => {
                next.volley.1 = true;
                self.choose_backups(&mut next);
            }
            Event::TakeOver(node) => {
                next.volley.1 = true;
                self.take_over(&mut next, node);
            }
        }
        if next.is_whole(self.copies) {
            next.volley = (0, false);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is acknowledged is held", |_, moment: &Moment| {
                let image = moment.holder().map(|node| moment.images[node].as_slice()).unwrap_or_default();
                moment.acknowledged.iter().all(|number| image.contains(number))
            }),
            Property::always("once and in order", |model: &Self, moment: &Moment| {
                moment.holder().is_none_or(|node| {
                    let image = &moment.images[node];
                    let once = image.iter().all(|number| image.iter().filter(|other| *other == number).count() == 1);
                    once && (0..model.nodes)
                        .all(|entry| image.iter().filter(|number| model.entries[**number] == entry).is_sorted())
                })
            }),
            Property::eventually("living publishers are acknowledged", |model: &Self, moment: &Moment| {
                moment.published == model.entries.len()
                    && (0..moment.published)
                        .all(|number| !moment.alive[model.entries[number]] || moment.acknowledged.contains(&number))
            }),
            Property::sometimes("a session is taken over with what was acknowledged", |_, moment: &Moment| {
                moment.owner != 0 && !moment.acknowledged.is_empty()
            }),
        ]
    }
}
