//! Packets of clients, one after the other.

use bytes::Bytes;
use sedge_base::ConnId;
use sedge_mqtt::{Ack, DecodeError, Packet, QoS, ReasonCode, Version};

use crate::Broker;
use crate::connection::{ConnKey, Phase};
use crate::disconnect::Ending;
use crate::inflight::Slot;
use crate::refusal::foreign;
use crate::session::SessionKey;

/// A packet that breaks a rule: the connection ends with this reason (MQTT 5.0 section 4.13).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault(pub(crate) ReasonCode, pub(crate) &'static str);

/// The version a first piece of bytes announces, as far as can be seen without decoding it: a CONNECT that turns out to be
/// malformed is to be answered in its own version.
fn announces_v5(bytes: &[u8]) -> bool {
    let Some((&0x10, rest)) = bytes.split_first() else { return false };
    let length = rest.iter().take(4).take_while(|&&byte| byte >= 0x80).count() + 1;
    rest.get(length..).is_some_and(|body| body.starts_with(b"\x00\x04MQTT\x05"))
}

impl Broker {
    /// Bytes of a client.
    pub(crate) fn on_received(&mut self, conn: ConnId, bytes: Bytes) {
        let Some(key) = self.connections.key(conn) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.phase == Phase::Closing {
            return;
        }
        self.counters.bytes_in += bytes.len() as u64;
        connection.last_seen = self.now.instant;
        if connection.phase == Phase::Opening && connection.decoder.buffered() == 0 {
            if announces_v5(&bytes) {
                connection.version = Version::V5;
            } else if let Some(what) = foreign(&bytes) {
                self.counters.malformed += 1;
                let ending = Ending::silent(ReasonCode::ProtocolError, what).decided_by("listener.NAME.protocol");
                return self.end_connection(key, ending);
            }
        }
        connection.decoder.feed(bytes);
        self.process(key);
    }

    /// Takes the packets that have come, until there are no more or the connection is held.
    pub(crate) fn process(&mut self, key: ConnKey) {
        if self.stands_still {
            return;
        }
        while let Some(connection) = self.connections.get_mut(key) {
            if !connection.takes_packets() {
                return;
            }
            if connection.is_clogged(&self.config, &self.counters) {
                return connection.hold(&mut self.outputs);
            }
            let packet = match connection.decoder.next() {
                Ok(Some(packet)) => packet,
                Ok(None) => return,
                Err(error) => return self.on_malformed(key, error),
            };
            self.counters.packets_in += 1;
            let is_authenticating = connection.phase == Phase::Authenticating;
            let session = connection.session;
            let done = match session {
                Some(session) if self.waits_for_merge(session, &packet) => return self.park(key, packet),
                Some(session) => self.on_packet(key, session, packet),
                None if is_authenticating => self.on_packet_before_connack(key, packet),
                None => {
                    self.on_first_packet(key, packet);
                    continue;
                }
            };
            if let Err(fault) = done {
                return self.on_fault(key, fault);
            }
        }
    }

    pub(crate) fn on_fault(&mut self, key: ConnKey, Fault(reason, detail): Fault) {
        self.counters.malformed += 1;
        self.end_connection(key, Ending::server(reason, detail));
    }

    fn on_malformed(&mut self, key: ConnKey, error: DecodeError) {
        self.counters.malformed += 1;
        if let (DecodeError::UnsupportedProtocolVersion { level }, Some(connection)) =
            (error, self.connections.get_mut(key))
        {
            // Later versions are more likely to understand 5.0; a set high bit is that of bridges of older versions.
            connection.version = if (5..0x80).contains(&level) { Version::V5 } else { Version::V311 };
            // Which properties it knows is anyone's guess: a bare CONNACK is what most can read.
            connection.problem_information = false;
        }
        let ending = Ending::server(error.reason_code(), error.to_string());
        let large = error.reason_code() == ReasonCode::PacketTooLarge;
        self.end_connection(key, if large { ending.decided_by("limits.maximum_packet_size") } else { ending });
    }

    fn on_first_packet(&mut self, key: ConnKey, packet: Packet) {
        if let Packet::Connect(connect) = packet {
            self.on_connect(key, connect);
            return;
        }
        // Nothing is known of the other side, not even whether it speaks MQTT.
        self.counters.malformed += 1;
        self.end_connection(key, Ending::silent(ReasonCode::ProtocolError, "the first packet is no CONNECT"));
    }

    pub(crate) fn on_packet(&mut self, key: ConnKey, session: SessionKey, packet: Packet) -> Result<(), Fault> {
        match packet {
            Packet::Publish(publish) => self.on_publish(key, session, publish),
            Packet::PubAck(ack) => self.on_puback(session, &ack),
            Packet::PubRec(ack) => self.on_pubrec(session, &ack),
            Packet::PubRel(ack) => {
                self.on_pubrel(key, session, ack.packet_id);
                Ok(())
            }
            Packet::PubComp(ack) => self.on_pubcomp(session, &ack),
            Packet::Subscribe(subscribe) => self.on_subscribe(key, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.on_unsubscribe(key, session, &unsubscribe);
                Ok(())
            }
            Packet::PingReq => {
                self.on_pingreq(key, session);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.on_disconnect(key, session, &disconnect),
            Packet::Connect(_) => Err(Fault(ReasonCode::ProtocolError, "a second CONNECT")),
            Packet::Auth(auth) => self.on_auth(key, &auth),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(Fault(ReasonCode::ProtocolError, "a packet that only servers send"))
            }
        }
    }

    /// PUBACK of a subscriber. One for an unknown identifier is ignored: it may belong to a flow that ended otherwise.
    fn on_puback(&mut self, session: SessionKey, ack: &Ack) -> Result<(), Fault> {
        let Some(mut link) = self.link(session) else { return Ok(()) };
        match link.session.inflight.get(ack.packet_id) {
            Some(Slot::Sent(outgoing)) if outgoing.qos == QoS::AtLeastOnce => {
                link.env.complete(link.session, ack.packet_id);
                link.pump();
                Ok(())
            }
            None => Ok(()),
            Some(Slot::Sent(_) | Slot::Released | Slot::Done) => {
                Err(Fault(ReasonCode::ProtocolError, "PUBACK for a QoS 2 message"))
            }
        }
    }

    /// PUBREC of a subscriber: answered with PUBREL, unless it says that the message was not taken.
    fn on_pubrec(&mut self, session: SessionKey, ack: &Ack) -> Result<(), Fault> {
        let Some(mut link) = self.link(session) else { return Ok(()) };
        let id = ack.packet_id;
        let reason = match link.session.inflight.get(id) {
            Some(Slot::Sent(outgoing)) if outgoing.qos != QoS::ExactlyOnce => {
                return Err(Fault(ReasonCode::ProtocolError, "PUBREC for a QoS 1 message"));
            }
            Some(_) if ack.reason.is_error() => {
                link.env.complete(link.session, id);
                link.pump();
                return Ok(());
            }
            None if ack.reason.is_error() => return Ok(()),
            Some(_) => {
                link.env.release(link.session, id);
                ReasonCode::Success
            }
            None => ReasonCode::PacketIdentifierNotFound,
        };
        let Some(connection) = link.connection.as_deref_mut() else { return Ok(()) };
        let reason = if connection.version == Version::V311 { ReasonCode::Success } else { reason };
        link.env.acknowledge(connection, id, reason, Packet::PubRel);
        Ok(())
    }

    fn on_pubcomp(&mut self, session: SessionKey, ack: &Ack) -> Result<(), Fault> {
        let Some(mut link) = self.link(session) else { return Ok(()) };
        match link.session.inflight.get(ack.packet_id) {
            Some(Slot::Released) => {
                link.env.complete(link.session, ack.packet_id);
                link.pump();
                Ok(())
            }
            Some(Slot::Sent(_)) => Err(Fault(ReasonCode::ProtocolError, "PUBCOMP before PUBREC")),
            Some(Slot::Done) | None => Ok(()),
        }
    }
}
