//! The sending half of QoS 1 and 2.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode};

use super::connection::ANSWER_TIMEOUT;
use super::{ClientError, Connection, reason_words};

/// The packet that an unacknowledged message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// PUBACK.
    Receipt,
    /// PUBREC.
    FirstReceipt,
    /// PUBCOMP.
    Completion,
}

/// Messages that were sent and not acknowledged, at most `limit` of them.
#[derive(Debug)]
pub(crate) struct Outbox {
    open: BTreeMap<PacketId, Awaits>,
    limit: usize,
    acknowledged: u64,
    refusals: Vec<String>,
}

/// The first identifier from `next` that no open message has.
fn free_id(open: &BTreeMap<PacketId, Awaits>, mut next: impl FnMut() -> PacketId) -> PacketId {
    loop {
        let id = next();
        if !open.contains_key(&id) {
            return id;
        }
    }
}

impl Outbox {
    /// An outbox that keeps at most `limit` messages unacknowledged, or fewer if the broker takes fewer.
    pub(crate) fn new(limit: u16, connection: &Connection) -> Self {
        let limit = limit.min(connection.limits().receive_maximum.unwrap_or(u16::MAX)).max(1);
        Self { open: BTreeMap::new(), limit: usize::from(limit), acknowledged: 0, refusals: Vec::new() }
    }

    /// How many messages were acknowledged.
    pub(crate) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The broker's reason for each message that it did not take.
    pub(crate) fn refusals(&self) -> &[String] {
        &self.refusals
    }

    /// Sends `publish`, once there is room for one more unacknowledged message. Sets its packet id.
    pub(crate) fn publish(&mut self, mut publish: Publish, connection: &mut Connection) -> Result<(), ClientError> {
        if publish.qos == QoS::AtMostOnce {
            return connection.send(&Packet::Publish(publish));
        }
        self.wait_below(self.limit, connection)?;
        let id = free_id(&self.open, || connection.next_id());
        publish.packet_id = Some(id);
        let awaits = if publish.qos == QoS::AtLeastOnce { Awaits::Receipt } else { Awaits::FirstReceipt };
        connection.send(&Packet::Publish(publish))?;
        self.open.insert(id, awaits);
        Ok(())
    }

    /// Waits until every message is acknowledged.
    pub(crate) fn settle(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        self.wait_below(1, connection)
    }

    /// Takes the packets that come within `wait`.
    pub(crate) fn poll(&mut self, wait: Duration, connection: &mut Connection) -> Result<(), ClientError> {
        let until = Instant::now() + wait;
        while let Some(packet) = connection.receive(until)? {
            self.handle(packet, connection)?;
        }
        Ok(())
    }

    fn wait_below(&mut self, count: usize, connection: &mut Connection) -> Result<(), ClientError> {
        let mut until = Instant::now() + ANSWER_TIMEOUT;
        while self.open.len() >= count {
            let Some(packet) = connection.receive(until)? else {
                return Err(ClientError::NoAnswer("PUBLISH", ANSWER_TIMEOUT.as_secs()));
            };
            self.handle(packet, connection)?;
            until = Instant::now() + ANSWER_TIMEOUT;
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a client has no use for other packets")]
    fn handle(&mut self, packet: Packet, connection: &mut Connection) -> Result<(), ClientError> {
        let (awaited, ack) = match packet {
            Packet::PubAck(ack) => (Awaits::Receipt, ack),
            Packet::PubRec(ack) => (Awaits::FirstReceipt, ack),
            Packet::PubComp(ack) => (Awaits::Completion, ack),
            // A kept session of the same client id may still have subscriptions; nobody here reads them.
            Packet::Publish(_) => return Ok(()),
            packet => return Err(ClientError::Unexpected(packet.kind())),
        };
        if self.open.get(&ack.packet_id) != Some(&awaited) {
            return Ok(());
        }
        self.advance(awaited, ack, connection)
    }

    fn advance(&mut self, awaited: Awaits, ack: Ack, connection: &mut Connection) -> Result<(), ClientError> {
        if awaited == Awaits::FirstReceipt && !ack.reason.is_error() {
            self.open.insert(ack.packet_id, Awaits::Completion);
            return connection.send(&Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success)));
        }
        self.open.remove(&ack.packet_id);
        if !ack.reason.is_error() {
            self.acknowledged += 1;
            return Ok(());
        }
        let words = reason_words(ack.reason);
        let text = ack.properties.and_then(|properties| properties.0);
        self.refusals.push(text.map_or_else(|| words.clone(), |text| format!("{words}: {text}")));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-05: a message that is never acknowledged keeps its packet identifier, and all others go round.
    #[test]
    fn an_open_message_stops_no_others() {
        let stuck = PacketId::new(3).unwrap();
        let open = BTreeMap::from([(stuck, Awaits::Receipt)]);
        let mut last = 0_u16;
        let mut next = || {
            last = last.checked_add(1).unwrap_or(1);
            PacketId::new(last).unwrap()
        };
        let used: std::collections::BTreeSet<PacketId> = (0..70_000).map(|_| free_id(&open, &mut next)).collect();
        assert_eq!((used.len(), used.contains(&stuck)), (65_534, false));
    }
}
