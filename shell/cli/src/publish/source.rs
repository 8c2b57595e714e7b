//! Where the payload comes from.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;

use crate::failure::Failure;

/// Largest payload MQTT can carry, with the shortest head there is.
const MAX_PAYLOAD_BYTES: u64 = 268_435_455;

/// Exactly one of these is given.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct SourceArgs {
    /// Payload
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    /// Empty payload; with -r it removes the retained message
    #[arg(short, long)]
    null_message: bool,
    /// The content of a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// All of standard input as one message
    #[arg(short, long)]
    stdin_file: bool,
    /// Each line of standard input as one message
    #[arg(short, long = "stdin-line")]
    pub(super) lines: bool,
}

impl SourceArgs {
    /// The payload of a single message.
    pub(crate) fn read(&self) -> Result<Bytes, Failure> {
        if let Some(message) = &self.message {
            return Ok(Bytes::copy_from_slice(message.as_bytes()));
        }
        if let Some(path) = &self.file {
            let name = format!("-f {}", path.display());
            let file = fs::File::open(path).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
            return read_all(file, &name);
        }
        if self.stdin_file {
            return read_all(io::stdin().lock(), "standard input");
        }
        Ok(Bytes::new())
    }
}

fn read_all(source: impl Read, name: &str) -> Result<Bytes, Failure> {
    let mut payload = Vec::new();
    source
        .take(MAX_PAYLOAD_BYTES + 1)
        .read_to_end(&mut payload)
        .map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    if payload.len() as u64 > MAX_PAYLOAD_BYTES {
        return Err(Failure::failed(format!("{name}: a message has at most {MAX_PAYLOAD_BYTES} bytes")));
    }
    Ok(Bytes::from(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> SourceArgs {
        SourceArgs { message: None, null_message: false, file: None, stdin_file: false, lines: false }
    }

    #[test]
    fn a_message_is_taken_as_it_is() {
        let source = SourceArgs { message: Some("-5 °C".to_owned()), ..none() };
        assert_eq!(source.read().unwrap(), "-5 °C".as_bytes());
        assert!(SourceArgs { null_message: true, ..none() }.read().unwrap().is_empty());
    }

    #[test]
    fn a_missing_file_is_named() {
        let source = SourceArgs { file: Some("/no/such/file".into()), ..none() };
        let message = source.read().unwrap_err().message.unwrap();
        assert!(message.starts_with("-f /no/such/file: "), "{message}");
    }
}
