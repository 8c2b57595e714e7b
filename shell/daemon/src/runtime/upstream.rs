//! Connections to the broker behind this node.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use sedge_base::{Instant, Now};
use sedge_cluster::{Shard, ShardInput, UpstreamInput};
use sedge_sidecar::{LinkId, Origin};
use slab::Slab;

use super::WorkerStats;
use super::sockets;
use super::wire::{self, Arrival, Chunk, Departure};
use crate::host_port::HostPort;
use crate::transport::{Secured, Socket, UpstreamTls, explain, proxy_header};

/// Tokens from here on are connections to the broker.
pub(crate) const TOKEN_BASE: usize = 1 << 25;
/// Reads from one connection in one turn.
const READS_PER_LINK: usize = 4;
/// How long a connection waits before it tries again to find room in the backlog of a Unix socket, and when it is given up.
const CROWDED: Duration = Duration::from_millis(5);
const CROWDED_MAX: Duration = Duration::from_secs(20);
/// How often a name is looked up again.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);

/// Where the broker is.
#[derive(Clone, Debug)]
pub(crate) struct BrokerPlace {
    tls: Option<UpstreamTls>,
    tells_origins: bool,
    addresses: Addresses,
}

#[derive(Clone, Debug)]
enum Addresses {
    /// The addresses of the broker's host; a thread of its own looks up the name.
    Network(Arc<Mutex<Vec<SocketAddr>>>),
    /// A Unix socket of this machine.
    Local(Arc<Path>),
}

/// Where one connection goes.
#[derive(Clone, Debug)]
enum Address {
    Network(SocketAddr),
    Local(Arc<Path>),
}

impl BrokerPlace {
    /// A broker at a Unix socket of this machine.
    pub(crate) fn local(path: PathBuf, tells_origins: bool) -> Self {
        Self { tls: None, tells_origins, addresses: Addresses::Local(path.into()) }
    }

    /// A broker at this host; a name is looked up now and then, the first time before this returns.
    pub(crate) fn network(host: HostPort, tls: Option<UpstreamTls>, tells_origins: bool) -> io::Result<Self> {
        let found = Arc::new(Mutex::new(Vec::new()));
        let place = Self { tls, tells_origins, addresses: Addresses::Network(Arc::clone(&found)) };
        if let Some(address) = host.literal() {
            set(&found, vec![address]);
            return Ok(place);
        }
        if let Ok(addresses) = host.resolve() {
            set(&found, addresses);
        }
        let weak = Arc::downgrade(&found);
        std::thread::Builder::new().name("sedge-names".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOOK_UP_EVERY);
                let Some(found) = weak.upgrade() else { return };
                match host.resolve() {
                    Ok(addresses) if !addresses.is_empty() => set(&found, addresses),
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%host, %error, "cannot look up the broker's name"),
                }
            }
        })?;
        Ok(place)
    }

    fn address(&self, turn: u64) -> Option<Address> {
        match &self.addresses {
            Addresses::Local(path) => Some(Address::Local(Arc::clone(path))),
            Addresses::Network(found) => {
                let found = found.lock().unwrap_or_else(PoisonError::into_inner);
                let at = usize::try_from(turn).unwrap_or(0) % found.len().max(1);
                found.get(at).copied().map(Address::Network)
            }
        }
    }
}

fn set(found: &Mutex<Vec<SocketAddr>>, addresses: Vec<SocketAddr>) {
    *found.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
}

impl Address {
    /// Begins to connect. A Unix socket whose backlog is full answers at once that it cannot.
    fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Network(address) => {
                let stream = TcpStream::connect(*address)?;
                sockets::prepare_dialled(&stream);
                Ok(Socket::Tcp(stream))
            }
            Self::Local(path) => UnixStream::connect(path).map(Socket::Unix),
        }
    }

    const fn network(&self) -> Option<SocketAddr> {
        match self {
            Self::Network(address) => Some(*address),
            Self::Local(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dialling,
    Securing,
    Up,
    Closing,
}

struct Link {
    id: LinkId,
    stream: Socket,
    phase: Phase,
    secured: Option<Secured>,
    /// A PROXY header that goes ahead of everything.
    header: Bytes,
    reading: Reading,
    writing: Writing,
}

#[derive(Default)]
struct Reading {
    /// There may be something to read, and it is on the list for that.
    queued: bool,
    /// The broker has ended: a short read does not mean that all was read.
    ended: bool,
    /// The shard wants nothing more from it for now.
    held: bool,
}

#[derive(Default)]
struct Writing {
    /// The socket took less than it was given.
    blocked: bool,
    /// It is on the list of those with something to write.
    dirty: bool,
    /// The kernel tells when the socket takes more.
    watched: bool,
}

/// All connections to the broker.
pub(crate) struct Upstreams {
    place: BrokerPlace,
    slots: Slab<Link>,
    by_id: BTreeMap<LinkId, usize>,
    ready: Vec<usize>,
    dirty: Vec<usize>,
    dials: u64,
    /// Something was written since somebody asked.
    written: bool,
    /// Connections for which the backlog of the broker's Unix socket has no room yet; at most one for each conversation.
    crowded: VecDeque<Crowded>,
    /// When they try again.
    retry_at: Instant,
}

struct Crowded {
    link: LinkId,
    origin: Option<Box<Origin>>,
    until: Instant,
}

impl Upstreams {
    pub(crate) fn new(place: BrokerPlace) -> Self {
        let (slots, by_id) = (Slab::new(), BTreeMap::new());
        let (ready, dirty, crowded) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { place, slots, by_id, ready, dirty, dials: 0, written: false, crowded, retry_at: Instant::ZERO }
    }

    /// Whether another turn has something to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        !self.dirty.is_empty()
            || self.ready.iter().any(|&index| self.slots.get(index).is_some_and(|link| !link.reading.held))
    }

    /// Notes what an event says; the work comes later in the turn.
    pub(crate) fn event(&mut self, event: &mio::event::Event) {
        let Some(index) = event.token().0.checked_sub(TOKEN_BASE) else { return };
        let Some(link) = self.slots.get_mut(index) else { return };
        let has_ended = event.is_read_closed() || event.is_error();
        link.reading.ended |= has_ended;
        // A connection comes about with its first event of any kind.
        let is_dialling = link.phase == Phase::Dialling;
        if event.is_writable() && link.writing.blocked && !is_dialling {
            link.writing.blocked = false;
            self.mark_dirty(index);
        }
        if event.is_readable() || has_ended || is_dialling {
            self.mark_ready(index);
        }
    }

    fn mark_ready(&mut self, index: usize) {
        if let Some(link) = self.slots.get_mut(index)
            && !link.reading.queued
        {
            link.reading.queued = true;
            self.ready.push(index);
        }
    }

    fn mark_dirty(&mut self, index: usize) {
        if let Some(link) = self.slots.get_mut(index)
            && !link.writing.dirty
        {
            link.writing.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Connects to the broker on behalf of a client.
    pub(crate) fn dial(
        &mut self,
        registry: &Registry,
        (now, shard): (Now, &mut Shard),
        link: LinkId,
        origin: Option<Origin>,
    ) {
        let until = now.instant + CROWDED_MAX;
        self.try_dial(registry, (now, shard), Crowded { link, origin: origin.map(Box::new), until });
    }

    /// Tries again to connect for those that have found no room; the first one without room ends the attempt.
    pub(crate) fn retry(&mut self, registry: &Registry, (now, shard): (Now, &mut Shard)) {
        if now.instant < self.retry_at {
            return;
        }
        for _ in 0..self.crowded.len() {
            let Some(next) = self.crowded.pop_front() else { return };
            if !self.try_dial(registry, (now, &mut *shard), next) {
                return;
            }
        }
    }

    /// When connections try again that have found no room.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (!self.crowded.is_empty()).then_some(self.retry_at)
    }

    /// Connections that have found no room yet.
    pub(crate) fn crowded(&self) -> usize {
        self.crowded.len()
    }

    /// False if there was no room and the connection is to be tried again.
    fn try_dial(&mut self, registry: &Registry, (now, shard): (Now, &mut Shard), dial: Crowded) -> bool {
        self.dials += 1;
        let link = dial.link;
        let Some(address) = self.place.address(self.dials) else {
            failed(now, shard, link, "the broker's name has no address");
            return true;
        };
        let Err(error) = self.connect(registry, &address, &dial) else { return true };
        if error.kind() == ErrorKind::WouldBlock && now.instant < dial.until {
            self.crowded.push_front(dial);
            self.retry_at = now.instant + CROWDED;
            return false;
        }
        failed(now, shard, link, &format!("cannot connect to {address}: {error}"));
        true
    }

    fn connect(&mut self, registry: &Registry, address: &Address, dial: &Crowded) -> io::Result<()> {
        let header = if self.place.tells_origins {
            Bytes::from(proxy_header(dial.origin.as_deref(), address.network()))
        } else {
            Bytes::new()
        };
        let secured = self.place.tls.as_ref().map(UpstreamTls::dial).transpose();
        let secured = secured.map_err(|error| io::Error::other(explain(&error)))?;
        let mut stream = address.connect()?;
        let entry = self.slots.vacant_entry();
        let index = entry.key();
        registry.register(&mut stream, Token(TOKEN_BASE + index), Interest::READABLE | Interest::WRITABLE)?;
        let (id, phase) = (dial.link, Phase::Dialling);
        let (reading, writing) = (Reading::default(), Writing::default());
        entry.insert(Link { id, stream, phase, secured, header, reading, writing });
        self.by_id.insert(id, index);
        Ok(())
    }

    /// Whether the broker is told for which client each connection is.
    pub(crate) const fn tells_origins(&self) -> bool {
        self.place.tells_origins
    }

    /// Whether something was written to the broker since the last call.
    pub(crate) fn take_written(&mut self) -> bool {
        std::mem::take(&mut self.written)
    }

    /// There is something to write.
    pub(crate) fn transmit(&mut self, link: LinkId) {
        if let Some(&index) = self.by_id.get(&link) {
            self.mark_dirty(index);
        }
    }

    /// Whether to read from a connection.
    pub(crate) fn hold(&mut self, link: LinkId, held: bool) {
        let index = self.by_id.get(&link).copied();
        if let Some(link) = index.and_then(|index| self.slots.get_mut(index)) {
            link.reading.held = held;
        }
    }

    /// Closes a connection. The sidecar has nothing more to say on it.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.crowded.retain(|waiting| waiting.link != link);
        if let Some(index) = self.by_id.remove(&link)
            && let Some(link) = self.slots.get_mut(index)
        {
            link.phase = Phase::Closing;
            self.slots.remove(index);
        }
    }

    /// Reads from connections that have something.
    pub(crate) fn read(
        &mut self,
        registry: &Registry,
        (now, shard): (Now, &mut Shard),
        chunk: &mut Chunk,
        stats: &mut WorkerStats,
    ) {
        for index in std::mem::take(&mut self.ready) {
            let Some(link) = self.slots.get_mut(index) else { continue };
            link.reading.queued = false;
            if link.reading.held {
                self.mark_ready(index);
                continue;
            }
            if link.phase == Phase::Dialling && !self.connected(registry, (now, shard), index) {
                continue;
            }
            self.read_one((now, shard), index, chunk, stats);
        }
    }

    fn connected(&mut self, registry: &Registry, (now, shard): (Now, &mut Shard), index: usize) -> bool {
        let Some(link) = self.slots.get_mut(index) else { return false };
        let failure = match (link.stream.take_error(), link.stream.is_connected()) {
            (Ok(None), Ok(true)) => {
                self.watch(registry, index);
                let Some(link) = self.slots.get_mut(index) else { return false };
                link.phase = if link.secured.is_some() { Phase::Securing } else { Phase::Up };
                let id = link.id;
                self.mark_dirty(index);
                if self.slots.get(index).is_some_and(|link| link.phase == Phase::Up) {
                    shard.handle(now, ShardInput::Upstream(UpstreamInput::Opened(id)));
                }
                return true;
            }
            (Ok(None), Ok(false)) => return false,
            (Ok(Some(error)) | Err(error), _) | (_, Err(error)) => error,
        };
        self.lose((now, shard), index, &format!("cannot connect to the broker: {failure}"));
        false
    }

    fn read_one(&mut self, (now, shard): (Now, &mut Shard), index: usize, chunk: &mut Chunk, stats: &mut WorkerStats) {
        for _ in 0..READS_PER_LINK {
            let Some(link) = self.slots.get_mut(index) else { return };
            match chunk.read(&mut link.stream) {
                Arrival::Bytes(bytes, more) => {
                    stats.reads += 1;
                    let ended = link.reading.ended;
                    self.took((now, shard), index, bytes);
                    if !more && !ended {
                        return;
                    }
                }
                Arrival::Nothing => return,
                Arrival::End => return self.lose((now, shard), index, "the broker has closed the connection"),
                Arrival::Broken => return self.lose((now, shard), index, "the connection to the broker is broken"),
            }
        }
        self.mark_ready(index);
    }

    fn took(&mut self, (now, shard): (Now, &mut Shard), index: usize, bytes: BytesMut) {
        let Some(entry) = self.slots.get_mut(index) else { return };
        let link = entry.id;
        let Some(secured) = &mut entry.secured else {
            return shard.handle(now, ShardInput::Upstream(UpstreamInput::Received { link, bytes: bytes.freeze() }));
        };
        let mut plain = BytesMut::new();
        let ended = secured.receive(&bytes, &mut plain);
        let opened = secured.opened();
        let failure = match (&ended, &opened) {
            (Err(error), _) | (_, Err(error)) => Some(explain(error)),
            (Ok(_), Ok(opened)) => {
                if opened.is_some() {
                    entry.phase = Phase::Up;
                    shard.handle(now, ShardInput::Upstream(UpstreamInput::Opened(link)));
                }
                None
            }
        };
        self.mark_dirty(index);
        if let Some(why) = failure {
            return self.lose((now, shard), index, &why);
        }
        if !plain.is_empty() {
            shard.handle(now, ShardInput::Upstream(UpstreamInput::Received { link, bytes: plain.freeze() }));
        }
    }

    /// Asks the kernel to tell of room for output only while output waits: a Unix socket tells of it whenever its peer has read.
    fn watch(&mut self, registry: &Registry, index: usize) {
        let Some(link) = self.slots.get_mut(index) else { return };
        let interests = if link.writing.blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if let Err(error) = registry.reregister(&mut link.stream, Token(TOKEN_BASE + index), interests) {
            tracing::debug!(%error, "cannot change what is watched of a connection to the broker");
        }
    }

    /// One write for each connection that has something.
    pub(crate) fn flush(&mut self, registry: &Registry, (now, shard): (Now, &mut Shard), stats: &mut WorkerStats) {
        for index in std::mem::take(&mut self.dirty) {
            let Some(link) = self.slots.get_mut(index) else { continue };
            link.writing.dirty = false;
            if link.phase == Phase::Dialling || link.writing.blocked {
                continue;
            }
            let was_watched = std::mem::take(&mut link.writing.watched);
            self.write((now, shard), index, stats);
            let Some(link) = self.slots.get_mut(index) else { continue };
            link.writing.watched = link.writing.blocked;
            if link.writing.watched != was_watched {
                self.watch(registry, index);
            }
        }
    }

    fn write(&mut self, (now, shard): (Now, &mut Shard), index: usize, stats: &mut WorkerStats) {
        let Some(entry) = self.slots.get_mut(index) else { return };
        while !entry.header.is_empty() {
            match entry.stream.write(&entry.header) {
                Ok(written) => drop(entry.header.split_to(written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    entry.writing.blocked = true;
                    return;
                }
                Err(_) => return self.lose((now, shard), index, "the connection to the broker is broken"),
            }
        }
        let (link, is_up) = (entry.id, entry.phase == Phase::Up);
        let outbox = shard.upstream_outbox(link).filter(|_| is_up);
        let departure = match &mut entry.secured {
            Some(secured) => Some(secured.write(&mut entry.stream, outbox.as_deref(), usize::MAX)),
            None => outbox.map(|outbox| wire::write(&mut entry.stream, outbox, usize::MAX)),
        };
        match departure {
            Some(Departure::Written(bytes, all)) => {
                stats.writes += 1;
                self.written = true;
                entry.writing.blocked = !all;
                if bytes > 0 {
                    shard.handle(now, ShardInput::Upstream(UpstreamInput::Written { link, bytes }));
                }
                let left = shard.upstream_outbox(link).is_some_and(|outbox| !outbox.is_empty());
                if all && left && is_up {
                    self.mark_dirty(index);
                }
            }
            Some(Departure::Broken) => self.lose((now, shard), index, "the connection to the broker is broken"),
            None => {}
        }
    }

    fn lose(&mut self, (now, shard): (Now, &mut Shard), index: usize, why: &str) {
        if !self.slots.contains(index) {
            return;
        }
        let link = self.slots.remove(index).id;
        self.by_id.remove(&link);
        failed(now, shard, link, why);
    }
}

fn failed(now: Now, shard: &mut Shard, link: LinkId, why: &str) {
    shard.handle(now, ShardInput::Upstream(UpstreamInput::Closed { link, why: why.to_owned() }));
}
