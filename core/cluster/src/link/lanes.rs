//! Further connections with a neighbour, beside the link: lanes 1, 2, ... (`docs/protocol/link.md`, "Lanes").
//!
//! ```text
//!  send log    41 42 43 44 45 46          frames have one row of numbers, whichever connection they take
//!  lane 0      41       44                control frames, acknowledgements and round trips; publications as well
//!  lane 1         42       45
//!  lane 2            43       46          the receiver hands them out in the order of their numbers
//! ```
//!
//! A lane belongs to the link: it ends with the link, and frames sent over a lane that ends go over the link again.

use sedge_base::{ClientId, Instant, NodeId};
use smallvec::SmallVec;

use super::channel::NoRoom;
use super::closing::Farewell;
use super::conn::{Conn, Stage};
use super::greeting::Greeting;
use super::handshake::{Refusal, busy};
use super::links::{Links, Timer};
use super::traffic::count_encoded;
use super::{Frame, LinkOrder, Output};
use crate::LinkId;
use sedge_mqtt::ReasonCode;

/// Most connections with one neighbour.
pub const CONNECTIONS_MAX: u8 = 16;

#[derive(Clone, Copy, Debug)]
struct Lane {
    number: u8,
    link: LinkId,
    is_up: bool,
}

/// The lanes of a link, but for the link itself.
#[derive(Debug)]
pub(super) struct Lanes {
    further: Vec<Lane>,
    /// How many connections the neighbour takes.
    pub(super) taken_there: u8,
    /// Whether there has been a lane since there is the link: frames may come early.
    is_used: bool,
    /// The lane of the next publication by turns.
    turn: usize,
}

impl Lanes {
    pub(super) const fn new() -> Self {
        Self { further: Vec::new(), taken_there: 1, is_used: false, turn: 0 }
    }

    pub(super) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// All, those that are being made included.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.further.iter().map(|lane| lane.link)
    }

    /// Connections that frames may pass over.
    pub(super) fn up(&self) -> impl Iterator<Item = LinkId> {
        self.further.iter().filter(|lane| lane.is_up).map(|lane| lane.link)
    }

    fn has(&self, number: u8) -> bool {
        self.further.iter().any(|lane| lane.number == number)
    }

    /// Number and connection of the lane that a publication takes; `None`: the link.
    fn choose(&mut self, frame: &Frame, order: LinkOrder) -> Option<(u8, LinkId)> {
        let Frame::Publication(publication) = frame else { return None };
        let count = self.up().count() + 1;
        let place = match order {
            LinkOrder::Publisher => {
                let message = &publication.message;
                let hash = message.publisher.as_ref().map_or_else(|| message.id.node.get(), ClientId::stable_hash);
                usize::try_from(hash % count as u64).unwrap_or(0)
            }
            LinkOrder::RoundRobin => {
                self.turn = self.turn.wrapping_add(1);
                self.turn % count
            }
        };
        let up = self.further.iter().filter(|lane| lane.is_up);
        up.map(|lane| (lane.number, lane.link)).nth(place.checked_sub(1)?)
    }
}

impl Links {
    /// How many connections with each neighbour there are from here on, and how publications are spread over them.
    pub fn set_connections(&mut self, now: Instant, connections: u8, order: LinkOrder) {
        (self.config.connections, self.config.order) = (connections.clamp(1, CONNECTIONS_MAX), order);
        for node in self.peers.keys().copied().collect::<Vec<_>>() {
            self.end_surplus(now, node);
            self.dial_lanes(now, node);
        }
    }

    /// Number and order of connections, as [`Links::set_connections`] has set them.
    pub const fn connections(&self) -> (u8, LinkOrder) {
        (self.config.connections, self.config.order)
    }

    /// The node that has dialled the link decides how many lanes there are.
    fn lanes_wanted(&self, node: NodeId) -> Option<(u8, &Conn)> {
        let peer = self.peers.get(&node)?;
        let conn = self.conns.get(&peer.link?).filter(|conn| conn.dialled && conn.carriage.is_none())?;
        Some((self.config.connections.min(peer.lanes.taken_there).min(CONNECTIONS_MAX), conn))
    }

    fn end_surplus(&mut self, now: Instant, node: NodeId) {
        let Some((wanted, _)) = self.lanes_wanted(node) else { return };
        let Some(peer) = self.peers.get(&node) else { return };
        let surplus: Vec<LinkId> =
            peer.lanes.further.iter().filter(|lane| lane.number >= wanted).map(|lane| lane.link).collect();
        for link in surplus {
            self.close(now, link, Farewell::Goodbye("fewer connections are wanted"), String::new());
        }
    }

    /// Dials the lanes that are missing.
    pub(super) fn dial_lanes(&mut self, now: Instant, node: NodeId) {
        let Some((wanted, conn)) = self.lanes_wanted(node).filter(|_| !self.is_shut_down) else { return };
        let to = conn.peer_addr;
        let Some(peer) = self.peers.get_mut(&node) else { return };
        for number in (1..wanted).filter(|number| !peer.lanes.has(*number)).collect::<Vec<_>>() {
            self.last_dial += 1;
            let link = LinkId(self.last_dial);
            let mut conn = Conn::dialling(now, to, node);
            conn.lane = number;
            self.conns.insert(link, conn);
            peer.lanes.further.push(Lane { number, link, is_up: false });
            // The other end may use a lane before this one knows that it is up.
            peer.lanes.is_used = true;
            self.timers.set(Timer::Handshake(link), now + self.config.handshake_timeout);
            self.counters.dials += 1;
            self.outputs.push_back(Output::Dial { link, to });
        }
    }

    /// Both sides, when the other is known to be what it says: whether a connection is a lane of the link that there is.
    pub(super) fn admit_lane(&mut self, now: Instant, link: LinkId, greeting: &Greeting) -> Result<bool, Refusal> {
        let (node, number) = (greeting.hello.node, greeting.lane);
        if number >= CONNECTIONS_MAX {
            let message = format!("node {node} wants a connection of number {number}");
            let words = "a connection of an impossible number";
            return Err(Refusal::new(ReasonCode::ProtocolError, super::notices::Kind::Protocol, words, message));
        }
        let (Some(peer), Some(conn)) = (self.peers.get(&node), self.conns.get(&link)) else { return Err(busy()) };
        let main = peer.link.and_then(|link| self.conns.get(&link));
        let is_of_link = main.is_some_and(|main| main.carriage.is_none() && main.dialled == conn.dialled)
            && conn.carriage.is_none()
            && peer.channel.is_current(greeting.hello.incarnation, greeting.stream);
        let is_expected = if conn.dialled {
            number == conn.lane && peer.lanes.links().any(|known| known == link)
        } else {
            // The dialler knows our stream by this number, or it would take our frames for others.
            let known = greeting.received.map(|progress| (progress.incarnation, progress.stream));
            known == Some((self.me.incarnation, peer.channel.stream))
        };
        if !is_of_link || !is_expected {
            return Err(busy());
        }
        let old = peer.lanes.further.iter().find(|lane| lane.number == number && lane.link != link);
        if let Some(old) = old.map(|lane| lane.link) {
            self.close(now, old, Farewell::Silence, String::new());
        }
        if let (Some(conn), Some(peer)) = (self.conns.get_mut(&link), self.peers.get_mut(&node))
            && !conn.dialled
        {
            conn.lane = number;
            peer.lanes.further.push(Lane { number, link, is_up: false });
        }
        Ok(false)
    }

    /// Frames may pass over a lane.
    pub(super) fn establish_lane(&mut self, now: Instant, link: LinkId, node: NodeId) {
        let (Some(peer), Some(conn)) = (self.peers.get_mut(&node), self.conns.get_mut(&link)) else { return };
        let Some(lane) = peer.lanes.further.iter_mut().find(|lane| lane.link == link) else { return };
        lane.is_up = true;
        peer.lanes.is_used = true;
        conn.node = Some(node);
        conn.stage = Stage::Established;
        conn.decoder.set_max_packet_bytes(self.config.max_packet_bytes);
        let dialled = conn.dialled;
        self.counters.handshakes += 1;
        self.timers.cancel(&Timer::Handshake(link));
        self.timers.set(Timer::Silence(link), now + self.config.silence());
        if dialled {
            self.ping(now, link);
        }
        self.fill(node);
    }

    /// A lane is gone: its frames go over another connection, and the dialler makes a new one.
    pub(super) fn lane_closed(&mut self, now: Instant, node: NodeId, link: LinkId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let Some(place) = peer.lanes.further.iter().position(|lane| lane.link == link) else { return };
        let lane = peer.lanes.further.remove(place);
        if lane.is_up {
            peer.channel.lose_lane(lane.number);
        }
        if self.lanes_wanted(node).is_some() && !self.is_shut_down {
            self.timers.set(Timer::Lanes(node), now + self.config.redial_max);
        }
        self.fill(node);
    }

    /// The link is gone, or another takes over: its lanes end with it.
    pub(super) fn drop_lanes(&mut self, now: Instant, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let lanes = core::mem::take(&mut peer.lanes.further);
        peer.lanes.is_used = false;
        peer.channel.lose_lanes();
        self.timers.cancel(&Timer::Lanes(node));
        for lane in lanes {
            self.close(now, lane.link, Farewell::Flush, String::new());
        }
    }

    /// As [`Links::fill`], over all connections with a neighbour.
    pub(super) fn fill_lanes(&mut self, node: NodeId) {
        let mut filled: SmallVec<[LinkId; 4]> = SmallVec::new();
        while let Some(peer) = self.peers.get_mut(&node) {
            let Some(main) = peer.link else { break };
            let turn = peer.lanes.turn;
            let chosen = peer.channel.peek().and_then(|frame| peer.lanes.choose(frame, self.config.order));
            let (number, link) = chosen.unwrap_or((0, main));
            let Some(conn) = self.conns.get_mut(&link) else { break };
            if conn.outbox.len() >= self.config.outbox_bytes {
                // It is this lane's turn still.
                peer.lanes.turn = turn;
                break;
            }
            let Some(encoded) = peer.channel.encode_next(&mut conn.outbox, number) else { break };
            count_encoded(encoded, conn, &mut self.counters);
            if !filled.contains(&link) {
                filled.push(link);
            }
        }
        for link in filled {
            self.transmit(link);
        }
    }

    /// A frame has come before an earlier one, which another connection brings.
    pub(super) fn keep_early(&mut self, now: Instant, link: LinkId, node: NodeId, seq: u64, frame: Option<Frame>) {
        let most = self.config.send_log_bytes;
        let Some(peer) = self.peers.get_mut(&node) else { return };
        match peer.channel.keep_early(seq, frame, most) {
            Ok(true) => self.counters.duplicates_dropped += 1,
            Ok(false) => self.counters.frames_early += 1,
            Err(NoRoom) => {
                let words = "too much has come before an earlier frame";
                let main = peer.link.unwrap_or(link);
                self.protocol_error(now, main, ReasonCode::ProtocolError, words, words);
            }
        }
    }

    /// Hands out what has come early and is next.
    pub(super) fn deliver_early(&mut self, now: Instant, link: LinkId, node: NodeId) {
        while let Some((seq, frame)) = self.peers.get_mut(&node).and_then(|peer| peer.channel.take_early()) {
            self.deliver(now, link, node, seq, frame);
        }
    }
}
