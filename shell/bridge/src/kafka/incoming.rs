//! From Kafka into the cluster: a member of a consumer group that commits what the broker has acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::{Events, Poll, Token, Waker};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use sedge_mqtt::{Packet, PacketId, Publish, PublishProperties, QoS, TopicName, Utf8};

use super::{Context, PROBE, Told, answers, client_config, failed};
use crate::error::BridgeError;
use crate::host::Host;
use crate::map::{Map, Stays, Transform};
use crate::session::{Session, close};
use crate::supervisor::Shared;
use crate::template::Template;
use crate::wire::{Wire, wait_for_events};

const WAKE: Token = Token(2);
/// How long Kafka is waited for before the session has its turn.
const NAP: Duration = Duration::from_millis(20);
/// The time between two commits of the offsets of acknowledged records.
const COMMIT: Duration = Duration::from_millis(200);
/// Records of Kafka before the session has its turn.
const RECORDS_PER_TURN: usize = 256;

pub(super) struct Consuming(pub(super) Context);

impl ClientContext for Consuming {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ConsumerContext for Consuming {}

/// A partition: topic and number.
type Place = (String, i32);

/// Records of each partition that are under way.
#[derive(Debug, Default)]
struct Progress {
    /// Offsets in order, and whether the broker has acknowledged them.
    open: BTreeMap<Place, VecDeque<(i64, bool)>>,
    /// Where to begin next time, as far as it was not committed.
    next: BTreeMap<Place, i64>,
}

impl Progress {
    fn begin(&mut self, place: &Place, offset: i64) {
        self.open.entry(place.clone()).or_default().push_back((offset, false));
    }

    fn end(&mut self, place: &Place, offset: i64) {
        let Some(open) = self.open.get_mut(place) else { return };
        if let Some(entry) = open.iter_mut().find(|entry| entry.0 == offset) {
            entry.1 = true;
        }
        while let Some(&(offset, true)) = open.front() {
            open.pop_front();
            self.next.insert(place.clone(), offset + 1);
        }
    }
}

struct Incoming<'a> {
    shared: &'a Shared,
    wire: Wire,
    consumer: BaseConsumer<Consuming>,
    told: Arc<Told>,
    template: Template,
    map: Map,
    window: usize,
    last_id: u16,
    under_way: BTreeMap<PacketId, (Place, i64)>,
    progress: Progress,
    committed: Instant,
}

/// Publishes what Kafka has until the bridge is not wanted here any more.
pub(super) fn run(
    shared: &Shared,
    session: &Session<'_, impl Host>,
    transform: &mut Option<Box<dyn Transform>>,
) -> Result<(), BridgeError> {
    let mut poll = Poll::new().map_err(BridgeError::Inside)?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(BridgeError::Inside)?;
    let told = Arc::new(Told::new(waker));
    let context = Context { name: shared.record.name.clone(), told: Arc::clone(&told) };
    let mut config = client_config(&shared.config, &shared.cluster, &shared.record.name)?;
    config
        .set("group.id", format!("sedge-{}-{}", shared.cluster, shared.record.name))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        // A node that dies gives its place to its successor soon.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "1000")
        .set("queued.max.messages.kbytes", "16384");
    let consumer: BaseConsumer<Consuming> =
        config.create_with_context(Consuming(context)).map_err(|error| failed(&error))?;
    consumer.fetch_metadata(None, Duration::from_secs(5)).map_err(|error| told.why(&error))?;
    let topics: Vec<&str> = shared.config.from.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(|error| failed(&error))?;
    let opened = session.open(&mut poll, 1)?;
    let granted = opened.ack.properties.receive_maximum.unwrap_or(u16::MAX);
    let mut incoming = Incoming {
        shared,
        wire: opened.wire,
        consumer,
        told,
        template: shared.config.template().unwrap_or_default(),
        map: Map::plain(shared, transform.take()),
        window: usize::from(granted.min(shared.config.max_inflight)),
        last_id: 0,
        under_way: BTreeMap::new(),
        progress: Progress::default(),
        committed: Instant::now(),
    };
    incoming.wire.look();
    answers(shared, &incoming.told);
    let end = incoming.run(&mut poll);
    incoming.commit(CommitMode::Sync);
    *transform = incoming.map.take_transform();
    close(incoming.wire);
    end
}

impl Incoming<'_> {
    fn run(&mut self, poll: &mut Poll) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(16);
        while self.shared.goes_on() {
            let more = self.take_records()?;
            self.wire.flush()?;
            self.take_packets()?;
            if self.committed.elapsed() >= COMMIT {
                self.commit(CommitMode::Async);
            }
            self.told.note_errors(self.shared);
            if self.told.is_to_be_probed() && self.consumer.fetch_metadata(None, PROBE).is_ok() {
                answers(self.shared, &self.told);
            }
            wait_for_events(poll, &mut events, if more { Duration::ZERO } else { NAP })?;
            for event in &events {
                self.wire.event(event);
            }
        }
        Ok(())
    }

    fn take_records(&mut self) -> Result<bool, BridgeError> {
        for _ in 0..RECORDS_PER_TURN {
            if self.under_way.len() >= self.window || !self.wire.has_room() {
                return Ok(false);
            }
            let published = match self.consumer.poll(Duration::ZERO) {
                None => return Ok(false),
                Some(Err(error)) => return Err(failed(&error)),
                Some(Ok(record)) => {
                    let place = (record.topic().to_owned(), record.partition());
                    (place, record.offset(), message(&record, &self.template))
                }
            };
            answers(self.shared, &self.told);
            let (place, offset, message) = published;
            self.publish(place, offset, message);
        }
        Ok(true)
    }

    fn publish(&mut self, place: Place, offset: i64, message: Option<Publish>) {
        let counters = &self.shared.record.counters;
        counters.messages_in.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.progress.begin(&place, offset);
        let message = message.ok_or(Stays::Nameless).and_then(|message| self.map.inward(message));
        let mut message = match message {
            Ok(message) => message,
            Err(why) => {
                let counter = if why == Stays::Transformed { &counters.kept } else { &counters.dropped };
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                return self.progress.end(&place, offset);
            }
        };
        counters.bytes_in.fetch_add(message.payload.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let id = self.free_id();
        message.packet_id = Some(id);
        self.under_way.insert(id, (place, offset));
        self.wire.send(&Packet::Publish(message));
    }

    fn free_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            match PacketId::new(self.last_id) {
                Some(id) if !self.under_way.contains_key(&id) => return id,
                Some(_) | None => {}
            }
        }
    }

    fn take_packets(&mut self) -> Result<(), BridgeError> {
        loop {
            match self.wire.next()? {
                Some(Packet::PubAck(ack)) => {
                    if matches!(ack.reason, sedge_mqtt::ReasonCode::QuotaExceeded | sedge_mqtt::ReasonCode::ServerBusy)
                    {
                        return Err(BridgeError::Busy { end: "this node", reason: ack.reason });
                    }
                    let refused = u64::from(ack.reason.is_error());
                    self.shared.record.counters.refused.fetch_add(refused, std::sync::atomic::Ordering::Relaxed);
                    if let Some((place, offset)) = self.under_way.remove(&ack.packet_id) {
                        self.progress.end(&place, offset);
                    }
                }
                Some(_) => {}
                None if self.wire.is_readable() => self.wire.receive()?,
                None => return Ok(()),
            }
        }
    }

    fn commit(&mut self, mode: CommitMode) {
        self.committed = Instant::now();
        if self.progress.next.is_empty() {
            return;
        }
        let mut list = TopicPartitionList::new();
        for ((topic, partition), offset) in std::mem::take(&mut self.progress.next) {
            if let Err(error) = list.add_partition_offset(&topic, partition, Offset::Offset(offset)) {
                tracing::debug!(%error, "an offset cannot be committed");
            }
        }
        if let Err(error) = self.consumer.commit(&list, mode) {
            // It comes again, and is committed then.
            self.shared.record.note(&format!("Kafka: cannot commit: {error}"));
        }
    }
}

/// The message for a record; `None` if it has no name that MQTT allows.
fn message(record: &BorrowedMessage<'_>, template: &Template) -> Option<Publish> {
    let key = record.key().and_then(|key| std::str::from_utf8(key).ok());
    let topic = TopicName::new(&template.fill(record.topic(), key)?).ok()?;
    let mut properties = PublishProperties::default();
    let mut retain = false;
    for header in record.headers().into_iter().flat_map(Headers::iter) {
        let value = header.value.unwrap_or_default();
        match header.key {
            "mqtt-retain" => retain = value == b"1",
            "mqtt-topic" | "mqtt-qos" | "sedge-client" => {}
            "mqtt-content-type" => properties.content_type = text(value),
            "mqtt-response-topic" => {
                properties.response_topic = text(value).filter(|topic| TopicName::new(topic.as_str()).is_ok());
            }
            "mqtt-correlation-data" => properties.correlation_data = Some(Bytes::copy_from_slice(value)),
            name => properties.user.extend(Utf8::new(name).ok().zip(text(value))),
        }
    }
    Some(Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain,
        topic: Some(topic),
        packet_id: None,
        payload: Bytes::copy_from_slice(record.payload().unwrap_or_default()),
        properties: (properties != PublishProperties::default()).then(|| Box::new(properties)),
    })
}

fn text(bytes: &[u8]) -> Option<Utf8> {
    Utf8::new(std::str::from_utf8(bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DP-05: nothing is committed that the broker has not acknowledged, and nothing behind it.
    #[test]
    fn only_what_is_acknowledged_without_a_gap_is_committed() {
        let mut progress = Progress::default();
        let place = ("commands".to_owned(), 0);
        for offset in [5, 6, 9] {
            progress.begin(&place, offset);
        }
        progress.end(&place, 6);
        assert_eq!(progress.next.get(&place), None);
        progress.end(&place, 5);
        assert_eq!(progress.next.get(&place), Some(&7));
        progress.end(&place, 9);
        assert_eq!(progress.next.get(&place), Some(&10));
    }
}
