//! Probing one particular member at once, when there is evidence against it.

use std::collections::BTreeMap;

use sedge_base::{Deadlines, Duration, Instant, NodeId};

use crate::Member;

/// Rounds of probes within the timeout: a lost datagram must not kill a member.
const ROUNDS: u32 = 3;

#[derive(Debug)]
struct Case {
    member: Member,
    since: Instant,
    probe: u8,
    rounds_left: u32,
    is_hastened: bool,
}

/// Next step for a member under evidence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Probe it, directly and through others, with this number.
    Probe(Member, u8),
    /// It gave no life sign.
    Dead(Member),
}

/// The members under evidence.
#[derive(Debug)]
pub(crate) struct Confirm {
    cases: BTreeMap<NodeId, Case>,
    deadlines: Deadlines<NodeId>,
    pause: Duration,
    last_pause: Duration,
}

impl Confirm {
    /// `hastened` is the timeout of a case with stronger evidence.
    pub(crate) fn new(timeout: Duration, hastened: Duration) -> Self {
        Self { cases: BTreeMap::new(), deadlines: Deadlines::new(), pause: timeout / ROUNDS, last_pause: hastened }
    }

    /// Opens a case, if there is none against this member yet. `probe` marks the answers, so that datagrams that were under
    /// way before do not count as life signs.
    pub(crate) fn open(&mut self, now: Instant, member: Member, probe: u8) {
        let node = member.node;
        if self.cases.contains_key(&node) {
            return;
        }
        self.cases.insert(node, Case { member, since: now, probe, rounds_left: ROUNDS, is_hastened: false });
        self.deadlines.set(node, now);
    }

    /// The evidence in this case is strong: one more round of probes, and little time.
    pub(crate) fn hasten(&mut self, now: Instant, node: NodeId) {
        let Some(case) = self.cases.get_mut(&node) else { return };
        if !core::mem::replace(&mut case.is_hastened, true) {
            case.rounds_left = 1;
            self.deadlines.set(node, now);
        }
    }

    /// The member has answered a probe with this number, or an answer needs no number.
    pub(crate) fn life_sign(&mut self, member: &Member, probe: Option<u8>) {
        let Some(case) = self.cases.get(&member.node) else { return };
        if case.member == *member && probe.is_none_or(|probe| probe == case.probe) {
            self.close(member.node);
        }
    }

    /// Something has come from it over a link, at that time: after the case was opened it is a life sign, since a link that begins anew takes
    /// a process that answers.
    pub(crate) fn heard(&mut self, node: NodeId, at: Instant) {
        if self.cases.get(&node).is_some_and(|case| case.since < at) {
            self.close(node);
        }
    }

    /// Whether it is being found out if this member lives.
    pub(crate) fn is_open(&self, member: &Member) -> bool {
        self.cases.contains_key(&member.node)
    }

    /// There is nothing left to find out about this node.
    pub(crate) fn close(&mut self, node: NodeId) {
        self.cases.remove(&node);
        self.deadlines.cancel(&node);
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Step> {
        let node = self.deadlines.pop_due(now)?;
        let case = self.cases.get_mut(&node)?;
        if let Some(left) = case.rounds_left.checked_sub(1) {
            case.rounds_left = left;
            self.deadlines.set(node, now + if case.is_hastened { self.last_pause } else { self.pause });
            return Some(Step::Probe(case.member.clone(), case.probe));
        }
        self.cases.remove(&node).map(|case| Step::Dead(case.member))
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.next()
    }
}
