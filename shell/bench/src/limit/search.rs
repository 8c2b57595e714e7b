//! The search itself, over any function that says whether a load is under the limit.

/// Longest interval that is tried, in ms.
const LONGEST: f64 = 3_600_000.0;
/// Shortest interval that is tried, in ms.
const SHORTEST: f64 = 1e-6;
/// Steps between half the first interval that passes and that interval.
const STEPS: u32 = 20;
/// Rounds of confirmation before a limit that moves with the noise is taken as it is.
const ROUNDS: usize = 8;

/// Verdict of one measurement on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Under the limit: messages do not pile up.
    Pass,
    /// Above the limit.
    Fail,
    /// The tester was the limit: the measurement says nothing about the broker.
    Rejected,
}

/// The limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// Smallest interval that passes, in ms.
    pub(crate) best: f64,
    /// The next smaller interval that was tried fails.
    pub(crate) below: f64,
    /// Both were confirmed by a majority.
    pub(crate) confirmed: bool,
    /// The tester, not the broker, kept the search from going further.
    pub(crate) tester_bound: bool,
}

impl Limit {
    /// By what factor the true limit may exceed the one found; at most 1.05.
    pub(crate) fn bound(&self) -> f64 {
        crate::num::ratio(self.best, self.below)
    }
}

/// Finds the smallest interval at which `measure` passes, assuming that all longer ones do: doubling (or halving) from
/// `start` ms, then bisection of twenty steps, then `repeat` measurements at both sides of the limit whose majority counts.
/// None if nothing passes.
pub(crate) fn search<E>(
    start: f64,
    repeat: usize,
    measure: impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<Option<Limit>, E> {
    let mut search = Search { measure, repeat: repeat.max(1), tester_bound: false };
    let Some(x) = search.bracket(start)? else { return Ok(None) };
    search.refine(x).map(Some)
}

struct Search<M> {
    measure: M,
    repeat: usize,
    tester_bound: bool,
}

impl<E, M: FnMut(f64) -> Result<Verdict, E>> Search<M> {
    /// One measurement, repeated if the tester was the limit. If it stays so that counts as a failure, and is kept in mind.
    fn passes(&mut self, interval: f64) -> Result<bool, E> {
        for _ in 0..2 {
            match (self.measure)(interval)? {
                Verdict::Pass => return Ok(true),
                Verdict::Fail => return Ok(false),
                Verdict::Rejected => {}
            }
        }
        self.tester_bound = true;
        Ok(false)
    }

    /// The first interval that passes, of which the half fails.
    fn bracket(&mut self, start: f64) -> Result<Option<f64>, E> {
        let mut interval = start;
        if self.passes(interval)? {
            while interval / 2.0 > SHORTEST && self.passes(interval / 2.0)? {
                interval /= 2.0;
            }
            return Ok(Some(interval));
        }
        loop {
            interval *= 2.0;
            if interval > LONGEST {
                return Ok(None);
            }
            // The tester may be able to generate the lower load of the longer interval.
            self.tester_bound = false;
            if self.passes(interval)? {
                return Ok(Some(interval));
            }
        }
    }

    fn refine(&mut self, x: f64) -> Result<Limit, E> {
        let at = |step: u32| x / 2.0 + f64::from(step) * x / (2.0 * f64::from(STEPS));
        let (mut fails, mut passes) = (0, STEPS);
        while passes - fails > 1 {
            let middle = fails.midpoint(passes);
            if self.passes(at(middle))? {
                passes = middle;
            } else {
                fails = middle;
            }
        }
        let mut confirmed = false;
        for _ in 0..ROUNDS {
            if !self.majority(at(passes))? && passes < STEPS {
                passes += 1;
            } else if passes > 1 && self.majority(at(passes - 1))? {
                passes -= 1;
            } else {
                confirmed = true;
                break;
            }
        }
        Ok(Limit { best: at(passes), below: at(passes - 1), confirmed, tester_bound: self.tester_bound })
    }

    /// Whether `interval` passes more often than not.
    fn majority(&mut self, interval: f64) -> Result<bool, E> {
        let (mut passed, mut failed) = (0, 0);
        while passed * 2 <= self.repeat && failed * 2 <= self.repeat && passed + failed < self.repeat {
            if self.passes(interval)? { passed += 1 } else { failed += 1 }
        }
        Ok(passed > failed)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sedge_base::Rng;

    use super::*;

    /// A limit anywhere between a µs and ten seconds, as an interval in ms.
    fn random_limit(rng: &mut Rng) -> f64 {
        let exponent = crate::num::real(rng.below(7_000)) / 1_000.0 - 3.0;
        10f64.powf(exponent)
    }

    #[test]
    fn any_capacity_is_found_within_five_percent() {
        let mut rng = Rng::new(2026);
        for _ in 0..1_000 {
            let truth = random_limit(&mut rng);
            let mut runs = 0;
            let found = search(1.0, 3, |interval| {
                runs += 1;
                Ok::<_, Infallible>(if interval >= truth { Verdict::Pass } else { Verdict::Fail })
            });
            let limit = found.expect("no error").expect("a limit");
            assert!(limit.best >= truth && limit.best <= truth * 1.05 * (1.0 + 1e-9), "{truth} {limit:?}");
            assert!(limit.bound() <= 1.05 + 1e-9 && limit.confirmed && !limit.tester_bound);
            assert!(runs < 35, "{runs} runs");
        }
    }

    #[test]
    fn noise_near_the_limit_moves_it_little() {
        let mut rng = Rng::new(7);
        for _ in 0..100 {
            let truth = random_limit(&mut rng);
            let mut noise = rng.split(1);
            let found = search(1.0, 5, |interval| {
                // One measurement in ten is wrong within 3 % of the limit.
                let near = (interval / truth - 1.0).abs() < 0.03;
                let wrong = near && noise.chance(1, 10);
                Ok::<_, Infallible>(if (interval >= truth) == wrong { Verdict::Fail } else { Verdict::Pass })
            });
            let limit = found.expect("no error").expect("a limit");
            assert!((0.96..1.09).contains(&(limit.best / truth)), "{truth} {limit:?}");
        }
    }

    #[test]
    fn a_tester_that_is_the_limit_is_told() {
        // The broker could do 1 ms, the tester only 10.
        let found = search(1.0, 3, |interval| {
            Ok::<_, Infallible>(if interval >= 10.0 { Verdict::Pass } else { Verdict::Rejected })
        });
        let limit = found.expect("no error").expect("a limit");
        assert!(limit.tester_bound && limit.best >= 10.0 && limit.best < 10.5);
    }

    #[test]
    fn a_broker_that_never_passes_and_errors_end_the_search() {
        let never = search(1.0, 3, |_| Ok::<_, Infallible>(Verdict::Fail));
        assert_eq!(never, Ok(None));
        assert_eq!(search(1.0, 3, |_| Err::<Verdict, _>("gone")), Err("gone"));
    }
}
