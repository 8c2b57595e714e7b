//! Transactions of a bridge to Kafka: messages and the identities of these become visible together, or not at all.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll as TaskPoll, Wake, Waker as TaskWaker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use sedge_mqtt::{PacketId, QoS};

use super::cursor::{Cursor, Ids, SLOTS};
use super::incoming::Consuming;
use super::outgoing::{NOBODY, Producing, hear};
use super::record::kafka_name;
use super::{Context, client_config, failed};
use crate::error::BridgeError;
use crate::supervisor::Shared;

/// A transaction that is not full is committed so long after it has begun.
const LINGER: Duration = Duration::from_millis(10);
/// How long Kafka is waited for before it is looked whether the bridge is still wanted here.
const STEP: Duration = Duration::from_millis(250);
/// How long Kafka may say nothing about the topic of the cursor.
const PATIENCE: Duration = Duration::from_secs(10);
/// Offsets that are read at most: those of records, of ends of transactions, and of transactions that were given up.
const OFFSETS: i64 = 4 * SLOTS.cast_signed();

/// A message of the transaction that is open.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: Option<PacketId>,
    pub(super) qos: QoS,
    pub(super) identity: Option<String>,
}

/// The open transaction of a bridge, and the identities that were in Kafka when this node began.
pub(super) struct Transactions {
    topic: String,
    slot: u64,
    /// Identities of the messages that were in Kafka when this node began.
    there: Ids,
    batch: Vec<Entry>,
    began: Option<Instant>,
    /// The record with the identities was sent: nothing more belongs to the open transaction.
    is_closing: bool,
    /// Messages of a full transaction.
    window: usize,
}

/// The name by which Kafka knows that two producers are the same bridge.
pub(super) fn transactional_id(shared: &Shared) -> String {
    format!("sedge-{}-{}", shared.cluster, shared.record.name)
}

/// Whether a step of a transaction may be done once more.
fn goes_on_later(error: &KafkaError) -> bool {
    if let KafkaError::Transaction(error) = error {
        error.is_retriable()
    } else {
        *error == KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)
    }
}

/// Does something of transactions until it is done, or the bridge is not wanted here any more, which `false` says.
fn persist(
    shared: &Shared,
    context: &Context,
    producer: &BaseProducer<Producing>,
    mut step: impl FnMut() -> Result<(), KafkaError>,
) -> Result<bool, BridgeError> {
    loop {
        let error = match step() {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        hear(producer);
        if !goes_on_later(&error) {
            return Err(failed(&error));
        }
        context.told.note_errors(shared);
        if !shared.goes_on() {
            return Ok(false);
        }
    }
}

impl Transactions {
    /// Fences whoever ran the bridge before, and learns what that one has brought to Kafka. `None`: the bridge is not wanted here any more.
    pub(super) fn begin(
        shared: &Shared,
        context: &Context,
        producer: &BaseProducer<Producing>,
    ) -> Result<Option<Self>, BridgeError> {
        if !persist(shared, context, producer, || producer.init_transactions(STEP))? {
            return Ok(None);
        }
        let name = format!("{}-cursor", transactional_id(shared));
        let topic = kafka_name(&name).ok_or_else(|| BridgeError::Kafka(format!("{name} is no topic of Kafka")))?;
        let (there, slot) = read(shared, context, &topic)?.finish();
        let window = usize::from(shared.config.max_inflight);
        Ok(Some(Self { topic, slot, there, batch: Vec::new(), began: None, is_closing: false, window }))
    }

    /// Whether Kafka has had the message before this node began.
    pub(super) fn is_there(&self, identity: &str) -> bool {
        self.there.contains(identity)
    }

    /// Sees to it that a transaction is open. Returns the number of its next record.
    pub(super) fn enter(&mut self, producer: &BaseProducer<Producing>) -> Result<usize, BridgeError> {
        if self.began.is_none() {
            producer.begin_transaction().map_err(|error| failed(&error))?;
            self.began = Some(Instant::now());
        }
        Ok(self.batch.len() + 1)
    }

    /// The record that [`Self::enter`] gave a number was handed to the producer.
    pub(super) fn push(&mut self, entry: Entry) {
        self.batch.push(entry);
    }

    /// The message of the record with this number.
    pub(super) fn entry(&self, number: usize) -> Option<&Entry> {
        self.batch.get(number.checked_sub(1)?)
    }

    /// When the open transaction has waited long enough; `None`: there is none.
    pub(super) fn left(&self) -> Option<Duration> {
        let began = self.began?;
        if self.batch.len() >= self.window {
            return Some(Duration::ZERO);
        }
        Some(LINGER.saturating_sub(began.elapsed()))
    }

    /// Takes a step to the end of the open transaction, of a quarter of a second at most. Returns the messages that Kafka has now; `None`: not yet.
    /// A record that Kafka refuses makes the others wait for ever: the caller reads the reports between two steps.
    pub(super) fn commit(&mut self, producer: &BaseProducer<Producing>) -> Result<Option<Vec<Entry>>, BridgeError> {
        if !self.is_closing {
            let mut ids = Ids::default();
            for identity in self.batch.iter().filter_map(|entry| entry.identity.as_deref()) {
                ids.insert(identity);
            }
            let (key, payload) = (self.slot.to_string(), ids.encode());
            let record = BaseRecord::with_opaque_to(&self.topic, NOBODY).partition(0).key(&key).payload(&payload);
            producer.send(record).map_err(|(error, _)| failed(&error))?;
            self.is_closing = true;
        }
        match producer.commit_transaction(STEP) {
            Ok(()) => {
                self.slot = (self.slot + 1) % SLOTS;
                (self.began, self.is_closing) = (None, false);
                Ok(Some(std::mem::take(&mut self.batch)))
            }
            Err(error) if goes_on_later(&error) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Aborts the open transaction, so that no reader of committed records waits for it.
    pub(super) fn end(&self, producer: &BaseProducer<Producing>) {
        if self.began.is_some()
            && let Err(error) = producer.abort_transaction(STEP)
        {
            tracing::debug!(%error, "a transaction is left to whoever runs the bridge next");
        }
    }
}

/// Makes the topic of the cursor. An error if the topic was made before: then its records have to be read.
fn create(shared: &Shared, context: &Context, topic: &str) -> Result<(), BridgeError> {
    let config = client_config(&shared.config, &shared.cluster, &shared.record.name)?;
    let admin: AdminClient<Context> = config.create_with_context(context.clone()).map_err(|error| failed(&error))?;
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1))
        .set("cleanup.policy", "compact")
        .set("segment.bytes", "16777216");
    let made = wait(admin.create_topics([&new], &AdminOptions::new().request_timeout(Some(PATIENCE / 2))));
    let error = match made.map(|made| made.map(|all| all.into_iter().next())) {
        Some(Ok(Some(Ok(_)))) => return Ok(()),
        Some(Ok(Some(Err((_, code))))) => code.to_string(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(None)) | None => "no answer".to_owned(),
    };
    Err(BridgeError::Kafka(format!("Kafka: cannot make the topic {topic}: {}", sedge_base::printable(&error))))
}

/// Reads the end of the topic, or makes that.
fn read(shared: &Shared, context: &Context, topic: &str) -> Result<Cursor, BridgeError> {
    let mut config = client_config(&shared.config, &shared.cluster, &shared.record.name)?;
    config
        .set("group.id", transactional_id(shared))
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        // That there is no more is said after so long.
        .set("fetch.wait.max.ms", "10");
    let consumer: BaseConsumer<Consuming> =
        config.create_with_context(Consuming(context.clone())).map_err(|error| failed(&error))?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).map_err(|error| context.told.why(&error))?;
    if metadata.topics().iter().all(|found| found.partitions().is_empty()) {
        create(shared, context, topic)?;
        return Ok(Cursor::default());
    }
    let (low, high) = consumer.fetch_watermarks(topic, 0, PATIENCE).map_err(|error| context.told.why(&error))?;
    if low == high {
        return Ok(Cursor::default());
    }
    let mut place = TopicPartitionList::new();
    let first = Offset::Offset(low.max(high - OFFSETS));
    place.add_partition_offset(topic, 0, first).map_err(|error| failed(&error))?;
    consumer.assign(&place).map_err(|error| failed(&error))?;
    read_all(shared, context, (topic, &consumer))
}

/// Reads the assigned partitions up to their end.
fn read_all(
    shared: &Shared,
    context: &Context,
    (topic, consumer): (&str, &BaseConsumer<Consuming>),
) -> Result<Cursor, BridgeError> {
    let mut cursor = Cursor::default();
    let mut heard = Instant::now();
    while shared.goes_on() {
        match consumer.poll(STEP) {
            Some(Ok(record)) => {
                heard = Instant::now();
                if !cursor.read(record.key().unwrap_or_default(), record.payload().unwrap_or_default()) {
                    shared.record.note(&format!("Kafka: the topic {topic} has a record that no bridge has written"));
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(cursor),
            Some(Err(error)) => return Err(context.told.why(&error)),
            None if heard.elapsed() > PATIENCE => {
                return Err(BridgeError::NoAnswer { end: "Kafka", what: "a fetch", seconds: PATIENCE.as_secs() });
            }
            None => {}
        }
    }
    Err(BridgeError::Kafka("not wanted here any more".to_owned()))
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the result of a future; `None`: no result in time.
fn wait<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let waker = TaskWaker::from(Arc::new(Unpark(thread::current())));
    let until = Instant::now() + PATIENCE;
    loop {
        if let TaskPoll::Ready(value) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return Some(value);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
