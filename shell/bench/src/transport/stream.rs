//! MQTT over WebSocket for programs that wait.

use std::io::{self, Read, Write};

use super::Pipe;
use super::ws::WebSocket;

/// A stream whose reads and writes may wait, with an end in time.
struct Waiting<S>(S);

impl<S: Read + Write> Pipe for Waiting<S> {
    fn open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.0.flush().map(|()| true)
    }
}

/// A WebSocket on a stream whose reads and writes wait. What ends in time below ends in time here.
pub struct WebSocketStream<S>(WebSocket<Waiting<S>>);

impl<S: Read + Write> WebSocketStream<S> {
    /// Asks for a WebSocket at `path`; `host` is the name that the request is for, with its port.
    ///
    /// # Errors
    ///
    /// Those of the stream, and `InvalidData` with what the other side has answered if it does not want to.
    pub fn open(stream: S, host: &str, path: &str) -> io::Result<Self> {
        let mut socket = WebSocket::new(Waiting(stream), host, path);
        if socket.open()? { Ok(Self(socket)) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// The stream below.
    pub const fn get_ref(&self) -> &S {
        &self.0.below().0
    }
}

impl<S: Read + Write> Read for WebSocketStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<S: Read + Write> Write for WebSocketStream<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.0.flush()? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

impl<S> std::fmt::Debug for WebSocketStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocketStream").finish_non_exhaustive()
    }
}
