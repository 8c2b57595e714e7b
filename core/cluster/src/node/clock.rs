//! The time of the cluster, so that message expiry, session expiry and delays of wills mean the same at all nodes.
//!
//! [`sedge_base::Now::wall`] is not the system's clock: the driver reads that once, when the process starts, and counts on by the clock of the
//! machine since its start, which nobody sets. Two nodes may still have begun at different times. Linked nodes tell each other theirs:
//!
//! * A node that begins takes over the time of one that lets clients in.
//! * Otherwise the node with the lower id is right, once two of its readings have said the same: one alone may be late. That node sends the
//!   second one as soon as it hears that the other node's time differs.
//!
//! So moments may travel in messages, sessions and copies without being translated. System clocks that differ change nothing; they are told
//! to operators.

use std::collections::BTreeSet;

use sedge_base::{Duration, Instant, NodeId, Timestamp};

use crate::link::ControlTopic;
use crate::node::Node;
use crate::wire::NodeMail;
use crate::{NodeOutput, NodeState};

/// How often linked nodes tell each other the time.
const PERIOD: Duration = Duration::from_mins(10);
/// How often they do while their times differ.
const PERIOD_APART: Duration = Duration::from_secs(10);
/// A difference that a reading may have from its way alone, in milliseconds.
const CLOSE: i64 = 250;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::node) struct ClusterClock {
    next: Option<Instant>,
    /// By how many milliseconds the system's clock of this node is ahead of the cluster's time.
    system_ahead: i64,
    /// The same as the others were told last.
    told_ahead: i64,
    /// Members whose system clocks are off, as the log has said.
    told: BTreeSet<NodeId>,
    /// How often this node has taken over the time of another one.
    pub(in crate::node) adopted: u64,
}

/// The readings of a member's clocks, as the member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Reading {
    /// By how many milliseconds its time of the cluster is ahead of this node's.
    ahead: i64,
    /// By how many milliseconds its system clock is ahead of the cluster's time.
    system_ahead: i64,
    /// Whether it lets clients in.
    serving: bool,
    /// Whether the reading before it has said the same.
    is_confirmed: bool,
}

fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl ClusterClock {
    pub(in crate::node) const fn timeout(&self) -> Option<Instant> {
        self.next
    }
}

impl Node {
    /// By how many milliseconds the system's clock of this node is ahead of the cluster's time.
    pub(in crate::node) fn system_clock(&mut self, ahead: i64) {
        self.clock.system_ahead = ahead;
        if ahead.abs_diff(self.clock.told_ahead) > CLOSE.unsigned_abs() {
            self.clock.next = Some(self.now.instant);
            for node in self.peers.keys().copied().collect::<Vec<_>>() {
                self.watch_system_clock(node);
            }
        }
    }

    /// Tells a neighbour what time it is.
    pub(in crate::node) fn tell_time(&mut self, to: NodeId) {
        if self.links.is_older(to) {
            return;
        }
        let (cluster, system_ahead) = (self.now.wall, self.clock.system_ahead);
        let mail = NodeMail::Time { cluster, system_ahead, serving: (self.state != NodeState::Recovery) };
        self.send_control(to, ControlTopic::Node, mail.encode());
    }

    fn tell_time_to_all(&mut self) {
        let is_apart = self.peers.values().filter_map(|peer| peer.clock).any(|clock| clock.ahead.abs() > CLOSE);
        self.clock.next = Some(self.now.instant + if is_apart { PERIOD_APART } else { PERIOD });
        self.clock.told_ahead = self.clock.system_ahead;
        let linked: Vec<NodeId> = self.peers.iter().filter(|(_, peer)| peer.is_up()).map(|(node, _)| *node).collect();
        for node in linked {
            self.tell_time(node);
        }
    }

    pub(in crate::node) fn clock_due(&mut self) {
        if self.clock.next.is_none_or(|next| next <= self.now.instant) {
            self.tell_time_to_all();
        }
    }

    /// A neighbour tells its time.
    pub(in crate::node) fn hears_time(&mut self, from: NodeId, cluster: Timestamp, system_ahead: i64, serving: bool) {
        let ahead = millis(cluster).saturating_sub(millis(self.now.wall));
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let is_confirmed = peer.clock.is_some_and(|before| (before.ahead.saturating_sub(ahead)).abs() <= CLOSE);
        let peer_serves = peer.serving.is_some();
        peer.clock = Some(Reading { ahead, system_ahead, serving, is_confirmed });
        self.watch_system_clock(from);
        let serves = self.state != NodeState::Recovery;
        let is_right = (!serves, self.config.node) < (!(serving || peer_serves), from);
        if is_right && ahead.abs() > CLOSE && !is_confirmed {
            self.tell_time(from);
        }
        let Some((node, reading)) = self.right_clock(serves) else { return };
        if reading.ahead.abs() > CLOSE && (reading.is_confirmed || !serves) {
            self.adopt_time(node, reading.ahead);
        } else if ahead.abs() > CLOSE {
            let soon = self.now.instant + PERIOD_APART;
            self.clock.next = Some(self.clock.next.map_or(soon, |next| next.min(soon)));
        }
    }

    /// The neighbour whose time is right; `None`: it is this node's.
    fn right_clock(&self, serves: bool) -> Option<(NodeId, Reading)> {
        let readings = self.peers.iter().filter_map(|(node, peer)| {
            let reading = peer.clock.filter(|_| peer.is_up())?;
            Some((reading.serving || peer.serving.is_some(), *node, reading))
        });
        let best = readings.min_by_key(|(is_serving, node, _)| (!is_serving, *node));
        best.filter(|(is_serving, node, _)| (!is_serving, *node) < (!serves, self.config.node))
            .map(|(_, node, reading)| (node, reading))
    }

    fn adopt_time(&mut self, from: NodeId, ahead: i64) {
        self.clock.adopted += 1;
        let (by, side) = (ahead.unsigned_abs(), if ahead < 0 { "back" } else { "on" });
        self.event(false, format!("Takes over the time of node {from}: {side} by {by} ms"));
        let shifted = millis(self.now.wall).saturating_add(ahead).max(0);
        self.now.wall = Timestamp::from_millis(shifted.unsigned_abs());
        self.clock.system_ahead = self.clock.system_ahead.saturating_sub(ahead);
        self.outputs.push_back(NodeOutput::SetTime { ahead });
        for peer in self.peers.values_mut() {
            peer.clock = peer.clock.map(|clock| Reading { ahead: clock.ahead.saturating_sub(ahead), ..clock });
        }
        self.tell_time_to_all();
    }

    /// By how many milliseconds a member's system clock is ahead of this node's, if it has said so.
    pub(in crate::node) fn clock_offset(&self, node: NodeId) -> Option<i64> {
        let reading = self.peers.get(&node)?.clock?;
        Some(reading.ahead.saturating_add(reading.system_ahead).saturating_sub(self.clock.system_ahead))
    }

    /// Says when a member's system clock is off, and when it is right again.
    fn watch_system_clock(&mut self, node: NodeId) {
        let Some(offset) = self.clock_offset(node) else { return };
        let limit = i64::try_from(self.config.clock_tolerance.as_millis()).unwrap_or(i64::MAX);
        let (is_off, by) = (offset.abs() > limit, offset.unsigned_abs());
        if is_off && self.clock.told.insert(node) {
            let side = if offset < 0 { "behind" } else { "ahead of" };
            self.event(
                true,
                format!(
                    "The system clock of node {node} is {by} ms {side} this node's, more than cluster.clock_tolerance; set it right (expiry goes by the time of the cluster)"
                ),
            );
        } else if !is_off && self.clock.told.remove(&node) {
            self.event(false, format!("The system clock of node {node} is right again"));
        }
    }
}
