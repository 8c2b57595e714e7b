//! The status of a node.

use sedge_base::{Instant, NodeId};
use sedge_membership::Member;

use crate::node::Node;
use crate::{DeadStatus, MemberStatus, NodeState, NodeStatus, RefusedNode, RouteStatus};

/// Counters of a node; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct NodeCounters {
    pub publications_looped: u64,
    pub publications_repeated: u64,
    pub publications_refused: u64,
    pub publications_without_channel: u64,
    pub retained_refused: u64,
    pub retained_pushed: u64,
    pub retained_tombstones_agreed: u64,
    /// How often the retained messages were compared with those of a neighbour without an occasion.
    pub retained_comparisons: u64,
    pub directory_conflicts: u64,
    pub claims_timed_out: u64,
    pub sessions_sent: u64,
    pub sessions_lost: u64,
    /// Sessions given to a node that died before it had them for good.
    pub sessions_taken_back: u64,
    pub sessions_discarded: u64,
    /// Sessions of another owner whose messages went to the one that goes on.
    pub sessions_merged: u64,
    pub leftovers_discarded: u64,
    pub control_lost: u64,
    pub control_early: u64,
    pub links_reset: u64,
    pub mail_passed_over: u64,
    /// Backups that lived and could not be reached.
    pub backups_unreached: u64,
    /// Members that lived and for which publications were kept because there was no link to them.
    pub members_out_of_reach: u64,
    /// Members of former lives that did not come back in time.
    pub members_given_up: u64,
    /// How often the process stood still.
    pub standstills: u64,
}

impl NodeCounters {
    fn named(self) -> [(&'static str, u64); 24] {
        [
            ("node_publications_looped", self.publications_looped),
            ("node_publications_repeated", self.publications_repeated),
            ("node_publications_refused", self.publications_refused),
            ("node_publications_without_channel", self.publications_without_channel),
            ("retained_refused", self.retained_refused),
            ("retained_pushed", self.retained_pushed),
            ("retained_tombstones_agreed", self.retained_tombstones_agreed),
            ("retained_comparisons", self.retained_comparisons),
            ("directory_conflicts", self.directory_conflicts),
            ("directory_claims_timed_out", self.claims_timed_out),
            ("sessions_sent", self.sessions_sent),
            ("sessions_lost", self.sessions_lost),
            ("sessions_taken_back", self.sessions_taken_back),
            ("sessions_discarded", self.sessions_discarded),
            ("sessions_merged", self.sessions_merged),
            ("sessions_leftovers_discarded", self.leftovers_discarded),
            ("node_control_lost", self.control_lost),
            ("node_control_early", self.control_early),
            ("node_links_reset", self.links_reset),
            ("node_mail_passed_over", self.mail_passed_over),
            ("backups_unreached", self.backups_unreached),
            ("members_out_of_reach", self.members_out_of_reach),
            ("members_given_up", self.members_given_up),
            ("node_standstills", self.standstills),
        ]
    }
}

impl Node {
    /// The node as a whole.
    pub fn status(&self) -> NodeStatus {
        let mut counters = self.links.counters().named().to_vec();
        counters.extend(self.counters.named());
        counters.extend(self.relay.counters());
        counters.extend(self.overlay.topology(0).counters);
        let (takeovers, inherited) = self.takeovers.counts();
        counters.extend([
            ("node_takeovers", takeovers),
            ("takeovers_sessions", inherited),
            ("orphans_dropped", self.orphans.dropped()),
            ("clock_adoptions", self.clock.adopted),
            ("members_cleaned", self.membership.cleaned()),
            ("node_id_conflicts", self.mistrusted.same_id),
            ("retained_tombstones_crowded_out", self.retained.tombstones_crowded_out()),
        ]);
        NodeStatus {
            node: self.config.node,
            incarnation: self.config.incarnation,
            cluster: self.config.links.cluster.clone(),
            state: if self.state == NodeState::Recovery && self.ring.len() <= 1 {
                NodeState::Discovery
            } else {
                self.state
            },
            overlay: self.overlay.name(),
            neighbours: self.neighbours_status(),
            link_qos: self.config.link_qos,
            link_connections: self.links.connections().0,
            link_order: self.links.connections().1,
            members: self.ring.iter().filter_map(|node| self.member_status(*node)).collect(),
            dead: self.membership.dead().map(|(member, died)| self.dead_status(member, died)).collect(),
            unreached_seeds: self.unreached_seeds(),
            awaited: self.awaited_members(),
            sessions: self.claims.len(),
            routes: self.overlay.route_count(),
            retained: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            tombstones: self.retained.tombstones(),
            tombstone_bytes: self.retained.tombstone_bytes(),
            unacknowledged: self.acks.len(),
            relayed: self.relay.outgoing.len(),
            relay_held: self.relay.incoming.held(),
            relay_kept: self.relay.asking.len(),
            copies: 1 + self.copies.whole().count(),
            copies_wanted: usize::from(self.config.copies.max(1)).min(self.ring.len()),
            moving: self.claims.wanted() + self.handed.len() + self.reclaims.len() + self.reunions.len(),
            arrived: self.had.len(),
            left: self.forwards.len(),
            early: self.claims.early.len(),
            asked_early: self.takeovers.asked_early() + self.reclaims.asked_early(),
            kept_elsewhere: self.reclaims.kept_elsewhere(),
            away: self.orphans.away(),
            replicas: self.replicas.len(),
            orphaned: self.orphans.nodes(),
            strays: self.orphans.len(),
            stray_bytes: self.orphans.bytes(),
            drain: self.drain_status(),
            refused: self.refused_nodes(),
            counters,
        }
    }

    fn refused_nodes(&self) -> Vec<RefusedNode> {
        let line = |(node, refused): (NodeId, &crate::link::Incompatible)| RefusedNode {
            node: Some(node),
            address: refused.address,
            why: refused.why.clone(),
        };
        let mistrusted = self.mistrusted.lines(self.now.instant).map(|(address, cause)| RefusedNode {
            node: None,
            address,
            why: cause.explain(address),
        });
        self.links.incompatible().map(line).chain(mistrusted).collect()
    }

    pub(in crate::node) fn member_status(&self, node: NodeId) -> Option<MemberStatus> {
        let member = if node == self.config.node { self.membership.me() } else { self.membership.member(node)? };
        let synced = self.peers.get(&node).is_some_and(|peer| peer.overlay_synced);
        let link = self.links.status(node).map(|link| crate::LinkStatus { synced, ..link });
        let clock_ahead = self.clock_offset(node);
        let name = self.name_of(node).map(|name| name.as_str().to_owned());
        Some(MemberStatus { node, name, incarnation: member.incarnation, address: member.link, link, clock_ahead })
    }

    fn dead_status(&self, member: &Member, died: Instant) -> DeadStatus {
        let since = self.now.instant.since(died);
        let name = self.name_of(member.node).map(|name| name.as_str().to_owned());
        let orphans = self.operators.failures.of(member.node, member.incarnation);
        DeadStatus { node: member.node, name, incarnation: member.incarnation, address: member.link, since, orphans }
    }

    /// At most `limit` lines of the subscription routing table (FT-10) from the `offset`th on: the interest of other nodes.
    pub fn routes(&self, offset: usize, limit: usize) -> Vec<RouteStatus> {
        let routes = self.overlay.routes(offset, limit).into_iter();
        let line = |route: sedge_overlay::RouteEntry| RouteStatus {
            node: route.node,
            client: route.client,
            filter: route.filter.as_str().to_owned(),
        };
        routes.map(line).collect()
    }

    /// Trees and tables of the cooperation algorithm, at most `limit` lines of each; empty where it has none.
    pub fn topology(&self, limit: usize) -> sedge_overlay::Topology {
        self.overlay.topology(limit)
    }

    /// At most `limit` lines of the local subscription table (FT-09) from the `offset`th on: the interest of this node's clients.
    pub fn local_routes(&self, offset: usize, limit: usize) -> Vec<RouteStatus> {
        let lines = self.interest.lines(offset, limit);
        let line = |(client, filter): (&sedge_base::ClientId, &sedge_mqtt::TopicFilter)| RouteStatus {
            node: self.config.node,
            client: Some(client.clone()),
            filter: filter.as_str().to_owned(),
        };
        lines.map(line).collect()
    }

    /// One number for all retained messages here, cleared topics included: equal at two nodes that hold the same.
    pub fn retained_digest(&self) -> u64 {
        self.retained.digests().iter().fold(0, |folded, digest| folded.rotate_left(1) ^ digest)
    }

    /// Number of lines of the local subscription table.
    pub fn local_route_count(&self) -> usize {
        self.interest.len()
    }
}
