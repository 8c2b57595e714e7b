//! Whether a group grows or shrinks: the policy that wants most nodes wins; bounds, cool-down and guards have the last word.

use sedge_base::{Duration, Instant};

use super::Scaler;
use crate::alarm::{AlarmState, measure};
use crate::alarming::nanos;
use crate::api::{Decision, EventKind};
use crate::policy::{Facts, Opinion, opinion};
use crate::site::{Alarm, Metric, Op, Stat, Strategy};

/// Time over which actions are counted.
const HOUR: Duration = Duration::from_hours(1);

impl Scaler {
    /// Actions that policies may still start within this hour.
    pub(super) fn actions_left(&self) -> u32 {
        let recent = self.acted.iter().filter(|at| self.now.instant.since(**at) < HOUR).count();
        self.site.max_actions_per_hour.saturating_sub(u32::try_from(recent).unwrap_or(u32::MAX))
    }

    /// Asks the policies of a group, and carries out the greatest opinion if nothing stands against it.
    pub(super) fn decide(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else { return };
        if self.paused || !group.is_calm() || self.is_resizing(name) {
            return;
        }
        let why = self.decide_number(name).or_else(|| self.decide_size(name));
        self.hold(name, why);
    }

    /// Changes the number of nodes if a policy wants that; returns the obstacle, if there is one.
    fn decide_number(&mut self, name: &str) -> Option<String> {
        let nodes = self.groups.get(name)?.target;
        let spec = self.site.groups().find(|(other, _)| *other == name).map(|(_, spec)| spec.clone())?;
        let best = self.opinions(name, nodes).into_iter().max_by_key(|opinion| opinion.nodes)?;
        let wanted = best.nodes.clamp(spec.min, spec.max);
        if wanted == nodes {
            let bound = if best.nodes > spec.max { Some(("max", spec.max)) } else { None };
            return bound.map(|(bound, value)| format!("{}; but {bound} is {value}", best.reason));
        }
        // One node at a time goes: the measurements of the remaining nodes decide about the next.
        let wanted = if wanted < nodes { nodes - 1 } else { wanted };
        if let Some(hindrance) = self.hindrance(name, &best, wanted) {
            return Some(format!("{}; but {hindrance}", best.reason));
        }
        self.act(name, wanted, &best.reason, spec.relief);
        None
    }

    fn act(&mut self, name: &str, wanted: u32, reason: &str, relief: bool) {
        let now = self.now;
        let Some(group) = self.groups.get_mut(name) else { return };
        let from = group.target;
        group.target = wanted;
        group.last_action = Some(now.instant);
        group.relieve = relief && wanted > from;
        self.count_action();
        let reason = reason.to_owned();
        self.decided(Decision { at: now.wall, group: name.to_owned(), from, to: wanted, reason });
        self.reconcile();
    }

    /// Counts an action of a policy among those of this hour.
    pub(super) fn count_action(&mut self) {
        let now = self.now.instant;
        self.acted.push_back(now);
        while self.acted.front().is_some_and(|at| now.since(*at) >= HOUR) {
            self.acted.pop_front();
        }
    }

    /// Remembers, and says once, why a change is not made.
    fn hold(&mut self, name: &str, why: Option<String>) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let new = why.is_some() && group.hold.is_none();
        group.hold.clone_from(&why);
        if let Some(why) = why.filter(|_| new) {
            self.event(EventKind::Decision, name, format!("stays as it is: {why}"));
        }
    }

    /// Opinions of a group's policies on its number of nodes.
    fn opinions(&self, name: &str, nodes: u32) -> Vec<Opinion> {
        let mut opinions = Vec::new();
        for (policy_name, policy) in self.site.policies().filter(|(_, policy)| policy.group == name) {
            let measured = policy.tracked().filter(|target| self.is_settled(target.period, name));
            let facts = Facts {
                nodes,
                alarms: self.holding(policy_name),
                tracked: measured.and_then(|target| self.mean(name, target.metric, target.period)),
                expected: self.histories.get(policy_name).and_then(|history| history.expected(self.now.wall)),
                wall: self.now.wall,
            };
            opinions.extend(opinion(policy_name, policy, &facts));
        }
        opinions
    }

    /// The alarms that hold and name a policy, with their measurements.
    pub(super) fn holding(&self, policy: &str) -> Vec<(&str, &Alarm, f64)> {
        let alarms = self.site.alarms().filter(|(_, alarm)| alarm.action.as_deref() == Some(policy));
        let alarms = alarms.filter_map(|(name, alarm)| {
            let track = self.alarming.tracks.get(name)?;
            let value = track.value.filter(|_| track.state == AlarmState::Alarm)?;
            self.is_settled(alarm.period.saturating_mul(alarm.evaluations), &alarm.of).then_some((name, alarm, value))
        });
        alarms.collect()
    }

    /// Whether the nodes of a group have been the same for `span`.
    fn is_settled(&self, span: Duration, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| self.now.instant.since(group.settled) >= span)
    }

    pub(super) fn mean(&self, name: &str, metric: Metric, period: Duration) -> Option<f64> {
        let from = Instant::from_nanos(self.now.instant.as_nanos().checked_sub(nanos(period))?);
        measure(&self.alarming.store, &self.groups.get(name)?.serving(), metric, Stat::Mean, from, self.now.instant)
    }

    /// The reason against a change to `wanted` nodes, if there is one.
    fn hindrance(&self, name: &str, best: &Opinion, wanted: u32) -> Option<String> {
        let group = self.groups.get(name)?;
        let (_, policy) = self.site.policies().find(|(policy, _)| *policy == best.policy)?;
        if let Some(hindrance) = self.too_soon(name, policy.cooldown) {
            return Some(hindrance);
        }
        if wanted >= group.target {
            return None;
        }
        self.too_few_copies(name).or_else(|| self.would_flap(name, wanted))
    }

    /// The reason against any action on a group now, if there is one.
    pub(super) fn too_soon(&self, name: &str, cooldown: Duration) -> Option<String> {
        if let Some(last) = self.groups.get(name)?.last_action {
            let passed = self.now.instant.since(last);
            if passed < cooldown {
                let left = cooldown.saturating_sub(passed).as_secs_f64();
                return Some(format!("{left:.0} s of the cool-down are left"));
            }
        }
        (self.actions_left() == 0).then(|| format!("max_actions_per_hour is {}", self.site.max_actions_per_hour))
    }

    /// A node whose sessions have too few copies: no node may leave before they have them (FT-20).
    fn too_few_copies(&self, name: &str) -> Option<String> {
        let serving = self.groups.get(name)?.serving();
        let short = serving
            .iter()
            .find(|node| self.alarming.store.last(node, Metric::CopiesMissing).is_some_and(|missing| missing > 0.0))?;
        Some(format!("sessions of {short} have too few copies"))
    }

    /// An alarm that would make the group grow again if the load were spread over `wanted` nodes.
    fn would_flap(&self, name: &str, wanted: u32) -> Option<String> {
        let nodes = self.groups.get(name)?.target;
        let share = f64::from(nodes) / f64::from(wanted.max(1));
        for (policy_name, policy) in self.site.policies().filter(|(_, policy)| policy.group == name) {
            let grows = matches!(&policy.strategy, Strategy::Adjust(adjust) if *adjust > 0)
                || matches!(&policy.strategy, Strategy::Step(steps) if steps.iter().any(|(_, adjust)| *adjust > 0));
            let of_policy =
                self.site.alarms().filter(|(_, alarm)| grows && alarm.action.as_deref() == Some(policy_name));
            for (alarm_name, alarm) in of_policy {
                let spreads = matches!(alarm.op, Op::Greater | Op::GreaterOrEqual) && alarm.stat != Stat::Sum;
                let Some(mean) = self.mean(name, alarm.metric, alarm.period).filter(|_| spreads) else { continue };
                if alarm.op.holds(mean * share, alarm.threshold) {
                    let metric = alarm.metric;
                    return Some(format!(
                        "with {wanted} nodes mean {metric} would be {:.1}, where the alarm {alarm_name} holds",
                        mean * share
                    ));
                }
            }
        }
        None
    }
}
