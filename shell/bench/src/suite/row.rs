//! The loads of a suite.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::args::LoadArgs;
use crate::error::BenchError;
use crate::scenario::Scenario;

/// The suite that is there.
pub(super) const BUILT_IN: &str = include_str!("suite.toml");

/// Figures of a load that go into the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// Deliveries per second of the broker's processor time.
    #[default]
    Work,
    /// Deliveries per second of the broker's processor time, and quantiles of the latency.
    Latency,
    /// Work at the highest load at which messages do not pile up.
    Limit,
    /// Resident memory per connection.
    Memory,
}

/// How a limit is searched.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Search {
    /// First interval of a publisher in ms.
    pub(super) start_ms: f64,
    /// Measurements at both sides of the limit.
    pub(super) repeat: usize,
}

impl Default for Search {
    fn default() -> Self {
        Self { start_ms: 1.0, repeat: 3 }
    }
}

/// A load as the file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    scenario: String,
    #[serde(default)]
    measure: Measure,
    #[serde(default)]
    load: LoadArgs,
    #[serde(default)]
    search: Search,
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) measure: Measure,
    pub(super) scenario: Scenario,
    pub(super) search: Search,
}

/// The loads of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    row: Vec<Written>,
}

/// Loads of the file at `path`, or those that are there. What they do not say themselves is as in `defaults`.
pub(super) fn rows(path: Option<&Path>, defaults: &LoadArgs) -> Result<Vec<Row>, BenchError> {
    let path = path.map(Path::to_owned);
    let text = match &path {
        Some(path) => {
            &std::fs::read_to_string(path).map_err(|source| BenchError::File { path: path.clone(), source })?
        }
        None => BUILT_IN,
    };
    let path = path.unwrap_or_else(|| "built-in suite".into());
    let file: File =
        toml::from_str(text).map_err(|source| BenchError::Toml { path: path.clone(), source: Box::new(source) })?;
    let mut rows: Vec<Row> = Vec::new();
    for written in file.row {
        let wrong = |text: String| BenchError::Usage(format!("{}: row {}: {text}", path.display(), written.name));
        if rows.iter().any(|row| row.name == written.name) {
            return Err(wrong("there are two of this name".to_owned()));
        }
        if !(written.search.start_ms.is_finite() && written.search.start_ms > 0.0) {
            return Err(wrong("search.start-ms has to be above 0".to_owned()));
        }
        let mut load = written.load;
        load.duration = load.duration.or(defaults.duration);
        load.warmup = load.warmup.or(defaults.warmup);
        load.drain = load.drain.or(defaults.drain);
        load.protocol = load.protocol.or(defaults.protocol);
        let mut scenario = load.scenario(&written.scenario).map_err(|error| wrong(error.to_string()))?;
        if written.measure == Measure::Limit {
            // A given number of messages would let slow intervals last for ever.
            scenario.messages = None;
        }
        rows.push(Row { name: written.name, measure: written.measure, scenario, search: written.search });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_that_is_there_can_be_read_and_takes_what_it_does_not_say() {
        let defaults = LoadArgs { duration: Some(2.5), ..LoadArgs::default() };
        let rows = rows(None, &defaults).expect("rows");
        assert_eq!(rows.len(), 11);
        for row in rows {
            let own = if row.measure == Measure::Limit { 1.0 } else { 2.5 };
            assert!((row.scenario.measure_s - own).abs() < 1e-9, "{}", row.name);
        }
    }

    #[test]
    fn what_a_file_says_wrong_is_told_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own.toml");
        for (text, part) in [
            ("[[row]]\nname = \"a\"\nscenario = \"nothing\"\n", "row a: no scenario nothing"),
            ("[[row]]\nname = \"a\"\nscenario = \"pairs\"\nload = { qos = 3 }\n", "quality of service"),
            ("[[row]]\nname = \"a\"\nscenario = \"pairs\"\nload = { speed = 3 }\n", "unknown field `speed`"),
            ("[[row]]\nname = \"a\"\nscenario = \"limit\"\nsearch = { start-ms = 0 }\n", "start-ms"),
            ("[[row]]\nname = \"a\"\nscenario = \"idle\"\n[[row]]\nname = \"a\"\nscenario = \"idle\"\n", "two"),
        ] {
            std::fs::write(&path, text).expect("a file");
            let error = rows(Some(&path), &LoadArgs::default()).expect_err(text).to_string();
            assert!(error.contains(part) && error.contains("own.toml"), "{error}");
        }
    }
}
