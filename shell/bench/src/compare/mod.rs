//! Several brokers under the same load, in turn, so that what the machine does meanwhile meets all of them.

mod args;
mod process;
mod recipe;
mod running;
mod stats;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

pub(crate) use args::ContenderArgs;
pub(crate) use process::{Running, bound, search_path};
pub use process::{broker_address, broker_make, check_brokers, start_broker};
pub(crate) use recipe::{Recipe, load_clusters};
use running::Started;
pub(crate) use stats::Spread;

use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::metrics::MetricsUrl;
use crate::report::{Figures, Table, number};
use crate::run::{Options, run};
use crate::scenario::Scenario;

/// A broker to be compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Contender {
    /// Started for each run.
    Recipe(Recipe),
    /// Runs already.
    Running { name: String, endpoint: Endpoint, pid: Option<u32>, metrics: Option<MetricsUrl> },
}

impl Contender {
    /// From `NAME` of a recipe, or `NAME=ADDRESS` of a broker that runs, with `@PID` or `@METRICS_URL` behind.
    pub(crate) fn parse(text: &str, recipes: &[Recipe]) -> Result<Self, BenchError> {
        let Some((name, rest)) = text.split_once('=') else {
            let own = recipes.iter().find(|recipe| recipe.name == text).cloned();
            return own.map(Self::Recipe).ok_or_else(|| {
                let known: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
                BenchError::Usage(format!("no recipe {text}: there are {}; or give NAME=HOST:PORT", known.join(", ")))
            });
        };
        let (address, watched) =
            rest.rsplit_once('@').map_or((rest, None), |(address, watched)| (address, Some(watched)));
        let is_url = |watched: &&str| watched.contains("://");
        let metrics = watched.filter(is_url).map(str::parse).transpose().map_err(BenchError::Usage)?;
        let wrong = |_| BenchError::Usage(format!("{text}: neither a process number nor an http:// address behind @"));
        let pid = watched.filter(|watched| !is_url(watched)).map(str::parse).transpose().map_err(wrong)?;
        let endpoint = address.parse().map_err(BenchError::Usage)?;
        Ok(Self::Running { name: name.to_owned(), endpoint, pid, metrics })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Recipe(recipe) => &recipe.name,
            Self::Running { name, .. } => name,
        }
    }

    /// `scenario` with as long a warm-up as the broker needs at least.
    pub(crate) fn warmed(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        // A run of a given number of messages measures all of them.
        if let (Self::Recipe(recipe), None) = (self, scenario.messages) {
            scenario.warmup_s = scenario.warmup_s.max(recipe.warmup_s);
        }
        scenario
    }

    /// Version that the broker reports, if this process starts the broker.
    pub(crate) fn version(&self) -> Option<String> {
        match self {
            Self::Recipe(recipe) => recipe.version(),
            Self::Running { .. } => None,
        }
    }
}

/// How a comparison is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Ports from here on for brokers that are started.
    pub(crate) port: u16,
    /// Processors of these brokers, as `taskset` takes them.
    pub(crate) cpus: Option<String>,
    /// Where these brokers keep their files.
    pub(crate) folder: PathBuf,
}

/// A figure of one broker over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) name: &'static str,
    pub(crate) value: Option<Spread>,
    /// Ratio to the first broker, round by round.
    pub(crate) ratio: Option<Spread>,
}

/// One broker.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BrokerResult {
    pub(crate) name: String,
    /// Version that the broker reports.
    pub(crate) version: Option<String>,
    pub(crate) figures: Vec<Compared>,
    pub(crate) errors: Vec<String>,
    pub(crate) runs: Vec<Figures>,
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) scenario: String,
    pub(crate) machine: String,
    pub(crate) brokers: Vec<BrokerResult>,
}

/// A figure that is compared.
type Getter = fn(&Figures) -> Option<f64>;

const FIGURES: &[(&str, Getter)] = &[
    ("egress_per_s", |figures| Some(figures.egress_per_s)),
    ("egress_per_cpu_s", |figures| figures.egress_per_cpu_s),
    ("broker_rss_kib", |figures| figures.broker_rss_kib.map(crate::num::real)),
    ("latency_us.p50", |figures| (figures.latency_us.count > 0).then_some(figures.latency_us.p50)),
    ("latency_us.p99", |figures| (figures.latency_us.count > 0).then_some(figures.latency_us.p99)),
    ("latency_us.max", |figures| (figures.latency_us.count > 0).then_some(figures.latency_us.max)),
    ("loss_rate", |figures| Some(figures.loss_rate)),
    ("connect_per_s", |figures| Some(figures.connect_per_s)),
];

/// Compares `contenders` under `scenario`.
pub(crate) fn compare(
    scenario: &Scenario,
    contenders: &[Contender],
    options: &Options,
    plan: &Plan,
    note: &mut dyn FnMut(&str),
) -> Comparison {
    let mut runs: Vec<Vec<Option<Figures>>> = vec![Vec::new(); contenders.len()];
    let mut errors: Vec<Vec<String>> = vec![Vec::new(); contenders.len()];
    for (round, at) in turns(plan.rounds, contenders.len()) {
        let Some(contender) = contenders.get(at) else { continue };
        let name = contender.name();
        let scenario = contender.warmed(scenario);
        let measured = with_broker(contender, at, options, plan, |options| run(&scenario, options, &mut |_| ()));
        let figures = match measured.as_ref().map(Figures::from) {
            Ok(figures) => {
                note(&format!("round {}: {name}: {} per s", round + 1, number(figures.egress_per_s)));
                Some(figures)
            }
            Err(error) => {
                note(&format!("round {}: {name}: {error}", round + 1));
                if let Some(errors) = errors.get_mut(at) {
                    errors.push(error.to_string());
                }
                None
            }
        };
        if let Some(runs) = runs.get_mut(at) {
            runs.push(figures);
        }
    }
    let first = runs.first().cloned().unwrap_or_default();
    let brokers = contenders.iter().zip(runs).zip(errors).map(|((contender, runs), errors)| BrokerResult {
        name: contender.name().to_owned(),
        version: contender.version(),
        figures: FIGURES.iter().map(|(name, get)| compared(name, *get, &runs, &first)).collect(),
        errors,
        runs: runs.into_iter().flatten().collect(),
    });
    Comparison { scenario: scenario.name.clone(), machine: crate::host::machine(), brokers: brokers.collect() }
}

/// Order of the measurements: brokers take turns, another broker first in each round.
pub(crate) fn turns(rounds: usize, brokers: usize) -> impl Iterator<Item = (usize, usize)> {
    // The first broker of a round may find the machine in another state.
    (0..rounds).flat_map(move |round| (0..brokers).map(move |turn| (round, (round + turn) % brokers)))
}

/// Does `work` with the contender number `at`, which is started for it if it does not run already.
pub(crate) fn with_broker<T>(
    contender: &Contender,
    at: usize,
    options: &Options,
    plan: &Plan,
    work: impl FnOnce(&Options) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let mut options = options.clone();
    let mut running = match contender {
        Contender::Recipe(recipe) => {
            let port = plan.port.saturating_add(u16::try_from(at).unwrap_or(0));
            let running = Started::start(recipe, port, &plan.folder.join(&recipe.name), plan.cpus.as_deref())?;
            options.brokers = vec![format!("127.0.0.1:{port}").parse().map_err(BenchError::Usage)?];
            options.pids = vec![running.pid()];
            options.metrics = Vec::new();
            Some(running)
        }
        Contender::Running { endpoint, pid, metrics, .. } => {
            options.brokers = vec![endpoint.clone()];
            options.pids = pid.iter().copied().collect();
            options.metrics = metrics.iter().cloned().collect();
            None
        }
    };
    work(&options).map_err(|error| match &mut running {
        Some(running) => running.explain(contender.name(), error),
        None => error,
    })
}

fn compared(name: &'static str, get: Getter, runs: &[Option<Figures>], first: &[Option<Figures>]) -> Compared {
    let value = |run: &Option<Figures>| run.as_ref().and_then(get);
    let values: Vec<f64> = runs.iter().filter_map(value).collect();
    let pairs = runs.iter().zip(first).filter_map(|(own, other)| Some((value(own)?, value(other)?)));
    let ratios: Vec<f64> = pairs.filter(|(_, other)| *other > 0.0).map(|(own, other)| own / other).collect();
    Compared { name, value: Spread::of(&values), ratio: Spread::of(&ratios) }
}

impl Comparison {
    /// The comparison for people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        let names = FIGURES.iter().map(|(name, _)| (*name).to_owned());
        table.row(std::iter::once(self.scenario.clone()).chain(names));
        let cell = |spread: Option<Spread>| {
            spread.map_or_else(
                || "-".to_owned(),
                |spread| format!("{} ({}-{})", number(spread.median), number(spread.low), number(spread.high)),
            )
        };
        for broker in &self.brokers {
            let values = broker.figures.iter().map(|figure| cell(figure.value));
            table.row(std::iter::once(broker.name.clone()).chain(values));
            let ratios = broker.figures.iter().map(|figure| cell(figure.ratio));
            table.row(std::iter::once("  ratio to the first".to_owned()).chain(ratios));
        }
        let mut text = table.text();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}", self.machine);
        for (name, version) in self.brokers.iter().filter_map(|broker| Some((&broker.name, broker.version.as_ref()?))) {
            let _ = writeln!(text, "{name}: {version}");
        }
        if let Some(spread) = self.brokers.iter().flat_map(|broker| &broker.figures).find_map(|figure| figure.value) {
            let _ = writeln!(
                text,
                "\nmedians of {} runs; the true median is within the brackets with {} % certainty",
                spread.count, spread.certainty
            );
        }
        for broker in &self.brokers {
            let mut warnings: Vec<&String> = broker.runs.iter().flat_map(|run| &run.warnings).collect();
            warnings.sort();
            warnings.dedup();
            for warning in warnings.into_iter().chain(&broker.errors) {
                let _ = writeln!(text, "{}: {warning}", broker.name);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_recipes_or_addresses() {
        let recipes = Recipe::all(None).expect("recipes");
        let parse = |text: &str| Contender::parse(text, &recipes);
        assert_eq!(parse("mosquitto").expect("a recipe").name(), "mosquitto");
        let url: MetricsUrl = "http://h:8080".parse().expect("an address");
        for (text, process, page) in
            [("a=h:99", None, None), ("a=h:99@7", Some(7), None), ("a=h:99@http://h:8080", None, Some(url))]
        {
            let Contender::Running { name, endpoint, pid, metrics } = parse(text).expect("an address") else {
                panic!("not an address")
            };
            assert_eq!((name.as_str(), endpoint.to_string().as_str(), pid, metrics), ("a", "h:99", process, page));
        }
        for text in ["other", "a=", "a=h:1@x", "a=h:1@https://h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn brokers_that_need_it_get_a_longer_warm_up() {
        let recipes = Recipe::all(None).expect("recipes");
        let mut scenario = crate::scenario::named("pairs").expect("a scenario");
        let warmup = |name: &str, scenario: &Scenario| {
            Contender::parse(name, &recipes).expect("a recipe").warmed(scenario).warmup_s
        };
        assert!(warmup("hivemq", &scenario) > scenario.warmup_s + 1.0);
        assert!((warmup("mosquitto", &scenario) - scenario.warmup_s).abs() < 1e-12);
        scenario.messages = Some(5);
        assert!((warmup("hivemq", &scenario) - scenario.warmup_s).abs() < 1e-12);
    }

    #[test]
    fn everybody_is_first_in_turn() {
        let all: Vec<(usize, usize)> = turns(3, 2).collect();
        assert_eq!(all, [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(turns(3, 0).count(), 0);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let run = |egress: f64| {
            let outcome = crate::run::Outcome::empty(crate::scenario::named("pairs").expect("a scenario"));
            Some(Figures { egress_per_s: egress, ..Figures::from(&outcome) })
        };
        // The machine is three times as fast in the second round; the ratio does not notice.
        let first = [run(100.0), run(300.0), None];
        let second = [run(200.0), run(600.0), run(5.0)];
        let compared = compared("egress_per_s", |figures| Some(figures.egress_per_s), &second, &first);
        let ratio = compared.ratio.expect("a ratio");
        assert!((ratio.median - 2.0).abs() < 1e-12 && (ratio.low - 2.0).abs() < 1e-12 && ratio.count == 2);
    }
}
