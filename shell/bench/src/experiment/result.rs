//! Information on its origin that every result of an experiment holds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::cluster::NodeInfo;
use super::target::Target;
use crate::args::ReportArgs;
use crate::error::BenchError;
use crate::report::Figures;

/// Where a result comes from (rules for comparison: scenario, start value, versions, hardware).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Head {
    /// Name of the experiment.
    pub(crate) experiment: &'static str,
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) machine: String,
    /// Version of this program.
    pub(crate) version: &'static str,
    /// Name of the recipe; none for brokers that ran already.
    pub(crate) recipe: Option<String>,
    pub(crate) brokers: Vec<NodeInfo>,
    pub(crate) seed: u64,
    pub(crate) overlay: Option<String>,
    /// The network between the nodes.
    pub(crate) network: String,
}

impl Head {
    pub(crate) fn new(experiment: &'static str, target: &Target, brokers: Vec<NodeInfo>, seed: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            experiment,
            at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            machine: crate::host::machine(),
            version: env!("CARGO_PKG_VERSION"),
            recipe: target.recipe().map(ToOwned::to_owned),
            overlay: brokers.first().and_then(|broker| broker.overlay.clone()),
            brokers,
            seed,
            network: target.network(),
        }
    }

    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let recipe = self.recipe.as_deref().unwrap_or("brokers that ran already");
        let version = self.brokers.first().and_then(|broker| broker.version.clone()).unwrap_or_default();
        let overlay = self.overlay.as_ref().map(|overlay| format!(", overlay {overlay}")).unwrap_or_default();
        format!(
            "{}: {} x {recipe} {version}{overlay}, network {}, seed {}\n{}\n",
            self.experiment,
            self.brokers.len(),
            self.network,
            self.seed,
            self.machine
        )
    }
}

/// Comma-separated values: a line of names and one for each row.
pub(crate) fn csv<const N: usize>(names: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut text = names.join(",");
    for row in rows {
        text.push('\n');
        text.push_str(&row.join(","));
    }
    text.push('\n');
    text
}

/// Writes the files that `report` asks for.
pub(crate) fn write_files(
    report: &ReportArgs,
    csv: impl FnOnce() -> String,
    html: impl FnOnce() -> String,
) -> Result<(), BenchError> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|source| BenchError::File { path: path.to_owned(), source })
    };
    if let Some(path) = &report.csv {
        write(path, csv())?;
    }
    if let Some(path) = &report.html {
        write(path, html())?;
    }
    Ok(())
}

/// A value that may be missing, for a file.
pub(crate) fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Reasons to doubt the figures, each once.
pub(crate) fn warnings<'a>(runs: impl Iterator<Item = &'a Figures>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for warning in runs.flat_map(|run| &run.warnings) {
        *counts.entry(warning).or_default() += 1;
    }
    let mut text = String::new();
    for (warning, runs) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "warning ({runs} runs): {warning}");
    }
    text
}
