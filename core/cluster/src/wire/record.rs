//! The records that a shard and the node write into their journal. The format of the journal's batches: entries one after the other.

use core::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_base::{ClientId, Duration, Incarnation, NodeId, ShardId, Timestamp};
use sedge_broker::{QueuedRecord, Record, SessionFacts, SubscriptionState, WillState};
use sedge_mqtt::{Message, MessageId, PacketId, ReasonCode};

use super::message::{read_id, write_id};
use super::session::{
    read_packet_id, read_qos, read_subscription, read_version, read_will, write_subscription, write_will,
};
use super::{Reader, Result, WireError, Writer, read_message, write_message};
use crate::mail::{Life, Location};
use crate::shard::Choice;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Of the shard's broker.
    Broker(Record),
    /// A retained message or a tombstone.
    Retained(Arc<Message>),
    /// QoS 2 publications of this life and shard of the node have come up to this number.
    Seen { incarnation: Incarnation, shard: ShardId, seq: u64 },
    /// Which places were chosen for the shared subscriptions of a QoS 2 publication that is on its way.
    Chosen { id: MessageId, choice: Choice },
    /// Publications of this shard of a node have come up to this number, all that were sent here.
    Heard { node: NodeId, incarnation: Incarnation, shard: ShardId, seq: u64 },
    /// The session of a client has come with the publications of a shard up to this one, before all sessions here had them.
    Had { client: ClientId, last: MessageId },
    /// The other members of the cluster, all that there are.
    Members(Vec<Remembered>),
    /// Lives of other nodes whose sessions went on elsewhere, all that this node remembers.
    Taken(Vec<Life>),
    /// Those among them whose sessions are safe elsewhere, and the nodes that have these sessions, all that this node remembers.
    SafeElsewhere(Vec<SafeAt>),
    /// The sessions of this journal are those of this life of the node.
    Life(Incarnation),
    /// Nodes that may come back with retained messages that were cleared meanwhile, all that there are.
    Known(Vec<NodeId>),
}

/// A member as a node finds it in its journal after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Which node.
    pub(crate) node: NodeId,
    /// Where it is reached by datagram.
    pub(crate) address: SocketAddr,
}

/// The sessions of a life of a node are safe elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SafeAt {
    /// The life whose sessions they were.
    pub(crate) life: Life,
    /// The node that has taken them over.
    pub(crate) by: NodeId,
}

/// Appends an entry.
pub(crate) fn write_entry(out: &mut BytesMut, entry: &Entry) {
    let mut writer = Writer(core::mem::take(out));
    match entry {
        Entry::Broker(record) => write_record(&mut writer, record),
        Entry::Retained(message) => {
            writer.u8(32);
            write_message(&mut writer, message);
        }
        Entry::Seen { incarnation, shard, seq } => {
            writer.u8(33);
            writer.u64(incarnation.get());
            writer.u16(shard.0);
            writer.u64(*seq);
        }
        Entry::Chosen { id, choice } => {
            writer.u8(40);
            write_id(&mut writer, id);
            writer.list(choice, |out, (group, place)| {
                out.text(group.as_str());
                match place {
                    Location::Shard(shard) => {
                        out.bool(false);
                        out.u64(u64::from(shard.0));
                    }
                    Location::Node(node) => {
                        out.bool(true);
                        out.u64(node.get());
                    }
                }
            });
        }
        Entry::Heard { node, incarnation, shard, seq } => {
            writer.u8(34);
            writer.node(*node);
            writer.u64(incarnation.get());
            writer.u16(shard.0);
            writer.u64(*seq);
        }
        Entry::Had { client, last } => {
            writer.u8(42);
            writer.client(client);
            write_id(&mut writer, last);
        }
        Entry::Members(members) => {
            writer.u8(35);
            writer.list(members, |out, member| {
                out.node(member.node);
                out.text(&member.address.to_string());
            });
        }
        Entry::Taken(lives) => {
            writer.u8(36);
            writer.list(lives, write_life);
        }
        Entry::SafeElsewhere(all) => {
            writer.u8(43);
            writer.list(all, |out, safe| {
                write_life(out, &safe.life);
                out.node(safe.by);
            });
        }
        Entry::Life(incarnation) => {
            writer.u8(44);
            writer.u64(incarnation.get());
        }
        Entry::Known(nodes) => {
            writer.u8(41);
            writer.list(nodes, |out, node| out.node(*node));
        }
    }
    *out = writer.0;
}

fn write_life(out: &mut Writer, life: &Life) {
    out.node(life.node);
    out.u64(life.incarnation.get());
}

fn read_life(from: &mut Reader) -> Result<Life> {
    Ok(Life { node: from.node()?, incarnation: Incarnation::new(from.u64()?) })
}

/// Appends an entry of a shard's broker.
pub(crate) fn write_broker_entry(out: &mut BytesMut, record: &Record) {
    let mut writer = Writer(core::mem::take(out));
    write_record(&mut writer, record);
    *out = writer.0;
}

/// Visits the entries of a batch. An error is where they stop to make sense.
pub(crate) fn read_entries(batch: Bytes, mut visit: impl FnMut(Entry)) -> Result<()> {
    let mut from = Reader::new(batch);
    while !from.is_empty() {
        visit(read_entry(&mut from)?);
    }
    Ok(())
}

fn read_entry(from: &mut Reader) -> Result<Entry> {
    match from.u8()? {
        32 => Ok(Entry::Retained(read_message(from)?)),
        33 => {
            let (incarnation, shard) = (Incarnation::new(from.u64()?), ShardId(from.u16()?));
            Ok(Entry::Seen { incarnation, shard, seq: from.u64()? })
        }
        40 => {
            let id = read_id(from)?;
            let choice = from.list(|from| {
                let (group, is_node, number) = (from.filter()?, from.bool()?, from.u64()?);
                let place = if is_node {
                    Location::Node(NodeId::new(number))
                } else {
                    Location::Shard(ShardId(u16::try_from(number).ok().ok_or(WireError("no number of a shard"))?))
                };
                Ok((group, place))
            })?;
            Ok(Entry::Chosen { id, choice })
        }
        34 => {
            let (node, incarnation) = (from.node()?, Incarnation::new(from.u64()?));
            let shard = ShardId(from.u16()?);
            Ok(Entry::Heard { node, incarnation, shard, seq: from.u64()? })
        }
        42 => Ok(Entry::Had { client: from.client()?, last: read_id(from)? }),
        35 => Ok(Entry::Members(from.list(|from| {
            let (node, address) = (from.node()?, from.utf8()?);
            let address = address.as_str().parse().ok().ok_or(WireError("no address"))?;
            Ok(Remembered { node, address })
        })?)),
        36 => Ok(Entry::Taken(from.list(read_life)?)),
        43 => {
            let safe = from.list(|from| Ok(SafeAt { life: read_life(from)?, by: from.node()? }))?;
            Ok(Entry::SafeElsewhere(safe))
        }
        44 => Ok(Entry::Life(Incarnation::new(from.u64()?))),
        41 => Ok(Entry::Known(from.list(Reader::node)?)),
        kind => read_record(kind, from).map(Entry::Broker),
    }
}

fn write_record(out: &mut Writer, record: &Record) {
    let head = |out: &mut Writer, kind: u8, session: u64| {
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&session.to_be_bytes());
        out.fixed(&bytes);
    };
    match record {
        Record::Message(message) => {
            out.u8(1);
            write_message(out, message);
        }
        Record::Begin { session, client } => {
            head(out, 2, *session);
            out.client(client);
        }
        Record::Facts { session, facts } => {
            head(out, 3, *session);
            out.u64(facts.epoch);
            out.u8(facts.version.level());
            out.u32(facts.expiry_secs);
            out.option(facts.disconnected_at, |out, at| out.u64(at.as_millis()));
        }
        Record::Will { session, will } => {
            head(out, 4, *session);
            out.option(will.as_ref(), |out, (will, due)| {
                write_will(out, &WillState { will: will.clone(), remaining: Duration::ZERO });
                out.option(*due, |out, due| out.u64(due.as_millis()));
            });
        }
        Record::Subscribed { session, subscription } => {
            head(out, 5, *session);
            write_subscription(out, subscription);
        }
        Record::Unsubscribed { session, filter } => {
            head(out, 6, *session);
            out.text(filter.as_str());
        }
        Record::Queued { session, item } => {
            head(out, 7, *session);
            write_item(out, item);
        }
        Record::Sent { session, packet_id, item } => {
            flow(out, 8, *session, *packet_id);
            write_item(out, item);
        }
        Record::SentQueued { session, packet_id, message } => {
            flow(out, 9, *session, *packet_id);
            write_id(out, message);
        }
        Record::Dropped { session, message } => {
            head(out, 10, *session);
            write_id(out, message);
        }
        Record::Released { session, packet_id } => flow(out, 11, *session, *packet_id),
        Record::Completed { session, packet_id } => flow(out, 12, *session, *packet_id),
        Record::Received { session, packet_id, answer, message } => {
            flow(out, 13, *session, *packet_id);
            out.option(*answer, |out, answer| out.u8(answer as u8));
            out.option(message.as_ref(), write_id);
        }
        Record::Answered { session, packet_id, answer } => {
            flow(out, 14, *session, *packet_id);
            out.u8(*answer as u8);
        }
        Record::Forgotten { session, packet_id } => flow(out, 15, *session, *packet_id),
        Record::Ended { session } => head(out, 16, *session),
        Record::Checkpointed => out.u8(17),
    }
}

fn flow(out: &mut Writer, kind: u8, session: u64, packet_id: PacketId) {
    let mut bytes = [kind; 11];
    bytes[1..9].copy_from_slice(&session.to_be_bytes());
    bytes[9..].copy_from_slice(&packet_id.get().to_be_bytes());
    out.fixed(&bytes);
}

fn read_record(kind: u8, from: &mut Reader) -> Result<Record> {
    match kind {
        1 => return Ok(Record::Message(read_message(from)?)),
        17 => return Ok(Record::Checkpointed),
        2..=16 => {}
        _ => return Err(WireError("unknown entry")),
    }
    let session = from.u64()?;
    Ok(match kind {
        2 => Record::Begin { session, client: from.client()? },
        3 => {
            let (epoch, version, expiry_secs) = (from.u64()?, read_version(from)?, from.u32()?);
            let disconnected_at = from.option(Reader::u64)?.map(Timestamp::from_millis);
            Record::Facts { session, facts: SessionFacts { epoch, version, expiry_secs, disconnected_at } }
        }
        4 => {
            let will = from.option(|from| {
                let WillState { will, remaining: _ } = read_will(from)?;
                Ok((will, from.option(Reader::u64)?.map(Timestamp::from_millis)))
            })?;
            Record::Will { session, will }
        }
        5 => {
            let subscription: SubscriptionState = read_subscription(from)?;
            Record::Subscribed { session, subscription }
        }
        6 => Record::Unsubscribed { session, filter: from.filter()? },
        7 => Record::Queued { session, item: read_item(from)? },
        8 => Record::Sent { session, packet_id: read_packet_id(from)?, item: read_item(from)? },
        9 => Record::SentQueued { session, packet_id: read_packet_id(from)?, message: read_id(from)? },
        10 => Record::Dropped { session, message: read_id(from)? },
        11 => Record::Released { session, packet_id: read_packet_id(from)? },
        12 => Record::Completed { session, packet_id: read_packet_id(from)? },
        13 => {
            let packet_id = read_packet_id(from)?;
            let answer = from.option(read_reason)?;
            Record::Received { session, packet_id, answer, message: from.option(read_id)? }
        }
        14 => Record::Answered { session, packet_id: read_packet_id(from)?, answer: read_reason(from)? },
        15 => Record::Forgotten { session, packet_id: read_packet_id(from)? },
        _ => Record::Ended { session },
    })
}

fn read_reason(from: &mut Reader) -> Result<ReasonCode> {
    ReasonCode::from_u8(from.u8()?).ok_or(WireError("unknown reason code"))
}

fn write_item(out: &mut Writer, item: &QueuedRecord) {
    write_id(out, &item.message);
    out.u8(item.qos.as_u8());
    out.bool(item.retain);
    out.list(&item.subscription_ids, |out, id| out.u32(*id));
    out.option(item.group.as_ref(), |out, group| out.text(group.as_str()));
}

fn read_item(from: &mut Reader) -> Result<QueuedRecord> {
    let (message, qos, retain) = (read_id(from)?, read_qos(from)?, from.bool()?);
    let subscription_ids = from.list(Reader::u32)?;
    Ok(QueuedRecord { message, qos, retain, subscription_ids, group: from.option(Reader::filter)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sedge_mqtt::{
        MessageId, QoS, ReadAt, Stamp, SubscriptionOptions, TopicFilter, TopicName, Version, Will, WillProperties,
    };

    use super::*;

    fn entries() -> Vec<Entry> {
        let session = 7;
        let packet_id = PacketId::MIN;
        let id = MessageId { node: NodeId::new(1), incarnation: Incarnation::new(2), shard: ShardId(3), seq: 4 };
        let message = Arc::new(Message {
            id,
            topic: TopicName::new("a/b").unwrap(),
            payload: Bytes::from_static(b"payload"),
            qos: QoS::AtLeastOnce,
            retain: true,
            properties: None,
            stamp: Stamp { millis: 5, counter: 6, node: NodeId::new(7), shard: ShardId(8) },
            expires_at: None,
            publisher: Some(ClientId::new("p")),
            read_at: ReadAt::default(),
        });
        let filter = TopicFilter::new("$share/g/a/+").unwrap();
        let item = QueuedRecord {
            message: id,
            qos: QoS::ExactlyOnce,
            retain: true,
            subscription_ids: vec![1, 2],
            group: Some(filter.clone()),
        };
        let (topic, payload) = (TopicName::new("w").unwrap(), Bytes::from_static(b"gone"));
        let will = Will { topic, payload, qos: QoS::AtLeastOnce, retain: false, properties: WillProperties::default() };
        let due = Timestamp::from_millis(9);
        let facts = SessionFacts { epoch: 1, version: Version::V5, expiry_secs: 2, disconnected_at: Some(due) };
        let subscription =
            SubscriptionState { filter: filter.clone(), options: SubscriptionOptions::default(), id: Some(3) };
        let records = [
            Record::Message(Arc::clone(&message)),
            Record::Begin { session, client: ClientId::new("c") },
            Record::Facts { session, facts },
            Record::Will { session, will: Some((Box::new(will), Some(due))) },
            Record::Will { session, will: None },
            Record::Subscribed { session, subscription },
            Record::Unsubscribed { session, filter },
            Record::Queued { session, item: item.clone() },
            Record::Sent { session, packet_id, item },
            Record::SentQueued { session, packet_id, message: id },
            Record::Dropped { session, message: id },
            Record::Released { session, packet_id },
            Record::Completed { session, packet_id },
            Record::Received { session, packet_id, answer: None, message: Some(id) },
            Record::Received { session, packet_id, answer: Some(ReasonCode::Success), message: None },
            Record::Answered { session, packet_id, answer: ReasonCode::QuotaExceeded },
            Record::Forgotten { session, packet_id },
            Record::Ended { session },
            Record::Checkpointed,
        ];
        let seen = Entry::Seen { incarnation: Incarnation::new(1), shard: ShardId(2), seq: 3 };
        let heard = Entry::Heard { node: NodeId::new(4), incarnation: Incarnation::new(1), shard: ShardId(2), seq: 3 };
        let had = Entry::Had { client: ClientId::new("c"), last: id };
        records.into_iter().map(Entry::Broker).chain([Entry::Retained(message), seen, heard, had]).collect()
    }

    fn written() -> Bytes {
        let mut out = BytesMut::new();
        for entry in &entries() {
            write_entry(&mut out, entry);
        }
        out.freeze()
    }

    fn read(bytes: Bytes) -> (Vec<Entry>, bool) {
        let mut found = Vec::new();
        let all = read_entries(bytes, |entry| found.push(entry)).is_ok();
        (found, all)
    }

    #[test]
    fn every_entry_is_read_as_it_was_written() {
        assert_eq!(read(written()), (entries(), true));
    }

    /// FT-31, MQ-06
    #[test]
    fn a_journal_says_what_sessions_that_are_there_were_given() {
        let given = |entries: Vec<Entry>| {
            let mut batch = BytesMut::new();
            for entry in &entries {
                write_entry(&mut batch, entry);
            }
            let mut recovery = crate::Recovery::default();
            recovery.apply(batch.freeze()).unwrap();
            let (mut shards, _) = crate::Recovery::deal(vec![recovery], Timestamp::from_millis(1), 1);
            shards.remove(0).given
        };
        let plain = |mut entry: Entry| {
            if let Entry::Broker(Record::Queued { item, .. }) = &mut entry {
                item.group = None;
            }
            entry
        };
        let lasting = || entries().into_iter().filter(|entry| !matches!(entry, Entry::Broker(Record::Ended { .. })));
        let id = MessageId { node: NodeId::new(1), incarnation: Incarnation::new(2), shard: ShardId(3), seq: 4 };
        assert_eq!(given(lasting().map(plain).collect()), [(ClientId::new("c"), id)]);
        assert!(given(lasting().collect()).is_empty(), "a message for a shared subscription may come back");
        assert!(given(entries().into_iter().map(plain).collect()).is_empty(), "the session has ended");
    }

    #[test]
    fn a_cut_batch_gives_what_is_whole() {
        let (bytes, entries) = (written(), entries());
        for length in 0..bytes.len() {
            let (found, _) = read(bytes.slice(..length));
            assert!(found.len() < entries.len() && entries.starts_with(&found), "{length}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a sound checksum may hide: no panic, and a recovery that goes on.
        #[test]
        fn any_bytes_are_read_without_harm(at in 0_usize..600, flip in 1_u8.., tail in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = BytesMut::from(&written()[..]);
            let at = at % bytes.len();
            bytes[at] ^= flip;
            bytes.extend_from_slice(&tail);
            let mut recovery = crate::Recovery::default();
            let _ = recovery.apply(bytes.freeze());
            let _ = recovery.apply(Bytes::from(tail));
            let (shards, _) = crate::Recovery::deal(vec![recovery], Timestamp::from_millis(1), 2);
            prop_assert_eq!(shards.len(), 2);
        }
    }
}
