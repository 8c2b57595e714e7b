//! Packets of this host, as they pass by (Linux, `AF_PACKET`; needs the right `CAP_NET_RAW`).

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;

/// Largest packet that is read: the kernel hands on segments that the network card cuts.
const PACKET_BYTES: usize = 256 * 1024;

/// A socket that gets every IP packet of this host, in and out.
#[derive(Debug)]
pub(super) struct Capture {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    /// Bytes that the kernel keeps for it, its own bookkeeping included.
    pub(super) kernel_bytes: usize,
}

impl Capture {
    /// Begins to capture, with this much room in the kernel.
    #[cfg(target_os = "linux")]
    pub(super) fn open(room: usize) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with, sockopt};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(eth::ALL))?;
        // Only an administrator of the network may have more than net.core.rmem_max.
        if sockopt::set_socket_recv_buffer_size_force(&socket, room).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, room)?;
        }
        let kernel_bytes = sockopt::socket_recv_buffer_size(&socket)?;
        Ok(Self { socket, buffer: vec![0; PACKET_BYTES].into(), kernel_bytes })
    }

    /// Other systems have no such socket.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(_room: usize) -> io::Result<Self> {
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
