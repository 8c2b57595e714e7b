//! MQTT over TCP.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

use super::{Pipe, Transport};

/// A TCP connection.
pub(super) struct Tcp {
    socket: TcpStream,
    connected: bool,
}

impl Tcp {
    pub(super) const fn new(socket: TcpStream) -> Self {
        Self { socket, connected: false }
    }
}

impl Pipe for Tcp {
    fn open(&mut self) -> io::Result<bool> {
        if self.connected {
            return Ok(true);
        }
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => {
                self.connected = true;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}

impl Transport for Tcp {
    fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    fn short_read_is_last(&self) -> bool {
        true
    }
}
