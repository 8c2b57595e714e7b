//! Standard input, line by line, without keeping the connection waiting.

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::failure::Failure;

/// Most lines that were read and not sent yet.
const LINES_AHEAD: usize = 64;

/// Lines that a thread of their own reads: a read of standard input cannot be given up when a ping is due.
pub(super) struct Lines(Receiver<io::Result<Bytes>>);

/// Result of a wait for the next line to send.
pub(super) enum Next {
    Line(Bytes),
    Nothing,
    End,
}

impl Lines {
    pub(super) fn of_stdin() -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(LINES_AHEAD);
        thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || read(&mut io::stdin().lock(), &sender))
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        Ok(Self(receiver))
    }

    /// The next line, waiting for it at most `wait`.
    pub(super) fn next(&self, wait: Duration) -> Result<Next, Failure> {
        match self.0.recv_timeout(wait) {
            Ok(Ok(line)) => Ok(Next::Line(line)),
            Ok(Err(error)) => Err(Failure::failed(format!("standard input: {error}"))),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Next::End),
        }
    }
}

fn read(input: &mut impl BufRead, sender: &SyncSender<io::Result<Bytes>>) {
    loop {
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line);
        if matches!(read, Ok(0)) {
            return;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let failed = read.is_err();
        if sender.send(read.map(|_| Bytes::from(line))).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_end_is_taken_off() {
        let (sender, receiver) = sync_channel(8);
        read(&mut &b"a\n\n \xff\r\nlast"[..], &sender);
        drop(sender);
        let lines: Vec<_> = receiver.iter().map(Result::unwrap).collect();
        assert_eq!(lines, [&b"a"[..], b"", b" \xff\r", b"last"]);
    }
}
