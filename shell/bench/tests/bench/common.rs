//! Runs commands as the program would.

use clap::Parser;
use sedge_bench::{BenchArgs, BenchError, run};
use serde_json::Value;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs a command; returns its report and its notes.
pub(crate) fn try_bench(words: &str) -> Result<(String, String), BenchError> {
    let cli = Cli::try_parse_from(std::iter::once("bench").chain(words.split_whitespace())).expect(words);
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    run(cli.bench, &mut out, &mut notes)?;
    Ok((String::from_utf8(out).expect("text"), String::from_utf8(notes).expect("text")))
}

/// The JSON that a command prints.
pub(crate) fn figures(words: &str) -> Value {
    let (text, _) = try_bench(&format!("{words} --json --quiet")).unwrap_or_else(|error| panic!("{words}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Counts by name.
pub(crate) fn counts<const N: usize>(figures: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| figures.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} in {figures}")))
}

/// The counts that say what a broker did with its messages.
pub(crate) const COUNTS: [&str; 5] = ["sent", "expected", "lost", "duplicates", "reordered"];
