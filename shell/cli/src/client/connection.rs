//! One connection to a broker: packets out, packets in, keep alive.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use sedge_bench::WebSocketStream;
use sedge_mqtt::{
    ConnAck, ConnAckProperties, Connect, Decoder, Disconnect, Packet, PacketId, QoS, Version, encode, encoded_len,
};
use socket2::Socket;

use super::{ClientError, Server};
use crate::out;

/// How long a broker may take to accept a connection or to answer a request.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for which a broker may refuse to read the bytes that are written to it.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// Largest packet MQTT can express.
const MAX_PACKET_BYTES: u32 = 268_435_460;
const READ_BYTES: usize = 64 * 1024;

/// The stream that carries the bytes.
#[derive(Debug)]
enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
    /// A WebSocket on one of the other two.
    WebSocket(Box<WebSocketStream<Self>>),
}

impl Stream {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
            Self::WebSocket(stream) => stream.get_ref().socket(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
            Self::WebSocket(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(from),
            Self::Tls(stream) => stream.write(from),
            Self::WebSocket(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::WebSocket(stream) => stream.flush(),
        }
    }
}

impl Server {
    /// Puts TLS and a WebSocket on the socket, as far as the server wants them.
    fn dress(&self, socket: Socket) -> Result<Stream, ClientError> {
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(ClientError::Io)?;
        let stream = self.encrypt(socket)?;
        let Some(path) = &self.websocket else { return Ok(stream) };
        let failed = |error| ClientError::Unsuitable(format!("WebSocket with {}{path}: {error}", self.name()));
        let stream = WebSocketStream::open(stream, &self.name(), path).map_err(failed)?;
        Ok(Stream::WebSocket(Box::new(stream)))
    }

    fn encrypt(&self, mut socket: Socket) -> Result<Stream, ClientError> {
        let Some(config) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let failed =
            |error: &dyn std::fmt::Display| ClientError::Unsuitable(format!("TLS with {}: {error}", self.name()));
        let name = ServerName::try_from(self.host.clone()).map_err(|error| failed(&error))?;
        let mut session = ClientConnection::new(Arc::clone(config), name).map_err(|error| failed(&error))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| failed(&error))?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }
}

/// A conversation that CONNECT and CONNACK have opened.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    decoder: Decoder,
    version: Version,
    /// `None` if neither side wants pings.
    keep_alive: Option<Duration>,
    last_sent: Instant,
    ping_sent: Option<Instant>,
    last_id: u16,
    limits: ConnAckProperties,
    debug: bool,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to the first of `servers` that takes the client. With several, one that cannot be reached or is busy is passed
    /// over; the last error is that of the last one. The servers are moved so that the one that was taken is the first.
    pub(crate) fn open_any(
        servers: &mut [Server],
        connect: &Connect,
        debug: bool,
    ) -> Result<(Self, ConnAck), ClientError> {
        let mut tried = 1;
        loop {
            let Some(server) = servers.first() else { return Err(ClientError::Closed) };
            match Self::open(server, connect, debug) {
                Err(error) if error.is_passing() && tried < servers.len() => {
                    if debug {
                        out::note(&format!("{error}; trying the next address"));
                    }
                    servers.rotate_left(1);
                    tried += 1;
                }
                result => return result,
            }
        }
    }

    /// Connects and waits for the answer. `debug` reports every packet on standard error.
    pub(crate) fn open(server: &Server, connect: &Connect, debug: bool) -> Result<(Self, ConnAck), ClientError> {
        let socket = server.open()?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(ClientError::Io)?;
        let stream = server.dress(socket)?;
        let mut decoder = Decoder::client(connect.properties.maximum_packet_size.unwrap_or(MAX_PACKET_BYTES));
        decoder.set_version(connect.version);
        let mut connection = Self {
            stream,
            decoder,
            version: connect.version,
            keep_alive: None,
            last_sent: Instant::now(),
            ping_sent: None,
            last_id: 0,
            limits: ConnAckProperties::default(),
            debug,
            buffer: vec![0; READ_BYTES],
        };
        connection.send(&Packet::Connect(Box::new(connect.clone())))?;
        let ack = connection.await_connack()?;
        let seconds = ack.properties.server_keep_alive.unwrap_or(connect.keep_alive);
        connection.keep_alive = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        connection.limits = ack.properties.clone();
        Ok((connection, ack))
    }

    fn await_connack(&mut self) -> Result<ConnAck, ClientError> {
        match self.receive(Instant::now() + ANSWER_TIMEOUT)? {
            None => Err(ClientError::NoAnswer("CONNECT", ANSWER_TIMEOUT.as_secs())),
            Some(Packet::ConnAck(ack)) if ack.reason.is_error() => {
                let text = ack.properties.reason_string.as_ref().map(|text| text.as_str().to_owned());
                Err(ClientError::Refused { reason: ack.reason, version: self.version, text })
            }
            Some(Packet::ConnAck(ack)) => Ok(*ack),
            Some(packet) => Err(ClientError::Unexpected(packet.kind())),
        }
    }

    /// The limits that the broker has named in CONNACK.
    pub(crate) const fn limits(&self) -> &ConnAckProperties {
        &self.limits
    }

    /// A packet identifier; they go round, and conversations here never have all of them in use.
    pub(crate) fn next_id(&mut self) -> PacketId {
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        PacketId::new(self.last_id).unwrap_or(PacketId::MIN)
    }

    /// Sends `packet`, unless the broker has said that it will not take it.
    pub(crate) fn send(&mut self, packet: &Packet) -> Result<(), ClientError> {
        self.check(packet)?;
        let mut bytes = BytesMut::new();
        encode(packet, self.version, &mut bytes);
        if self.debug {
            out::note(&format!("sending {:?}, {} bytes", packet.kind(), bytes.len()));
        }
        let sent = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| self.lost(error))?;
        self.last_sent = Instant::now();
        Ok(())
    }

    fn check(&self, packet: &Packet) -> Result<(), ClientError> {
        let size = encoded_len(packet, self.version);
        let limit = self.limits.maximum_packet_size.unwrap_or(MAX_PACKET_BYTES);
        if size > usize::try_from(limit).unwrap_or(usize::MAX) {
            let text = format!("the message makes a packet of {size} bytes, the broker takes at most {limit}");
            return Err(ClientError::Unsuitable(text));
        }
        let Packet::Publish(publish) = packet else { return Ok(()) };
        let highest = self.limits.maximum_qos.unwrap_or(QoS::ExactlyOnce);
        if publish.qos > highest {
            let text = format!("the broker takes QoS {} at most; lower -q", highest.as_u8());
            return Err(ClientError::Unsuitable(text));
        }
        if publish.retain && self.limits.retain_available == Some(false) {
            return Err(ClientError::Unsuitable("the broker keeps no retained messages; leave out -r".to_owned()));
        }
        Ok(())
    }

    /// A failed write often means that the broker has said why before it hung up; its words are worth more than ours.
    fn lost(&mut self, error: io::Error) -> ClientError {
        let mut found = ClientError::Io(error);
        while let Ok(count @ 1..) = self.stream.read(&mut self.buffer) {
            self.decoder.feed(Bytes::copy_from_slice(self.buffer.get(..count).unwrap_or_default()));
            while let Ok(Some(packet)) = self.decoder.next() {
                if let Packet::Disconnect(disconnect) = packet {
                    found = ended(disconnect);
                }
            }
        }
        found
    }

    /// The next packet that is not about the connection itself, or `None` at `until`. With a time that has passed, packets that are there
    /// already are still taken.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other packets are for the caller")]
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Option<Packet>, ClientError> {
        loop {
            while let Some(packet) = self.decoder.next()? {
                if self.debug {
                    out::note(&format!("received {:?}", packet.kind()));
                }
                match packet {
                    Packet::PingResp => self.ping_sent = None,
                    Packet::Disconnect(disconnect) => return Err(ended(disconnect)),
                    packet => return Ok(Some(packet)),
                }
            }
            let wait = until.min(self.next_duty()).saturating_duration_since(Instant::now());
            if !self.read(wait)? && Instant::now() >= until {
                return Ok(None);
            }
            self.keep_alive()?;
        }
    }

    /// Reads once; says whether anything came within `wait`.
    fn read(&mut self, wait: Duration) -> Result<bool, ClientError> {
        // The system takes a timeout of zero for none at all.
        let wait = wait.max(Duration::from_millis(1));
        self.stream.socket().set_read_timeout(Some(wait)).map_err(ClientError::Io)?;
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(ClientError::Closed),
            Ok(count) => {
                // The answer to a ping may wait behind these bytes: whoever sends them lives.
                self.ping_sent = None;
                self.decoder.feed(Bytes::copy_from_slice(self.buffer.get(..count).unwrap_or_default()));
                Ok(true)
            }
            Err(error) if is_pause(error.kind()) => Ok(false),
            Err(error) => Err(ClientError::Io(error)),
        }
    }

    /// When [`Connection::keep_alive`] has to run next.
    fn next_duty(&self) -> Instant {
        let idle = Duration::from_hours(1);
        self.ping_sent.unwrap_or(self.last_sent) + self.keep_alive.unwrap_or(idle)
    }

    fn keep_alive(&mut self) -> Result<(), ClientError> {
        let Some(keep_alive) = self.keep_alive else { return Ok(()) };
        let now = Instant::now();
        if let Some(sent) = self.ping_sent {
            let late = now.saturating_duration_since(sent) >= keep_alive;
            return if late { Err(ClientError::NoAnswer("PINGREQ", keep_alive.as_secs())) } else { Ok(()) };
        }
        if now.saturating_duration_since(self.last_sent) >= keep_alive {
            self.send(&Packet::PingReq)?;
            self.ping_sent = Some(now);
        }
        Ok(())
    }

    /// Says good-bye. The work is done by now, so that a broker which is gone already is no failure.
    pub(crate) fn close(mut self, disconnect: Disconnect) {
        let _ = self.send(&Packet::Disconnect(disconnect));
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn ended(disconnect: Disconnect) -> ClientError {
    let text = disconnect.reason_string.map(|text| text.as_str().to_owned());
    ClientError::Disconnected { reason: disconnect.reason, text }
}
