//! One MQTT connection without blocking: packets out, packets in.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConnection;
use sedge_mqtt::{ConnAck, Connect, Decoder, Packet, Version, encode};

use crate::error::BridgeError;

/// Largest packet MQTT can express.
const MAX_PACKET_BYTES: u32 = 268_435_460;
/// How long the other side may take for each step of a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
/// Bytes that wait to be written above which the other side is not read any more.
const HIGH_WATER: usize = 1024 * 1024;

/// The stream that carries the bytes.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Stream,
    tls: Option<Box<ClientConnection>>,
    decoder: Decoder,
    pub(crate) version: Version,
    /// How errors call the other side.
    pub(crate) end: &'static str,
    token: Token,
    out: BytesMut,
    buffer: Vec<u8>,
    /// There may be something to read.
    readable: bool,
    pub(crate) last_received: Instant,
    pub(crate) last_sent: Instant,
}

impl Wire {
    pub(crate) fn new(
        poll: &Poll,
        token: Token,
        mut stream: Stream,
        tls: Option<Box<ClientConnection>>,
        (version, end): (Version, &'static str),
    ) -> Result<Self, BridgeError> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(stream.source(), token, interests).map_err(BridgeError::Inside)?;
        let mut decoder = Decoder::client(MAX_PACKET_BYTES);
        decoder.set_version(version);
        let now = Instant::now();
        Ok(Self {
            stream,
            tls,
            decoder,
            version,
            end,
            token,
            out: BytesMut::new(),
            buffer: vec![0; READ_BYTES],
            readable: true,
            last_received: now,
            last_sent: now,
        })
    }

    /// Puts a packet behind what waits to be written.
    pub(crate) fn send(&mut self, packet: &Packet) {
        encode(packet, self.version, &mut self.out);
        self.last_sent = Instant::now();
    }

    /// Whether little enough waits to be written.
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() < HIGH_WATER
    }

    /// Whether there may be something to read.
    pub(crate) const fn is_readable(&self) -> bool {
        self.readable
    }

    /// There may be something to read: an event may have come while another connection was looked at.
    pub(crate) const fn look(&mut self) {
        self.readable = true;
    }

    pub(crate) fn event(&mut self, event: &mio::event::Event) {
        self.readable |=
            event.token() == self.token && (event.is_readable() || event.is_read_closed() || event.is_error());
    }

    fn lost(&self, source: io::Error) -> BridgeError {
        BridgeError::Io { end: self.end, source }
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), BridgeError> {
        if self.tls.is_some() { self.flush_tls() } else { self.flush_plain() }
    }

    fn flush_plain(&mut self) -> Result<(), BridgeError> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return Err(BridgeError::Closed { end: self.end }),
                Ok(count) => self.out.advance(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.lost(error)),
            }
        }
        Ok(())
    }

    fn flush_tls(&mut self) -> Result<(), BridgeError> {
        let end = self.end;
        let Some(tls) = &mut self.tls else { return Ok(()) };
        loop {
            if !self.out.is_empty() {
                let taken = tls.writer().write(&self.out).map_err(|source| BridgeError::Io { end, source })?;
                self.out.advance(taken);
            }
            if !tls.wants_write() {
                return Ok(());
            }
            match tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(BridgeError::Closed { end }),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(source) => return Err(BridgeError::Io { end, source }),
            }
        }
    }

    /// Reads once.
    pub(crate) fn receive(&mut self) -> Result<(), BridgeError> {
        if self.tls.is_some() {
            return self.receive_tls();
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err(BridgeError::Closed { end: self.end }),
            Ok(count) => {
                self.last_received = Instant::now();
                self.decoder.feed(Bytes::copy_from_slice(self.buffer.get(..count).unwrap_or_default()));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) => return Err(self.lost(error)),
        }
        Ok(())
    }

    fn receive_tls(&mut self) -> Result<(), BridgeError> {
        let end = self.end;
        let Some(tls) = &mut self.tls else { return Ok(()) };
        match tls.read_tls(&mut self.stream) {
            Ok(0) => return Err(BridgeError::Closed { end }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(());
            }
            Err(source) => return Err(BridgeError::Io { end, source }),
        }
        tls.process_new_packets().map_err(|error| BridgeError::Tls(error.to_string()))?;
        loop {
            match tls.reader().read(&mut self.buffer) {
                // The caller looks at the packets before the end first; the socket tells of the end, too.
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.last_received = Instant::now();
                    self.decoder.feed(Bytes::copy_from_slice(self.buffer.get(..count).unwrap_or_default()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(source) => return Err(BridgeError::Io { end, source }),
            }
        }
    }

    /// The next packet that has come.
    pub(crate) fn next(&mut self) -> Result<Option<Packet>, BridgeError> {
        let end = self.end;
        let packet = self.decoder.next().map_err(|source| BridgeError::Decode { end, source })?;
        match packet {
            Some(Packet::Disconnect(disconnect)) => {
                let text = disconnect.reason_string.map(|text| text.as_str().to_owned());
                Err(BridgeError::Disconnected { end, reason: disconnect.reason, text })
            }
            packet => Ok(packet),
        }
    }

    /// Waits for the next packet, which answers `what`; an error after `patience`.
    pub(crate) fn wait(
        &mut self,
        poll: &mut Poll,
        what: &'static str,
        patience: Duration,
        goes_on: impl Fn() -> bool,
    ) -> Result<Packet, BridgeError> {
        let deadline = Instant::now() + patience;
        let mut events = Events::with_capacity(16);
        loop {
            self.flush()?;
            if let Some(packet) = self.next()? {
                return Ok(packet);
            }
            if self.readable {
                self.receive()?;
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !goes_on() {
                return Err(BridgeError::NoAnswer { end: self.end, what, seconds: patience.as_secs() });
            }
            wait_for_events(poll, &mut events, left.min(Duration::from_millis(100)))?;
            events.iter().for_each(|event| self.event(event));
        }
    }
}

/// Says CONNECT and waits for the answer.
pub(crate) fn greet(
    wire: &mut Wire,
    poll: &mut Poll,
    connect: Connect,
    goes_on: impl Fn() -> bool,
) -> Result<ConnAck, BridgeError> {
    wire.send(&Packet::Connect(Box::new(connect)));
    let packet = wire.wait(poll, "CONNECT", PATIENCE, goes_on)?;
    let Packet::ConnAck(ack) = packet else {
        return Err(BridgeError::Unexpected { end: wire.end, kind: packet.kind() });
    };
    if ack.reason.is_error() {
        let text = ack.properties.reason_string.map(|text| text.as_str().to_owned());
        return Err(BridgeError::Refused { end: wire.end, reason: ack.reason, text });
    }
    Ok(*ack)
}

/// Waits for events of the sockets.
pub(crate) fn wait_for_events(poll: &mut Poll, events: &mut Events, wait: Duration) -> Result<(), BridgeError> {
    match poll.poll(events, Some(wait)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        other => other.map_err(BridgeError::Inside),
    }
}
