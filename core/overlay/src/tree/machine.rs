//! The machine.

use core::net::SocketAddr;

use sedge_base::{Duration, Instant, NodeId, Now, Rng};
use sedge_mqtt::{TopicFilter, TopicName};

use super::TreeConfig;
use super::exchange::Exchange;
use super::joint::{Joint, Part};
use crate::backbone::{Backbone, OWN, with_part};
use crate::status::{AdvertLine, InterestLine, Table, Topology};
use crate::trunk::TrunkCounters;
use crate::{Advertised, Input, MeshCounters, Output, Overlay, RouteEntry, Token};

/// Counters of [`Tree`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Counters of the mesh for interest that every node tells every other.
    pub shared: MeshCounters,
    /// Counters of the tree.
    pub tree: TrunkCounters,
    /// Changes that counted as settled only because [`crate::MeshConfig::settle_timeout`] had passed.
    pub late_settlements: u64,
    /// Digests of topics and filters that differed, so that they were fetched anew.
    pub repairs: u64,
    /// Filters of a node forgotten because it had sent no digest for [`crate::MeshConfig::lease`].
    pub expired: u64,
    /// Topics advertised.
    pub advertised: u64,
    /// Topics withdrawn because nobody published to them any more, or to make room.
    pub withdrawn: u64,
    /// Publications that went to every node because there was no room to advertise their topic ([`TreeConfig::topics`]).
    pub unadvertised: u64,
}

/// Routing along a tree by advertisements and subscriptions (overlay-trees section 7).
#[derive(Debug)]
pub struct Tree {
    me: NodeId,
    backbone: Backbone,
    exchange: Exchange,
    joint: Joint,
    everything: Option<TopicFilter>,
    /// The owner knows that every publication is to be handed over.
    told: bool,
    settle_timeout: Duration,
    /// The time of the last event.
    now: Instant,
}

impl Tree {
    /// The tree as node `me` sees it, which listens for links at `address` as other nodes know it: nobody else yet. `rng` makes hash
    /// collisions unpredictable for clients.
    pub fn new(me: NodeId, address: SocketAddr, config: TreeConfig, mut rng: Rng) -> Self {
        let exchange = Exchange::new(config, &mut rng);
        Self {
            me,
            backbone: Backbone::new(me, address, config.exchange, rng),
            exchange,
            joint: Joint::default(),
            everything: TopicFilter::new("#").ok(),
            told: false,
            settle_timeout: config.exchange.settle_timeout,
            now: Instant::ZERO,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> TreeCounters {
        let Exchange { publishes, counts, .. } = &self.exchange;
        TreeCounters {
            shared: self.backbone.shared.counters(),
            tree: self.backbone.trunk.counters(),
            late_settlements: self.exchange.late_settlements(),
            repairs: counts.repairs,
            expired: counts.expired,
            advertised: publishes.advertised,
            withdrawn: publishes.withdrawn,
            unadvertised: publishes.unadvertised,
        }
    }

    /// Tells the exchange of topics and filters the inputs that the backbone handles by itself.
    fn handle_own(&mut self, now: Now, input: &Input) {
        let exchange = &mut self.exchange;
        match input {
            Input::NeighbourUp(neighbour) if neighbour.node != self.me => {
                self.joint.unlink(neighbour.node);
                exchange.on_neighbour_up(now.instant, neighbour.node);
            }
            Input::NeighbourDown { node, gone } => {
                self.joint.unlink(*node);
                exchange.on_neighbour_down(*node, *gone);
            }
            Input::MemberUp(member) => exchange.on_member_up(member.node),
            Input::MemberDown { node } => exchange.on_member_down(*node),
            Input::Local { changes, token } => {
                if let Some(token) = token {
                    self.joint.wait(*token, now.instant + self.settle_timeout);
                }
                return exchange.on_local(now.instant, changes, *token);
            }
            Input::NeighbourUp(_)
            | Input::RoundTrip { .. }
            | Input::Load { .. }
            | Input::Signal { .. }
            | Input::BarrierReached(_) => return,
        }
        exchange.touch();
    }

    /// An output of one of the two exchanges, as the owner gets it; none if the other one has to follow first.
    fn join(&mut self, part: Part, output: Output) -> Option<Output> {
        match output {
            Output::Barrier(barrier) => Some(Output::Barrier(self.joint.raise(part, barrier))),
            Output::Settled(token) => self.settle(part, token).then_some(output),
            Output::Synced { node } => self.joint.sync(node, part).then_some(output),
            Output::Protocol { node, .. } => {
                self.joint.unlink(node);
                self.exchange.on_neighbour_down(node, false);
                self.exchange.touch();
                Some(output)
            }
            Output::Signal { to, bytes } if part == Part::Own => {
                Some(Output::Signal { to, bytes: with_part(OWN, &bytes) })
            }
            Output::Signal { .. } | Output::Link { .. } | Output::Table(_) | Output::Cut { .. } => Some(output),
        }
    }

    /// A token is settled in one part; says whether it is for the owner. The part that everybody knows has the last word: a neighbour
    /// that has come up meanwhile does not know of it, while it counts as wanting everything in the other part.
    fn settle(&mut self, part: Part, token: Token) -> bool {
        let Some(deadline) = self.joint.settle(token) else { return false };
        let shared = &mut self.backbone.shared;
        if part == Part::Own && deadline > self.now && !shared.is_confirmed() {
            shared.wait(token, deadline);
            return false;
        }
        self.joint.finish(token);
        true
    }

    /// Every other member may want topics that have not been advertised yet; the lines known for certain follow.
    fn lines(&self) -> impl Iterator<Item = RouteEntry> {
        let entry = |node: NodeId, filter: &TopicFilter| RouteEntry { node, client: None, filter: filter.clone() };
        let own = self.backbone.trunk.members().flat_map(move |node| {
            let wanted = self.exchange.peers.get(&node).into_iter().flat_map(|peer| &peer.filters);
            let others = wanted.filter(|filter| Some(*filter) != self.everything.as_ref());
            self.everything.iter().chain(others).map(move |filter| entry(node, filter))
        });
        self.backbone.routes(own)
    }
}

impl Overlay for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.now = now.instant;
        self.handle_own(now, &input);
        if let Input::BarrierReached(barrier) = input {
            while let Some((part, barrier)) = self.joint.reach(barrier) {
                match part {
                    Part::Shared => _ = self.backbone.handle(now, Input::BarrierReached(barrier)),
                    Part::Own => self.exchange.on_barrier_reached(barrier),
                }
            }
        } else if let Some((from, bytes)) = self.backbone.handle(now, input)
            && let Err(error) = self.exchange.on_signal(now.instant, from, &bytes)
        {
            self.backbone.refuse(now, from, error.to_string());
        }
        self.exchange.follow(&self.backbone.trunk);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now.instant;
        self.backbone.trunk.handle_timeout(now.instant);
        self.backbone.shared.handle_timeout(now);
        self.exchange.handle_timeout(now.instant);
        self.exchange.follow(&self.backbone.trunk);
    }

    fn poll_output(&mut self) -> Option<Output> {
        if !core::mem::replace(&mut self.told, true)
            && let Some(filter) = self.everything.clone()
        {
            return Some(Output::Table(Advertised::Remote { filter, wanted: true }));
        }
        while let Some(output) = self.backbone.poll_output() {
            if let Some(output) = self.join(Part::Shared, output) {
                return Some(output);
            }
        }
        while let Some(output) = self.exchange.poll_output() {
            if let Some(output) = self.join(Part::Own, output) {
                return Some(output);
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let backbone = [self.backbone.trunk.poll_timeout(), self.backbone.shared.poll_timeout()];
        backbone.into_iter().chain([self.exchange.poll_timeout()]).flatten().min()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        if topic.is_reserved() {
            self.backbone.reserved_destinations(topic, nodes);
        } else {
            self.exchange.destinations(self.now, topic, self.backbone.trunk.members(), nodes);
        }
    }

    fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.exchange.unanswered(topic, nodes);
    }

    fn promises(&self, to: NodeId, signal: &[u8]) -> bool {
        Backbone::promises(signal, |own| self.exchange.promises(to, own))
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        self.backbone.shared.everyone(nodes);
    }

    fn way(&self, _topic: &TopicName, destination: NodeId) -> NodeId {
        self.backbone.way(destination)
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.backbone.shared.is_linked(node)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        self.lines().skip(offset).take(limit).collect()
    }

    fn route_count(&self) -> usize {
        self.lines().count()
    }

    fn topology(&self, limit: usize) -> Topology {
        let Exchange { publishes, origins, interest, peers, .. } = &self.exchange;
        let next = |node: NodeId| if node == self.me { node } else { self.backbone.way(node) };
        let adverts = origins.iter().flat_map(|(topic, origins)| origins.iter().map(move |origin| (topic, *origin)));
        let own = interest.filters().map(|filter| (filter, self.me));
        let others = peers.iter().flat_map(|(node, peer)| peer.filters.iter().map(move |filter| (filter, *node)));
        let adverts_total = peers.values().map(|peer| peer.topics.len()).sum();
        let interest_total = interest.len() + peers.values().map(|peer| peer.filters.len()).sum::<usize>();
        let advert =
            |(topic, origin): (&TopicName, NodeId)| AdvertLine { topic: topic.clone(), origin, next: next(origin) };
        let wanted =
            |(filter, node): (&TopicFilter, NodeId)| InterestLine { filter: filter.clone(), node, next: next(node) };
        Topology {
            trees: vec![self.backbone.trunk.view()],
            advertised: Table { lines: publishes.topics().take(limit).cloned().collect(), total: publishes.len() },
            adverts: Table { lines: adverts.take(limit).map(advert).collect(), total: adverts_total },
            interest: Table { lines: own.chain(others).take(limit).map(wanted).collect(), total: interest_total },
            counters: self.counters().named(),
            ..Topology::default()
        }
    }
}

impl TreeCounters {
    /// The counters with their names. Where both exchanges count, they are added.
    fn named(self) -> Vec<(&'static str, u64)> {
        let own = [
            ("late_settlements", self.late_settlements + self.shared.late_settlements),
            ("repairs", self.repairs + self.shared.repairs),
            ("expired", self.expired + self.shared.expired),
            ("advertised", self.advertised),
            ("withdrawn", self.withdrawn),
            ("unadvertised", self.unadvertised),
        ];
        self.tree.named().into_iter().chain(own).collect()
    }
}
