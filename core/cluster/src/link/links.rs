//! All links of a node: the surface of the machine.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sedge_base::{Deadlines, Incarnation, Instant, NodeId, Outbox, Rng};

use super::carried::Carried;
use super::channel::Channel;
use super::closing::{Farewell, STALE};
use super::conn::{Conn, Stage};
use super::encode::{ACK, number, size_bound};
use super::notices::{Kind, Notices};
use super::peer::Peer;
use super::{ControlTopic, Frame, FrameSeq, Hello, LinkConfig, LinkCounters, Output, Protocol, Publication, SendError};
use crate::{LinkId, LinkStatus};

/// A reason why the machine wants to be called at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Dial this node.
    Redial(NodeId),
    /// Dial this node through others.
    Carry(NodeId),
    /// Give up the handshake.
    Handshake(LinkId),
    /// Measure the round trip.
    Ping(LinkId),
    /// See whether the link has been silent.
    Silence(LinkId),
    /// Dial further connections with this node.
    Lanes(NodeId),
    /// Forget what a closed link could not write.
    Closing(LinkId),
    /// Forget a neighbour whose link nobody here wants.
    Linger(NodeId),
}

/// Nodes of other versions that are kept in mind.
pub(super) const INCOMPATIBLE_MAX: usize = 16;

/// A node to which there can be no link because of its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    /// Where it was, or came from.
    pub address: SocketAddr,
    /// The reason, for the node's operator.
    pub why: String,
}

/// The links of a node to its neighbours. See the [module](crate::link).
#[derive(Debug)]
pub struct Links {
    pub(super) config: LinkConfig,
    pub(super) me: Hello,
    pub(super) rng: Rng,
    pub(super) conns: BTreeMap<LinkId, Conn>,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) incompatible: BTreeMap<NodeId, Incompatible>,
    /// Publications with QoS 1 and 2 that former lives of neighbours have not acknowledged, until somebody asks.
    pub(super) former: BTreeMap<NodeId, Vec<Publication>>,
    pub(super) carried: Carried,
    /// Bytes that closed links have still to write.
    pub(super) closing: BTreeMap<LinkId, Outbox>,
    pub(super) timers: Deadlines<Timer>,
    pub(super) outputs: VecDeque<Output>,
    pub(super) counters: LinkCounters,
    pub(super) notices: Notices,
    /// Neighbours whose frames may have to be acknowledged.
    pub(super) unanswered: Vec<NodeId>,
    pub(super) last_dial: u64,
    pub(super) last_stream: u64,
    pub(super) nonces: u64,
    pub(super) is_shut_down: bool,
}

impl Links {
    /// No links yet. `rng` jitters redials and feeds nonces.
    pub fn new(config: LinkConfig, me: Hello, rng: Rng) -> Self {
        Self {
            config,
            me,
            rng,
            conns: BTreeMap::new(),
            peers: BTreeMap::new(),
            incompatible: BTreeMap::new(),
            former: BTreeMap::new(),
            carried: Carried::default(),
            closing: BTreeMap::new(),
            timers: Deadlines::new(),
            outputs: VecDeque::new(),
            counters: LinkCounters::default(),
            notices: Notices::default(),
            unanswered: Vec::new(),
            last_dial: 0,
            last_stream: 0,
            nonces: 0,
            is_shut_down: false,
        }
    }

    /// Keeps a link to this member from now on. The node with the lower id dials; the other waits for it, but not for ever.
    /// A higher incarnation than known closes the link to the former life and drops its frames; a lower one is ignored.
    pub fn want(&mut self, now: Instant, node: NodeId, incarnation: Incarnation, addr: SocketAddr) {
        if self.is_shut_down || node == self.me.node {
            return;
        }
        let known = self.peers.get(&node).and_then(|peer| peer.channel.incarnation);
        if known > Some(incarnation) {
            return;
        }
        if known.is_some_and(|known| known < incarnation) {
            self.leave_former_life(now, node, incarnation);
        }
        let peer = self.peer(node, Some(incarnation));
        peer.channel.incarnation = Some(incarnation);
        peer.wanted = Some(addr);
        let is_busy = peer.link.is_some() || peer.dial.is_some();
        self.timers.cancel(&Timer::Linger(node));
        if is_busy || self.timers.get(&Timer::Redial(node)).is_some() {
            return;
        }
        if self.me.node < node {
            self.dial(now, node);
        } else {
            self.timers.set(Timer::Redial(node), now + self.config.dial_patience);
        }
    }

    /// Closes the link to this node and drops everything unsent, without [`Output::Down`]: membership says that it is gone, or the
    /// overlay does not want it. The node may still link by itself: [`Output::Up`]. Outputs given out before may still speak of it.
    pub fn forget(&mut self, now: Instant, node: NodeId) {
        let Some(peer) = self.peers.remove(&node) else { return };
        for timer in [Timer::Redial(node), Timer::Carry(node), Timer::Linger(node), Timer::Lanes(node)] {
            self.timers.cancel(&timer);
        }
        self.counters.frames_lost += peer.channel.log_len() as u64;
        // Frames that were read and not handed out are not acknowledged: they come again, if they are to come at all.
        let is_of_node = |output: &Output| match output {
            Output::Up { peer, .. } => peer.node == node,
            Output::Frame { from: of, .. } | Output::Acked { node: of, .. } => *of == node,
            Output::Dial { .. }
            | Output::Transmit { .. }
            | Output::Close { .. }
            | Output::Down { .. }
            | Output::Refused { .. }
            | Output::RoundTrip { .. }
            | Output::Event(_) => false,
        };
        self.outputs.retain(|output| !is_of_node(output));
        for link in peer.lanes.links().chain(peer.link).chain(peer.dial).chain(peer.carried).collect::<Vec<_>>() {
            self.close(now, link, Farewell::Goodbye("not wanted"), String::new());
        }
        self.carriages_without(now, node);
    }

    /// Somebody has connected. `link` is at or above [`LinkId::ACCEPTED`].
    pub fn opened(&mut self, now: Instant, link: LinkId, peer: SocketAddr) {
        self.counters.accepts += 1;
        if !self.takes_stranger(now, peer) {
            return self.outputs.push_back(Output::Close { link });
        }
        self.conns.insert(link, Conn::accepted(now, peer));
        self.timers.set(Timer::Handshake(link), now + self.config.handshake_timeout);
    }

    /// Whether one more connection may introduce itself.
    pub(super) fn takes_stranger(&mut self, now: Instant, peer: SocketAddr) -> bool {
        let strangers = self.conns.values().filter(|conn| !conn.dialled && !conn.is_established()).count();
        let takes = !self.is_shut_down && strangers < self.config.max_strangers;
        if !takes {
            self.warn(now, Kind::Crowd, || {
                format!("too many unfinished connections to the cluster port, the last from {peer}")
            });
        }
        takes
    }

    /// [`Output::Dial`] has led to a connection; to an encrypted one ([`Links::secured`]) if [`LinkConfig::encrypted`].
    pub fn dialled(&mut self, now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get(&link).filter(|conn| matches!(conn.stage, Stage::Dialling)) else { return };
        if self.config.encrypted && conn.binding.is_none() {
            return self.close(now, link, Farewell::Silence, "it is not encrypted".to_owned());
        }
        self.send_connect(now, link);
    }

    /// Bytes came, in any pieces. Never panics and keeps no more of a stranger than a few kilobytes.
    pub fn received(&mut self, now: Instant, link: LinkId, bytes: Bytes) {
        self.counters.bytes_received += bytes.len() as u64;
        if self.is_foreign_tls(now, link, &bytes) {
            return self.outputs.push_back(Output::Close { link });
        }
        self.take_in(now, link, bytes);
    }

    /// Bytes of a connection, direct or carried.
    pub(super) fn take_in(&mut self, now: Instant, link: LinkId, bytes: Bytes) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.has_read = true;
        conn.bytes_received += bytes.len() as u64;
        conn.last_heard = now;
        conn.decoder.feed(bytes);
        self.show_life(now, link);
        // A packet may end the link, which ends the loop.
        while let Some(conn) = self.conns.get_mut(&link) {
            match conn.decoder.next() {
                Ok(Some(packet)) => self.packet(now, link, packet),
                Ok(None) => break,
                Err(error) => self.bad_bytes(now, link, error),
            }
        }
        self.transmit(link);
    }

    /// The first `bytes` of the link's outbox were taken by the kernel: they are forgotten and the outbox is refilled.
    pub fn written(&mut self, now: Instant, link: LinkId, bytes: usize) {
        self.counters.bytes_sent += bytes as u64;
        if let Some(outbox) = self.closing.get_mut(&link) {
            outbox.advance(bytes);
            if outbox.is_empty() {
                self.closing.remove(&link);
                self.timers.cancel(&Timer::Closing(link));
            }
            return;
        }
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.outbox.advance(bytes);
        conn.bytes_sent += bytes as u64;
        conn.last_written = now;
        if let Some(node) = conn.node.filter(|_| conn.is_established()) {
            self.fill(node);
        }
    }

    /// The link is gone, or the dial has failed, without the owner having been asked to close it.
    pub fn closed(&mut self, now: Instant, link: LinkId) {
        let is_dialling = self.conns.get(&link).is_some_and(|conn| matches!(conn.stage, Stage::Dialling));
        let why = if is_dialling { "cannot be reached" } else { "the connection was lost" };
        self.close(now, link, Farewell::Gone, why.to_owned());
        self.closing.remove(&link);
        self.timers.cancel(&Timer::Closing(link));
    }

    /// As [`Links::closed`]: the host of the node that was dialled refuses connections.
    pub fn refused(&mut self, now: Instant, link: LinkId) {
        // A node with which there is a link lives, whatever its host says of one connection more.
        let node = self.conns.get(&link).filter(|conn| conn.lane == 0).and_then(|conn| conn.node);
        self.closed(now, link);
        self.outputs.extend(node.map(|node| Output::Refused { node }));
    }

    /// Queues a frame for a neighbour; it waits while the link is down. The number comes back in [`Output::Acked`].
    pub fn send(&mut self, _now: Instant, to: NodeId, frame: Frame) -> Result<FrameSeq, SendError> {
        self.queue(to, frame)
    }

    pub(super) fn queue(&mut self, to: NodeId, frame: Frame) -> Result<FrameSeq, SendError> {
        let bytes = size_bound(&frame);
        if bytes > usize::try_from(self.config.max_packet_bytes).unwrap_or(usize::MAX) {
            self.counters.frames_refused += 1;
            return Err(SendError::TooLarge);
        }
        let Some(peer) = self.peers.get_mut(&to) else {
            self.counters.frames_refused += 1;
            return Err(SendError::NoChannel);
        };
        if peer.channel.log_bytes() + bytes > self.config.send_log_bytes {
            self.counters.frames_refused += 1;
            return Err(SendError::Full);
        }
        let seq = peer.channel.push(frame, bytes);
        if peer.link.is_some() {
            self.fill(to);
        }
        Ok(seq)
    }

    /// Acknowledges what has come since the last call. To be called by the owner at the end of each turn of its loop, when it
    /// has taken all outputs and before it writes outboxes, so that one acknowledgement covers the whole turn. Frames of a neighbour are not
    /// acknowledged as long as the owner has not taken all of them: it has not said yet how far they may be (FT-17).
    pub fn flush(&mut self, _now: Instant) {
        self.flush_carried();
        for node in core::mem::take(&mut self.unanswered) {
            if self.outputs.iter().any(|output| matches!(output, Output::Frame { from, .. } if *from == node)) {
                self.unanswered.push(node);
                continue;
            }
            let Some(peer) = self.peers.get_mut(&node) else { continue };
            peer.unanswered = false;
            let Some(link) = peer.link else { continue };
            let Some(conn) = self.conns.get_mut(&link) else { continue };
            if let Some(seq) = peer.channel.take_ack() {
                number(ACK, seq, &mut conn.outbox);
                self.counters.acks_sent += 1;
                self.transmit(link);
            }
        }
    }

    /// Frames of this neighbour behind number `up_to` are not acknowledged until another limit is set; `u64::MAX`: no limit. A link that
    /// is not resumed has none.
    pub fn limit_acks(&mut self, node: NodeId, up_to: u64) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.channel.limit_acks(up_to);
        if !core::mem::replace(&mut peer.unanswered, true) {
            self.unanswered.push(node);
        }
    }

    /// Publications that this neighbour has not acknowledged, oldest first.
    pub fn publications_for(&self, node: NodeId) -> impl Iterator<Item = &Publication> {
        let log = self.peers.get(&node).into_iter().flat_map(|peer| peer.channel.log());
        log.filter_map(|frame| match frame {
            Frame::Publication(publication) => Some(publication),
            Frame::Control { .. } => None,
        })
    }

    /// Mail for this neighbour that has not left this node wholly, newest first. It takes its time: for a node that stood still.
    pub fn unwritten_mail(&self, node: NodeId) -> impl Iterator<Item = (ControlTopic, &Bytes)> {
        let peer = self.peers.get(&node);
        let outbox = peer.and_then(|peer| self.conns.get(&peer.link?)).map(|conn| &conn.outbox);
        let rest = outbox.map(Outbox::to_vec).unwrap_or_default();
        let frames = peer.map(|peer| peer.channel.unwritten(0, &rest)).unwrap_or_default();
        frames.into_iter().filter_map(|frame| match frame {
            Frame::Control { topic, payload } => Some((*topic, payload)),
            Frame::Publication(_) => None,
        })
    }

    /// Takes what the life before the present one has not acknowledged, with QoS 1 and 2, oldest first.
    pub fn take_former(&mut self, node: NodeId) -> Vec<Publication> {
        self.former.remove(&node).unwrap_or_default()
    }

    /// Ends all links unread: the process stood still, and frames of neighbours may be outdated. They send again those that still hold.
    pub fn begin_anew(&mut self, now: Instant) {
        for link in self.conns.keys().copied().collect::<Vec<_>>() {
            self.close(now, link, Farewell::Silence, STALE.to_owned());
        }
    }

    /// Others took the node `me` for dead: see `Channel::passes_nothing_on`.
    pub fn passes_nothing_on(&mut self, me: NodeId) {
        for peer in self.peers.values_mut() {
            peer.channel.passes_nothing_on(me);
        }
    }

    /// Takes leave of all neighbours: as much as fits into the outboxes is written, then all links are closed. Nothing is dialled or
    /// accepted from then on.
    pub fn shutdown(&mut self, now: Instant) {
        self.flush(now);
        self.is_shut_down = true;
        self.timers = Deadlines::new();
        for link in self.conns.keys().copied().collect::<Vec<_>>() {
            self.close(now, link, Farewell::Goodbye("the node stops"), "this node stops".to_owned());
        }
        self.peers.clear();
    }

    /// Runs what is due; early or repeated calls do nothing. Acknowledges nothing: see [`Links::flush`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let next = self.timers.next();
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Redial(node) => self.dial(now, node),
                Timer::Carry(node) => self.dial_carried(now, node),
                Timer::Handshake(link) => self.handshake_timed_out(now, link),
                Timer::Ping(link) => self.ping(now, link),
                Timer::Silence(link) => self.check_silence(now, link, next.map_or(now, |next| next)),
                Timer::Linger(node) => self.linger_ended(node),
                Timer::Lanes(node) => self.dial_lanes(now, node),
                Timer::Closing(link) => {
                    self.closing.remove(&link);
                }
            }
        }
    }

    /// When [`Links::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next order to the owner.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The bytes that a link has to write; `None` if there is no such link. Report what was written with [`Links::written`].
    pub fn outbox(&mut self, link: LinkId) -> Option<&mut Outbox> {
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.told = false;
            return Some(&mut conn.outbox);
        }
        self.closing.get_mut(&link)
    }

    /// The link to this node; `None` if it is not up. `synced` is false: the owner knows.
    pub fn status(&self, node: NodeId) -> Option<LinkStatus> {
        let peer = self.peers.get(&node)?;
        let link = peer.link?;
        let conns: Vec<&Conn> = peer.lanes.up().chain([link]).filter_map(|link| self.conns.get(&link)).collect();
        let sum = |of: fn(&Conn) -> u64| conns.iter().map(|conn| of(conn)).sum();
        Some(LinkStatus {
            via: self.carrier_of(link),
            connections: conns.len(),
            rtt_micros: peer.rtt_micros,
            version: self.config.protocol.common(peer.protocol).unwrap_or(0),
            synced: false,
            unacknowledged: peer.channel.log_len(),
            publications_sent: sum(|conn| conn.publications_sent),
            publications_received: sum(|conn| conn.publications_received),
            bytes_sent: sum(|conn| conn.bytes_sent),
            bytes_received: sum(|conn| conn.bytes_received),
        })
    }

    /// The version of the protocol that is spoken with a node; `None` if no link to it is known.
    pub fn version(&self, node: NodeId) -> Option<u32> {
        let peer = self.peers.get(&node).filter(|peer| peer.hello.is_some())?;
        self.config.protocol.common(peer.protocol)
    }

    /// Whether a node is known to speak the first version, without what came with the second.
    pub fn is_older(&self, node: NodeId) -> bool {
        self.version(node).is_some_and(|version| version < Protocol::SECOND)
    }

    /// Whether a node speaks a newer version than this one: unknown parts of it are passed over.
    pub fn is_newer(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.protocol.version > self.config.protocol.version)
    }

    /// Nodes whose version has nothing in common with that of this one, and that have not been linked since. At most 16.
    pub fn incompatible(&self) -> impl Iterator<Item = (NodeId, &Incompatible)> {
        self.incompatible.iter().map(|(node, other)| (*node, other))
    }

    /// When something came last from a node that is linked.
    pub fn last_heard(&self, node: NodeId) -> Option<Instant> {
        let link = self.peers.get(&node)?.link?;
        self.conns.get(&link).map(|conn| conn.last_heard)
    }

    /// Nodes that are linked now, ascending.
    pub fn linked(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().filter(|(_, peer)| peer.link.is_some()).map(|(node, _)| *node)
    }

    /// Publications that wait for acknowledgement, over all neighbours (FT-17).
    pub fn unacknowledged(&self) -> usize {
        self.peers.values().map(|peer| peer.channel.publications()).sum()
    }

    /// A datagram was not taken because of the key, here or at the other end.
    pub(crate) const fn count_auth_failure(&mut self) {
        self.counters.auth_failures += 1;
    }

    /// Sums since the start.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// The channel to this node; a new one if there is none.
    pub(super) fn peer(&mut self, node: NodeId, incarnation: Option<Incarnation>) -> &mut Peer {
        self.peers.entry(node).or_insert_with(|| {
            self.last_stream += 1;
            let mut channel = Channel::new(incarnation, self.last_stream);
            channel.keeps_all = self.config.keeps_all;
            Peer::new(channel)
        })
    }

    pub(super) fn warn(&mut self, now: Instant, kind: Kind, message: impl FnOnce() -> String) {
        if let Some(event) = self.notices.warn(now, kind, message()) {
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// Tells the owner, once, that the link has something to write.
    pub(super) fn transmit(&mut self, link: LinkId) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        if conn.carriage.is_some() {
            return self.transmit_carried(link);
        }
        if !conn.told && !conn.outbox.is_empty() {
            conn.told = true;
            self.outputs.push_back(Output::Transmit { link });
        }
    }
}

#[cfg(test)]
impl Links {
    pub(super) fn logged_bytes(&self, node: NodeId) -> usize {
        self.peers.get(&node).map_or(0, |peer| peer.channel.log_bytes())
    }

    pub(super) fn unacknowledged_frames(&self, node: NodeId) -> usize {
        self.peers.get(&node).map_or(0, |peer| peer.channel.log_len())
    }
}
