//! Vertical scaling: how many processors each node of a group may use (Pham; EL-20).

use sedge_base::Duration;

use super::Scaler;
use crate::api::{ActionKind, Decision, EventKind, ScaleOutput, processors};
use crate::policy::because;
use crate::site::{Metric, Op, Resize, Strategy};

impl Scaler {
    /// Whether nodes of a group are being given another size.
    pub(super) fn is_resizing(&self, name: &str) -> bool {
        let of_group = |kind: &ActionKind| matches!(kind, ActionKind::Resize { group, .. } if group == name);
        self.pending.values().any(|pending| of_group(&pending.action.kind))
    }

    /// Changes the size of the nodes if a policy wants that; returns the obstacle, if there is one.
    pub(super) fn decide_size(&mut self, name: &str) -> Option<String> {
        let group = self.groups.get(name).filter(|group| group.is_calm())?;
        let size = group.millicpus?;
        let wanted =
            self.site.policies().filter(|(_, policy)| policy.group == name).filter_map(|(policy_name, policy)| {
                let Strategy::Resize(resize) = &policy.strategy else { return None };
                let (alarm, spec, value) = self.holding(policy_name).into_iter().next()?;
                let reason = format!("{} (policy {policy_name})", because(alarm, spec, value));
                Some((size.saturating_add_signed(resize.by), *resize, policy.cooldown, reason))
            });
        let (wanted, resize, cooldown, reason) = wanted.max_by_key(|(wanted, ..)| *wanted)?;
        let bounded = wanted.clamp(resize.min, resize.max);
        if bounded == size {
            let (bound, value) = if resize.by > 0 { ("max", resize.max) } else { ("min", resize.min) };
            return Some(format!("{reason}; but {bound} of its size is {}", processors(value)));
        }
        let hindrance = self.too_soon(name, cooldown).or_else(|| self.would_be_too_small(name, size, bounded));
        if let Some(hindrance) = hindrance {
            return Some(format!("{reason}; but {hindrance}"));
        }
        self.give_size(name, size, bounded, &reason);
        None
    }

    fn give_size(&mut self, name: &str, from: u32, to: u32, reason: &str) {
        let now = self.now;
        let Some(group) = self.groups.get_mut(name) else { return };
        group.millicpus = Some(to);
        group.last_action = Some(now.instant);
        let (nodes, serving) = (group.target, group.serving());
        self.count_action();
        let reason = format!("{} -> {} processors for each node: {reason}", processors(from), processors(to));
        self.decided(Decision { at: now.wall, group: name.to_owned(), from: nodes, to: nodes, reason });
        self.outputs.push_back(ScaleOutput::Size { group: name.to_owned(), millicpus: to });
        for node in serving {
            self.begin(ActionKind::Resize { group: name.to_owned(), node, millicpus: to }, Duration::ZERO);
        }
    }

    /// An alarm that would make the nodes grow again if they had `wanted` of their `size`.
    fn would_be_too_small(&self, name: &str, size: u32, wanted: u32) -> Option<String> {
        if wanted >= size {
            return None;
        }
        let share = f64::from(size) / f64::from(wanted.max(1));
        for (policy_name, policy) in self.site.policies().filter(|(_, policy)| policy.group == name) {
            let grows = match &policy.strategy {
                Strategy::Resize(Resize { by, .. }) | Strategy::Adjust(by) => *by > 0,
                Strategy::Step(steps) => steps.iter().any(|(_, adjust)| *adjust > 0),
                Strategy::Target(_) | Strategy::Schedule(_) | Strategy::Forecast(_) => false,
            };
            let of_policy = self.site.alarms().filter(|(_, alarm)| alarm.action.as_deref() == Some(policy_name));
            for (alarm_name, alarm) in of_policy.filter(|(_, alarm)| grows && alarm.metric == Metric::CpuUtil) {
                let rises = matches!(alarm.op, Op::Greater | Op::GreaterOrEqual);
                let Some(mean) = self.mean(name, alarm.metric, alarm.period).filter(|_| rises) else { continue };
                if alarm.op.holds(mean * share, alarm.threshold) {
                    let (metric, value) = (alarm.metric, mean * share);
                    let wanted = processors(wanted);
                    return Some(format!(
                        "with {wanted} processors mean {metric} would be {value:.1}, where the alarm {alarm_name} holds"
                    ));
                }
            }
        }
        None
    }

    /// A node has another size: measurements from before say nothing about it.
    pub(super) fn resized(&mut self, group: &str, node: &str, millicpus: u32) {
        let now = self.now.instant;
        if let Some(group) = self.groups.get_mut(group) {
            group.settled = now;
        }
        self.event(EventKind::Action, node, format!("may use {} processors", processors(millicpus)));
    }

    /// The size that an earlier controller has given the nodes of a group, within what policies allow today.
    pub(super) fn adopt_size(&mut self, name: &str, millicpus: u32) {
        let bounds = self.site.policies().filter(|(_, policy)| policy.group == name);
        let bounds = bounds.filter_map(|(_, policy)| match policy.strategy {
            Strategy::Resize(Resize { min, max, .. }) => Some((min, max)),
            Strategy::Adjust(_)
            | Strategy::Step(_)
            | Strategy::Target(_)
            | Strategy::Schedule(_)
            | Strategy::Forecast(_) => None,
        });
        let Some((min, max)) = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))) else { return };
        if let Some(size) = self.groups.get_mut(name).and_then(|group| group.millicpus.as_mut()) {
            *size = millicpus.clamp(min, max);
        }
    }
}
