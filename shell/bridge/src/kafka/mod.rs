//! Bridges to Kafka and from it (DP-01, DP-05): librdkafka does what is Kafka's.

mod batches;
mod cursor;
mod incoming;
mod outgoing;
mod record;
mod transaction;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::Waker;
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::{BridgeConfig, Direction};
use crate::error::BridgeError;
use crate::host::Host;
use crate::map::Transform;
use crate::session::Session;
use crate::supervisor::Shared;

/// Port of Kafka if none is said.
const PORT: u16 = 9092;
/// How long a broker of Kafka may be silent before its connection is given up.
const SOCKET_TIMEOUT_MS: &str = "10000";

/// How long brokers that could not be reached are asked whether they can be again, and how often.
const PROBE: Duration = Duration::from_millis(500);
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// A bridge while it lives at this node.
pub(crate) struct Bridge<'a, H> {
    shared: &'a Shared,
    session: Session<'a, H>,
    transform: Option<Box<dyn Transform>>,
    learnt: outgoing::Learnt,
}

/// News that librdkafka's threads pass to the bridge's thread.
struct Told {
    /// No broker of Kafka can be reached.
    down: AtomicBool,
    /// A broker has answered.
    up: AtomicBool,
    /// Time of the last check whether a broker can be reached.
    probed: Mutex<Option<Instant>>,
    errors: Mutex<Errors>,
    waker: Waker,
}

/// Errors that librdkafka has reported.
#[derive(Debug, Default)]
struct Errors {
    /// The last one that was not passed on yet.
    new: Option<String>,
    /// Why the last broker went, while none answers.
    reason: Option<String>,
}

impl Told {
    fn new(waker: Waker) -> Self {
        Self {
            down: AtomicBool::new(false),
            up: AtomicBool::new(false),
            probed: Mutex::default(),
            errors: Mutex::default(),
            waker,
        }
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::debug!(%error, "cannot wake the thread of a bridge");
        }
    }

    /// Why Kafka does not answer: what its client has said last is more than that the time is over.
    fn why(&self, error: &KafkaError) -> BridgeError {
        let said = self.errors.lock().unwrap_or_else(PoisonError::into_inner).new.take();
        said.map_or_else(|| failed(error), BridgeError::Kafka)
    }

    /// Notes the last error since the last call.
    fn note_errors(&self, shared: &Shared) {
        let Some(text) = self.errors.lock().unwrap_or_else(PoisonError::into_inner).new.take() else { return };
        if self.down.load(Ordering::Acquire) {
            shared.record.fail(&BridgeError::Kafka(text));
        } else {
            shared.record.note(&text);
        }
    }

    /// Whether it is time to ask brokers that could not be reached: an idle client is not told that they are back.
    fn is_to_be_probed(&self) -> bool {
        if !self.down.load(Ordering::Acquire) {
            return false;
        }
        let mut probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = probed.is_none_or(|at| at.elapsed() >= PROBE_EVERY);
        if is_time {
            *probed = Some(Instant::now());
        }
        is_time
    }
}

/// The context that librdkafka calls back.
#[derive(Clone)]
struct Context {
    name: String,
    told: Arc<Told>,
}

impl Context {
    fn note(&self, error: &KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        if code == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.told.down.store(true, Ordering::Release);
        }
        let mut errors = self.told.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("Kafka: {}{}", sedge_base::printable(reason), advice(reason));
        if code != Some(RDKafkaErrorCode::AllBrokersDown) {
            errors.reason = Some(text.clone());
        }
        // That no broker is left says less than why the last one went.
        errors.new = errors.reason.clone().or(Some(text));
        drop(errors);
        self.told.wake();
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(bridge = self.name, ?level, facility, message = &*sedge_base::printable(message), "kafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note(&error, reason);
    }
}

/// The text tells a user the likely reasons of an error for which librdkafka names only its own settings.
fn advice(reason: &str) -> &'static str {
    if reason.contains("certificate verify failed") {
        "; the broker's certificate has expired, is for another name, or is of an authority that is not in ca_file"
    } else {
        ""
    }
}

/// Configuration that every client of Kafka gets.
fn client_config(config: &BridgeConfig, cluster: &str, name: &str) -> Result<ClientConfig, BridgeError> {
    let with_port = |address: &String| {
        let has_port = address.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
        if has_port { address.clone() } else { format!("{address}:{PORT}") }
    };
    let servers = config.address.iter().map(with_port).collect::<Vec<_>>().join(",");
    let client_id =
        if config.client_id.is_empty() { format!("sedge-{cluster}-{name}") } else { config.client_id.clone() };
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", servers)
        .set("client.id", client_id)
        .set("socket.timeout.ms", SOCKET_TIMEOUT_MS)
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", config.reconnect_max.as_millis().max(200).to_string())
        .set("topic.metadata.refresh.interval.ms", "60000")
        .set("allow.auto.create.topics", "true");
    protect(&mut client, config)?;
    Ok(client)
}

/// How the connection is encrypted, and who the bridge says it is.
fn protect(client: &mut ClientConfig, config: &BridgeConfig) -> Result<(), BridgeError> {
    let protocol = match (config.tls.enabled, config.sasl.name()) {
        (false, None) => return Ok(()),
        (true, None) => "ssl",
        (false, Some(_)) => "sasl_plaintext",
        (true, Some(_)) => "sasl_ssl",
    };
    client.set("security.protocol", protocol);
    let tls = &config.tls;
    if tls.enabled {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        client.set("ssl.ca.location", tls.ca_file.as_deref().map_or_else(|| "probe".to_owned(), text));
        if let (Some(certificate), Some(key)) = (&tls.cert_file, &tls.key_file) {
            client.set("ssl.certificate.location", text(certificate)).set("ssl.key.location", text(key));
        }
    }
    if let Some(mechanism) = config.sasl.name() {
        let password = config.read_password().map_err(BridgeError::File)?.unwrap_or_default();
        client.set("sasl.mechanism", mechanism).set("sasl.username", &config.username).set("sasl.password", password);
    }
    Ok(())
}

fn failed(error: &KafkaError) -> BridgeError {
    BridgeError::Kafka(sedge_base::printable(&error.to_string()).into_owned())
}

impl<'a, H: Host> Bridge<'a, H> {
    pub(crate) fn new(shared: &'a Shared, host: &'a H, transform: Option<Box<dyn Transform>>) -> Self {
        Self { shared, session: Session::new(shared, host), transform, learnt: outgoing::Learnt::default() }
    }

    /// One connection to Kafka, from first to last. `Ok`: the bridge is not wanted here any more.
    pub(crate) fn run(&mut self) -> Result<(), BridgeError> {
        self.session.prepare()?;
        let end = match self.shared.config.direction {
            Direction::In => incoming::run(self.shared, &self.session, &mut self.transform),
            Direction::Out | Direction::Both => {
                outgoing::run(self.shared, &self.session, &mut self.transform, &mut self.learnt)
            }
        };
        if !self.shared.goes_on() {
            self.session.leave();
        }
        end
    }
}

/// Kafka answers.
fn answers(shared: &Shared, told: &Told) {
    let was_down = told.down.swap(false, Ordering::AcqRel);
    if was_down {
        told.errors.lock().unwrap_or_else(PoisonError::into_inner).reason = None;
    }
    if told.up.swap(true, Ordering::AcqRel) && !was_down {
        return;
    }
    let address = shared.config.address.join(",");
    if shared.record.set_running(&address) {
        shared.record.counters.connects.fetch_add(1, Ordering::Relaxed);
        tracing::info!(bridge = shared.record.name, address, "the bridge runs");
    }
}
