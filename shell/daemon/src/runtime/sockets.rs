//! Sockets as the daemon wants them.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::StartError;
use crate::config::{ClusterConfig, ListenerConfig};
use crate::transport::Acceptor;

/// Connections that the kernel completes ahead of us: a whole site reconnects at once after a power cut.
const LISTEN_BACKLOG: i32 = 4096;
/// MQTT's own keep alive may be switched off by clients: this finds those whose machine has vanished.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How often a free port for TCP is tried when the same number is taken for UDP.
const PORT_TRIES_MAX: usize = 20;
/// Datagrams of a burst of gossip wait here while the shard is in a long turn.
const UDP_BUFFER_BYTES: usize = 1024 * 1024;

/// File descriptors kept for event loops, listeners, and the journals of all shards: segments, listings and their directories.
const FILES_KEPT: usize = 24;
/// The same for each shard.
const FILES_KEPT_OF_SHARD: usize = 8;
/// File descriptors kept for links to other nodes.
const LINKS_KEPT: usize = 64;

/// Names a listener in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    /// Key of the address.
    pub(crate) bind: &'static str,
    /// Key of the port.
    pub(crate) port: &'static str,
    /// Flag of the port.
    pub(crate) flag: &'static str,
}

pub(crate) const FOR_CLIENTS: Purpose = Purpose { bind: "mqtt.bind", port: "mqtt.port", flag: "--port" };
pub(crate) const FOR_NODES: Purpose = Purpose { bind: "cluster.bind", port: "cluster.port", flag: "--cluster-port" };
pub(crate) const FOR_HTTP: Purpose = Purpose { bind: "http.bind", port: "http.port", flag: "--http-port" };

/// A listening socket that does not block.
pub(crate) fn listen(purpose: Purpose, address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    open_listener(address).map_err(|source| listen_error(purpose, address, source))
}

/// The listener `name` of a section of its own.
pub(crate) fn listen_as(name: &str, config: &ListenerConfig) -> Result<Acceptor, StartError> {
    let failed = |address: String| {
        let name = name.to_owned();
        move |source| StartError::Listener { name, address, source }
    };
    match (config.address(name), &config.socket) {
        (Some(address), _) => {
            let listener = open_any(address).map_err(failed(address.to_string()))?;
            Ok(Acceptor::Tcp(TcpListener::from_std(listener)))
        }
        (None, Some(path)) => open_unix(path, config.socket_mode).map_err(failed(format!("unix:{}", path.display()))),
        (None, None) => Err(failed(String::new())(ErrorKind::InvalidInput.into())),
    }
}

/// Tries again where the system may choose the port: one that is free for IPv6 may be taken for IPv4.
fn open_any(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let mut tries = 0;
    loop {
        match open_listener(address) {
            Err(error) if address.port() == 0 && error.kind() == ErrorKind::AddrInUse && tries < PORT_TRIES_MAX => {
                tries += 1;
            }
            result => return result,
        }
    }
}

fn open_unix(path: &Path, mode: u32) -> io::Result<Acceptor> {
    // A node that was killed has left its socket behind, on which nobody answers; a socket with an answer is in use.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && StdUnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    // Only now can anybody connect.
    socket.listen(LISTEN_BACKLOG)?;
    Ok(Acceptor::Unix(UnixListener::from_std(socket.into()), path.to_owned()))
}

fn open_listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the former life; two live listeners are refused all the same.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE).with_interval(TCP_KEEPALIVE_INTERVAL);
    // Accepted connections inherit both.
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The two sockets of the cluster port: the same number for TCP and UDP.
pub(crate) fn open_cluster_port(config: &ClusterConfig) -> Result<(TcpListener, UdpSocket), StartError> {
    let mut tries = 0;
    loop {
        let listener = listen(FOR_NODES, SocketAddr::new(config.bind, config.port))?;
        let address = listener.local_addr().map_err(StartError::system("read the cluster port"))?;
        match open_udp(address) {
            Ok(udp) => return Ok((TcpListener::from_std(listener), udp)),
            Err(error) if config.port == 0 && error.kind() == ErrorKind::AddrInUse && tries < PORT_TRIES_MAX => {
                tries += 1;
            }
            Err(error) => return Err(listen_error(FOR_NODES, address, error)),
        }
    }
}

fn open_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_recv_buffer_size(UDP_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(UdpSocket::from_std(socket.into()))
}

fn listen_error(purpose: Purpose, address: SocketAddr, source: io::Error) -> StartError {
    if source.kind() == ErrorKind::AddrInUse {
        return StartError::PortInUse { key: purpose.port, flag: purpose.flag, address };
    }
    let key = if source.kind() == ErrorKind::PermissionDenied { purpose.port } else { purpose.bind };
    StartError::Listen { key, address, source }
}

/// Sets what every connection of ours has: small packets leave at once.
pub(crate) fn prepare(stream: &TcpStream) {
    // It works without, only slower.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// As [`prepare`], for connections that did not come from a listener of ours.
pub(crate) fn prepare_dialled(stream: &TcpStream) {
    prepare(stream);
    let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE).with_interval(TCP_KEEPALIVE_INTERVAL);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "cannot set SO_KEEPALIVE");
    }
}

/// The address of this machine towards `towards`, or towards the rest of the world. Sends nothing.
pub(crate) fn own_ip(towards: Option<SocketAddr>) -> IpAddr {
    // From the documentation range (RFC 5737): no packet goes there, only the routing table is asked.
    let anywhere = SocketAddr::from(([192, 0, 2, 1], 9));
    let target = towards.unwrap_or(anywhere);
    let any: SocketAddr = if target.is_ipv6() { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
    let asked = StdUdpSocket::bind(any).and_then(|socket| {
        socket.connect(target)?;
        socket.local_addr()
    });
    asked.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// Lets the process have as many sockets as the system allows; returns how many that are.
pub(crate) fn raise_socket_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::debug!(%error, "cannot raise the limit of open files");
        return limit.current;
    }
    limit.maximum
}

/// Share of the file descriptors for each use, so that none takes those of the others, and the journal always has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// For clients.
    pub(crate) clients: usize,
    /// For connections to the HTTP port.
    pub(crate) http: usize,
}

impl Descriptors {
    /// Shares out `all` that the process may have. Clients have at least half of them.
    pub(crate) fn share(all: Option<u64>, shards: usize, http: usize) -> Self {
        let all = all.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let http = http.min((all / 8).max(1));
        let files = FILES_KEPT + FILES_KEPT_OF_SHARD.saturating_mul(shards);
        let kept = files.saturating_add(LINKS_KEPT).saturating_add(http).min(all / 2);
        Self { clients: all - kept, http }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_some_descriptors_to_others() {
        let share = |all, shards, http| Descriptors::share(all, shards, http);
        let kept = FILES_KEPT + 4 * FILES_KEPT_OF_SHARD + LINKS_KEPT + 100;
        assert_eq!(share(Some(1024), 4, 100), Descriptors { clients: 1024 - kept, http: 100 });
        assert_eq!(share(Some(40), 1, 100), Descriptors { clients: 20, http: 5 });
        assert!(share(None, 1, 100).clients > 1_000_000);
    }
}
