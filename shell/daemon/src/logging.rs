//! The log: one line an event on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogConfig, LogFormat};

/// Writes the log to standard error from now on, as `config` says. Does nothing when a log is set up already.
pub fn init_logging(config: &LogConfig) {
    let filter = parse_level(&config.level).unwrap_or_default();
    // A log on a full disk would otherwise be told so on standard error, which is the same disk, and end the process.
    let builder = tracing_subscriber::fmt().log_internal_errors(false);
    let builder = builder.with_writer(std::io::stderr).with_env_filter(filter).with_target(false);
    // A second daemon in the same process (tests, `sedge up`) finds the log of the first one, which is fine.
    let _ = match config.format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).finish().try_init(),
        LogFormat::Json => {
            builder.json().flatten_event(true).with_current_span(false).with_span_list(false).finish().try_init()
        }
    };
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
