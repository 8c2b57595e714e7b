//! The log: one line an event on standard error, whatever a client has put into its names.

mod level;
mod lines;

use std::fmt::{self, Debug, Write as _};
use std::io;
use std::sync::Arc;

use sedge_base::{Printable, printable_json};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::SubscriberInitExt as _;

pub(crate) use self::level::{Level, configure, level, set_level};
pub(crate) use self::lines::{LineStats, Start, lines, stats as line_stats};
use crate::Config;
use crate::config::LogFormat;
use crate::daemon::node_name;

/// Most bytes of a level with all of its directives.
const LEVEL_BYTES_MAX: usize = 1024;

/// Writes the log to standard error from now on, as `config` says. Does nothing when a log is set up already.
pub fn init_logging(config: &Config) {
    let log = &config.log;
    let filter = parse_level(&log.level).unwrap_or_default();
    // A log on a full disk would otherwise be told so on standard error, which is the same disk, and end the process.
    let builder = tracing_subscriber::fmt().log_internal_errors(false);
    let builder = builder.with_writer(|| TextLines).with_env_filter(filter).with_target(false);
    // A second daemon in the same process (tests, `sedge up`) finds the log of the first one, which is fine.
    match log.format {
        LogFormat::Text => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            let builder = builder.with_ansi(colours).fmt_fields(debug_fn(write_field).delimited(" "));
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.finish().try_init().is_ok() {
                level::keep(&log.level, move |filter| handle.reload(filter).is_ok());
            }
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
            let origin = origin(&node_name(config), &config.cluster.name);
            let builder = builder.with_writer(move || JsonLines(Arc::clone(&origin))).with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.finish().try_init().is_ok() {
                level::keep(&log.level, move |filter| handle.reload(filter).is_ok());
            }
        }
    }
}

/// Origin of each line of JSON: names of the node and the cluster. Fields of events have other names: `node` is often another node.
fn origin(node: &str, cluster: &str) -> Arc<str> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!("\"node_name\":{},\"cluster_name\":{},", quoted(node), quoted(cluster)).into()
}

/// One field of an event as text. All that the log says passes here.
fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        let (name, equals) = if out.has_ansi_escapes() { ("\x1b[3m", "\x1b[0m\x1b[2m=\x1b[0m") } else { ("", "=") };
        write!(out, "{name}{field}{equals}")?;
    }
    write!(Printable(out), "{value:?}")
}

/// Standard error for lines of text. Each event comes in one piece.
struct TextLines;

impl io::Write for TextLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        lines::keep(&String::from_utf8_lossy(event));
        io::stderr().lock().write_all(event)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Standard error for lines of JSON that say where they come from. Each event comes in one piece.
struct JsonLines(Arc<str>);

impl JsonLines {
    /// A line as it is written.
    fn line(&self, event: &[u8]) -> String {
        match std::str::from_utf8(event) {
            Ok(text) => match text.strip_prefix('{') {
                Some(rest) => printable_json(&format!("{{{}{rest}", self.0)).into_owned(),
                None => printable_json(text).into_owned(),
            },
            Err(_) => event.escape_ascii().to_string(),
        }
    }
}

impl io::Write for JsonLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = self.line(event);
        lines::keep(&line);
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Has the log say why a thread dies, in the log's own form. No log shipper can read the output of the default hook.
pub(crate) fn log_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return default(panic);
        }
        let thread = std::thread::current();
        let what = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(tracing::field::display);
        tracing::error!(thread = thread.name(), what, place, "a defect: the process ends");
    }));
}

/// `info`, or directives as `tracing` knows them.
pub(crate) fn parse_level(text: &str) -> Result<EnvFilter, String> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    if text.len() > LEVEL_BYTES_MAX {
        return Err(format!("is longer than {LEVEL_BYTES_MAX} bytes"));
    }
    let plain = text.chars().all(char::is_alphanumeric);
    if plain && !levels.contains(&text.to_ascii_lowercase().as_str()) {
        return Err(format!("{text:?} is not one of {}", levels.join(", ")));
    }
    EnvFilter::try_new(text).map_err(|error| format!("{text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives() {
        for good in ["info", "WARN", "off", "info,sedge_daemon=debug"] {
            assert!(parse_level(good).is_ok(), "{good}");
        }
        for bad in ["", "loud", "sedge_daemon=loud"] {
            assert!(parse_level(bad).is_err(), "{bad}");
        }
    }
    #[test]
    fn a_level_has_a_bound() {
        assert!(parse_level(&"info,".repeat(300)).unwrap_err().contains("1024"));
    }

    /// OP-09
    #[test]
    fn a_line_of_json_names_node_and_cluster() {
        let lines = JsonLines(origin("gw \"1\"", "si\u{1b}te"));
        let line = lines.line(b"{\"level\":\"INFO\",\"node\":\"another\"}\n");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["node_name"], &value["cluster_name"]), (&"gw \"1\"".into(), &"si\u{1b}te".into()));
        assert_eq!((&value["node"], &value["level"]), (&"another".into(), &"INFO".into()));
        assert!(line.ends_with("}\n") && !line.contains('\u{1b}'), "{line}");
        assert_eq!(lines.line(b"\xff"), "\\xff");
    }
}
