//! Links that a third node carries: two nodes live, and the path between their hosts is broken (`docs/protocol/link.md`,
//! "Carried links").
//!
//! ```text
//!  A ---x--- B      A dials B through C: handshake, frames and acknowledgements as over a connection of their own,
//!   \       /       in mail of the topic $sedge/carry. C keeps nothing of it. A and B go on dialling each other;
//!    `- C -'        a connection of their own takes over as soon as there is one.
//! ```

use bytes::Bytes;
use sedge_base::{Duration, Instant, NodeId, Outbox};
use sedge_mqtt::ReasonCode;
use std::collections::BTreeMap;

use super::closing::{Farewell, INSECURE};
use super::conn::Conn;
use super::links::{Links, Timer};
use super::notices::Kind;
use super::{ControlTopic, Frame, Protocol};
use crate::LinkId;
use crate::wire::{CarryMail, CarryWord};

/// Most bytes of one connection on their way through the carrier.
const WINDOW: u64 = 256 * 1024;
/// Most bytes of one mail.
const PIECE: usize = 32 * 1024;
/// How long after a failure, or while nobody carries, the next attempt follows.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// How long a dial may take before it is tried through others, too.
pub(super) const UNANSWERED: Duration = Duration::from_secs(1);
/// How long a handshake may take: it goes over nodes that answer.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// The connections of a node that others carry.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// By other end and number.
    links: BTreeMap<(NodeId, u64), LinkId>,
    /// Connections of which this node has read bytes since it told the other ends.
    untold: Vec<LinkId>,
    /// Attempts so far: each takes another carrier.
    attempts: u64,
}

/// State of a connection that another node carries, beyond that of an ordinary one. Counts are bytes.
#[derive(Debug)]
pub(super) struct Carriage {
    /// The node that carries the connection.
    pub(super) via: NodeId,
    /// The other end.
    end: NodeId,
    number: u64,
    opened_here: bool,
    sent: u64,
    /// Of these, the other end has read.
    taken: u64,
    read: u64,
    /// Of these, the other end was told.
    told: u64,
}

impl Carriage {
    const fn new(via: NodeId, end: NodeId, number: u64, opened_here: bool) -> Self {
        Self { via, end, number, opened_here, sent: 0, taken: 0, read: 0, told: 0 }
    }

    /// Mail to the carrier.
    const fn mail(&self, me: NodeId, word: CarryWord) -> CarryMail {
        CarryMail { to: Some(self.end), from: me, number: self.number, by_opener: self.opened_here, word }
    }
}

impl Links {
    /// Whether frames pass to a node over a connection of its own.
    pub(super) fn is_direct(&self, node: NodeId) -> bool {
        let link = self.peers.get(&node).and_then(|peer| peer.link);
        link.and_then(|link| self.conns.get(&link)).is_some_and(|conn| conn.carriage.is_none())
    }

    /// The node that carries the link to another one.
    pub(super) fn carrier_of(&self, link: LinkId) -> Option<NodeId> {
        self.conns.get(&link)?.carriage.as_ref().map(|carriage| carriage.via)
    }

    /// Has a node that is wanted dialled through others if it is not linked by then. The one that waits for the other's dial waits with
    /// this, too.
    pub(super) fn seek_carrier(&mut self, now: Instant, node: NodeId, after: Duration) {
        let timer = Timer::Carry(node);
        let Some(peer) = self.peers.get(&node) else { return };
        let is_sought = peer.wanted.is_some() && peer.link.is_none() && peer.carried.is_none() && !peer.is_distrusted;
        if self.is_shut_down || !is_sought {
            return;
        }
        let after = if self.me.node < node { after } else { after.max(self.config.dial_patience) };
        if self.timers.get(&timer).is_none() {
            self.timers.set(timer, now + after);
        }
    }

    /// A node cannot be trusted by how connections are encrypted here: it is not linked through others, either, where nobody would ask.
    pub(super) fn distrust(&mut self, now: Instant, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.is_distrusted = true;
        let carried = peer.link.into_iter().chain(peer.carried);
        self.timers.cancel(&Timer::Carry(node));
        for link in carried.filter(|link| self.carrier_of(*link).is_some()).collect::<Vec<_>>() {
            self.close(now, link, Farewell::Fault(ReasonCode::NotAuthorized, INSECURE), INSECURE.to_owned());
        }
    }

    /// Dials a node through another one that may reach it.
    pub(super) fn dial_carried(&mut self, now: Instant, node: NodeId) {
        let Some(peer) = self.peers.get(&node) else { return };
        let Some(to) = peer.wanted.filter(|_| peer.link.is_none() && peer.carried.is_none()) else { return };
        let Some(via) = self.next_carrier(node) else { return self.seek_carrier(now, node, AGAIN) };
        if !self.config.may_link(to) {
            return;
        }
        self.last_dial += 1;
        let (link, number) = (LinkId(self.last_dial), self.rng.next_u64());
        let mut conn = Conn::dialling(now, to, node);
        conn.carriage = Some(Box::new(Carriage::new(via, node, number, true)));
        self.conns.insert(link, conn);
        self.carried.links.insert((node, number), link);
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.carried = Some(link);
        }
        self.timers.set(Timer::Handshake(link), now + HANDSHAKE.min(self.config.handshake_timeout));
        self.counters.carried_dials += 1;
        self.say_carried(link, CarryWord::Open);
        self.send_connect(now, link);
    }

    /// Of those that are linked directly and know how to carry, another one with every attempt.
    fn next_carrier(&mut self, node: NodeId) -> Option<NodeId> {
        let may_carry = |other: &NodeId| *other != node && self.is_direct(*other) && self.carries(*other);
        let able: Vec<NodeId> = self.peers.keys().copied().filter(may_carry).collect();
        let count = able.len() as u64;
        // Not all nodes that have lost each other choose the same one.
        let turn = self.carried.attempts.wrapping_add(self.me.node.get()).wrapping_add(node.get());
        self.carried.attempts += 1;
        able.get(usize::try_from(turn.checked_rem(count)?).ok()?).copied()
    }

    fn carries(&self, node: NodeId) -> bool {
        self.version(node).is_some_and(|version| version >= Protocol::SECOND)
    }

    fn say_carried(&mut self, link: LinkId, word: CarryWord) -> bool {
        let Some(carriage) = self.conns.get(&link).and_then(|conn| conn.carriage.as_ref()) else { return false };
        let (via, mail) = (carriage.via, carriage.mail(self.me.node, word));
        self.send_carry(via, &mail)
    }

    fn send_carry(&mut self, to: NodeId, mail: &CarryMail) -> bool {
        if !self.is_direct(to) {
            return false;
        }
        let frame = Frame::Control { topic: ControlTopic::Carry, payload: mail.encode() };
        self.queue(to, frame).is_ok()
    }

    /// Gives the carrier the bytes of the outbox, as far as the other end reads along. Bytes that cannot be given stay, and the link falls silent
    /// if that does not change.
    pub(super) fn transmit_carried(&mut self, link: LinkId) {
        while let Some((offset, bytes)) = self.next_piece(link) {
            let size = bytes.len();
            if !self.say_carried(link, CarryWord::Bytes { offset, bytes }) {
                return;
            }
            let Some(conn) = self.conns.get_mut(&link) else { return };
            conn.outbox.advance(size);
            conn.bytes_sent += size as u64;
            if let Some(carriage) = &mut conn.carriage {
                carriage.sent += size as u64;
            }
            if conn.outbox.is_empty()
                && let Some(node) = conn.node.filter(|_| conn.is_established())
            {
                self.fill_outbox(node);
            }
        }
    }

    fn next_piece(&self, link: LinkId) -> Option<(u64, Bytes)> {
        let conn = self.conns.get(&link)?;
        let carriage = conn.carriage.as_ref()?;
        let room = WINDOW.saturating_sub(carriage.sent - carriage.taken);
        let room = usize::try_from(room).unwrap_or(PIECE).min(PIECE);
        let piece = first(&conn.outbox, room);
        (!piece.is_empty()).then_some((carriage.sent, piece))
    }

    /// The last words of a connection that another node carries, and its end.
    pub(super) fn end_carriage(&mut self, carriage: &Carriage, outbox: &Outbox, is_gone: bool) {
        self.carried.links.remove(&(carriage.end, carriage.number));
        if is_gone {
            return;
        }
        let bytes = first(outbox, PIECE);
        if !bytes.is_empty() {
            let words = CarryWord::Bytes { offset: carriage.sent, bytes };
            self.send_carry(carriage.via, &carriage.mail(self.me.node, words));
        }
        self.send_carry(carriage.via, &carriage.mail(self.me.node, CarryWord::Close));
    }

    /// A node is not linked directly any more: the connections that it has carried are over.
    pub(super) fn carriages_without(&mut self, now: Instant, via: NodeId) {
        let is_over = |link: &LinkId| self.carrier_of(*link) == Some(via);
        for link in self.carried.links.values().copied().filter(is_over).collect::<Vec<_>>() {
            self.close(now, link, Farewell::Gone, format!("node {via}, which carried it, is not linked"));
        }
    }

    /// Mail of a carried connection has come from a neighbour.
    pub(super) fn carry_mail(&mut self, now: Instant, sender: NodeId, payload: Bytes) -> Result<(), &'static str> {
        let mail = CarryMail::decode(payload).map_err(|error| error.0)?;
        match mail.to {
            Some(to) if mail.from == sender => {
                self.carry(sender, to, mail);
                Ok(())
            }
            Some(_) => Err("mail to carry that is somebody else's"),
            None => {
                self.carried_mail(now, sender, mail);
                Ok(())
            }
        }
    }

    /// Passes mail on from one end to the other, if both are linked directly: else links would be carried in circles.
    fn carry(&mut self, sender: NodeId, to: NodeId, mail: CarryMail) {
        let CarryMail { from, number, by_opener, .. } = mail;
        let bytes = if let CarryWord::Bytes { bytes, .. } = &mail.word { bytes.len() } else { 0 };
        let is_close = mail.word == CarryWord::Close;
        let can = to != self.me.node && self.is_direct(sender) && self.carries(to);
        if can && self.send_carry(to, &CarryMail { to: None, ..mail }) {
            self.counters.carried_bytes += bytes as u64;
            return;
        }
        if is_close {
            return;
        }
        let answer = CarryMail { to: None, from: to, number, by_opener: !by_opener, word: CarryWord::Close };
        self.send_carry(from, &answer);
    }

    /// The carrier brings what the other end says.
    fn carried_mail(&mut self, now: Instant, via: NodeId, mail: CarryMail) {
        let CarryMail { from: end, number, by_opener, word, .. } = mail;
        if word == CarryWord::Open {
            return self.accept_carried(now, via, end, number);
        }
        let link = self.carried.links.get(&(end, number)).copied();
        let known = link.and_then(|link| Some((link, self.conns.get_mut(&link)?.carriage.as_mut()?)));
        let known = known.filter(|(_, carriage)| carriage.via == via && carriage.opened_here != by_opener);
        let Some((link, carriage)) = known else {
            if matches!(word, CarryWord::Bytes { .. }) {
                let stale = Carriage::new(via, end, number, !by_opener);
                self.send_carry(via, &stale.mail(self.me.node, CarryWord::Close));
            }
            return;
        };
        match word {
            CarryWord::Open => {}
            CarryWord::Bytes { offset, bytes } if offset == carriage.read => {
                carriage.read += bytes.len() as u64;
                self.carried.untold.push(link);
                self.take_in(now, link, bytes);
            }
            CarryWord::Read(up_to) if (carriage.taken..=carriage.sent).contains(&up_to) => {
                carriage.taken = up_to;
                self.transmit_carried(link);
            }
            CarryWord::Bytes { .. } | CarryWord::Read(_) => {
                self.close(now, link, Farewell::Silence, "something is missing of what was carried".to_owned());
            }
            CarryWord::Close => {
                let why = "the node that carries it does not reach the other end, or that has closed it";
                self.close(now, link, Farewell::Gone, why.to_owned());
            }
        }
    }

    fn accept_carried(&mut self, now: Instant, via: NodeId, end: NodeId, number: u64) {
        let carrier = self.peers.get(&via).and_then(|peer| self.conns.get(&peer.link?));
        let Some(addr) = carrier.map(|conn| conn.peer_addr) else { return };
        if end == self.me.node || self.carried.links.contains_key(&(end, number)) || !self.takes_stranger(now, addr) {
            return;
        }
        if self.peers.get(&end).is_some_and(|peer| peer.is_distrusted) {
            self.send_carry(via, &Carriage::new(via, end, number, false).mail(self.me.node, CarryWord::Close));
            return;
        }
        self.last_dial += 1;
        let link = LinkId(self.last_dial);
        let mut conn = Conn::accepted(now, addr);
        conn.carriage = Some(Box::new(Carriage::new(via, end, number, false)));
        self.conns.insert(link, conn);
        self.carried.links.insert((end, number), link);
        self.timers.set(Timer::Handshake(link), now + HANDSHAKE.min(self.config.handshake_timeout));
    }

    /// Tells other ends what was read, before they have to wait.
    pub(super) fn flush_carried(&mut self) {
        for link in core::mem::take(&mut self.carried.untold) {
            let Some(carriage) = self.conns.get_mut(&link).and_then(|conn| conn.carriage.as_mut()) else { continue };
            if carriage.read - carriage.told >= WINDOW / 4 {
                carriage.told = carriage.read;
                let read = CarryWord::Read(carriage.read);
                self.say_carried(link, read);
            }
        }
    }

    /// Whether a new connection to a node with which there is another one is not worth having. `is_worse` compares who has dialled.
    pub(super) fn keeps(&self, now: Instant, old: LinkId, new: LinkId, is_worse: bool) -> bool {
        match (self.conns.get(&old), self.carrier_of(new)) {
            (Some(conn), Some(_)) if conn.carriage.is_none() => {
                now.since(conn.last_heard) < self.config.keep_alive || is_worse
            }
            (Some(conn), None) if conn.carriage.is_some() => false,
            (Some(_), _) => is_worse,
            (None, _) => false,
        }
    }

    /// Ends other attempts at a link that a node carries, and schedules attempts at a direct one if a node carries this one.
    pub(super) fn note_carriage(&mut self, now: Instant, link: LinkId, node: NodeId) {
        self.timers.cancel(&Timer::Carry(node));
        let via = self.carrier_of(link);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let attempt = peer.carried.take().filter(|attempt| *attempt != link);
        peer.is_distrusted &= via.is_some();
        if let Some(attempt) = attempt {
            self.close(now, attempt, Farewell::Silence, String::new());
        }
        let Some(via) = via else { return };
        self.warn(now, Kind::Carried, || format!("node {node} is not reached directly; node {via} carries the link"));
        self.carriages_without(now, node);
        self.schedule(now, node, true);
    }
}

/// Up to so many bytes of the outbox.
fn first(outbox: &Outbox, most: usize) -> Bytes {
    let mut slices = [std::io::IoSlice::new(&[]); 16];
    let filled = outbox.io_slices_up_to(most, &mut slices);
    let slices = slices.get(..filled).unwrap_or_default();
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}
