//! The limit search: the highest load at which messages do not pile up in the brokers.

mod checks;
mod search;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

pub(crate) use checks::tester_limits;
use search::{Limit, Verdict, search};

use crate::error::BenchError;
use crate::host;
use crate::num;
use crate::report::{Figures, Table, number};
use crate::run::{Options, Outcome, run};
use crate::scenario::Scenario;

/// Time between two looks at brokers that were overloaded; all there is if their processes are not known.
const SETTLE: Duration = Duration::from_secs(1);
/// Most looks at them.
const SETTLE_LOOKS: usize = 60;
/// Share of a core below which they have nothing left to do.
const IDLE: f64 = 0.05;

/// Share of the expected deliveries that has to arrive for a load to be under the limit.
const SHARE: f64 = 0.99;

/// One measurement of the search.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    pub(crate) interval_ms: f64,
    pub(crate) verdict: &'static str,
    /// `egress / (ingress * sp-ratio)`.
    pub(crate) share: f64,
    pub(crate) ingress_per_s: f64,
    pub(crate) egress_per_s: f64,
    tester: Vec<String>,
}

/// Result of the search for the limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitReport {
    /// Smallest interval of a publisher that is under the limit; none if no load is under it.
    pub(crate) interval_ms: Option<f64>,
    /// The true limit exceeds the one found by at most this factor.
    bound: Option<f64>,
    /// A majority of repeated runs confirmed the limit.
    confirmed: bool,
    /// The load generator kept the search from going further: the broker may do more.
    pub(crate) tester_bound: bool,
    /// Of the best run at that interval.
    pub(crate) figures: Option<Figures>,
    pub(crate) trials: Vec<Trial>,
}

/// Judges the load of a run by its outcome.
fn judge(outcome: &Outcome, signs: &[String]) -> (Verdict, f64) {
    let tally = &outcome.tally;
    let wanted = num::real(tally.sent) * outcome.sp_ratio;
    let share = num::ratio(num::real(tally.received), wanted);
    // A broker that takes less than it is offered holds the publishers up by TCP: nothing piles up in it, but the load is
    // above its limit all the same.
    let offered = outcome.nominal_rate.unwrap_or(0.0) * outcome.measure_s;
    let taken = num::real(tally.sent) >= SHARE * offered;
    let verdict = match (share >= SHARE && taken, signs.is_empty()) {
        (true, _) => Verdict::Pass,
        (false, true) => Verdict::Fail,
        (false, false) => Verdict::Rejected,
    };
    (verdict, share)
}

/// Searches the limit of the brokers under `scenario`, from an interval of `start` ms on.
pub(crate) fn limit(
    scenario: &Scenario,
    options: &Options,
    (start, repeat): (f64, usize),
    note: &mut dyn FnMut(&str),
) -> Result<LimitReport, BenchError> {
    let mut trials = Vec::new();
    let mut best: Option<(f64, Outcome)> = None;
    let found: Option<Limit> = search(start, repeat, |interval| {
        let mut scenario = scenario.clone();
        scenario.set_interval(interval);
        let outcome = run(&scenario, options, &mut |_| ())?;
        let signs = tester_limits(&outcome);
        let (verdict, share) = judge(&outcome, &signs);
        let trial = trial(interval, verdict, share, &outcome, signs);
        note(&format!(
            "{} ms: {}, {} of what should come out does, {} per s",
            number(interval),
            trial.verdict,
            number(share),
            number(trial.egress_per_s)
        ));
        trials.push(trial);
        if verdict != Verdict::Pass {
            settle(&options.pids);
        }
        if verdict == Verdict::Pass && best.as_ref().is_none_or(|(known, _)| interval <= *known) {
            best = Some((interval, outcome));
        }
        Ok::<_, BenchError>(verdict)
    })?;
    // A run that passed by luck below the limit does not speak for it.
    let figures =
        found.and_then(|limit| best.filter(|(interval, _)| (interval - limit.best).abs() < limit.best * 1e-9));
    Ok(LimitReport {
        interval_ms: found.map(|limit| limit.best),
        bound: found.map(|limit| limit.bound()),
        confirmed: found.is_some_and(|limit| limit.confirmed),
        tester_bound: found.is_some_and(|limit| limit.tester_bound),
        figures: figures.map(|(_, outcome)| Figures::from(&outcome)),
        trials,
    })
}

/// Waits until the brokers have worked off what an overload left behind: they would go on with it in the next run.
pub(crate) fn settle(pids: &[u32]) {
    let mut before = host::usage(pids);
    for _ in 0..SETTLE_LOOKS {
        std::thread::sleep(SETTLE);
        let now = host::usage(pids);
        let Some(used) = now.zip(before).map(|(now, before)| now.cpu_s - before.cpu_s) else { return };
        if used < IDLE * SETTLE.as_secs_f64() {
            return;
        }
        before = now;
    }
}

fn trial(interval_ms: f64, verdict: Verdict, share: f64, outcome: &Outcome, tester: Vec<String>) -> Trial {
    let per_s = |count: u64| num::ratio(num::real(count), outcome.measure_s);
    Trial {
        interval_ms,
        verdict: match verdict {
            Verdict::Pass => "under",
            Verdict::Fail => "above",
            Verdict::Rejected => "rejected",
        },
        share,
        ingress_per_s: per_s(outcome.tally.sent),
        egress_per_s: per_s(outcome.tally.received),
        tester,
    }
}

impl LimitReport {
    /// The search for people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        table.row(["interval, ms", "", "share", "ingress per s", "egress per s"]);
        for trial in &self.trials {
            table.row([
                number(trial.interval_ms),
                trial.verdict.to_owned(),
                number(trial.share),
                number(trial.ingress_per_s),
                number(trial.egress_per_s),
            ]);
        }
        let mut text = table.text();
        let Some(interval) = self.interval_ms else { return text + "\nno load is under the limit\n" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\nlimit: one message every {} ms per publisher, at most {} % below the true limit{}",
            number(interval),
            number((self.bound.unwrap_or(1.0) - 1.0) * 100.0),
            if self.confirmed { "" } else { " (not confirmed: the machine is too noisy)" }
        );
        if self.tester_bound {
            text.push_str("the load generator was the limit: the brokers may do more\n");
        }
        if let Some(figures) = &self.figures {
            text.push('\n');
            text.push_str(&crate::report::table(figures));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::scenario::named;

    fn outcome(sent: u64, received: u64) -> Outcome {
        let mut scenario = named("limit").expect("a scenario");
        scenario.set_total_rate(1_000.0).expect("a rate");
        let tally = Tally { sent, received, ..Tally::default() };
        Outcome { measure_s: 10.0, sp_ratio: 10.0, nominal_rate: Some(1_000.0), tally, ..Outcome::empty(scenario) }
    }

    #[test]
    fn a_load_is_under_the_limit_if_all_but_a_hundredth_comes_out() {
        let verdict = |sent, received, signs: &[String]| judge(&outcome(sent, received), signs).0;
        let busy = ["busy".to_owned()];
        assert_eq!(verdict(10_000, 99_000, &[]), Verdict::Pass);
        assert_eq!(verdict(10_000, 98_990, &[]), Verdict::Fail);
        assert_eq!(verdict(10_000, 98_990, &busy), Verdict::Rejected);
        assert_eq!(verdict(10_000, 100_000, &busy), Verdict::Pass, "what got through got through");
        assert_eq!(verdict(9_800, 98_000, &[]), Verdict::Fail, "the broker holds publishers up");
    }

    #[test]
    fn a_throttled_tester_is_noticed() {
        let sound = outcome(10_000, 100_000);
        assert_eq!(tester_limits(&sound), Vec::<String>::new());
        let mut busy = sound.clone();
        busy.tally.driver_busy = 0.93;
        assert_eq!(tester_limits(&busy).len(), 1);
        let mut late = sound.clone();
        late.tally.lag.record(60_000_000);
        assert_eq!(tester_limits(&late).len(), 1);
        let lossy = Outcome { retransmitted: 0.1, ..sound };
        assert_eq!(tester_limits(&lossy).len(), 1);
    }
}
