//! The evaluator: compares the measurements of a period with a threshold (EL-13).

use core::fmt;

use sedge_base::{Duration, Instant};

use crate::site::{Alarm, Metric, Stat};
use crate::store::{Aggregate, Store};

/// State of an alarm's condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlarmState {
    /// A period has no sample: nothing is known of the condition, and nothing is done.
    #[default]
    InsufficientData,
    /// The condition does not hold.
    Ok,
    /// The condition holds.
    Alarm,
}

impl AlarmState {
    /// The state that is called `name`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::InsufficientData, Self::Ok, Self::Alarm].into_iter().find(|state| state.to_string() == name)
    }
}

impl fmt::Display for AlarmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InsufficientData => "insufficient data",
            Self::Ok => "ok",
            Self::Alarm => "alarm",
        })
    }
}

/// `back` before `at`, unless that is before the beginning.
fn before(at: Instant, back: Duration) -> Option<Instant> {
    let back = u64::try_from(back.as_nanos()).ok()?;
    at.as_nanos().checked_sub(back).map(Instant::from_nanos)
}

/// The measurement of a group from `from` on and before `to`: samples of all `nodes` that have some.
pub(crate) fn measure(
    store: &Store,
    nodes: &[String],
    metric: Metric,
    stat: Stat,
    from: Instant,
    to: Instant,
) -> Option<f64> {
    let parts: Vec<Aggregate> = nodes.iter().filter_map(|node| store.query(node, metric, from, to)).collect();
    let first = *parts.first()?;
    let whole = parts.iter().skip(1).fold(first, |whole, part| Aggregate {
        count: whole.count + part.count,
        sum: whole.sum + part.sum,
        min: whole.min.min(part.min),
        max: whole.max.max(part.max),
    });
    Some(match stat {
        Stat::Mean => whole.mean(),
        Stat::Min => whole.min,
        Stat::Max => whole.max,
        Stat::Sum => parts.iter().map(Aggregate::mean).sum(),
    })
}

/// The state of `alarm` at `end` and the measurement of its last period.
pub(crate) fn evaluate(alarm: &Alarm, store: &Store, nodes: &[String], end: Instant) -> (AlarmState, Option<f64>) {
    let mut newest = None;
    let mut holds = true;
    let mut to = end;
    for _ in 0..alarm.evaluations {
        let measured = before(to, alarm.period)
            .and_then(|from| measure(store, nodes, alarm.metric, alarm.stat, from, to).map(|value| (from, value)));
        let Some((from, value)) = measured else { return (AlarmState::InsufficientData, newest) };
        newest = newest.or(Some(value));
        holds &= alarm.op.holds(value, alarm.threshold);
        to = from;
    }
    (if holds { AlarmState::Alarm } else { AlarmState::Ok }, newest)
}

/// Whether the periods that an alarm looks at at `end` begin at `settled` or later.
pub(crate) fn looks_no_further_than(alarm: &Alarm, settled: Instant, end: Instant) -> bool {
    let span = alarm.period.saturating_mul(alarm.evaluations);
    before(end, span).is_some_and(|from| from >= settled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Op;

    fn alarm(evaluations: u32) -> Alarm {
        Alarm {
            metric: Metric::CpuUtil,
            of: "g".to_owned(),
            stat: Stat::Mean,
            period: Duration::from_secs(10),
            evaluations,
            op: Op::Greater,
            threshold: 80.0,
            action: None,
        }
    }

    fn state(store: &Store, evaluations: u32, second: u64) -> AlarmState {
        evaluate(&alarm(evaluations), store, &["a".to_owned(), "b".to_owned()], Instant::from_millis(second * 1_000)).0
    }

    /// EL-13
    #[test]
    fn an_alarm_holds_from_the_period_on_in_which_the_mean_is_beyond_the_threshold() {
        let mut store = Store::new(Duration::from_secs(1));
        for second in 0..60 {
            let load = if second < 20 { 50.0 } else { 90.0 };
            store.add("a", Metric::CpuUtil, Instant::from_millis(second * 1_000), load);
            store.add("b", Metric::CpuUtil, Instant::from_millis(second * 1_000 + 500), load + 5.0);
        }
        assert_eq!(state(&store, 1, 9), AlarmState::InsufficientData, "no period is over");
        assert_eq!(state(&store, 1, 20), AlarmState::Ok);
        assert_eq!(state(&store, 1, 30), AlarmState::Alarm);
        assert_eq!(state(&store, 3, 40), AlarmState::Ok, "one of three periods is below");
        assert_eq!(state(&store, 3, 50), AlarmState::Alarm);
        assert_eq!(state(&store, 1, 75), AlarmState::InsufficientData, "nobody has measured for a period");
    }
}
