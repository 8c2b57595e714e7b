//! Whether a group grows or shrinks: the policy that wants most nodes wins; bounds, cool-down and guards have the last word.

use sedge_base::{Duration, Instant};

use super::{Scaler, nanos};
use crate::alarm::{AlarmState, measure};
use crate::api::{Decision, EventKind};
use crate::policy::{Facts, Opinion, opinion};
use crate::site::{Metric, Op, Policy, Stat, Strategy, Target};

/// Over which time actions are counted.
const HOUR: Duration = Duration::from_hours(1);

/// What a policy tracks, if anything.
pub(super) const fn tracked(policy: &Policy) -> Option<&Target> {
    match &policy.strategy {
        Strategy::Target(target) | Strategy::Forecast(target) => Some(target),
        Strategy::Adjust(_) | Strategy::Step(_) | Strategy::Schedule(_) => None,
    }
}

impl Scaler {
    /// Actions that policies may still start within this hour.
    pub(super) fn actions_left(&self) -> u32 {
        let recent = self.acted.iter().filter(|at| self.now.instant.since(**at) < HOUR).count();
        self.site.max_actions_per_hour.saturating_sub(u32::try_from(recent).unwrap_or(u32::MAX))
    }

    /// Asks the policies of a group, and does what the greatest of them wants if nothing stands against it.
    pub(super) fn decide(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else { return };
        if self.paused || !group.is_calm() {
            return;
        }
        let Some(spec) = self.site.groups().find(|(other, _)| *other == name).map(|(_, spec)| spec.clone()) else {
            return;
        };
        let nodes = group.target;
        let Some(best) = self.opinions(name, nodes).into_iter().max_by_key(|opinion| opinion.nodes) else {
            self.hold(name, None);
            return;
        };
        let wanted = best.nodes.clamp(spec.min, spec.max);
        if wanted == nodes {
            let bound = if best.nodes > spec.max { Some(("max", spec.max)) } else { None };
            self.hold(name, bound.map(|(bound, value)| format!("{}; but {bound} is {value}", best.reason)));
            return;
        }
        // One node at a time goes: what the others then measure decides about the next.
        let wanted = if wanted < nodes { nodes - 1 } else { wanted };
        let hindrance = self.hindrance(name, &best, wanted);
        if let Some(hindrance) = hindrance {
            self.hold(name, Some(format!("{}; but {hindrance}", best.reason)));
            return;
        }
        self.hold(name, None);
        self.act(name, wanted, &best.reason, spec.relief);
    }

    fn act(&mut self, name: &str, wanted: u32, reason: &str, relief: bool) {
        let now = self.now;
        let Some(group) = self.groups.get_mut(name) else { return };
        let from = group.target;
        group.target = wanted;
        group.last_action = Some(now.instant);
        group.relieve = relief && wanted > from;
        self.acted.push_back(now.instant);
        while self.acted.front().is_some_and(|at| now.instant.since(*at) >= HOUR) {
            self.acted.pop_front();
        }
        let reason = reason.to_owned();
        self.decided(Decision { at: now.wall, group: name.to_owned(), from, to: wanted, reason });
        self.reconcile();
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

    /// What the policies of a group want.
    fn opinions(&self, name: &str, nodes: u32) -> Vec<Opinion> {
        let mut opinions = Vec::new();
        for (policy_name, policy) in self.site.policies().filter(|(_, policy)| policy.group == name) {
            let alarms = self.site.alarms().filter(|(_, alarm)| alarm.action.as_deref() == Some(policy_name));
            let alarms = alarms.filter_map(|(alarm_name, alarm)| {
                let track = self.alarms.get(alarm_name)?;
                let value = track.value.filter(|_| track.state == AlarmState::Alarm)?;
                self.is_settled(alarm.period.saturating_mul(alarm.evaluations), &alarm.of)
                    .then_some((alarm_name, alarm, value))
            });
            let measured = tracked(policy).filter(|target| self.is_settled(target.period, name));
            let facts = Facts {
                nodes,
                alarms: alarms.collect(),
                tracked: measured.and_then(|target| self.mean(name, target.metric, target.period)),
                expected: self.histories.get(policy_name).and_then(|history| history.expected(self.now.wall)),
                wall: self.now.wall,
            };
            opinions.extend(opinion(policy_name, policy, &facts));
        }
        opinions
    }

    /// Whether the nodes of a group have been the same for `span`.
    fn is_settled(&self, span: Duration, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| self.now.instant.since(group.settled) >= span)
    }

    fn mean(&self, name: &str, metric: Metric, period: Duration) -> Option<f64> {
        let from = Instant::from_nanos(self.now.instant.as_nanos().checked_sub(nanos(period))?);
        measure(&self.store, &self.groups.get(name)?.serving(), metric, Stat::Mean, from, self.now.instant)
    }

    /// What stands against a change to `wanted` nodes, if anything does.
    fn hindrance(&self, name: &str, best: &Opinion, wanted: u32) -> Option<String> {
        let group = self.groups.get(name)?;
        let (_, policy) = self.site.policies().find(|(policy, _)| *policy == best.policy)?;
        if let Some(last) = group.last_action {
            let passed = self.now.instant.since(last);
            if passed < policy.cooldown {
                let left = policy.cooldown.saturating_sub(passed).as_secs_f64();
                return Some(format!("{left:.0} s of the cool-down are left"));
            }
        }
        if self.actions_left() == 0 {
            return Some(format!("max_actions_per_hour is {}", self.site.max_actions_per_hour));
        }
        if wanted >= group.target {
            return None;
        }
        self.too_few_copies(name).or_else(|| self.would_flap(name, wanted))
    }

    /// A node whose sessions have too few copies: no node may leave before they have them (FT-20).
    fn too_few_copies(&self, name: &str) -> Option<String> {
        let serving = self.groups.get(name)?.serving();
        let short = serving
            .iter()
            .find(|node| self.store.last(node, Metric::CopiesMissing).is_some_and(|missing| missing > 0.0))?;
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
