//! The frames of an established link, and the steps by which a link becomes one.

use sedge_base::{Instant, NodeId};
use sedge_mqtt::{Disconnect, Packet, Publish, ReasonCode};

use super::channel::{Arrival, NeverSent};
use super::closing::{Farewell, SILENCE};
use super::conn::{Conn, Stage};
use super::decode::{self, Inbound};
use super::encode::{ACK, ROUND_TRIP, number};
use super::greeting::Greeting;
use super::handshake::{Refusal, busy};
use super::links::{Links, Timer};
use super::notices::{Kind, quoted};
use super::{ControlTopic, Frame, LinkCounters, Output};
use crate::LinkId;

impl Links {
    /// A packet has come over a link.
    pub(super) fn packet(&mut self, now: Instant, link: LinkId, packet: Packet) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        if conn.is_established() {
            return self.established_packet(now, link, packet);
        }
        match (core::mem::replace(&mut conn.stage, Stage::Busy), packet) {
            (Stage::AwaitConnect, Packet::Connect(connect)) => {
                conn.node = super::greeting::node_of(&connect.client_id);
                self.on_connect(now, link, *connect);
            }
            (Stage::AwaitProof(held), Packet::Auth(auth)) => self.on_proof(now, link, &auth, *held),
            (Stage::AwaitAnswer(said), Packet::Auth(auth)) => self.on_challenge(now, link, &auth, *said),
            (Stage::AwaitAnswer(_), Packet::ConnAck(connack)) => self.on_connack(now, link, *connack, None),
            (Stage::AwaitVerdict(said), Packet::ConnAck(connack)) => self.on_connack(now, link, *connack, Some(*said)),
            (_, Packet::Disconnect(disconnect)) => self.on_early_disconnect(now, link, &disconnect),
            (_, packet) => {
                let (addr, kind) = (conn.peer_addr, packet.kind());
                self.counters.handshakes_refused += 1;
                self.warn(now, Kind::Stranger, || format!("{addr} is no Sedge node: {kind:?} in the handshake"));
                self.close(now, link, Farewell::Silence, "an unexpected packet".to_owned());
            }
        }
    }

    /// Both sides, when the other is known to be what it says: decides whether this link is the one to keep, and compares notes
    /// on the channel. Changes the channel only if it is. Says whether our stream had to begin anew.
    pub(super) fn admit(&mut self, now: Instant, link: LinkId, greeting: &Greeting) -> Result<bool, Refusal> {
        let (node, life, stream) = (greeting.hello.node, greeting.hello.incarnation, greeting.stream);
        let lower_dials = self.me.node < node;
        let by_lower = |links: &Self, link| links.conns.get(&link).is_some_and(|conn| conn.dialled == lower_dials);
        if let Some(peer) = self.peers.get(&node) {
            if peer.channel.incarnation > Some(life) || peer.channel.is_behind(life, stream) {
                let message = format!("a former life of node {node} was refused; is its process running twice?");
                let words = "a newer process of this node is known";
                return Err(Refusal::new(ReasonCode::NotAuthorized, Kind::Stale, words, message));
            }
            let is_same = peer.channel.is_current(life, stream);
            let is_worse = |old| by_lower(self, old) && !by_lower(self, link);
            if peer.link.is_some_and(|old| is_same && self.keeps(now, old, link, is_worse(old))) {
                return Err(busy());
            }
        }
        let me = self.me.incarnation;
        self.last_stream += 1;
        let new_stream = self.last_stream;
        if self.peer(node, Some(life)).channel.incarnation != Some(life) {
            self.begin_life(node, life);
        }
        let peer = self.peer(node, Some(life));
        let before = peer.channel.log_len();
        let synced = peer.channel.sync(me, (life, stream), greeting.received, new_stream).map_err(|NeverSent| {
            let message = format!("node {node} acknowledges frames that were never sent");
            Refusal::new(ReasonCode::ProtocolError, Kind::Protocol, "frames acknowledged that were never sent", message)
        })?;
        let up_to = peer.channel.acked();
        if synced.renewed {
            let again = self.peers.get(&node).map_or(0, |peer| peer.channel.log_len());
            self.counters.frames_lost += before.saturating_sub(again) as u64;
        }
        if synced.acked > 0 {
            self.outputs.push_back(Output::Acked { node, up_to });
        }
        Ok(synced.renewed)
    }

    /// The handshake is over: frames may pass over this link, and over no other to this node.
    pub(super) fn establish(&mut self, now: Instant, link: LinkId, greeting: &Greeting) {
        let (hello, node) = (greeting.hello, greeting.hello.node);
        self.incompatible.remove(&node);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let old = peer.link.replace(link);
        peer.dial = peer.dial.filter(|dial| *dial != link);
        peer.hello = Some(hello);
        peer.protocol = greeting.protocol;
        peer.up_since = now;
        peer.unanswered = true;
        let (resumed, lost) = peer.channel.take_news();
        self.unanswered.push(node);
        self.drop_lanes(now, node);
        if let Some(old) = old {
            self.close(now, old, Farewell::Replaced, String::new());
        }
        if old.is_some() && !resumed {
            self.outputs.push_back(Output::Down { node, reason: "the node has begun anew".to_owned(), silent: false });
        }
        if old.is_none() || !resumed {
            self.outputs.push_back(Output::Up { peer: hello, resumed, lost });
        }
        self.counters.handshakes += 1;
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.node = Some(node);
        conn.stage = Stage::Established;
        conn.decoder.set_max_packet_bytes(self.config.max_packet_bytes);
        let dialled = conn.dialled;
        for timer in [Timer::Handshake(link), Timer::Redial(node), Timer::Linger(node)] {
            self.timers.cancel(&timer);
        }
        self.timers.set(Timer::Silence(link), now + self.config.silence());
        self.note_carriage(now, link, node);
        if dialled {
            self.ping(now, link);
        }
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.lanes.taken_there = greeting.connections;
        }
        self.dial_lanes(now, node);
        self.fill(node);
    }

    /// Dialler: the handshake has shown that it has to be repeated.
    pub(super) fn retry_at_once(&mut self, now: Instant, link: LinkId, node: NodeId) {
        let Some(peer) = self.peers.get(&node) else { return };
        let (failures, old) = (peer.failures, peer.link);
        for link in old.into_iter().chain(Some(link)) {
            self.close(now, link, Farewell::Replaced, "the node has begun anew".to_owned());
        }
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.failures = failures;
        }
        self.dial(now, node);
    }

    fn established_packet(&mut self, now: Instant, link: LinkId, packet: Packet) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let Some(node) = conn.node else { return };
        match packet {
            Packet::Publish(publish) => self.on_publish(now, link, node, publish),
            Packet::PingReq => {
                conn.write(&Packet::PingResp);
            }
            Packet::PingResp => {
                if let Some(sent) = conn.ping_sent.take() {
                    let micros = u32::try_from(now.since(sent).as_micros()).unwrap_or(u32::MAX);
                    if conn.lane > 0 {
                        return;
                    }
                    self.measured(node, micros, Some(link));
                }
            }
            Packet::Disconnect(disconnect) => self.on_disconnect(now, link, &disconnect),
            packet @ (Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::PubAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::Subscribe(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::Auth(_)) => {
                let detail = format!("{:?} on an established link", packet.kind());
                self.protocol_error(
                    now,
                    link,
                    ReasonCode::ProtocolError,
                    "a packet that does not belong here",
                    &detail,
                );
            }
        }
    }

    fn on_publish(&mut self, now: Instant, link: LinkId, node: NodeId, publish: Publish) {
        let inbound = match decode::publish(publish, self.is_newer(node)) {
            Ok(inbound) => inbound,
            Err(words) => return self.protocol_error(now, link, ReasonCode::ProtocolError, words, words),
        };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        match inbound {
            Inbound::Unknown => self.counters.passed_over += 1,
            Inbound::Frame(seq, frame) => match peer.channel.arrive(seq) {
                Arrival::Next => {
                    self.deliver(now, link, node, seq, frame);
                    self.deliver_early(now, link, node);
                }
                Arrival::Duplicate => self.counters.duplicates_dropped += 1,
                Arrival::Gap if peer.lanes.is_used() => self.keep_early(now, link, node, seq, frame),
                Arrival::Gap => {
                    let words = "a frame is missing";
                    self.protocol_error(now, link, ReasonCode::ProtocolError, words, words);
                }
            },
            Inbound::Ack(seq) => {
                let Ok(news) = peer.channel.acknowledge(seq) else {
                    let words = "frames acknowledged that were never sent";
                    return self.protocol_error(now, link, ReasonCode::ProtocolError, words, words);
                };
                self.counters.acks_received += 1;
                if news > 0 {
                    let up_to = peer.channel.acked();
                    self.outputs.push_back(Output::Acked { node, up_to });
                }
            }
            Inbound::RoundTrip(micros) => self.measured(node, micros, None),
        }
    }

    pub(super) fn deliver(&mut self, now: Instant, link: LinkId, node: NodeId, number: u64, frame: Option<Frame>) {
        let is_publication = u64::from(matches!(frame, Some(Frame::Publication(_))));
        self.counters.frames_received += 1;
        self.counters.publications_received += is_publication;
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.publications_received += is_publication;
        }
        if let Some(peer) = self.peers.get_mut(&node).filter(|peer| !peer.unanswered) {
            peer.unanswered = true;
            self.unanswered.push(node);
        }
        match frame {
            Some(Frame::Control { topic: ControlTopic::Carry, payload }) => {
                if let Err(words) = self.carry_mail(now, node, payload) {
                    self.protocol_error(now, link, ReasonCode::ProtocolError, words, words);
                }
            }
            Some(frame) => self.outputs.push_back(Output::Frame { from: node, number, frame }),
            None => self.counters.passed_over += 1,
        }
    }

    fn on_disconnect(&mut self, now: Instant, link: LinkId, disconnect: &Disconnect) {
        let words = disconnect.reason_string.clone().unwrap_or_default();
        let why =
            format!("the other side closed the link (0x{:02x}): {}", disconnect.reason.as_u8(), quoted(words.as_str()));
        self.close(now, link, Farewell::Silence, why);
    }

    /// A round trip is known; the dialler, who measures it, tells the other side.
    fn measured(&mut self, node: NodeId, micros: u32, tell: Option<LinkId>) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let micros = peer.measured(micros);
        self.outputs.push_back(Output::RoundTrip { node, micros });
        if let Some(conn) = tell.and_then(|link| self.conns.get_mut(&link)) {
            number(ROUND_TRIP, u64::from(micros), &mut conn.outbox);
        }
    }

    /// Encodes what waits in the log, as far as the outbox takes it.
    pub(super) fn fill(&mut self, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| peer.lanes.up().next().is_some()) {
            return self.fill_lanes(node);
        }
        if let Some(link) = self.fill_outbox(node) {
            self.transmit(link);
        }
    }

    /// The same, without a word to the driver. The link that is filled.
    pub(super) fn fill_outbox(&mut self, node: NodeId) -> Option<LinkId> {
        let peer = self.peers.get_mut(&node)?;
        let link = peer.link?;
        let conn = self.conns.get_mut(&link)?;
        while conn.outbox.len() < self.config.outbox_bytes {
            let Some(encoded) = peer.channel.encode_next(&mut conn.outbox, 0) else { break };
            count_encoded(encoded, conn, &mut self.counters);
        }
        Some(link)
    }

    /// Dialler: measures the round trip, unless the last measurement is still under way.
    pub(super) fn ping(&mut self, now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get_mut(&link).filter(|conn| conn.is_established()) else { return };
        if conn.ping_sent.is_none() {
            conn.ping_sent = Some(now);
            conn.write(&Packet::PingReq);
            self.transmit(link);
        }
        self.timers.set(Timer::Ping(link), now + self.config.keep_alive);
    }

    /// Bytes come, perhaps of a frame that takes long, behind which the other end's pings and answers wait: this end, if it has written
    /// nothing for a while, says something, so that the other end does not take the connection for dead (IL-19).
    pub(super) fn show_life(&mut self, now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get_mut(&link).filter(|conn| conn.is_established() && conn.carriage.is_none())
        else {
            return;
        };
        if now.since(conn.last_written) * 2 < self.config.keep_alive * 3 {
            return;
        }
        let Some(peer) = conn.node.and_then(|node| self.peers.get(&node)) else { return };
        conn.last_written = now;
        match (conn.lane, conn.dialled) {
            (0, _) => number(ACK, peer.channel.told(), &mut conn.outbox),
            (_, true) => conn.write(&Packet::PingReq),
            (_, false) => conn.write(&Packet::PingResp),
        }
        self.transmit(link);
    }

    /// Closes a link over which nothing has come for too long. `due` is when the owner should have asked: one who asks late may
    /// have been held up together with bytes that wait for it.
    pub(super) fn check_silence(&mut self, now: Instant, link: LinkId, due: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        if now.since(due) > self.config.keep_alive {
            conn.last_heard = now;
        }
        let ends = conn.last_heard + self.config.silence();
        if ends > now {
            self.timers.set(Timer::Silence(link), ends);
            return;
        }
        self.counters.silences += 1;
        self.close(now, link, Farewell::Silence, SILENCE.to_owned());
    }
}

/// Counts a frame that [`super::channel::Channel::encode_next`] has encoded.
pub(super) fn count_encoded((is_publication, is_again): (bool, bool), conn: &mut Conn, counters: &mut LinkCounters) {
    conn.publications_sent += u64::from(is_publication);
    if is_again {
        counters.frames_resent += 1;
    } else {
        counters.frames_sent += 1;
        counters.publications_sent += u64::from(is_publication);
    }
}
