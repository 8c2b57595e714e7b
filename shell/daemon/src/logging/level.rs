//! The level of the log, which changes while the node runs.

use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::EnvFilter;

use super::parse_level;

/// Exchanges the filter of the log; false: there is no log any more.
type Exchange = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// The log of this process, once it is set up.
static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    exchange: Exchange,
    level: Mutex<Level>,
}

/// Level of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The level in force: a level such as `info`, or directives.
    pub(crate) level: String,
    /// The configured level (`log.level`), as it was read last.
    pub(crate) configured: String,
}

/// Remembers how to exchange the filter of the log that is set up with `level`.
pub(super) fn keep(level: &str, exchange: impl Fn(EnvFilter) -> bool + Send + Sync + 'static) {
    let level = Level { level: level.to_owned(), configured: level.to_owned() };
    // A process sets up one log only.
    let _ = LOG.set(Log { exchange: Box::new(exchange), level: Mutex::new(level) });
}

/// Level of the log; `None`: the log is that of another program around this node.
pub(crate) fn level() -> Option<Level> {
    LOG.get().map(|log| log.level.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Sets the level of the log until the next start or reload. `Err`: the fault of `level`.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    exchange(level, |known| level.clone_into(&mut known.level))
}

/// The configuration was read again: its level holds. Says whether there is a log to which it applies.
pub(crate) fn configure(level: &str) -> Result<(), String> {
    exchange(level, |known| *known = Level { level: level.to_owned(), configured: level.to_owned() })
}

fn exchange(level: &str, remember: impl FnOnce(&mut Level)) -> Result<(), String> {
    let filter = parse_level(level)?;
    let log = LOG.get().ok_or("this node has no log of its own")?;
    // The lock is held over both steps: the remembered level is the one in force, whoever else changes it.
    let mut known = log.level.lock().unwrap_or_else(PoisonError::into_inner);
    if !(log.exchange)(filter) {
        return Err("the log has ended".to_owned());
    }
    remember(&mut known);
    Ok(())
}
