//! From the bridge's session to Kafka: an idempotent producer, whose delivery reports acknowledge, or a transactional one, whose commits do.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode};

use super::batches::{Batches, Refusal};
use super::record::{Naming, Record};
use super::transaction::{Entry, Transactions, transactional_id};
use super::{Context, PROBE, Told, answers, client_config, failed};
use crate::error::BridgeError;
use crate::host::Host;
use crate::map::{Map, Stays, Transform};
use crate::session::{Session, close};
use crate::supervisor::Shared;
use crate::wire::{Wire, wait_for_events};

const WAKE: Token = Token(2);
/// Longest sleep: then it is looked whether the bridge is still wanted here.
const NAP: Duration = Duration::from_millis(100);
/// Longest sleep while records are under way: nothing wakes the thread when their reports come.
const REPORTS: Duration = Duration::from_millis(2);
/// Shortest time between two turns of the thread that find less than [`PACKETS_PER_TURN`]: to wake it for each message costs more than to
/// send that.
const PACE: Duration = Duration::from_millis(1);
/// Packets of the session before reports have their turn.
const PACKETS_PER_TURN: usize = 512;
/// QoS 2 in the number that goes with a record, whose lower half is the packet identifier.
const EXACTLY: usize = 1 << 16;
/// The number of a record that nobody waits for.
pub(super) const NOBODY: usize = 0;

/// A delivery report: the number of the record, and what went wrong, with the bytes of the record.
type Report = (usize, Result<(), (KafkaError, usize)>);

pub(super) struct Producing {
    context: Context,
    reports: Mutex<Vec<Report>>,
}

impl ClientContext for Producing {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ProducerContext for Producing {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let result = match result {
            Ok(_) => Ok(()),
            Err((error, record)) => Err((error.clone(), bytes_of(record))),
        };
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
    }
}

/// Bytes of a record, one for its frame included.
fn bytes_of(record: &BorrowedMessage<'_>) -> usize {
    let header = |header: Header<'_, &[u8]>| header.key.len() + header.value.map_or(0, <[u8]>::len);
    let headers = record.headers().map_or(0, |headers| headers.iter().map(header).sum());
    1 + headers + record.payload_len() + record.key_len()
}

struct Outgoing<'a> {
    shared: &'a Shared,
    wire: Wire,
    producer: BaseProducer<Producing>,
    context: Context,
    naming: Naming,
    map: Map,
    /// Transactions that make messages visible; none if each message becomes visible by itself.
    transactions: Option<Transactions>,
    /// The bridge's knowledge of its Kafka, which outlives the connection.
    learnt: &'a mut Learnt,
    /// Most bytes of a batch of this producer.
    limit: usize,
    /// QoS 2 messages whose PUBREL the bridge itself answers.
    received: BTreeSet<PacketId>,
    /// Publication with its record for which the producer had no room.
    waiting: Option<(Publish, Record)>,
}

/// The knowledge that a bridge gathers about its Kafka while it lives at this node.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    batches: Batches,
    /// Identities of messages that Kafka will never take, until the session has sent them again: a transaction with one cannot be committed.
    refused: BTreeSet<String>,
}

/// Sends what the session has until the bridge is not wanted here any more.
pub(super) fn run(
    shared: &Shared,
    session: &Session<'_, impl Host>,
    transform: &mut Option<Box<dyn Transform>>,
    learnt: &mut Learnt,
) -> Result<(), BridgeError> {
    let mut poll = Poll::new().map_err(BridgeError::Inside)?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(BridgeError::Inside)?;
    let context = Context { name: shared.record.name.clone(), told: Arc::new(Told::new(waker)) };
    let limit = learnt.batches.bytes();
    let producer = producer(shared, &context, limit)?;
    let metadata = producer.client().fetch_metadata(None, Duration::from_secs(5));
    metadata.map_err(|error| {
        hear(&producer);
        context.told.why(&error)
    })?;
    let transactions = if shared.config.transactional {
        let Some(transactions) = Transactions::begin(shared, &context, &producer)? else { return Ok(()) };
        Some(transactions)
    } else {
        None
    };
    let opened = session.open(&mut poll, shared.config.max_inflight)?;
    let map = Map::plain(shared, transform.take());
    let naming = Naming::new(&shared.config);
    let mut out = Outgoing {
        shared,
        wire: opened.wire,
        producer,
        context,
        naming,
        map,
        transactions,
        limit,
        learnt,
        received: BTreeSet::new(),
        waiting: None,
    };
    out.wire.look();
    answers(shared, &out.context.told);
    let end = opened.early.into_iter().try_for_each(|packet| out.packet(packet)).and_then(|()| out.run(&mut poll));
    *transform = out.map.take_transform();
    if let Some(transactions) = &out.transactions {
        transactions.end(&out.producer);
    }
    // The next owner of the session sends the messages under way again.
    out.producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
    close(out.wire);
    end
}

/// A producer without a thread for reports: the caller that polls the producer gets the reports.
fn producer(shared: &Shared, context: &Context, limit: usize) -> Result<BaseProducer<Producing>, BridgeError> {
    let mut config = client_config(&shared.config, &shared.cluster, &shared.record.name)?;
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // The session waits, however long it takes.
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.kbytes", "65536")
        .set("batch.size", limit.to_string())
        // Below 1 ms to go librdkafka polls without a pause: the longer it gathers, the smaller a part of the time that is.
        .set("linger.ms", "5");
    if shared.config.transactional {
        config.set("transactional.id", transactional_id(shared));
    }
    let producing = Producing { context: context.clone(), reports: Mutex::default() };
    config.create_with_context(producing).map_err(|error| failed(&error))
}

/// Hands the context the errors and reports that wait: each poll hands out one event, and nothing else polls before [`Outgoing::run`].
pub(super) fn hear(producer: &BaseProducer<Producing>) {
    const EVENTS: usize = 32;
    for _ in 0..EVENTS {
        producer.poll(Duration::ZERO);
    }
}

impl Outgoing<'_> {
    fn run(&mut self, poll: &mut Poll) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(16);
        while self.shared.goes_on() {
            let began = Instant::now();
            self.take_reports()?;
            let more = self.take_packets()?;
            self.commit()?;
            self.wire.flush()?;
            let told = &self.context.told;
            told.note_errors(self.shared);
            if told.is_to_be_probed() && self.producer.client().fetch_metadata(None, PROBE).is_ok() {
                answers(self.shared, told);
            }
            let nap = match (more, self.waiting.is_some()) {
                (_, true) => Duration::from_millis(5),
                (true, false) => Duration::ZERO,
                (false, false) => {
                    thread::sleep(PACE.saturating_sub(began.elapsed()));
                    self.nap()
                }
            };
            wait_for_events(poll, &mut events, nap)?;
            for event in &events {
                self.wire.event(event);
            }
        }
        Ok(())
    }

    /// How long there is nothing to do unless the session has something.
    fn nap(&self) -> Duration {
        let reports = if self.producer.in_flight_count() > 0 { REPORTS } else { NAP };
        self.transactions.as_ref().and_then(Transactions::left).map_or(reports, |left| left.min(reports))
    }

    fn take_packets(&mut self) -> Result<bool, BridgeError> {
        if let Some((publish, record)) = self.waiting.take() {
            self.produce(publish, record)?;
        }
        for _ in 0..PACKETS_PER_TURN {
            if self.waiting.is_some() || !self.wire.has_room() {
                return Ok(false);
            }
            match self.wire.next()? {
                Some(packet) => self.packet(packet)?,
                None if self.wire.is_readable() => {
                    self.wire.receive()?;
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other packets are none of a server's")]
    fn packet(&mut self, packet: Packet) -> Result<(), BridgeError> {
        match packet {
            Packet::Publish(publish) => self.publish(publish),
            Packet::PubRel(ack) => {
                // A message that another node began is in Kafka, too: that node has sent PUBREC for it.
                self.received.remove(&ack.packet_id);
                self.wire.send(&Packet::PubComp(Ack::new(ack.packet_id, ReasonCode::Success)));
                Ok(())
            }
            Packet::PingResp | Packet::SubAck(_) | Packet::UnsubAck(_) => Ok(()),
            packet => Err(BridgeError::Unexpected { end: self.wire.end, kind: packet.kind() }),
        }
    }

    fn publish(&mut self, publish: Publish) -> Result<(), BridgeError> {
        let (id, qos) = (publish.packet_id, publish.qos);
        let counters = &self.shared.record.counters;
        let message = match self.map.outward(publish) {
            Ok(message) => message,
            Err(why) => {
                let counter = if why == Stays::Transformed { &counters.kept } else { &counters.dropped };
                counter.fetch_add(1, Ordering::Relaxed);
                self.acknowledge(id, qos);
                return Ok(());
            }
        };
        let Some(record) = self.naming.record(&message) else {
            counters.dropped.fetch_add(1, Ordering::Relaxed);
            self.shared
                .record
                .note("a message has no name in Kafka: its topic has too few levels, or more than 249 bytes");
            self.acknowledge(id, qos);
            return Ok(());
        };
        if self.is_settled(&record, &message) {
            return Ok(());
        }
        self.produce(message, record)
    }

    /// Whether Kafka has had the message before, or will never take it: then it is acknowledged.
    fn is_settled(&mut self, record: &Record, message: &Publish) -> bool {
        let Some((transactions, identity)) = self.transactions.as_ref().zip(record.identity.as_deref()) else {
            return false;
        };
        let is_refused = self.learnt.refused.remove(identity);
        if !is_refused && !transactions.is_there(identity) {
            return false;
        }
        let counters = &self.shared.record.counters;
        let counter = if is_refused { &counters.refused } else { &counters.repeats };
        counter.fetch_add(1, Ordering::Relaxed);
        self.acknowledge(message.packet_id, message.qos);
        true
    }

    fn produce(&mut self, message: Publish, record: Record) -> Result<(), BridgeError> {
        let number = match (&mut self.transactions, message.packet_id, message.qos) {
            (Some(transactions), _, _) => transactions.enter(&self.producer)?,
            (None, None, _) | (None, _, QoS::AtMostOnce) => NOBODY,
            (None, Some(id), QoS::AtLeastOnce) => usize::from(id.get()),
            (None, Some(id), QoS::ExactlyOnce) => usize::from(id.get()) | EXACTLY,
        };
        let Record { topic, key, headers, identity } = record;
        let mut base = BaseRecord::with_opaque_to(&topic, number).payload(message.payload.as_ref()).headers(headers);
        if let Some(key) = key.of(&message) {
            base = base.key(key);
        }
        match self.producer.send(base) {
            Ok(()) => {
                let bytes = message.payload.len() as u64;
                self.shared.record.counters.bytes_out.fetch_add(bytes, Ordering::Relaxed);
                if let Some(transactions) = &mut self.transactions {
                    transactions.push(Entry { id: message.packet_id, qos: message.qos, identity });
                }
                Ok(())
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), base)) => {
                let headers = base.headers.unwrap_or_default();
                self.waiting = Some((message, Record { topic, key, headers, identity }));
                Ok(())
            }
            Err((error, _)) => {
                // The client of Kafka itself refuses it: it has seen no other record.
                self.check_refusal(&error, usize::MAX)?;
                self.acknowledge(message.packet_id, message.qos);
                Ok(())
            }
        }
    }

    /// Reads all reports that have come; then says whether the producer has to begin anew, and why.
    fn take_reports(&mut self) -> Result<(), BridgeError> {
        let mut end = Ok(());
        loop {
            self.producer.poll(Duration::ZERO);
            let reports = &self.producer.context().reports;
            let reports = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
            if reports.is_empty() {
                return end;
            }
            let heeded = self.heed(reports);
            end = end.and(heeded);
        }
    }

    /// Does the work that delivery reports ask for.
    fn heed(&mut self, reports: Vec<Report>) -> Result<(), BridgeError> {
        let mut end = Ok(());
        for (number, result) in reports {
            match (result, &self.transactions) {
                (Ok(()), None) => {
                    answers(self.shared, &self.context.told);
                    self.shared.record.counters.messages_out.fetch_add(1, Ordering::Relaxed);
                    self.reported(number);
                }
                // The commit counts.
                (Ok(()), Some(_)) => answers(self.shared, &self.context.told),
                (Err((error, bytes)), None) => match self.check_refusal(&error, bytes) {
                    Ok(()) => self.reported(number),
                    Err(error) => end = Err(error),
                },
                (Err((error, bytes)), Some(transactions)) => {
                    let identity = transactions.entry(number).and_then(|entry| entry.identity.clone());
                    if self.learnt.batches.refused(error.rdkafka_error_code(), bytes, self.limit) == Refusal::ForGood {
                        self.learnt.refused.extend(identity);
                    }
                    end = Err(failed(&error));
                }
            }
        }
        end
    }

    /// Commits the transaction that is open, if it has waited long enough, and acknowledges what is in it.
    fn commit(&mut self) -> Result<(), BridgeError> {
        while self.shared.goes_on() {
            let Some(transactions) = &mut self.transactions else { return Ok(()) };
            if transactions.left() != Some(Duration::ZERO) {
                return Ok(());
            }
            let committed = transactions.commit(&self.producer);
            // Why a commit failed, or does not come, reports say in more detail.
            self.take_reports()?;
            if let Some(committed) = committed? {
                for entry in committed {
                    self.shared.record.counters.messages_out.fetch_add(1, Ordering::Relaxed);
                    self.acknowledge(entry.id, entry.qos);
                }
                return Ok(());
            }
            self.context.told.note_errors(self.shared);
        }
        Ok(())
    }

    /// Kafka will never take this record, of so many bytes, or the producer has to begin anew.
    fn check_refusal(&mut self, error: &KafkaError, bytes: usize) -> Result<(), BridgeError> {
        if self.learnt.batches.refused(error.rdkafka_error_code(), bytes, self.limit) != Refusal::ForGood {
            return Err(failed(error));
        }
        self.shared.record.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.shared.record.note(&format!("Kafka refused a message: {error}"));
        Ok(())
    }

    fn reported(&mut self, number: usize) {
        let id = u16::try_from(number & (EXACTLY - 1)).ok().and_then(PacketId::new);
        let qos = if number & EXACTLY == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        self.acknowledge(id, qos);
    }

    /// The session may forget the message.
    fn acknowledge(&mut self, id: Option<PacketId>, qos: QoS) {
        let Some(id) = id else { return };
        let ack = Ack::new(id, ReasonCode::Success);
        if qos == QoS::ExactlyOnce {
            self.received.insert(id);
            self.wire.send(&Packet::PubRec(ack));
        } else {
            self.wire.send(&Packet::PubAck(ack));
        }
    }
}
