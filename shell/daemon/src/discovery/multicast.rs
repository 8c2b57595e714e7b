//! Nodes on one network find each other by UDP multicast.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use sedge_base::Rng;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::beacon::Beacons;
use super::{Post, Source};
use crate::config::{Group, Interface, MulticastConfig};
use crate::daemon::DeathGuard;
use crate::runtime::Clock;
use crate::seal::Seal;

const SOCKET: Token = Token(0);
const WAKE: Token = Token(1);
/// Longest datagram that is read.
const DATAGRAM_BYTES_MAX: usize = 2048;
/// Datagrams read before the clock is looked at again.
const DATAGRAMS_PER_TURN: usize = 256;
/// How long until a network that cannot be used is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A thread that says and hears beacons, until it is dropped.
#[derive(Debug)]
pub(crate) struct Multicast {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// The beacons of a node: their content and their destination.
pub(crate) struct Speaker {
    pub(crate) config: MulticastConfig,
    pub(crate) seal: Seal,
    /// Where other nodes find this one.
    pub(crate) me: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
}

impl Multicast {
    pub(super) fn start(speaker: Speaker, post: Post) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let _guard = DeathGuard;
            speak(&speaker, poll, &post, &stopped);
        };
        let thread = thread::Builder::new().name("sedge-multicast".to_owned()).spawn(run)?;
        Ok(Self { stop, waker, thread: Some(thread) })
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Without a waker the thread sees it when its next beacon is due.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that dies takes the process with it.
            let _ = thread.join();
        }
    }
}

/// The address of this machine towards the group; `None` if there is no way there, or none that means something to others: a
/// link-local one of IPv6.
pub(crate) fn own_ip(config: &MulticastConfig) -> Option<IpAddr> {
    let socket = open(config).ok()?;
    // Sends nothing: only the routing table is asked.
    socket.connect(&config.group.address().into()).ok()?;
    let ip = socket.local_addr().ok()?.as_socket()?.ip();
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!is_link_local).then_some(ip)
}

fn speak(speaker: &Speaker, mut poll: Poll, post: &Post, stopped: &AtomicBool) {
    let Speaker { config, seal, me, clock, rng } = speaker;
    let mut beacons = Beacons::new(clock.now().instant, *me, rng.clone());
    let mut events = Events::with_capacity(8);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (mut socket, mut is_heard) = (None, true);
    while !stopped.load(Ordering::Acquire) {
        let mut wait = RETRY;
        match socket.take().map_or_else(|| listen(config, &poll), Ok) {
            Ok(open) => {
                let is_empty = receive(&open, seal, &mut beacons, clock, post, &mut buffer);
                if let Some(beacon) = beacons.beacon(clock.now().instant) {
                    let sent = open.send_to(&seal.close(&beacon), config.group.address());
                    is_heard = sent.is_ok();
                    if let Err(error) = sent {
                        let why = format!("cannot send to {}: {error}{}", config.group, hint(&error));
                        post.failed(Source::Multicast, why);
                    }
                }
                let now = clock.now().instant;
                if is_heard {
                    post.found(Source::Multicast, beacons.addresses(now), None);
                }
                wait = if is_empty { beacons.next().since(now) } else { Duration::ZERO };
                socket = Some(open);
            }
            Err(error) => {
                let why = format!("cannot listen on {}: {error}{}", config.group, hint(&error));
                post.failed(Source::Multicast, why);
            }
        }
        if let Err(error) = poll.poll(&mut events, Some(wait))
            && error.kind() != ErrorKind::Interrupted
        {
            tracing::error!(%error, "discovery.multicast: cannot wait for datagrams; no more nodes are found this way");
            return;
        }
    }
}

/// Reads what there is; says whether that was all.
fn receive(
    socket: &UdpSocket,
    seal: &Seal,
    beacons: &mut Beacons,
    clock: &Clock,
    post: &Post,
    buffer: &mut [u8],
) -> bool {
    for _ in 0..DATAGRAMS_PER_TURN {
        match socket.recv_from(buffer) {
            Ok((length, from)) => {
                let datagram = buffer.get(..length).unwrap_or_default();
                let heard = seal.open(from, datagram).map(|content| beacons.hear(clock.now().instant, content));
                match heard {
                    Some(Ok(())) => {}
                    Some(Err(why)) => {
                        post.refused();
                        tracing::debug!(%from, ?why, "beacon not heard");
                    }
                    None => post.refused(),
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            // Errors of datagrams sent earlier come up here, too.
            Err(error) => tracing::trace!(%error, "no beacon"),
        }
    }
    false
}

fn listen(config: &MulticastConfig, poll: &Poll) -> io::Result<UdpSocket> {
    let socket = open(config)?;
    // Other nodes of this machine listen there, too.
    socket.set_reuse_address(true)?;
    // With the group's address, so that nothing else that comes to the port is read.
    socket.bind(&config.group.address().into())?;
    match (config.group.address(), &config.interface) {
        (SocketAddr::V4(group), Interface::Address(IpAddr::V4(own))) => socket.join_multicast_v4(group.ip(), own)?,
        (SocketAddr::V4(group), Interface::Name(name)) => {
            socket.join_multicast_v4_n(group.ip(), &InterfaceIndexOrAddress::Index(index_of(name)?))?;
        }
        (SocketAddr::V4(group), _) => socket.join_multicast_v4(group.ip(), &Ipv4Addr::UNSPECIFIED)?,
        (SocketAddr::V6(group), Interface::Name(name)) => socket.join_multicast_v6(group.ip(), index_of(name)?)?,
        (SocketAddr::V6(group), _) => socket.join_multicast_v6(group.ip(), 0)?,
    }
    socket.set_nonblocking(true)?;
    let mut socket = UdpSocket::from_std(socket.into());
    poll.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
    Ok(socket)
}

/// A socket whose datagrams leave over the interface.
fn open(config: &MulticastConfig) -> io::Result<Socket> {
    let group = config.group.address();
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    if group.is_ipv4() {
        socket.set_multicast_ttl_v4(u32::from(config.ttl))?;
        socket.set_multicast_loop_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_multicast_hops_v6(u32::from(config.ttl))?;
        socket.set_multicast_loop_v6(true)?;
    }
    match &config.interface {
        Interface::Any => {}
        Interface::Address(IpAddr::V4(own)) => socket.set_multicast_if_v4(own)?,
        Interface::Address(IpAddr::V6(_)) => return Err(ErrorKind::InvalidInput.into()),
        Interface::Name(name) if group.is_ipv6() => socket.set_multicast_if_v6(index_of(name)?)?,
        Interface::Name(name) => socket.bind_device(Some(name.as_bytes()))?,
    }
    Ok(socket)
}

fn index_of(name: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == ErrorKind::NetworkUnreachable {
        "; name the network's interface with discovery.multicast_interface"
    } else if error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(NO_DEVICE) {
        "; discovery.multicast_interface is no interface of this machine now"
    } else if error.kind() == ErrorKind::AddrInUse {
        "; another program has this port for itself: choose another one in discovery.multicast"
    } else {
        ""
    }
}

/// ENODEV.
const NO_DEVICE: i32 = 19;

impl Group {
    /// Where beacons go.
    pub(super) fn address(&self) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, self.port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.port, 0, 0).into(),
        }
    }
}
