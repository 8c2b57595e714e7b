//! The log of a rule: records that wait in the queue of a session until a later one makes them superfluous.
//!
//! A record goes in parts that fit into packets. A part is a version, the number of its record, its own number and how many there are
//! (both 16 bits, big-endian), and bytes. A message of version 0 is a mark: who reads the log writes one and reads until it comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use mio::Poll;
use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode, TopicName};

use super::run::Opened;
use crate::error::BridgeError;
use crate::wire::{PATIENCE, Wire};

const VERSION: u8 = 1;
const MARK: u8 = 0;
/// Bytes in front of a part.
const HEAD: usize = 13;
/// Largest part.
const PART_MAX: usize = 512 << 10;
/// Bytes of a PUBLISH beside its payload, more than enough.
const PACKET_ROOM: usize = 1024;

/// The log while it is written.
pub(super) struct Log {
    pub(super) wire: Wire,
    topic: TopicName,
    part_bytes: usize,
    next_id: u16,
    /// Parts of the record on its way that the broker has not acknowledged.
    missing: BTreeSet<PacketId>,
    /// Packet identifiers of messages that wait in the session, each with the record that its message belongs to.
    waiting: VecDeque<(u64, PacketId)>,
}

/// A part of a record, and the record it belongs to.
struct Part<'a> {
    record: u64,
    number: u16,
    of: u16,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    fn read(payload: &'a [u8]) -> Option<Self> {
        let (head, bytes) = payload.split_at_checked(HEAD)?;
        let &[VERSION, ref rest @ ..] = head else { return None };
        let (record, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (of, _) = rest.split_first_chunk()?;
        let (number, of) = (u16::from_be_bytes(*number), u16::from_be_bytes(*of));
        Some(Self { record: u64::from_be_bytes(*record), number, of, bytes })
    }
}

/// Records whose parts come in order; what has not come whole was never acknowledged to anybody.
#[derive(Default)]
struct Records(BTreeMap<u64, (u16, Vec<u8>)>);

impl Records {
    fn add(&mut self, part: &Part<'_>) {
        let (next, bytes) = self.0.entry(part.record).or_default();
        if part.number == 0 {
            // Somebody has written it once more, who knew nothing of the first.
            (*next, *bytes) = (0, Vec::new());
        }
        if part.number == *next {
            *next += 1;
            bytes.extend_from_slice(part.bytes);
        }
    }

    fn whole(self, parts: &BTreeMap<u64, u16>) -> Vec<Vec<u8>> {
        let is_whole = |record: &u64, count: u16| parts.get(record) == Some(&count);
        self.0
            .into_iter()
            .filter(|(record, (count, _))| is_whole(record, *count))
            .map(|(_, (_, bytes))| bytes)
            .collect()
    }
}

impl Log {
    /// Takes the connection over, and reads the records of the log.
    pub(super) fn open(
        opened: Opened,
        topic: TopicName,
        poll: &mut Poll,
        goes_on: impl Fn() -> bool,
    ) -> Result<(Self, Vec<Vec<u8>>), BridgeError> {
        let most = opened.ack.properties.maximum_packet_size.and_then(|most| usize::try_from(most).ok());
        let part_bytes = most.map_or(PART_MAX, |most| most.saturating_sub(PACKET_ROOM).clamp(1, PART_MAX));
        let (missing, waiting) = Default::default();
        let mut log = Self { wire: opened.wire, topic, part_bytes, next_id: 1, missing, waiting };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mark = Bytes::from([&[MARK][..], &time.to_be_bytes()].concat());
        log.publish(mark.clone());
        let (mut records, mut parts, mut early) = (Records::default(), BTreeMap::new(), opened.early);
        let mut marked = false;
        while !marked || !log.missing.is_empty() {
            let packet =
                if early.is_empty() { log.wire.wait(poll, "its log", PATIENCE, &goes_on)? } else { early.remove(0) };
            if let Packet::Publish(publish) = &packet {
                marked |= publish.payload == mark;
                if let Some(part) = Part::read(&publish.payload) {
                    parts.insert(part.record, part.of);
                    records.add(&part);
                }
            }
            log.packet(packet)?;
        }
        Ok((log, records.whole(&parts)))
    }

    fn publish(&mut self, payload: Bytes) {
        let id = PacketId::new(self.next_id).unwrap_or(PacketId::MIN);
        self.next_id = self.next_id % 50_000 + 1;
        self.missing.insert(id);
        self.wire.send(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: Some(self.topic.clone()),
            packet_id: Some(id),
            payload,
            properties: None,
        }));
    }

    /// Writes a record. One at a time.
    pub(super) fn write(&mut self, number: u64, record: &[u8]) {
        let parts = record.chunks(self.part_bytes);
        let of = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        for (at, part) in (0_u16..).zip(parts) {
            let mut payload = Vec::with_capacity(HEAD + part.len());
            payload.push(VERSION);
            payload.extend_from_slice(&number.to_be_bytes());
            payload.extend_from_slice(&at.to_be_bytes());
            payload.extend_from_slice(&of.to_be_bytes());
            payload.extend_from_slice(part);
            self.publish(payload.into());
        }
    }

    /// Takes a packet in; whether the record that was written last is safe now.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other packets say nothing here")]
    pub(super) fn packet(&mut self, packet: Packet) -> Result<bool, BridgeError> {
        match packet {
            Packet::PubAck(ack) if ack.reason.is_error() => {
                return Err(BridgeError::Busy { end: self.wire.end, reason: ack.reason });
            }
            Packet::PubAck(ack) => return Ok(self.missing.remove(&ack.packet_id) && self.missing.is_empty()),
            Packet::Publish(Publish { packet_id: Some(id), payload, .. }) => match Part::read(&payload) {
                Some(part) => self.waiting.push_back((part.record, id)),
                None => self.acknowledge(id),
            },
            _ => {}
        }
        Ok(false)
    }

    fn acknowledge(&mut self, id: PacketId) {
        self.wire.send(&Packet::PubAck(Ack::new(id, ReasonCode::Success)));
    }

    /// Forgets the records before this one.
    pub(super) fn forget_before(&mut self, number: u64) {
        while let Some(&(record, id)) = self.waiting.front().filter(|(record, _)| *record < number) {
            debug_assert!(record < number);
            self.waiting.pop_front();
            self.acknowledge(id);
        }
    }
}
