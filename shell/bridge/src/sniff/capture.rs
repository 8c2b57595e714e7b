//! Packets of this host, as they pass by (Linux, `AF_PACKET`; needs the right `CAP_NET_RAW`).

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;

/// Largest packet that is read: the kernel hands on segments that the network card cuts.
const PACKET_BYTES: usize = 256 * 1024;

/// A socket that gets the broker's packets, in and out.
#[derive(Debug)]
pub(super) struct Capture {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    /// Bytes that the kernel keeps for it, its own bookkeeping included.
    pub(super) kernel_bytes: usize,
}

impl Capture {
    /// Begins to capture what comes from this TCP port or goes to it, with this much room in the kernel.
    #[cfg(target_os = "linux")]
    pub(super) fn open(port: u16, room: usize) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with, sockopt};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(eth::ALL))?;
        let socket = socket2::Socket::from(socket);
        socket.attach_filter(&filter(port))?;
        let socket = OwnedFd::from(socket);
        // Only an administrator of the network may have more than net.core.rmem_max.
        if sockopt::set_socket_recv_buffer_size_force(&socket, room).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, room)?;
        }
        let kernel_bytes = sockopt::socket_recv_buffer_size(&socket)?;
        Ok(Self { socket, buffer: vec![0; PACKET_BYTES].into(), kernel_bytes })
    }

    /// Other systems have no such socket.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(_port: u16, _room: usize) -> io::Result<Self> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// The next packet, if one is there.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        use rustix::net::{RecvFlags, recv};
        match recv(&self.socket, &mut *self.buffer, RecvFlags::empty()) {
            Ok((size, _)) => Ok(Some(Bytes::copy_from_slice(self.buffer.get(..size).unwrap_or_default()))),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// For [`mio`].
    pub(super) const fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

/// Packets that the kernel passes on: TCP from or to this port. Other packets do not wake the node.
/// The filter is classic BPF; loads count from the IP header.
#[cfg(target_os = "linux")]
fn filter(port: u16) -> [socket2::SockFilter; 21] {
    use socket2::SockFilter;
    const BYTE: u16 = 0x30;
    const SHORT: u16 = 0x28;
    const SHORT_BEHIND: u16 = 0x48;
    const HEADER: u16 = 0xb1;
    const SHIFT: u16 = 0x74;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const TCP: u32 = 6;
    let load = |code, place| SockFilter::new(code, 0, 0, place);
    // How many steps to pass over if the loaded value is this one, and if not.
    let is = |value, yes, no| SockFilter::new(EQUAL, yes, no, value);
    let port = u32::from(port);
    [
        load(BYTE, 0),
        SockFilter::new(SHIFT, 0, 0, 4),
        is(4, 0, 7),
        // IPv4: protocol, then the ports behind its header.
        load(BYTE, 9),
        is(TCP, 0, 14),
        load(HEADER, 0),
        load(SHORT_BEHIND, 0),
        is(port, 12, 0),
        load(SHORT_BEHIND, 2),
        is(port, 10, 9),
        // IPv6: the ports behind its header; what has more headers is looked at in the program.
        load(BYTE, 6),
        is(TCP, 3, 0),
        is(0, 7, 0),
        is(43, 6, 0),
        is(60, 5, 4),
        load(SHORT, 40),
        is(port, 3, 0),
        load(SHORT, 42),
        is(port, 1, 0),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
