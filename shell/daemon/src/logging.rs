//! The log: one line an event on standard error, whatever a client has put into its names.

use std::fmt::{self, Debug, Write as _};
use std::io;

use sedge_base::{Printable, printable_json};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogConfig, LogFormat};

/// Writes the log to standard error from now on, as `config` says. Does nothing when a log is set up already.
pub fn init_logging(config: &LogConfig) {
    let filter = parse_level(&config.level).unwrap_or_default();
    // A log on a full disk would otherwise be told so on standard error, which is the same disk, and end the process.
    let builder = tracing_subscriber::fmt().log_internal_errors(false);
    let builder = builder.with_writer(io::stderr).with_env_filter(filter).with_target(false);
    // A second daemon in the same process (tests, `sedge up`) finds the log of the first one, which is fine.
    let _ = match config.format {
        LogFormat::Text => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            builder.with_ansi(colours).fmt_fields(debug_fn(write_field).delimited(" ")).finish().try_init()
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
            builder.with_writer(|| JsonLines).finish().try_init()
        }
    };
}

/// One field of an event as text. All that the log says passes here.
fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        let (name, equals) = if out.has_ansi_escapes() { ("\x1b[3m", "\x1b[0m\x1b[2m=\x1b[0m") } else { ("", "=") };
        write!(out, "{name}{field}{equals}")?;
    }
    write!(Printable(out), "{value:?}")
}

/// Standard error for lines of JSON. Each event comes in one piece.
struct JsonLines;

impl io::Write for JsonLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        match std::str::from_utf8(line) {
            Ok(text) => stderr.write_all(printable_json(text).as_bytes())?,
            Err(_) => stderr.write_all(line.escape_ascii().to_string().as_bytes())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Has the log say why a thread dies, in the log's own form. What the default hook prints no log shipper can read.
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
}
