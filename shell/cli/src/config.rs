//! `sedge config default` and `sedge config show`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use sedge_daemon::config::{Setting, default_file};
use sedge_daemon::{Config, Overrides};
use serde_json::{Value, json};

use crate::failure::{Failure, USAGE};
use crate::out;
use crate::serve::environment;

/// Widest line before which the place where a value comes from is aligned.
const ALIGNED_MAX: usize = 48;

const EXAMPLES: &str = "\
Examples:
  sedge config show -c /etc/sedge/sedge.toml            every key, with file and line, variable, or \"default\"
  sedge config show -c /etc/sedge/sedge.toml --set      only what somebody has set
  sedge config show --json | jq '.[] | select(.key == \"mqtt.port\")'";

/// Flags of `sedge config show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Configuration file (TOML); without it only the environment and the defaults are shown
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave out what is at its default
    #[arg(long)]
    set: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `sedge config show`.
pub(crate) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let settings = Config::explain(args.config.as_deref(), environment(), &Overrides::new())
        .map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let wanted = |setting: &&Setting| !args.set || setting.source != sedge_daemon::config::Source::Default;
    let settings: Vec<&Setting> = settings.iter().filter(wanted).collect();
    if args.json {
        return out::json(&settings.into_iter().map(as_json).collect::<Vec<_>>());
    }
    out::line(as_toml(&settings).trim_end())
}

/// Runs `sedge config default`.
pub(crate) fn default() -> Result<(), Failure> {
    out::line(default_file().trim_end())
}

fn as_json(setting: &Setting) -> Value {
    let value: Option<Value> = setting.value.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let words = setting.value.is_none().then_some(&setting.words);
    json!({ "key": setting.key, "value": value, "words": words, "from": setting.source.to_string() })
}

/// A file that means the same, each line with where its value comes from.
fn as_toml(settings: &[&Setting]) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for setting in settings {
        let named = ["listener.", "bridge.", "rule."].iter().any(|prefix| setting.key.starts_with(prefix));
        let dots = setting.key.match_indices('.').nth(usize::from(named));
        let (section, key) = dots.map_or((setting.key.as_str(), ""), |(at, _)| setting.key.split_at(at));
        let key = key.trim_start_matches('.');
        if section != last {
            section.clone_into(&mut last);
            let comment = if key.is_empty() { "# " } else { "" };
            let _ = write!(text, "\n{comment}[{section}]\n");
        }
        let line = setting.value.as_ref().map_or_else(
            || if key.is_empty() { format!("# {}", setting.words) } else { format!("# {key}: {}", setting.words) },
            |value| format!("{key} = {value}"),
        );
        let _ = writeln!(text, "{line:ALIGNED_MAX$}  # {}", setting.source);
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use sedge_daemon::config::{Origin, Source};

    use super::*;

    #[test]
    fn sections_are_told_apart() {
        let setting = |key: &str, value: Option<&str>| Setting {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            words: "none".to_owned(),
            source: Source::Given(Origin::Flag("--x".to_owned())),
        };
        let all = [
            setting("mqtt.port", Some("1")),
            setting("bridge.up.buffer.max_bytes", Some("2")),
            setting("mqtt.bind", None),
            setting("rule.hot", None),
        ];
        let text = as_toml(&all.iter().collect::<Vec<_>>());
        let lines: Vec<&str> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
        let wanted = [
            "[mqtt]",
            "port = 1",
            "",
            "[bridge.up]",
            "buffer.max_bytes = 2",
            "",
            "[mqtt]",
            "# bind: none",
            "",
            "# [rule.hot]",
            "# none",
        ];
        assert_eq!(lines, wanted);
        assert!(text.contains("port = 1") && text.contains("  # --x\n"));
    }
}
