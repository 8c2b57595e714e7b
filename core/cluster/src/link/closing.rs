//! How links end, and how new ones are made in their place.

use sedge_base::{Duration, Incarnation, Instant, NodeId, Outbox};
use sedge_mqtt::{DecodeError, Disconnect, Packet, QoS, ReasonCode, Utf8};

use super::carried;
use super::conn::{Conn, Stage};
use super::links::{Links, Timer};
use super::notices::Kind;
use super::{Frame, LinkConfig, Output};
use crate::LinkId;

/// How long a closed link may take to write its last words.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// From this number of failures on, a node that cannot be dialled is worth a line.
const WORTH_A_LINE: u32 = 5;

/// Why a link ends over which nothing comes.
pub(super) const SILENCE: &str = "nothing was heard for too long";

/// Why links end after a standstill of the process.
pub(super) const STALE: &str = "the process stood still, and what it did not read meanwhile may be outdated";

/// Why a link ends that cannot be encrypted, or whose other end cannot be trusted.
pub(super) const INSECURE: &str = "it cannot be encrypted";

/// The bytes that still leave over a link that ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Farewell {
    /// Nothing: the connection is gone already.
    Gone,
    /// Nothing: nobody would hear it.
    Silence,
    /// The bytes of the outbox.
    Flush,
    /// The bytes of the outbox, then the reason why the link is not wanted any more.
    Goodbye(&'static str),
    /// The bytes of the outbox, then the word that another link takes over.
    Replaced,
    /// The bytes of the outbox, then the mistake of the other side.
    Fault(ReasonCode, &'static str),
}

impl Links {
    /// Ends a link. `why` is told to the owner if frames passed over it.
    pub(super) fn close(&mut self, now: Instant, link: LinkId, farewell: Farewell, why: String) {
        let node = self.conns.get(&link).and_then(|conn| conn.node);
        if let Some(node) = node.filter(|node| self.peers.get(node).is_some_and(|peer| peer.link == Some(link))) {
            self.drop_lanes(now, node);
        }
        let Some(mut conn) = self.conns.remove(&link) else { return };
        for timer in [Timer::Handshake(link), Timer::Ping(link), Timer::Silence(link)] {
            self.timers.cancel(&timer);
        }
        say_farewell(&mut conn, farewell);
        let is_gone = matches!(farewell, Farewell::Gone);
        if let Some(carriage) = &conn.carriage {
            self.end_carriage(carriage, &conn.outbox, is_gone);
        } else if !is_gone {
            self.close_when_written(now, link, conn.outbox, conn.told);
        }
        let Some(node) = conn.node else { return };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if peer.link == Some(link) {
            peer.link = None;
            peer.rtt_micros = 0;
            let has_lasted = now.since(peer.up_since) >= self.config.redial_max;
            peer.failures = if has_lasted { 0 } else { peer.failures.saturating_add(1) };
            let failures = peer.failures;
            // If it was another node that has carried it, that says nothing of this one.
            let silent = why == SILENCE || conn.carriage.is_some();
            // That this node stood still says nothing of the other one, either.
            let says_nothing = silent || why == STALE;
            self.outputs.push_back(Output::Down { node, reason: why, silent: says_nothing });
            let is_wanted = peer.wanted.is_some() && !self.is_shut_down;
            self.carriages_without(now, node);
            self.seek_carrier(now, node, if silent { Duration::ZERO } else { carried::AGAIN });
            if is_gone && failures <= 1 && is_wanted {
                // A dial shows at once whether the node still listens there.
                self.dial(now, node);
            } else {
                self.schedule(now, node, false);
            }
        } else if peer.dial == Some(link) {
            peer.dial = None;
            peer.failures = peer.failures.saturating_add(1);
            if peer.failures == WORTH_A_LINE {
                let addr = conn.peer_addr;
                self.warn(now, Kind::Unreachable, || format!("node {node} cannot be linked at {addr}: {why}"));
            }
            self.schedule(now, node, true);
            self.seek_carrier(now, node, carried::AGAIN);
        } else if peer.carried == Some(link) {
            peer.carried = None;
            self.seek_carrier(now, node, carried::AGAIN);
        } else if conn.lane > 0 {
            self.lane_closed(now, node, link);
        }
    }

    fn close_when_written(&mut self, now: Instant, link: LinkId, outbox: Outbox, told: bool) {
        if !outbox.is_empty() {
            if !told {
                self.outputs.push_back(Output::Transmit { link });
            }
            self.closing.insert(link, outbox);
            self.timers.set(Timer::Closing(link), now + LAST_WORDS);
        }
        self.outputs.push_back(Output::Close { link });
    }

    /// Sees to the next attempt, or to the end of a channel that this node does not want.
    pub(super) fn schedule(&mut self, now: Instant, node: NodeId, has_dialled: bool) {
        let Some(peer) = self.peers.get(&node) else { return };
        if self.is_shut_down || peer.dial.is_some() || self.is_direct(node) {
            return;
        }
        if peer.wanted.is_none() {
            self.timers.set(Timer::Linger(node), now + self.config.unwanted_linger);
            return;
        }
        let waits = self.me.node > node && !has_dialled;
        let delay = if waits { self.config.dial_patience } else { backoff(&self.config, peer.failures) };
        // From half the wait to the whole of it, so that nodes that have lost each other together do not meet again and again.
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(nanos / 2 + self.rng.below(nanos / 2 + 1));
        let delay = if waits { self.config.dial_patience } else { delay };
        self.timers.set(Timer::Redial(node), now + delay);
    }

    /// Dials a node that is wanted, unless there is a link already.
    pub(super) fn dial(&mut self, now: Instant, node: NodeId) {
        let is_direct = self.is_direct(node);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let Some(to) = peer.wanted.filter(|_| !is_direct && peer.dial.is_none()) else { return };
        if !self.config.may_link(to) {
            peer.failures = peer.failures.saturating_add(1);
            self.counters.auth_failures += 1;
            self.warn(now, Kind::Key, || {
                format!("node {node} at {to} is not dialled: without cluster.key only loopback addresses are linked")
            });
            self.schedule(now, node, true);
            return;
        }
        self.last_dial += 1;
        let link = LinkId(self.last_dial);
        peer.dial = Some(link);
        self.conns.insert(link, Conn::dialling(now, to, node));
        self.timers.cancel(&Timer::Redial(node));
        self.timers.set(Timer::Handshake(link), now + self.config.handshake_timeout);
        self.counters.dials += 1;
        self.outputs.push_back(Output::Dial { link, to });
        self.seek_carrier(now, node, carried::UNANSWERED);
    }

    /// The node has started again: its former life is over.
    pub(super) fn leave_former_life(&mut self, now: Instant, node: NodeId, incarnation: Incarnation) {
        self.begin_life(node, incarnation);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.failures = 0;
        peer.is_distrusted = false;
        for link in peer.link.into_iter().chain(peer.dial).chain(peer.carried) {
            self.close(now, link, Farewell::Silence, "the node has started again".to_owned());
        }
        // The new life is dialled at once, not when the old one would have been.
        self.timers.cancel(&Timer::Redial(node));
    }

    /// The channel to a node is one to this life of it: publications that the former one has not acknowledged can be asked for.
    pub(super) fn begin_life(&mut self, node: NodeId, incarnation: Incarnation) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let waits = peer.channel.log().filter_map(|frame| match frame {
            Frame::Publication(publication) if publication.message.qos > QoS::AtMostOnce => Some(publication.clone()),
            Frame::Publication(_) | Frame::Control { .. } => None,
        });
        self.former.entry(node).or_default().extend(waits);
        self.counters.frames_lost += peer.channel.restart(incarnation) as u64;
    }

    pub(super) fn linger_ended(&mut self, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| peer.wanted.is_none() && peer.link.is_none())
            && let Some(peer) = self.peers.remove(&node)
        {
            self.counters.frames_lost += peer.channel.log_len() as u64;
        }
    }

    pub(super) fn handshake_timed_out(&mut self, now: Instant, link: LinkId) {
        self.counters.handshakes_refused += 1;
        self.close(now, link, Farewell::Silence, "no answer in time".to_owned());
    }

    /// The bytes that came are no MQTT, or none that belongs here.
    pub(super) fn bad_bytes(&mut self, now: Instant, link: LinkId, error: DecodeError) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let addr = conn.peer_addr;
        if conn.is_established() {
            return self.protocol_error(
                now,
                link,
                error.reason_code(),
                "what came is no valid packet",
                &error.to_string(),
            );
        }
        self.counters.handshakes_refused += 1;
        self.warn(now, Kind::Stranger, || format!("{addr} does not talk like a Sedge node: {error}"));
        self.close(now, link, Farewell::Silence, error.to_string());
    }

    /// A neighbour has broken the protocol: the link is closed and, if wanted, made anew.
    pub(super) fn protocol_error(
        &mut self,
        now: Instant,
        link: LinkId,
        reason: ReasonCode,
        words: &'static str,
        detail: &str,
    ) {
        self.counters.protocol_errors += 1;
        let node = self.conns.get(&link).and_then(|conn| conn.node);
        let name = node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
        self.warn(now, Kind::Protocol, || format!("node {name} broke the link protocol: {detail}"));
        self.close(now, link, Farewell::Fault(reason, words), format!("protocol error: {detail}"));
    }
}

fn say_farewell(conn: &mut Conn, farewell: Farewell) {
    let (reason, words) = match farewell {
        Farewell::Gone | Farewell::Silence => {
            conn.outbox = Outbox::new();
            return;
        }
        Farewell::Flush => return,
        Farewell::Goodbye(words) => (ReasonCode::AdministrativeAction, words),
        Farewell::Replaced => (ReasonCode::SessionTakenOver, "another link takes over"),
        Farewell::Fault(reason, words) => (reason, words),
    };
    // An acceptor has no DISCONNECT before its CONNACK, and before the dialler's CONNECT there is nobody to talk to.
    if conn.is_established() || matches!(conn.stage, Stage::AwaitAnswer(_) | Stage::AwaitVerdict(_) | Stage::Busy) {
        let reason_string = Some(Utf8::from_static(words));
        conn.write(&Packet::Disconnect(Disconnect { reason_string, ..Disconnect::new(reason) }));
    }
}

/// Wait before the attempt that follows so many failures.
fn backoff(config: &LinkConfig, failures: u32) -> Duration {
    config.redial_min.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(config.redial_max)
}
