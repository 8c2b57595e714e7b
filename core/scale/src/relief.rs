//! Which clients move so that nodes share the load: by messages each second, publishers together with their subscribers (EL-24, FW-10, FW-11,
//! SG-27).

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{Rng, Seed};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};

/// How far below the mean a node may be, as a share of it, before anything moves.
const TOLERANCE: f64 = 0.1;
/// Weight of a client in addition to its rate, in messages each second, so that an idle client counts too.
const IDLE: f64 = 0.1;
/// Most pairs of publisher and subscriber that are looked at, 32 bytes each; clients beyond move alone.
const MAX_PARTNERS: usize = 200_000;

/// A client that is connected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientLoad {
    /// Identifier of the client.
    pub client: String,
    /// Messages from the client and for it each second.
    pub rate: f64,
    /// Messages on their way to or from it: of two that do equally well the one with fewer moves.
    pub waiting: u64,
    /// A topic that it publishes to.
    pub topic: Option<TopicName>,
    /// Subscriptions of the client.
    pub filters: Vec<TopicFilter>,
}

impl ClientLoad {
    fn weight(&self) -> f64 {
        self.rate + IDLE
    }
}

/// A node and its connected clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// Name of the node.
    pub node: String,
    /// Clients of the node.
    pub clients: Vec<ClientLoad>,
}

impl NodeLoad {
    fn weight(&self) -> f64 {
        self.clients.iter().map(ClientLoad::weight).sum()
    }
}

/// A client that is to leave its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The node that the client leaves.
    pub node: String,
    /// The client.
    pub client: String,
}

/// Clients that are to move, and nodes that are to take them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relief {
    /// Clients that leave nodes with more than their share.
    pub moves: Vec<Move>,
    /// Nodes with less than their share, where the moved clients should land.
    pub onto: BTreeSet<String>,
}

/// Says which clients are to leave, nothing if no node is more than a tenth below the mean; with `onto` only if that node is.
///
/// A publisher goes with the subscribers that its topic matches, so that its messages need no second node, unless they would be more than is
/// to move. Groups that have a partner at a node with room go first, then the larger ones. `seed` is a number that no client knows: it
/// keeps filters from being chosen so that the search is slow.
#[must_use]
pub fn relief(nodes: &[NodeLoad], onto: Option<&str>, seed: u64) -> Relief {
    let count = u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
    let mean = nodes.iter().map(NodeLoad::weight).sum::<f64>() / f64::from(count);
    let low = mean * (1.0 - TOLERANCE);
    let lacks = |node: &NodeLoad| node.weight() < low && onto.is_none_or(|name| node.node == name);
    let lacking: BTreeSet<usize> =
        nodes.iter().enumerate().filter(|(_, node)| lacks(node)).map(|(place, _)| place).collect();
    let mut room: f64 = lacking.iter().filter_map(|place| nodes.get(*place)).map(|node| mean - node.weight()).sum();
    let partners = partners(nodes, seed);
    let mut full: Vec<usize> = (0..nodes.len()).filter(|place| !lacking.contains(place)).collect();
    full.sort_by(|a, b| weight_at(nodes, *b).total_cmp(&weight_at(nodes, *a)).then(a.cmp(b)));
    let mut moves = Vec::new();
    for place in full {
        let excess = (weight_at(nodes, place) - mean).min(room);
        let Some(node) = nodes.get(place).filter(|_| excess > mean * TOLERANCE / 2.0) else { continue };
        for client in choose(node, place, excess, mean * TOLERANCE, &partners, &lacking) {
            room -= client.weight();
            moves.push(Move { node: node.node.clone(), client: client.client.clone() });
        }
    }
    let onto = lacking.iter().filter_map(|place| nodes.get(*place)).map(|node| node.node.clone());
    Relief { onto: if moves.is_empty() { BTreeSet::new() } else { onto.collect() }, moves }
}

fn weight_at(nodes: &[NodeLoad], place: usize) -> f64 {
    nodes.get(place).map_or(0.0, NodeLoad::weight)
}

/// A client by the places of its node and of itself.
type Place = (usize, usize);

/// Pairs of a publisher and a subscriber of its topic.
fn partners(nodes: &[NodeLoad], seed: u64) -> BTreeSet<(Place, Place)> {
    let clients = || {
        nodes
            .iter()
            .enumerate()
            .flat_map(|(node, load)| load.clients.iter().enumerate().map(move |(client, load)| ((node, client), load)))
    };
    let mut subscribers = SubscriptionTrie::with_seed(Seed::from_rng(&mut Rng::new(seed)));
    for (place, client) in clients() {
        for filter in &client.filters {
            subscribers.insert(filter, place, ());
        }
    }
    let mut found = BTreeSet::new();
    for (publisher, client) in clients() {
        if let Some(topic) = &client.topic {
            subscribers.matches(topic, |subscriber: &Place, ()| {
                if found.len() < MAX_PARTNERS {
                    found.insert((publisher, *subscriber));
                }
            });
        }
    }
    found
}

/// Clients that move together.
#[derive(Default)]
struct Unit {
    clients: Vec<usize>,
    weight: f64,
    waiting: u64,
    /// Whether one of the clients has a partner at a node with room.
    drawn: bool,
}

/// Chooses clients of a node that count about `excess` together.
fn choose<'a>(
    node: &'a NodeLoad,
    place: usize,
    excess: f64,
    tolerance: f64,
    partners: &BTreeSet<(Place, Place)>,
    lacking: &BTreeSet<usize>,
) -> Vec<&'a ClientLoad> {
    // A client that weighs more than is to move stays, and binds no partner.
    let moves = |client: usize| node.clients.get(client).is_some_and(|client| client.weight() <= excess + tolerance);
    let mut heads: Vec<usize> = (0..node.clients.len()).collect();
    let mut drawn = BTreeSet::new();
    for ((from, publisher), (to, subscriber)) in partners.iter().copied() {
        if from == place && to == place && moves(publisher) && moves(subscriber) {
            let (left, right) = (head(&heads, publisher), head(&heads, subscriber));
            if let Some(parent) = heads.get_mut(left.max(right)) {
                *parent = left.min(right);
            }
        } else if from == place && lacking.contains(&to) {
            drawn.insert(publisher);
        } else if to == place && lacking.contains(&from) {
            drawn.insert(subscriber);
        }
    }
    let mut units: BTreeMap<usize, Unit> = BTreeMap::new();
    for (number, client) in node.clients.iter().enumerate().filter(|(number, _)| moves(*number)) {
        let unit = units.entry(head(&heads, number)).or_default();
        unit.clients.push(number);
        unit.weight += client.weight();
        unit.waiting += client.waiting;
        unit.drawn |= drawn.contains(&number);
    }
    let (mut chosen, mut left) = (BTreeSet::new(), excess);
    take(units.into_values().collect(), tolerance / 2.0, &mut left, &mut chosen);
    if left > tolerance {
        // Clients that belong together weigh more than is to move: they move one by one.
        let rest = node.clients.iter().enumerate().filter(|(number, _)| moves(*number) && !chosen.contains(number));
        let single = rest.map(|(number, client)| Unit {
            clients: vec![number],
            weight: client.weight(),
            waiting: client.waiting,
            drawn: drawn.contains(&number),
        });
        let singles = single.collect();
        take(singles, tolerance / 2.0, &mut left, &mut chosen);
    }
    chosen.iter().filter_map(|number| node.clients.get(*number)).collect()
}

/// Takes units that fit into the rest `left`, exceeding it by `slack` at most.
fn take(mut units: Vec<Unit>, slack: f64, left: &mut f64, chosen: &mut BTreeSet<usize>) {
    units.sort_by(|a, b| {
        let order = b.drawn.cmp(&a.drawn).then(b.weight.total_cmp(&a.weight)).then(a.waiting.cmp(&b.waiting));
        order.then_with(|| a.clients.cmp(&b.clients))
    });
    for unit in units {
        if *left > 0.0 && unit.weight <= *left + slack {
            *left -= unit.weight;
            chosen.extend(unit.clients);
        }
    }
}

/// The first client of the unit that a client is bound to.
fn head(heads: &[usize], mut client: usize) -> usize {
    while let Some(&next) = heads.get(client).filter(|next| **next != client) {
        client = next;
    }
    client
}
