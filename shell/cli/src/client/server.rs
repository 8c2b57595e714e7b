//! Where a broker listens, and how its address is reached.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use socket2::{Domain, SockAddr, Socket, Type};

use super::connection::ANSWER_TIMEOUT;
use super::{ClientError, Proxy};

/// Where a broker listens.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Settings of TLS with the authorities to trust, if the connection is encrypted.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Path of the WebSocket, if it is one.
    pub(crate) websocket: Option<String>,
    /// Path of a Unix socket, which stands for host and port.
    pub(crate) unix: Option<PathBuf>,
    /// Address of this machine that the connection comes from.
    pub(crate) local: Option<IpAddr>,
    /// Proxy between this machine and the broker.
    pub(crate) proxy: Option<Proxy>,
}

impl Server {
    /// A broker on plain TCP.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, tls: None, websocket: None, unix: None, local: None, proxy: None }
    }

    /// The address for messages to a person.
    pub(super) fn name(&self) -> String {
        match &self.unix {
            Some(path) => path.display().to_string(),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects.
    pub(super) fn open(&self) -> Result<Socket, ClientError> {
        let unreachable = |source| ClientError::Unreachable { server: self.name(), source };
        if let Some(path) = &self.unix {
            let connect = || {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.connect(&SockAddr::unix(path)?)?;
                Ok(socket)
            };
            return connect().map_err(unreachable);
        }
        let Some(proxy) = &self.proxy else {
            return self.connect(&self.host, self.port).map_err(unreachable);
        };
        let mut socket = self
            .connect(&proxy.host, proxy.port)
            .map_err(|source| ClientError::Unreachable { server: format!("the proxy {}", proxy.host), source })?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(ClientError::Io)?;
        proxy.ask(&mut socket, &self.host, self.port).map_err(unreachable)?;
        Ok(socket)
    }

    /// Tries the addresses of `host` in turn: `localhost` often is two of them, with a broker behind one.
    fn connect(&self, host: &str, port: u16) -> io::Result<Socket> {
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match self.connect_to(address) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(local) = self.local {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        socket.connect_timeout(&address.into(), ANSWER_TIMEOUT)?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket)
    }
}
