//! Connections to the broker behind this node.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use sedge_base::Now;
use sedge_cluster::{Shard, ShardInput, UpstreamInput};
use sedge_sidecar::LinkId;
use slab::Slab;

use super::WorkerStats;
use super::sockets;
use super::wire::{self, Arrival, Chunk, Departure};
use crate::host_port::HostPort;
use crate::transport::{Secured, UpstreamTls, explain, proxy_header};

/// Tokens from here on are connections to the broker.
pub(crate) const TOKEN_BASE: usize = 1 << 25;
/// Reads from one connection in one turn.
const READS_PER_LINK: usize = 4;
/// How often a name is looked up again.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);

/// Where the broker is.
#[derive(Clone, Debug)]
pub(crate) struct BrokerPlace {
    pub(crate) tls: Option<UpstreamTls>,
    pub(crate) tells_addresses: bool,
    /// Addresses of the broker's host; a thread of its own looks up the name.
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
}

impl BrokerPlace {
    /// A broker at this host; a name is looked up now and then, the first time before this returns.
    pub(crate) fn new(host: HostPort, tls: Option<UpstreamTls>, tells_addresses: bool) -> std::io::Result<Self> {
        let addresses = Arc::new(Mutex::new(Vec::new()));
        let place = Self { tls, tells_addresses, addresses: Arc::clone(&addresses) };
        if let Some(address) = host.literal() {
            place.set(vec![address]);
            return Ok(place);
        }
        if let Ok(found) = host.resolve() {
            place.set(found);
        }
        let weak = Arc::downgrade(&addresses);
        std::thread::Builder::new().name("sedge-names".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOOK_UP_EVERY);
                let Some(addresses) = weak.upgrade() else { return };
                match host.resolve() {
                    Ok(found) if !found.is_empty() => {
                        *addresses.lock().unwrap_or_else(PoisonError::into_inner) = found;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%host, %error, "cannot look up the broker's name"),
                }
            }
        })?;
        Ok(place)
    }

    fn set(&self, found: Vec<SocketAddr>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn address(&self, turn: u64) -> Option<SocketAddr> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(turn).unwrap_or(0) % addresses.len().max(1);
        addresses.get(at).copied()
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
    stream: TcpStream,
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
}

/// All connections to the broker.
pub(crate) struct Upstreams {
    place: BrokerPlace,
    slots: Slab<Link>,
    by_id: BTreeMap<LinkId, usize>,
    ready: Vec<usize>,
    dirty: Vec<usize>,
    dials: u64,
}

impl Upstreams {
    pub(crate) fn new(place: BrokerPlace) -> Self {
        let (slots, by_id) = (Slab::new(), BTreeMap::new());
        Self { place, slots, by_id, ready: Vec::new(), dirty: Vec::new(), dials: 0 }
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
        link.reading.ended |= event.is_read_closed() || event.is_error();
        if event.is_writable() && link.phase != Phase::Dialling {
            link.writing.blocked = false;
            self.mark_dirty(index);
        }
        self.mark_ready(index);
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

    /// Connects to the broker on behalf of a client at `peer`.
    pub(crate) fn dial(
        &mut self,
        registry: &Registry,
        (now, shard): (Now, &mut Shard),
        link: LinkId,
        peer: Option<&str>,
    ) {
        self.dials += 1;
        let Some(address) = self.place.address(self.dials) else {
            return failed(now, shard, link, "the broker's name has no address");
        };
        let header = if self.place.tells_addresses {
            Bytes::from(proxy_header(peer.and_then(|peer| peer.parse().ok()), address))
        } else {
            Bytes::new()
        };
        let secured = match self.place.tls.as_ref().map(UpstreamTls::dial).transpose() {
            Ok(secured) => secured,
            Err(error) => return failed(now, shard, link, &explain(&error)),
        };
        let dialled = TcpStream::connect(address).and_then(|mut stream| {
            sockets::prepare_dialled(&stream);
            let entry = self.slots.vacant_entry();
            let index = entry.key();
            registry.register(&mut stream, Token(TOKEN_BASE + index), Interest::READABLE | Interest::WRITABLE)?;
            let (id, phase) = (link, Phase::Dialling);
            let (reading, writing) = (Reading::default(), Writing::default());
            entry.insert(Link { id, stream, phase, secured, header, reading, writing });
            self.by_id.insert(link, index);
            Ok(())
        });
        if let Err(error) = dialled {
            failed(now, shard, link, &format!("cannot connect to {address}: {error}"));
        }
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
        if let Some(index) = self.by_id.remove(&link)
            && let Some(link) = self.slots.get_mut(index)
        {
            link.phase = Phase::Closing;
            self.slots.remove(index);
        }
    }

    /// Reads from connections that have something.
    pub(crate) fn read(&mut self, (now, shard): (Now, &mut Shard), chunk: &mut Chunk, stats: &mut WorkerStats) {
        for index in std::mem::take(&mut self.ready) {
            let Some(link) = self.slots.get_mut(index) else { continue };
            link.reading.queued = false;
            if link.reading.held {
                self.mark_ready(index);
                continue;
            }
            if link.phase == Phase::Dialling && !self.connected((now, shard), index) {
                continue;
            }
            self.read_one((now, shard), index, chunk, stats);
        }
    }

    fn connected(&mut self, (now, shard): (Now, &mut Shard), index: usize) -> bool {
        let Some(link) = self.slots.get_mut(index) else { return false };
        let failure = match (link.stream.take_error(), link.stream.peer_addr()) {
            (Ok(None), Ok(_)) => {
                link.phase = if link.secured.is_some() { Phase::Securing } else { Phase::Up };
                let id = link.id;
                self.mark_dirty(index);
                if self.slots.get(index).is_some_and(|link| link.phase == Phase::Up) {
                    shard.handle(now, ShardInput::Upstream(UpstreamInput::Opened(id)));
                }
                return true;
            }
            (Ok(None), Err(error)) if error.kind() == ErrorKind::NotConnected => return false,
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

    /// One write for each connection that has something.
    pub(crate) fn flush(&mut self, (now, shard): (Now, &mut Shard), stats: &mut WorkerStats) {
        for index in std::mem::take(&mut self.dirty) {
            if let Some(link) = self.slots.get_mut(index) {
                link.writing.dirty = false;
                if link.phase != Phase::Dialling && !link.writing.blocked {
                    self.write((now, shard), index, stats);
                }
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
