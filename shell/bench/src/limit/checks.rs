//! Signs that a run measured the tester and not the brokers.

use crate::num;
use crate::run::Outcome;

/// Share of one core above which a driver thread is taken to be the limit.
const BUSY: f64 = 0.8;
/// Share of TCP segments sent again above which the network is.
const RETRANSMITTED: f64 = 0.01;

/// Signs that a run measured the tester and not the brokers, as sentences.
pub(crate) fn tester_limits(outcome: &Outcome) -> Vec<String> {
    let mut signs = Vec::new();
    let tally = &outcome.tally;
    if tally.driver_busy > BUSY {
        let percent = tally.driver_busy * 100.0;
        signs.push(format!("the load generator used {percent:.0} % of a core: give it more --threads"));
    }
    // In the open loop a publisher is late once its turn comes after the next one should have.
    let shortest = outcome.scenario.publishers.iter().filter(|group| !group.probe);
    let shortest = shortest.filter_map(|group| outcome.scenario.interval_of(group)).reduce(f64::min);
    if let Some(interval) = shortest {
        let lag = tally.lag.quantile(0.99);
        // Turns are multiples of 0.1 ms; an interval below that is no measure of lateness.
        if num::real(lag) > interval.max(1.0) * 1e6 {
            signs.push(format!("the load generator was late: {:.1} ms at p99", num::real(lag) / 1e6));
        }
    }
    if outcome.retransmitted > RETRANSMITTED {
        signs.push(format!("{:.1} % of TCP segments were sent again", outcome.retransmitted * 100.0));
    }
    signs
}
