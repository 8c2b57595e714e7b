//! Notices of failed members: the clients that they had, and their interest (FT-33). Every survivor keeps its own, from its routing table.

use std::collections::BTreeMap;

use sedge_base::{Incarnation, NodeId};

use crate::node::Node;
use crate::status::Orphan;

/// Notices that are kept; that of the node with the lowest id goes first. Members that are not listed as dead any more have none.
const NOTICES_MAX: usize = 64;
/// Lines of the routing table that one notice comes from.
const LINES_MAX: usize = 1_000;
/// Bytes of client ids and filters in one notice.
const BYTES_MAX: usize = 16 * 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::node) struct FailureNotices {
    notices: BTreeMap<(NodeId, Incarnation), Vec<Orphan>>,
}

impl FailureNotices {
    /// Which clients a member had when it died.
    pub(in crate::node) fn of(&self, node: NodeId, incarnation: Incarnation) -> Vec<Orphan> {
        self.notices.get(&(node, incarnation)).cloned().unwrap_or_default()
    }
}

impl Node {
    /// A member has died: notes which clients it had, before its routes are forgotten.
    pub(in crate::node) fn note_failure(&mut self, node: NodeId, incarnation: Incarnation) {
        let mut orphans: Vec<Orphan> = Vec::new();
        let mut bytes = 0;
        for route in self.overlay.routes_of(node, LINES_MAX) {
            let Some(client) = route.client else { continue };
            let is_new = orphans.last().is_none_or(|last| last.client != client);
            bytes += route.filter.as_str().len() + if is_new { client.as_str().len() } else { 0 };
            if bytes > BYTES_MAX {
                break;
            }
            if is_new {
                orphans.push(Orphan { client, filters: Vec::new() });
            }
            if let Some(last) = orphans.last_mut() {
                last.filters.push(route.filter.as_str().to_owned());
            }
        }
        let notices = &mut self.operators.failures.notices;
        if !orphans.is_empty() {
            notices.insert((node, incarnation), orphans);
        }
        let membership = &self.membership;
        let is_listed = |(node, incarnation): &(NodeId, Incarnation)| {
            membership.dead().any(|(member, _)| (member.node, member.incarnation) == (*node, *incarnation))
        };
        notices.retain(|key, _| is_listed(key) || *key == (node, incarnation));
        while notices.len() > NOTICES_MAX {
            notices.pop_first();
        }
    }
}
