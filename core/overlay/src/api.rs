//! The trait of all cooperation algorithms, their inputs and their outputs.

use core::net::SocketAddr;

use bytes::Bytes;
use sedge_base::{ClientId, Incarnation, Instant, NodeId, Now};
use sedge_mqtt::{TopicFilter, TopicName};

use crate::by_hand::Chosen;
use crate::status::Topology;

/// Stands for a change of local interest that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Stands for a state of the forward table that all shards have to reach. Numbers grow; when one is reached, all before it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Barrier(pub u64);

/// A node to which a link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its id.
    pub node: NodeId,
    /// Incarnation of the node.
    pub incarnation: Incarnation,
    /// Capacity that the node announces; trees choose roots by it. 1 if unknown.
    pub capacity: u32,
    /// Address at which the node listens for links: the lower one wins between equals (TR-08).
    pub address: SocketAddr,
}

/// One change of the subscriptions of one client of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The client.
    pub client: ClientId,
    /// The whole filter, `$share/group/` included.
    pub filter: TopicFilter,
    /// Kind of the change.
    pub op: AdvertOp,
}

/// See [`Advert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvertOp {
    /// The client subscribes; `online` tells whether it is connected (matters for shared subscriptions).
    Add {
        /// Whether the client is connected.
        online: bool,
    },
    /// The client no longer subscribes.
    Remove,
}

/// Interest of other nodes, summed up: the owner keeps the forward tables of the shards equal to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertised {
    /// Some other node has (or no longer has) ordinary subscriptions to this filter: publications that match have to be handed to
    /// [`Overlay::destinations`]. Sent when the first such node appears and when the last is gone. Algorithms that learn from the
    /// publications which topics there are want `#`.
    Remote {
        /// A filter without `$share`.
        filter: TopicFilter,
        /// Whether anyone wants it.
        wanted: bool,
    },
    /// How many members of a shared subscription live at another node. Both numbers zero: none any more.
    Group {
        /// The node.
        node: NodeId,
        /// The whole filter, `$share/group/` included.
        group: TopicFilter,
        /// Members that are connected.
        online: u32,
        /// Members that are not.
        offline: u32,
    },
}

/// One line of the subscription routing table (FT-10), for listings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteEntry {
    /// Node that advertised it.
    pub node: NodeId,
    /// The client, where the algorithm knows it.
    pub client: Option<ClientId>,
    /// The whole filter.
    pub filter: TopicFilter,
}

/// Lines that [`Overlay::routes_of`] looks at, where the algorithm has no table of each node.
const ROUTES_LOOKED_AT: usize = 10_000;

/// An event for the algorithm.
#[derive(Clone, Debug)]
pub enum Input {
    /// A link is up and has passed its handshake. Everything the neighbour needs is to be sent to it anew. Given again without
    /// [`Input::NeighbourDown`], another link has taken the place of the first. Signals that were polled for an earlier link and not
    /// sent must be dropped.
    NeighbourUp(Neighbour),
    /// The link is gone. `gone`: membership has declared the node dead or departed, it is not only the link that failed; the interest of
    /// the node is to be forgotten.
    NeighbourDown {
        /// The neighbour whose link is gone.
        node: NodeId,
        /// Whether the node itself is gone.
        gone: bool,
    },
    /// Membership knows of a node, linked or not: algorithms that choose their links answer with [`Output::Link`].
    MemberUp(Neighbour),
    /// Membership has lost a node.
    MemberDown {
        /// The node that membership has lost.
        node: NodeId,
    },
    /// A new measurement of the round trip to a neighbour, in microseconds.
    RoundTrip {
        /// The neighbour at the other end.
        node: NodeId,
        /// The round trip in microseconds.
        micros: u32,
    },
    /// Capacity of this node (as in [`Neighbour::capacity`]) and number of the clients connected to it; trees choose roots by both. To be
    /// given at start and when either has changed much.
    Load {
        /// Capacity of this node. 1 if unknown.
        capacity: u32,
        /// Connected clients.
        clients: u32,
    },
    /// Subscriptions of clients of this node changed. `token`: answer with [`Output::Settled`] when every reachable node
    /// routes accordingly (DESIGN section 1, "SUBACK means the cluster knows"). Without changes: when all have answered once more, behind
    /// everything that was sent before.
    Local {
        /// The changes, in order.
        changes: Vec<Advert>,
        /// The acknowledgement that waits for it.
        token: Option<Token>,
    },
    /// Bytes that the neighbour's algorithm sent with [`Output::Signal`].
    Signal {
        /// The neighbour that sent the signal.
        from: NodeId,
        /// The bytes of the signal: untrusted in form, not in intent.
        bytes: Bytes,
    },
    /// All shards route by every [`Output::Table`] that came before [`Output::Barrier`] of this number.
    BarrierReached(Barrier),
}

/// Task that the algorithm gives its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to the neighbour, behind all publications and signals already sent to it, over whatever nodes.
    Signal {
        /// The neighbour that is to get the signal.
        to: NodeId,
        /// Bytes of the signal, at most 1 MiB; longer content is cut into several signals.
        bytes: Bytes,
    },
    /// Keep a link to this member, or give it up.
    Link {
        /// The member to which the link leads.
        node: NodeId,
        /// Whether the link is wanted.
        wanted: bool,
    },
    /// Change the forward tables of the shards.
    Table(Advertised),
    /// Tell with [`Input::BarrierReached`] when all shards route by every table change given out so far.
    Barrier(Barrier),
    /// Every reachable node routes by the change that bore this token.
    Settled(Token),
    /// This neighbour has everything from us and we have everything from it (sync-ok, FT-26).
    Synced {
        /// The neighbour that is in step.
        node: NodeId,
    },
    /// The operator of this node has ended the link that was chosen here; see [`Overlay::choose`].
    Cut {
        /// The node to which the link led.
        node: NodeId,
    },
    /// The neighbour sent something that cannot be: close the link with this explanation.
    Protocol {
        /// The neighbour that sent it.
        node: NodeId,
        /// Description of the fault.
        detail: String,
    },
}

/// Where a publication goes on to from here, for one of its destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The destination.
    pub destination: NodeId,
    /// The neighbour over which it is reached, or the destination itself.
    pub next: NodeId,
}

impl Way {
    /// The direct way.
    pub const fn straight(destination: NodeId) -> Self {
        Self { destination, next: destination }
    }
}

/// A cooperation algorithm.
pub trait Overlay {
    /// Its name in configuration and listings.
    fn name(&self) -> &'static str;

    /// Whether publications go over several hops ([`Overlay::way`] may answer with another node than the destination). Constant.
    fn relays(&self) -> bool {
        false
    }

    /// Feeds one event.
    fn handle(&mut self, now: Now, input: Input);

    /// Does all that is due; early or repeated calls do nothing.
    fn handle_timeout(&mut self, now: Now);

    /// Takes the next task for the owner.
    fn poll_output(&mut self) -> Option<Output>;

    /// When [`Overlay::handle_timeout`] is next wanted.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Adds to `nodes` all other nodes whose clients may want a publication to `topic` of a client of this node. None is missing whose
    /// change of interest is settled. It may be a node whose link is down for the moment: the publication is kept for it. Poll for
    /// outputs afterwards.
    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>);

    /// Adds to `nodes` those of the destinations of a publication to `topic` that are among them only because they were asked whether they
    /// want this topic, over links that are in step, and have not answered. The owner may keep publications for them back for as long, and
    /// asks for the destinations again then: a node that has answered that it does not want them may be left out. Comes behind
    /// [`Overlay::destinations`] of the same topic.
    fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        let _ = (topic, nodes);
    }

    /// Whether `to` relies, once it has this signal, on having the publications made here before: then nothing is kept back for it any
    /// longer. Asked when the signal has been polled, and before the next one is.
    fn promises(&self, to: NodeId, signal: &[u8]) -> bool {
        let _ = (to, signal);
        true
    }

    /// Adds to `nodes` all other nodes to which a link is up (retained values go to everyone).
    fn everyone(&self, nodes: &mut Vec<NodeId>);

    /// The neighbour over which a publication to `topic` goes from here to `destination`: the destination itself where the algorithm
    /// has no better way, whether its link is up or not. The owner never sends it back where it came from, but to the destination
    /// itself then.
    fn way(&self, topic: &TopicName, destination: NodeId) -> NodeId {
        let _ = topic;
        destination
    }

    /// Sets [`Way::next`] for all destinations that a publication to `topic` has from here on, each of which is there once: as
    /// [`Overlay::way`] for each, unless the algorithm divides them among its neighbours as a whole.
    fn ways(&self, topic: &TopicName, ways: &mut [Way]) {
        for way in ways {
            way.next = self.way(topic, way.destination);
        }
    }

    /// Whether a link to `node` is up, for mail to it (claims, shares of groups).
    fn is_linked(&self, node: NodeId) -> bool;

    /// The subscription routing table, at most `limit` lines from the `offset`th on, in order.
    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry>;

    /// The lines of one node in the subscription routing table, at most `limit`; of a large table only its first lines are looked at.
    fn routes_of(&self, node: NodeId, limit: usize) -> Vec<RouteEntry> {
        let lines = self.routes(0, ROUTES_LOOKED_AT).into_iter();
        lines.filter(|route| route.node == node).take(limit).collect()
    }

    /// Number of lines of the subscription routing table.
    fn route_count(&self) -> usize;

    /// An operator chooses a link to this node, or ends the one there is, whichever of its ends has chosen it. Only for [`crate::ByHand`]; others
    /// choose for themselves.
    fn choose(&mut self, node: NodeId, chosen: bool) {
        let _ = (node, chosen);
    }

    /// The links of this node that operators have chosen, in order.
    fn chosen(&self) -> Vec<Chosen> {
        Vec::new()
    }

    /// Whether all nodes that are linked know the links chosen here.
    fn is_agreed(&self) -> bool {
        true
    }

    /// Its trees and tables for listings, at most `limit` lines of each table. Nothing where the algorithm has none.
    fn topology(&self, limit: usize) -> Topology {
        let _ = limit;
        Topology::default()
    }
}
