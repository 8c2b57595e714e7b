//! Strategies: how many nodes a policy wants. Pure functions of measurements.

use sedge_base::Timestamp;

use crate::site::{Alarm, Named, Op, Policy, Strategy, Target};

/// Most deviation from a target without an action, as a share of the target.
pub(crate) const TOLERANCE: f64 = 0.1;

/// Number of nodes that a policy wants, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opinion {
    pub(crate) policy: String,
    pub(crate) nodes: u32,
    pub(crate) reason: String,
}

/// Facts on which a policy decides: measurements, alarms and the time.
pub(crate) struct Facts<'a> {
    /// Nodes of the group.
    pub(crate) nodes: u32,
    /// Alarms that hold and name the policy: name, alarm, measurement.
    pub(crate) alarms: Vec<(&'a str, &'a Alarm, f64)>,
    /// Mean over the nodes of the metric that the policy tracks, if it tracks one and that was measured.
    pub(crate) tracked: Option<f64>,
    /// Sum over the group that is expected from earlier days.
    pub(crate) expected: Option<f64>,
    /// Wall-clock time, for schedules.
    pub(crate) wall: Timestamp,
}

/// The opinion of the policy called `name`, if it has one.
pub(crate) fn opinion(name: &str, policy: &Policy, facts: &Facts<'_>) -> Option<Opinion> {
    let (nodes, reason) = match &policy.strategy {
        Strategy::Adjust(adjust) => {
            let (alarm, spec, value) = facts.alarms.first()?;
            (changed(facts.nodes, *adjust), because(alarm, spec, *value))
        }
        Strategy::Step(steps) => {
            let (alarm, spec, value) = facts.alarms.first()?;
            (changed(facts.nodes, step(steps, spec.op, *value)?), because(alarm, spec, *value))
        }
        Strategy::Target(target) => tracking(target, facts)?,
        Strategy::Schedule(times) => {
            let (minute, nodes) = scheduled(times, facts.wall)?;
            (nodes, format!("the schedule says {nodes} from {:02}:{:02} UTC on", minute / 60, minute % 60))
        }
        Strategy::Forecast(target) => forecast(target, facts)?,
        // A resize policy changes the size of the nodes, not their number.
        Strategy::Resize(_) => return None,
    };
    Some(Opinion { policy: name.to_owned(), nodes, reason: format!("{reason} (policy {name})") })
}

fn changed(nodes: u32, adjust: i32) -> u32 {
    nodes.saturating_add_signed(adjust)
}

pub(crate) fn because(name: &str, alarm: &Alarm, value: f64) -> String {
    let (metric, stat, op, threshold) = (alarm.metric.name(), alarm.stat.name(), alarm.op.name(), alarm.threshold);
    let seconds = alarm.period.saturating_mul(alarm.evaluations).as_secs_f64();
    format!("{stat} {metric} {value:.1} {op} {threshold} for {seconds} s (alarm {name})")
}

/// The adjustment of the furthest bound that `value` has passed.
fn step(steps: &[(f64, i32)], op: Op, value: f64) -> Option<i32> {
    match op {
        Op::Greater | Op::GreaterOrEqual => steps.iter().rev().find(|(bound, _)| value > *bound),
        Op::Less | Op::LessOrEqual => steps.iter().find(|(bound, _)| value < *bound),
    }
    .map(|(_, adjust)| *adjust)
}

fn tracking(target: &Target, facts: &Facts<'_>) -> Option<(u32, String)> {
    let mean = facts.tracked?;
    let ratio = mean / target.value;
    let nodes = if (ratio - 1.0).abs() <= TOLERANCE {
        facts.nodes
    } else {
        enough(mean * f64::from(facts.nodes), target.value)
    };
    Some((nodes, format!("mean {} {mean:.1}, target {}", target.metric, target.value)))
}

fn forecast(target: &Target, facts: &Facts<'_>) -> Option<(u32, String)> {
    let expected = facts.expected?;
    let ahead = enough(expected, target.value);
    let now = facts.tracked.map_or(0, |mean| enough(mean * f64::from(facts.nodes), target.value));
    Some((
        ahead.max(now),
        format!("{} of all nodes is expected to reach {expected:.1}, target {} each", target.metric, target.value),
    ))
}

/// Nodes so that each has at most `each` of `sum`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn enough(sum: f64, each: f64) -> u32 {
    (sum / each).ceil().clamp(1.0, 1_000_000.0) as u32
}

/// The entry of the schedule that holds at `wall`: the latest of today, or else the last of yesterday.
fn scheduled(times: &[(u16, u32)], wall: Timestamp) -> Option<(u16, u32)> {
    let minute = u16::try_from(wall.as_millis() / 60_000 % 1_440).unwrap_or(0);
    times.iter().rev().find(|(from, _)| *from <= minute).or_else(|| times.last()).copied()
}

#[cfg(test)]
mod tests {
    use sedge_base::Duration;

    use super::*;
    use crate::site::Metric;

    fn facts(nodes: u32, tracked: Option<f64>, expected: Option<f64>, minute: u64) -> Facts<'static> {
        Facts { nodes, alarms: Vec::new(), tracked, expected, wall: Timestamp::from_millis(minute * 60_000) }
    }

    fn wants(strategy: Strategy, facts: &Facts<'_>) -> Option<u32> {
        let policy = Policy { group: "g".to_owned(), cooldown: Duration::ZERO, strategy };
        opinion("p", &policy, facts).map(|opinion| opinion.nodes)
    }

    fn target(value: f64) -> Target {
        Target { metric: Metric::Connections, value, period: Duration::from_secs(1) }
    }

    #[test]
    fn target_tracking_wants_as_many_as_bring_the_mean_to_the_target() {
        let wanted = |nodes, mean| wants(Strategy::Target(target(100.0)), &facts(nodes, Some(mean), None, 0));
        assert_eq!(wanted(2, 105.0), Some(2), "within the tolerance");
        assert_eq!((wanted(2, 160.0), wanted(1, 420.0), wanted(4, 20.0)), (Some(4), Some(5), Some(1)));
        assert_eq!(wants(Strategy::Target(target(100.0)), &facts(2, None, None, 0)), None);
    }

    #[test]
    fn a_schedule_holds_until_its_next_entry_over_midnight() {
        let at = |minute| wants(Strategy::Schedule(vec![(8 * 60, 3), (18 * 60, 1)]), &facts(1, None, None, minute));
        assert_eq!(
            (at(0), at(8 * 60), at(17 * 60 + 59), at(18 * 60), at(1_440 + 60)),
            (Some(1), Some(3), Some(3), Some(1), Some(1))
        );
    }

    #[test]
    fn a_forecast_takes_the_larger_of_yesterday_and_now() {
        let wanted = |mean, expected| wants(Strategy::Forecast(target(100.0)), &facts(1, mean, expected, 0));
        assert_eq!(
            (wanted(Some(10.0), Some(350.0)), wanted(Some(620.0), Some(350.0)), wanted(None, None)),
            (Some(4), Some(7), None)
        );
    }

    #[test]
    fn a_step_is_chosen_by_the_furthest_bound_passed() {
        let up = [(80.0, 1), (95.0, 2)];
        assert_eq!([70.0, 90.0, 99.0].map(|value| step(&up, Op::Greater, value)), [None, Some(1), Some(2)]);
        let down = [(10.0, -2), (25.0, -1)];
        assert_eq!([5.0, 20.0, 30.0].map(|value| step(&down, Op::Less, value)), [Some(-2), Some(-1), None]);
    }
}
