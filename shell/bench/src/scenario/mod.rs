//! Load of a run: its publishers with their topics and intervals, its subscribers with their filters, and its length.

mod experiments;
mod named;
mod pattern;
mod payload;
mod placement;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use experiments::{Interworking, interworking};
pub(crate) use named::{NAMES, named};
pub(crate) use named::{Size, sized};
pub(crate) use pattern::{Numbers, expand};
pub(crate) use payload::Payload;
pub(crate) use placement::Placement;

use crate::error::BenchError;

/// Version of the protocol that clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// MQTT 3.1.1.
    #[default]
    #[serde(rename = "3.1.1")]
    #[value(name = "3.1.1", alias = "4", alias = "311")]
    V311,
    /// MQTT 5.0.
    #[serde(rename = "5.0")]
    #[value(name = "5.0", alias = "5")]
    V5,
}

/// What gives a publisher in the closed loop leave to send its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Until {
    /// All subscribers of an earlier message have it.
    #[default]
    Delivery,
    /// The broker has acknowledged an earlier message (QoS 1 and 2).
    Ack,
}

/// What the interval of a publisher counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pacing {
    /// From a schedule: messages are due whatever became of those before (open loop).
    #[default]
    Schedule,
    /// From the last message: the next is sent when the interval is over and the window has room (closed loop).
    LastMessage,
}

/// Publishers that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublisherGroup {
    /// How many clients.
    pub(crate) count: u32,
    /// Topic, with places like `{i}`; see `docs/benchmarks.md`.
    pub(crate) topic: String,
    /// How many topics each client goes round over, numbered `{t}`.
    #[serde(default = "one")]
    pub(crate) topics: u32,
    /// Time between two messages of one client in ms; without it the scenario's, and without that the loop is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interval_ms: Option<f64>,
    /// Which brokers the clients connect to.
    #[serde(default)]
    pub(crate) brokers: Placement,
    /// A probe: latency and jitter come from probes alone if there are any, throughput and loss never do.
    #[serde(default)]
    pub(crate) probe: bool,
}

/// Subscribers that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriberGroup {
    /// How many clients.
    pub(crate) count: u32,
    /// Topic filter, with places like `{i}`; `$share/...` shares the messages among those who give the same.
    pub(crate) filter: String,
    /// Which brokers the clients connect to.
    #[serde(default)]
    pub(crate) brokers: Placement,
}

/// Clients that connect and stay silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdleGroup {
    /// How many clients.
    pub(crate) count: u32,
    /// Which brokers the clients connect to.
    #[serde(default)]
    pub(crate) brokers: Placement,
}

const fn one() -> u32 {
    1
}

/// A run, as a scenario file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    /// Name in reports.
    pub(crate) name: String,
    /// Version of the protocol.
    pub(crate) protocol: Protocol,
    /// Quality of service of publications.
    pub(crate) qos: u8,
    /// Quality of service of subscriptions, the same as that of publications if not given.
    pub(crate) subscribe_qos: Option<u8>,
    /// Size of payloads.
    pub(crate) payload: Payload,
    /// Time between two messages of one publisher in ms (open loop); without it the loop is closed.
    pub(crate) interval_ms: Option<f64>,
    /// The beginning of the interval.
    pub(crate) pacing: Pacing,
    /// Seconds in which publishers begin, one after another, where the interval counts from the last message.
    pub(crate) ramp_s: f64,
    /// In the open loop messages are due at multiples of this time, in ms: the longer, the less the driver wakes up.
    pub(crate) tick_ms: f64,
    /// Messages that a publisher has outstanding in the closed loop, and unacknowledged in the open one.
    pub(crate) window: u16,
    /// Messages that a publisher sends at once in the closed loop; without it a quarter of the window, at QoS 2 at most 16.
    pub(crate) burst: Option<u16>,
    /// Pause of the driver between two looks at its connections, in ms: it gets more at once, and needs
    /// less processor time; latencies grow by as much.
    pub(crate) rest_ms: f64,
    /// Event that ends the wait in the closed loop.
    pub(crate) until: Until,
    /// Messages per publisher after which it stops, warm-up included; without it the time decides.
    pub(crate) messages: Option<u64>,
    /// Seconds before the measurement.
    pub(crate) warmup_s: f64,
    /// Seconds of the measurement.
    pub(crate) measure_s: f64,
    /// Most seconds to wait for messages that are still under way after the measurement.
    pub(crate) drain_s: f64,
    /// Seconds with all clients connected and silent before the first message.
    pub(crate) idle_s: f64,
    /// Clients keep their session over a lost connection.
    pub(crate) persistent: bool,
    /// Sessions stay in the brokers at the end.
    pub(crate) keep_sessions: bool,
    /// Keep-alive in seconds.
    pub(crate) keep_alive_s: u16,
    /// Each client pings so often, and gives a connection up that has not answered by the next ping, in ms.
    pub(crate) ping_ms: Option<u64>,
    /// Clients whose connection is lost connect again, to the next broker of the list.
    pub(crate) reconnect: bool,
    /// Start value of all random choices.
    pub(crate) seed: u64,
    /// Groups of clients that publish.
    pub(crate) publishers: Vec<PublisherGroup>,
    /// Groups of clients that subscribe.
    pub(crate) subscribers: Vec<SubscriberGroup>,
    /// Groups of clients that only keep a connection.
    pub(crate) idle: Vec<IdleGroup>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "scenario".to_owned(),
            protocol: Protocol::V311,
            qos: 0,
            subscribe_qos: None,
            payload: Payload::Fixed(32),
            interval_ms: None,
            pacing: Pacing::default(),
            ramp_s: 0.0,
            tick_ms: 0.1,
            window: 100,
            burst: None,
            rest_ms: 0.0,
            until: Until::Delivery,
            messages: None,
            warmup_s: 1.0,
            measure_s: 5.0,
            drain_s: 5.0,
            idle_s: 0.0,
            persistent: false,
            keep_sessions: false,
            keep_alive_s: 60,
            ping_ms: None,
            reconnect: false,
            seed: 1,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            idle: Vec::new(),
        }
    }
}

impl Scenario {
    /// Reads a scenario file.
    pub(crate) fn load(path: &Path) -> Result<Self, BenchError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|source| BenchError::Toml { path: path.to_owned(), source: Box::new(source) })
    }

    /// Reads the text of a scenario file.
    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Whether everything fits together, before anything is started.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: &str| Err(BenchError::Usage(format!("scenario {}: {text}", self.name)));
        if self.qos > 2 || self.subscribe_qos.is_some_and(|qos| qos > 2) {
            return wrong("a quality of service is 0, 1 or 2");
        }
        if self.window == 0 {
            return wrong("the window has to be at least 1");
        }
        let mut times = vec![self.warmup_s, self.measure_s, self.drain_s, self.idle_s, self.rest_ms, self.tick_ms];
        times.push(self.ramp_s);
        times.extend(self.interval_ms);
        times.extend(self.publishers.iter().filter_map(|group| group.interval_ms));
        if times.iter().any(|time| !time.is_finite() || *time < 0.0 || *time > 1e7) {
            return wrong("times are between 0 and ten million");
        }
        if self.publishers.iter().any(|group| self.interval_of(group) == Some(0.0)) {
            return wrong("an interval has to be above 0; leave it out for the closed loop");
        }
        let paced = self.pacing == Pacing::LastMessage;
        if paced && self.publishers.iter().any(|group| self.interval_of(group).is_none()) {
            return wrong("an interval that counts from the last message has to be given");
        }
        if self.ramp_s > 0.0 && !paced {
            return wrong("publishers begin one after another only with pacing = \"last-message\"");
        }
        if self.measure_s <= 0.0 {
            return wrong("the measurement has to last longer than 0 seconds");
        }
        if self.publishers.iter().any(|group| group.topics == 0) {
            return wrong("a publisher needs at least one topic");
        }
        if self.publishers.is_empty() && self.subscribers.is_empty() && self.idle.is_empty() {
            return wrong("there are no clients");
        }
        if self.until == Until::Ack && self.qos == 0 && self.publishers.iter().any(|g| self.interval_of(g).is_none()) {
            return wrong("QoS 0 has no acknowledgements: give an interval, or wait until delivery");
        }
        self.payload.check().map_err(|text| BenchError::Usage(format!("scenario {}: {text}", self.name)))
    }

    /// Time between two messages of one client of `group` in ms, none in the closed loop.
    pub(crate) fn interval_of(&self, group: &PublisherGroup) -> Option<f64> {
        group.interval_ms.or(self.interval_ms)
    }

    /// Sets the intervals so that all publishers that are no probes send `per_second` messages together.
    pub(crate) fn set_total_rate(&mut self, per_second: f64) -> Result<(), BenchError> {
        if !(per_second.is_finite() && per_second > 0.0) {
            return Err(BenchError::Usage("the rate has to be above 0".to_owned()));
        }
        let groups = self.publishers.iter().filter(|group| !group.probe);
        let clients: u32 = groups.map(|group| group.count).sum();
        self.set_interval(f64::from(clients) * 1e3 / per_second);
        Ok(())
    }

    /// Gives all publishers that are no probes this interval in ms.
    pub(crate) fn set_interval(&mut self, interval_ms: f64) {
        self.interval_ms = Some(interval_ms);
        for group in self.publishers.iter_mut().filter(|group| !group.probe) {
            group.interval_ms = None;
        }
    }

    /// Messages that a publisher sends at once in the closed loop.
    pub(crate) fn burst(&self) -> u16 {
        // More than 20 QoS 2 messages at once bring Mosquitto 2.0 to a halt; asked for, they are sent.
        let most = if self.qos == 2 { 16 } else { u16::MAX };
        self.burst.unwrap_or_else(|| most.min(self.window / 4)).clamp(1, self.window.max(1))
    }

    /// All clients of the scenario.
    pub(crate) fn clients(&self) -> u64 {
        let publishers = self.publishers.iter().map(|group| u64::from(group.count));
        let subscribers = self.subscribers.iter().map(|group| u64::from(group.count));
        publishers.chain(subscribers).chain(self.idle.iter().map(|group| u64::from(group.count))).sum()
    }
}

#[cfg(test)]
mod tests;
