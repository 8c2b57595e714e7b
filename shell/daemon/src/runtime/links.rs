//! The node's machine, with its links to other nodes and its datagrams.

mod encryption;

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::{Interest, Registry, Token};
use sedge_base::{Instant, NodeId, Now};
use sedge_cluster::{Kick, LinkId, Mistrust, Node, NodeInput};
use slab::Slab;
use tokio::sync::{mpsc, oneshot};

use super::clients::{CLOSE_GRACE, TOKEN_BASE};
use super::sockets;
use super::wire::{self, Arrival, Chunk, Departure};
use super::{Ask, NeighbourOrder, RemoteKick, WorkerStats};
use crate::seal::{Seal, Unopened};
use crate::transport::{ClusterTls, Secured};

/// The event of the listener for nodes.
pub(crate) const LISTENER: Token = Token(2);
/// The event of datagrams.
pub(crate) const DATAGRAMS: Token = Token(3);
/// Longest datagram that is read; the machine sends none longer than 1,400 bytes.
const DATAGRAM_BYTES_MAX: usize = 4096;
/// Datagrams read in one turn.
const DATAGRAMS_PER_TURN: usize = 256;
/// Links accepted in one turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Reads from one link in one turn: links carry what many clients say.
const READS_PER_LINK: usize = 4;

/// The node's machine and its sockets.
pub(crate) struct Hub {
    pub(crate) node: Node,
    pub(crate) links: Links,
    /// Requests that wait for other nodes to end connections.
    pub(crate) kicks: Kicks,
    /// Receivers of the answers to questions; the node drops the oldest of too many.
    pub(crate) asks: BTreeMap<u64, mpsc::UnboundedSender<(NodeId, Bytes)>>,
    pub(crate) last_ask: u64,
}

/// Requests to end connections at other nodes.
#[derive(Debug, Default)]
pub(crate) struct Kicks {
    last: u64,
    open: BTreeMap<u64, oneshot::Sender<Option<NodeId>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dialling,
    /// Dialled: the connection is there, the TLS handshake is under way.
    Securing,
    Up,
    Closing,
}

/// Whether a link waits to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Queued {
    No,
    /// Something has come.
    Ready,
    /// The other side has ended as well, which has no edge of its own if it came with the last bytes.
    Ended,
}

struct Link {
    id: LinkId,
    stream: TcpStream,
    phase: Phase,
    /// Of an encrypted link.
    secured: Option<Secured>,
    /// Whether anything was read.
    has_read: bool,
    queued: Queued,
    blocked: bool,
    /// Bytes written so far, and how many may be.
    written: u64,
    allowed: u64,
}

/// Sockets of the node.
pub(crate) struct Links {
    listener: Option<TcpListener>,
    knocked: bool,
    udp: UdpSocket,
    datagrams: bool,
    datagram: Box<[u8]>,
    seal: Seal,
    /// TLS configuration of new links.
    tls: Option<Arc<ClusterTls>>,
    slots: Slab<Link>,
    by_id: BTreeMap<LinkId, usize>,
    accepted: u64,
    ready: VecDeque<usize>,
    dirty: Vec<LinkId>,
    /// Number of bytes that a new link may write.
    allowed: u64,
    closings: VecDeque<(Instant, LinkId)>,
}

impl Links {
    pub(crate) fn new(listener: TcpListener, udp: UdpSocket, key: Option<&[u8]>, tls: Option<Arc<ClusterTls>>) -> Self {
        Self {
            listener: Some(listener),
            knocked: true,
            udp,
            datagrams: true,
            datagram: vec![0; DATAGRAM_BYTES_MAX].into(),
            seal: Seal::new(key),
            tls,
            slots: Slab::new(),
            by_id: BTreeMap::new(),
            accepted: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            allowed: u64::MAX,
            closings: VecDeque::new(),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry) -> std::io::Result<()> {
        if let Some(listener) = &mut self.listener {
            registry.register(listener, LISTENER, Interest::READABLE)?;
        }
        registry.register(&mut self.udp, DATAGRAMS, Interest::READABLE)
    }

    /// Whether another turn has something to do at once; `reading`: whether it would accept links and read from them.
    pub(crate) fn is_busy(&self, reading: bool) -> bool {
        self.datagrams || !self.dirty.is_empty() || (reading && (self.knocked || !self.ready.is_empty()))
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.closings.front().map(|&(at, _)| at)
    }

    /// From now on nothing is written that was not allowed with [`Self::allow`].
    pub(crate) const fn gate(&mut self) {
        self.allowed = 0;
    }

    /// The bytes up to this position may be written.
    pub(crate) fn allow(&mut self, id: LinkId, position: u64) {
        if let Some(link) = self.get_mut(id) {
            link.allowed = position;
            self.mark_dirty(id);
        }
    }

    /// No more links from others.
    pub(crate) fn close_listener(&mut self) {
        self.listener = None;
        self.knocked = false;
    }

    /// How many links there are, dialled and closing ones included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Notes what an event says; the work comes later in the turn.
    pub(crate) fn event(&mut self, event: &mio::event::Event) {
        match event.token() {
            LISTENER => self.knocked = true,
            DATAGRAMS => self.datagrams = true,
            Token(token) => {
                let Some(index) = token.checked_sub(TOKEN_BASE).map(|offset| offset / 2) else { return };
                let Some(link) = self.slots.get_mut(index) else { return };
                if event.is_writable() && link.phase != Phase::Dialling && std::mem::take(&mut link.blocked) {
                    self.dirty.push(link.id);
                }
                let has_ended = event.is_read_closed() || event.is_error();
                // A dialled connection is writable when it stands, and in error when it does not.
                if link.queued == Queued::No {
                    self.ready.push_back(index);
                }
                link.queued = link.queued.max(if has_ended { Queued::Ended } else { Queued::Ready });
            }
        }
    }

    /// Sends a datagram; it may get lost.
    pub(crate) fn send_datagram(&mut self, to: SocketAddr, content: &[u8], stats: &mut WorkerStats) {
        match self.udp.send_to(&self.seal.close(content), to) {
            Ok(_) => stats.datagrams_out += 1,
            Err(error) => {
                stats.datagrams_lost += 1;
                tracing::trace!(%to, %error, "datagram not sent");
            }
        }
    }

    /// Tells the sender of a datagram that it is not taken; may get lost.
    pub(crate) fn refuse(&mut self, to: SocketAddr, cause: Mistrust) {
        if let Err(error) = self.udp.send_to(&Seal::refusal(cause), to) {
            tracing::trace!(%to, %error, "refusal not sent");
        }
    }

    /// Marks that a link has something to write.
    pub(crate) fn mark_dirty(&mut self, id: LinkId) {
        let link = self.by_id.get(&id).and_then(|&index| self.slots.get(index));
        if link.is_some_and(|link| !link.blocked && link.phase != Phase::Dialling) && !self.dirty.contains(&id) {
            self.dirty.push(id);
        }
    }

    fn insert(&mut self, registry: &Registry, id: LinkId, mut stream: TcpStream, phase: Phase) -> std::io::Result<()> {
        let entry = self.slots.vacant_entry();
        let index = entry.key();
        let token = Token(TOKEN_BASE + 2 * index + 1);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let (written, allowed) = (0, self.allowed);
        let (secured, has_read, queued, blocked) = (None, false, Queued::No, false);
        entry.insert(Link { id, stream, phase, secured, has_read, queued, blocked, written, allowed });
        self.by_id.insert(id, index);
        Ok(())
    }

    fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.by_id.remove(&id).and_then(|index| self.slots.try_remove(index))
    }

    fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get(&id).and_then(|&index| self.slots.get_mut(index))
    }
}

impl Hub {
    /// Has a connection ended that may be at another node.
    pub(crate) fn kick(&mut self, now: Now, kick: RemoteKick) {
        let RemoteKick { client, reason, end_session, answer } = kick;
        self.kicks.last += 1;
        let request = self.kicks.last;
        self.kicks.open.insert(request, answer);
        self.node.handle(now, NodeInput::Kick(Kick { request, client, reason, end_session }));
    }

    /// The answer has come.
    pub(crate) fn kicked(&mut self, request: u64, by: Option<NodeId>) {
        if let Some(answer) = self.kicks.open.remove(&request) {
            // Whoever asked may have gone.
            let _ = answer.send(by);
        }
    }

    /// Chooses a link, or ends one.
    pub(crate) fn neighbour(&mut self, now: Now, order: NeighbourOrder) {
        let NeighbourOrder { addresses, wanted, answer } = order;
        let done = self.node.neighbour(now, &addresses, wanted);
        // Whoever asked may have gone.
        let _ = answer.send(done.map(|()| self.node.status()));
    }

    /// Puts a question to other nodes.
    pub(crate) fn ask(&mut self, now: Now, ask: Ask) {
        let Ask { to, question, answers } = ask;
        self.last_ask += 1;
        self.asks.insert(self.last_ask, answers);
        self.node.handle(now, NodeInput::Ask { to, request: self.last_ask, question });
    }

    /// An answer has come, or the last is there.
    pub(crate) fn answered(&mut self, request: u64, answer: Option<(NodeId, Bytes)>, last: bool) {
        if let (Some(answer), Some(answers)) = (answer, self.asks.get(&request)) {
            // Whoever asked may have gone.
            let _ = answers.send(answer);
        }
        if last {
            self.asks.remove(&request);
        }
    }

    /// Starts to connect to another node.
    pub(crate) fn dial(&mut self, registry: &Registry, now: Now, link: LinkId, to: SocketAddr) {
        let dialled = TcpStream::connect(to).and_then(|stream| {
            sockets::prepare_dialled(&stream);
            self.links.insert(registry, link, stream, Phase::Dialling)
        });
        if let Err(error) = dialled {
            tracing::debug!(%to, %error, "cannot dial");
            self.node.handle(now, failed_dial(link, &error));
        }
    }

    /// Closes a link once its outbox is written.
    pub(crate) fn close(&mut self, now: Instant, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        if matches!(link.phase, Phase::Dialling | Phase::Securing) {
            self.links.remove(id);
            return;
        }
        link.phase = Phase::Closing;
        self.links.closings.push_back((now + CLOSE_GRACE, id));
        self.links.mark_dirty(id);
    }

    /// Accepts links.
    pub(crate) fn accept(&mut self, registry: &Registry, now: Now) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.links.listener.as_ref().filter(|_| self.links.knocked) else { return };
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Without descriptors the next knock tries again: the other node redials.
                    self.links.knocked = matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted);
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::debug!(%error, "cannot accept a link");
                    }
                    continue;
                }
            };
            sockets::prepare(&stream);
            let link = LinkId(LinkId::ACCEPTED + self.links.accepted);
            self.links.accepted += 1;
            match self.links.insert(registry, link, stream, Phase::Up) {
                Ok(()) => self.accepted(now, link, peer),
                Err(error) => tracing::warn!(%peer, %error, "cannot take a link in"),
            }
        }
    }

    /// The position behind the last byte that the link has to write.
    pub(crate) fn end_of(&mut self, id: LinkId) -> Option<u64> {
        let written = self.links.get_mut(id)?.written;
        Some(written + self.node.link_outbox(id)?.len() as u64)
    }

    /// Reads datagrams.
    pub(crate) fn receive(&mut self, now: Now, stats: &mut WorkerStats) {
        if !self.links.datagrams {
            return;
        }
        for _ in 0..DATAGRAMS_PER_TURN {
            let links = &mut self.links;
            match links.udp.recv_from(&mut links.datagram) {
                Ok((length, from)) => {
                    stats.datagrams_in += 1;
                    let datagram = links.datagram.get(..length).unwrap_or_default();
                    let Some(content) = links.seal.open(from, datagram) else {
                        stats.datagrams_refused += 1;
                        match links.seal.explain(from, datagram) {
                            Unopened::Noise => {}
                            Unopened::Mistrusted(cause) => self.node.handle(now, NodeInput::Mistrusted { from, cause }),
                            Unopened::Refusal(cause) => self.node.handle(now, NodeInput::Refusal { from, cause }),
                        }
                        continue;
                    };
                    let bytes = Bytes::copy_from_slice(content);
                    self.node.handle(now, NodeInput::Datagram { from, bytes });
                }
                // Errors of earlier datagrams (port unreachable) come up here, too, and say nothing about this one.
                Err(error) if error.kind() != ErrorKind::WouldBlock => {}
                Err(_) => {
                    links.datagrams = false;
                    return;
                }
            }
        }
    }

    /// Reads from links that have something; at most what had something when it began.
    pub(crate) fn read(&mut self, now: Now, chunk: &mut Chunk, stats: &mut WorkerStats) {
        for _ in 0..self.links.ready.len() {
            let Some(index) = self.links.ready.pop_front() else { return };
            let Some(link) = self.links.slots.get_mut(index) else { continue };
            let queued = std::mem::replace(&mut link.queued, Queued::No);
            let id = link.id;
            if link.phase == Phase::Dialling && !self.connected(now, id) {
                continue;
            }
            self.read_link(now, id, queued, chunk, stats);
        }
    }

    /// Whether a dialled connection stands by now; tells the machine either way.
    fn connected(&mut self, now: Now, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(id) else { return false };
        let failure = match (link.stream.take_error(), link.stream.peer_addr()) {
            (Ok(None), Ok(_)) => {
                self.dialled(now, id);
                return true;
            }
            (Ok(None), Err(error)) if error.kind() == ErrorKind::NotConnected => return false,
            (Ok(Some(error)) | Err(error), _) | (_, Err(error)) => error,
        };
        tracing::debug!(error = %failure, "dial failed");
        self.links.remove(id);
        self.node.handle(now, failed_dial(id, &failure));
        false
    }

    fn read_link(&mut self, now: Now, id: LinkId, queued: Queued, chunk: &mut Chunk, stats: &mut WorkerStats) {
        for _ in 0..READS_PER_LINK {
            let Some(link) = self.links.get_mut(id) else { return };
            if link.phase == Phase::Closing {
                // Further bytes of a closing link are read and dropped; only its end counts.
                match chunk.discard(&mut link.stream) {
                    Arrival::Bytes(_, true) => continue,
                    Arrival::Bytes(_, false) | Arrival::Nothing => return,
                    Arrival::End | Arrival::Broken => {
                        self.links.remove(id);
                        return;
                    }
                }
            }
            match chunk.read(&mut link.stream) {
                Arrival::Bytes(bytes, more) => {
                    stats.reads += 1;
                    self.took(now, id, bytes);
                    if !more && queued < Queued::Ended {
                        return;
                    }
                }
                Arrival::Nothing => return,
                Arrival::End | Arrival::Broken => return self.lose(now, id),
            }
        }
        if let Some(&index) = self.links.by_id.get(&id)
            && let Some(link) = self.links.slots.get_mut(index)
            && std::mem::replace(&mut link.queued, queued) == Queued::No
        {
            self.links.ready.push_back(index);
        }
    }

    /// One write for each link that has something.
    pub(crate) fn flush(&mut self, now: Now, stats: &mut WorkerStats) {
        for id in std::mem::take(&mut self.links.dirty) {
            self.write(now, id, stats);
        }
        while let Some(&(at, id)) = self.links.closings.front() {
            if at > now.instant {
                break;
            }
            self.links.closings.pop_front();
            self.links.remove(id);
        }
    }

    fn write(&mut self, now: Now, id: LinkId, stats: &mut WorkerStats) {
        let Some(&index) = self.links.by_id.get(&id) else { return };
        let Some(link) = self.links.slots.get_mut(index) else { return };
        let limit = usize::try_from(link.allowed.saturating_sub(link.written)).unwrap_or(usize::MAX);
        let outbox = self.node.link_outbox(id);
        let departure = match &mut link.secured {
            Some(secured) => Some(secured.write(&mut link.stream, outbox.as_deref(), limit)),
            None => outbox.map(|outbox| wire::write(&mut link.stream, outbox, limit)),
        };
        match departure {
            Some(Departure::Written(bytes, all)) => {
                stats.writes += 1;
                link.blocked = !all;
                link.written += bytes as u64;
                let may_write = link.written < link.allowed;
                if bytes > 0 {
                    self.node.handle(now, NodeInput::LinkWritten { link: id, bytes });
                }
                let left = self.node.link_outbox(id).is_some_and(|outbox| !outbox.is_empty());
                if left {
                    if may_write {
                        self.links.mark_dirty(id);
                    }
                    return;
                }
            }
            Some(Departure::Broken) => return self.lose(now, id),
            None => {}
        }
        let closing = self.links.get_mut(id).filter(|link| link.phase == Phase::Closing && !link.blocked);
        let Some(link) = closing else { return };
        if let Some(secured) = &mut link.secured {
            secured.finish();
            secured.write(&mut link.stream, None, 0);
        }
        if link.stream.shutdown(std::net::Shutdown::Write).is_err() {
            self.links.remove(id);
        }
    }
}

/// The input for the node's machine after a dial that has failed.
fn failed_dial(link: LinkId, error: &std::io::Error) -> NodeInput {
    if error.kind() == ErrorKind::ConnectionRefused {
        NodeInput::LinkRefused { link }
    } else {
        NodeInput::LinkClosed { link }
    }
}
