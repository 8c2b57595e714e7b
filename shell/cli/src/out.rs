//! Standard output and standard error. Locked and flushed per call, so that lines stay whole and pipes see them at once.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `bytes` to standard output as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes `text` and a line end to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes `value` as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    line(&text)
}

/// Writes `text` and a line end to standard error. That nobody reads it is no reason to fail.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
