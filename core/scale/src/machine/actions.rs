//! Actions under way: asked for until they are answered, under one number, and each answer taken once.

use sedge_base::{Duration, Instant};

use super::Scaler;
use crate::api::{Action, ActionId, ActionKind, EventKind, ScaleOutput};
use crate::group::backoff;
use crate::status::MemberState;

/// An action that is not answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) action: Action,
    /// Time at which the action is asked for (again).
    ask_at: Instant,
    /// Number of times that the action was asked for without an answer, or failed.
    attempts: u32,
}

impl Pending {
    pub(super) const fn due(&self) -> Instant {
        self.ask_at
    }
}

impl Scaler {
    /// Begins an action after `wait`.
    pub(super) fn begin(&mut self, kind: ActionKind, wait: Duration) {
        let id = ActionId(self.last_id.0 + 1);
        self.last_id = id;
        let pending = Pending { action: Action { id, kind }, ask_at: self.now.instant + wait, attempts: 0 };
        self.pending.insert(id, pending);
        self.remind();
    }

    /// Makes a node after `wait`.
    pub(super) fn create(&mut self, group: &str, node: String, wait: Duration) {
        self.begin(ActionKind::Create { group: group.to_owned(), node }, wait);
    }

    /// Empties and ends a node that belongs to no group of the site.
    pub(super) fn remove_stray(&mut self, group: &str, node: &str) {
        self.begin(ActionKind::Remove { group: group.to_owned(), node: node.to_owned() }, Duration::ZERO);
    }

    /// Asks for the actions that are due; while the controller is paused, for none.
    pub(super) fn remind(&mut self) {
        if self.paused {
            return;
        }
        let now = self.now.instant;
        let mut asked = Vec::new();
        for pending in self.pending.values_mut().filter(|pending| pending.ask_at <= now) {
            let patience = match pending.action.kind {
                ActionKind::Provide { .. } | ActionKind::Create { .. } => self.limits.create,
                ActionKind::Remove { .. } => self.limits.remove,
                ActionKind::Relieve { .. } => self.limits.relieve,
                ActionKind::Resize { .. } => self.limits.resize,
            };
            pending.ask_at = now + patience;
            pending.attempts += 1;
            asked.push((pending.action.clone(), pending.attempts));
        }
        for (action, attempts) in asked {
            let again = if attempts > 1 { format!(", attempt {attempts}") } else { String::new() };
            self.event(EventKind::Action, subject(&action.kind), format!("{}{again}", action.kind));
            self.outputs.push_back(ScaleOutput::Act(action));
        }
    }

    /// An action is done.
    pub(super) fn done(&mut self, id: ActionId) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let now = self.now.instant;
        match pending.action.kind {
            ActionKind::Provide { resource } => {
                self.event(EventKind::Started, &resource, "is there".to_owned());
                self.provided.insert(resource);
            }
            ActionKind::Create { group, node } => {
                let Some(state) = self.groups.get_mut(&group) else { return };
                let Some(member) = state.members.get_mut(&node) else { return };
                member.enter(MemberState::Serving, now);
                state.settled = now;
                let relieve = state.relieve && state.serving().len() > 1;
                if state.is_calm() {
                    state.relieve = false;
                }
                self.event(EventKind::Started, &node, "serves clients".to_owned());
                self.balance();
                if relieve {
                    self.begin(ActionKind::Relieve { group, node }, Duration::ZERO);
                }
            }
            ActionKind::Remove { group, node } => {
                if let Some(state) = self.groups.get_mut(&group) {
                    state.members.remove(&node);
                    state.settled = now;
                }
                self.alarming.store.forget(&node);
                self.event(EventKind::Stopped, &node, "was emptied and has ended".to_owned());
            }
            ActionKind::Relieve { node, .. } => {
                self.event(EventKind::Action, &node, "has got clients of the other nodes".to_owned());
            }
            ActionKind::Resize { group, node, millicpus } => self.resized(&group, &node, millicpus),
        }
        self.reconcile();
    }

    /// An action could not be done.
    pub(super) fn failed(&mut self, id: ActionId, why: &str) {
        let now = self.now.instant;
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let kind = pending.action.kind.clone();
        match &kind {
            ActionKind::Provide { .. } => pending.ask_at = now + backoff(pending.attempts),
            ActionKind::Create { group, node } => {
                let failed = self.groups.get_mut(group).and_then(|group| group.members.get_mut(node));
                pending.ask_at = now + failed.map_or(Duration::from_secs(1), |member| member.fail(now));
            }
            ActionKind::Remove { group, node } => {
                self.pending.remove(&id);
                if let Some(state) = self.groups.get_mut(group) {
                    if let Some(member) = state.members.get_mut(node) {
                        member.enter(MemberState::Serving, now);
                    }
                    state.target = state.staying();
                    state.settled = now;
                }
                self.balance();
            }
            ActionKind::Relieve { .. } => {
                self.pending.remove(&id);
            }
            ActionKind::Resize { group, node, .. } => {
                pending.ask_at = now + backoff(pending.attempts);
                if self.groups.get(group).is_none_or(|group| !group.members.contains_key(node)) {
                    self.pending.remove(&id);
                }
            }
        }
        self.event(EventKind::Failure, subject(&kind), format!("{kind}: {why}"));
    }
}

/// Name of the resource or node that an action is about.
fn subject(kind: &ActionKind) -> &str {
    match kind {
        ActionKind::Provide { resource } => resource,
        ActionKind::Create { node, .. }
        | ActionKind::Remove { node, .. }
        | ActionKind::Relieve { node, .. }
        | ActionKind::Resize { node, .. } => node,
    }
}
