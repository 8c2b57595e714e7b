//! Transports that carry the bytes of MQTT.

mod stream;
mod tcp;
mod tls;
mod ws;

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Socket, Type};

pub use stream::WebSocketStream;
pub(crate) use tls::Trust;
pub use tls::{TlsFiles, tls_client};

use crate::endpoint::Endpoint;

/// Something that carries bytes.
pub(crate) trait Pipe {
    /// Goes on with the handshakes that come before MQTT; true once the bytes of MQTT may flow.
    fn open(&mut self) -> io::Result<bool>;

    /// Reads bytes of MQTT; 0 at the end of the stream.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Takes bytes of MQTT and says how many.
    fn write(&mut self, from: &[u8]) -> io::Result<usize>;

    /// Hands over the bytes that were taken and are still here; true once none is left.
    fn flush(&mut self) -> io::Result<bool>;
}

/// A connection that carries bytes of MQTT, without waiting.
pub(crate) trait Transport: Pipe + Send {
    /// Socket that the event loop watches.
    fn socket(&mut self) -> &mut TcpStream;

    /// Whether a read that did not fill its buffer has emptied the connection.
    fn short_read_is_last(&self) -> bool;
}

/// Begins a connection to `address`, from `source` if given.
pub(crate) fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    source: Option<IpAddr>,
    trust: &Trust,
) -> io::Result<Box<dyn Transport>> {
    let socket = begin(address, source)?;
    let tcp = tcp::Tcp::new(socket);
    let host = endpoint.authority();
    Ok(match (endpoint.carrier.is_tls(), endpoint.carrier.is_ws()) {
        (false, false) => Box::new(tcp),
        (false, true) => Box::new(ws::WebSocket::new(tcp, &host, &endpoint.path)),
        (true, false) => Box::new(tls::Tls::new(tcp, &endpoint.host, trust)?),
        (true, true) => Box::new(ws::WebSocket::new(tls::Tls::new(tcp, &endpoint.host, trust)?, &host, &endpoint.path)),
    })
}

fn begin(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Without it small messages wait for the acknowledgement of earlier ones, and the tester measures itself.
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}
