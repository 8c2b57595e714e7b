//! The messaging server between modules: any MQTT broker, below `$sys-ctl/SITE/` (Pham; EL-21). The messages of each module reach modules
//! that run elsewhere, and all other clients that subscribe to them.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rumqttc::{Client, Connection, Event, LastWill, MqttOptions, Packet, QoS};
use sedge_scale::AlarmState;
use sedge_scale::site::Metric;
use serde::{Deserialize, Serialize};

use crate::controller::Message;
use crate::error::ScaleError;
use crate::meter::{Measured, Sample};
use crate::state::site_name;

/// Messages that wait for the broker; further ones are dropped, and said again with the next turn.
const WAITING_MAX: usize = 1_024;
/// Bytes of a message, in either direction.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Nodes that a list of nodes may have; more than a site can.
const NODES_MAX: usize = 4_096;
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long to wait before a broker that is not there is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Where the messaging server is: `mqtt://[USER[:PASSWORD]@]HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    host: String,
    port: u16,
    account: Option<(String, String)>,
}

impl FromStr for Messages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address; write mqtt://[USER[:PASSWORD]@]HOST[:PORT]");
        let rest = text.strip_prefix("mqtt://").ok_or_else(wrong)?;
        let (account, place) = rest.rsplit_once('@').map_or((None, rest), |(account, place)| (Some(account), place));
        let account = account.map(|text| text.split_once(':').unwrap_or((text, "")));
        let account = account.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().ok().ok_or_else(wrong)?),
            None => (place, 1883),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains('/') {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, account })
    }
}

/// A module of a site that can run as a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// Measures the nodes.
    Metering,
    /// Keeps measurements and evaluates alarms.
    Alarming,
    /// Decides, makes and removes nodes, and keeps load balancers in step.
    Orchestrator,
}

impl Module {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Metering, Self::Alarming, Self::Orchestrator];

    /// Its name in topics, commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metering => "metering",
            Self::Alarming => "alarming",
            Self::Orchestrator => "orchestrator",
        }
    }
}

/// Modules of one process by their names, as topics have them.
fn joined(here: &[Module]) -> String {
    here.iter().map(|module| module.name()).collect::<Vec<_>>().join("-")
}

/// The modules that a topic names, if it names no stranger.
fn modules(name: &str) -> Option<Vec<Module>> {
    let names: Vec<&str> = name.splitn(Module::ALL.len() + 1, '-').collect();
    names.into_iter().map(|name| Module::ALL.into_iter().find(|module| module.name() == name)).collect()
}

/// A group as the orchestrator tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupNews {
    /// For how long these have been its nodes.
    pub(crate) settled_ms: u64,
    pub(crate) nodes: BTreeMap<String, NodeNews>,
}

/// A node that serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeNews {
    pub(crate) http: String,
    /// Processors that it may use.
    pub(crate) cpus: f64,
}

#[derive(Serialize, Deserialize)]
struct Value {
    value: f64,
    at_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Verdict {
    state: String,
    value: Option<f64>,
    at_ms: u64,
}

/// A message of a module elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    /// The broker is reachable (again): this process has to say again what other modules should know.
    Connected,
    Groups(BTreeMap<String, GroupNews>),
    Sample(Sample),
    Alarm(String, AlarmState, Option<f64>),
    /// Whether a process with these modules runs.
    Modules(Vec<Module>, bool),
}

/// The way to the other modules.
#[derive(Clone)]
pub(crate) struct Bus {
    client: Client,
    prefix: String,
    /// Topic that says whether this process runs.
    presence: String,
}

impl Bus {
    /// Connects from a thread of its own, again and again. Messages of modules that do not run here come to `inbox`.
    pub(crate) fn open(
        messages: &Messages,
        file: &Path,
        here: &[Module],
        inbox: Sender<Message>,
    ) -> Result<Self, ScaleError> {
        let prefix = format!("$sys-ctl/{}", site_name(file));
        let mut here = here.to_vec();
        here.sort_unstable();
        here.dedup();
        let own = joined(&here);
        let id = format!("{}-{own}-{}", site_name(file), std::process::id());
        let mut options = MqttOptions::new(id, &messages.host, messages.port);
        options.set_keep_alive(KEEP_ALIVE).set_max_packet_size(MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX);
        if let Some((user, password)) = &messages.account {
            options.set_credentials(user, password);
        }
        options.set_last_will(LastWill::new(format!("{prefix}/module/{own}"), "down", QoS::AtLeastOnce, true));
        let (client, connection) = Client::new(options, WAITING_MAX);
        let bus = Self { client, presence: format!("{prefix}/module/{own}"), prefix };
        let listener = Listener { bus: bus.clone(), here, inbox };
        let failed = |error| ScaleError::other(format!("cannot start a thread: {error}"));
        thread::Builder::new().name("scale-bus".to_owned()).spawn(move || listener.run(connection)).map_err(failed)?;
        Ok(bus)
    }

    fn say(&self, topic: &str, retain: bool, what: &impl Serialize) {
        let Ok(payload) = serde_json::to_vec(what) else { return };
        let qos = if retain { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        if let Err(error) = self.client.try_publish(format!("{}/{topic}", self.prefix), qos, retain, payload) {
            tracing::debug!(topic, %error, "a message for other modules is dropped");
        }
    }

    /// Tells which nodes serve.
    pub(crate) fn tell_groups(&self, groups: &BTreeMap<String, GroupNews>) {
        self.say("nodes", true, groups);
    }

    /// Publishes measured samples.
    pub(crate) fn tell_samples(&self, samples: &[Sample], at_ms: u64) {
        for (node, metric, value) in samples {
            self.say(&format!("meter/{node}/{metric}"), false, &Value { value: *value, at_ms });
        }
    }

    /// Tells the state of an alarm.
    pub(crate) fn tell_alarm(&self, name: &str, state: AlarmState, value: Option<f64>, at_ms: u64) {
        self.say(&format!("alarm/{name}"), true, &Verdict { state: state.to_string(), value, at_ms });
    }

    /// Tells of a decision, an action or anything else that has happened.
    pub(crate) fn tell_event(&self, event: &crate::report::EventReport) {
        self.say("event", false, event);
    }

    /// Says that the modules of this process end, and waits for that to be sent.
    pub(crate) fn close(&self) {
        let _ = self.client.try_publish(&self.presence, QoS::AtLeastOnce, true, "down");
        let _ = self.client.try_disconnect();
    }
}

struct Listener {
    bus: Bus,
    here: Vec<Module>,
    inbox: Sender<Message>,
}

impl Listener {
    fn run(&self, mut connection: Connection) {
        let mut reachable = true;
        for event in connection.iter() {
            match event {
                Ok(Event::Incoming(Packet::ConnAck(_))) => {
                    reachable = true;
                    self.begin();
                    if self.inbox.send(Message::News(News::Connected)).is_err() {
                        return;
                    }
                }
                Ok(Event::Incoming(Packet::Publish(publish))) => {
                    let news = self.understand(&publish.topic, &publish.payload);
                    if let Some(news) = news
                        && self.inbox.send(Message::News(news)).is_err()
                    {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    if std::mem::take(&mut reachable) {
                        tracing::warn!(%error, "the messaging server cannot be reached; it is tried again each second");
                    }
                    thread::sleep(RETRY);
                }
            }
        }
    }

    /// Subscribes to the messages of modules elsewhere, and says which modules are here.
    fn begin(&self) {
        let mut wanted = vec!["module/+"];
        let has = |module| self.here.contains(&module);
        if !has(Module::Orchestrator) {
            wanted.push("nodes");
        }
        if !has(Module::Metering) {
            wanted.push("meter/+/+");
        }
        if !has(Module::Alarming) && has(Module::Orchestrator) {
            wanted.push("alarm/+");
        }
        for topic in wanted {
            let _ = self.bus.client.try_subscribe(format!("{}/{topic}", self.bus.prefix), QoS::AtLeastOnce);
        }
        let _ = self.bus.client.try_publish(&self.bus.presence, QoS::AtLeastOnce, true, "up");
    }

    /// The news in a message, if the message makes sense.
    fn understand(&self, topic: &str, payload: &[u8]) -> Option<News> {
        let found = read(topic.strip_prefix(&self.bus.prefix)?.strip_prefix('/')?, payload);
        if found.is_none() {
            tracing::debug!(topic, "a message of another module makes no sense");
        }
        found
    }
}

fn read(topic: &str, payload: &[u8]) -> Option<News> {
    let mut levels = topic.split('/');
    let found = match (levels.next()?, levels.next(), levels.next()) {
        ("nodes", None, _) => {
            let groups: BTreeMap<String, GroupNews> = serde_json::from_slice(payload).ok()?;
            (groups.values().map(|group| group.nodes.len()).sum::<usize>() <= NODES_MAX)
                .then_some(News::Groups(groups))?
        }
        ("meter", Some(node), Some(metric)) => {
            let value: Value = serde_json::from_slice(payload).ok()?;
            News::Sample((node.to_owned(), Metric::named(metric)?, value.value))
        }
        ("alarm", Some(name), None) => {
            let verdict: Verdict = serde_json::from_slice(payload).ok()?;
            News::Alarm(name.to_owned(), AlarmState::named(&verdict.state)?, verdict.value)
        }
        ("module", Some(name), None) => News::Modules(modules(name)?, payload == b"up"),
        _ => return None,
    };
    levels.next().is_none().then_some(found)
}

/// The nodes that a list names, as the meter wants them.
pub(crate) fn measured(groups: &BTreeMap<String, GroupNews>) -> Vec<Measured> {
    let nodes = groups.values().flat_map(|group| &group.nodes).filter(|(_, node)| !node.http.is_empty());
    let cpus = |cpus: f64| if cpus.is_finite() && cpus > 0.0 { cpus } else { 1.0 };
    nodes.map(|(name, node)| Measured { node: name.clone(), http: node.http.clone(), cpus: cpus(node.cpus) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let messages = |text: &str| text.parse::<Messages>();
        let found = messages("mqtt://anna:se:cret@[::1]:1884").unwrap();
        assert_eq!((found.host.as_str(), found.port), ("::1", 1884));
        assert_eq!(found.account, Some(("anna".to_owned(), "se:cret".to_owned())));
        assert_eq!(messages("mqtt://host").unwrap().port, 1883);
        for wrong in ["host:1883", "mqtts://host", "mqtt://", "mqtt://host:port", "mqtt://host/topic"] {
            assert!(messages(wrong).unwrap_err().contains("write mqtt://"), "{wrong}");
        }
    }

    /// EL-21: messages of a stranger are understood or ignored.
    #[test]
    fn messages_of_other_modules_are_read() {
        let sample = read("meter/brokers-1/cpu_util", br#"{"value": 12.5, "at_ms": 1}"#);
        assert_eq!(sample, Some(News::Sample(("brokers-1".to_owned(), Metric::CpuUtil, 12.5))));
        let alarm = read("alarm/high", br#"{"state": "insufficient data", "value": null, "at_ms": 1}"#);
        assert_eq!(alarm, Some(News::Alarm("high".to_owned(), AlarmState::InsufficientData, None)));
        let both = vec![Module::Metering, Module::Alarming];
        assert_eq!(read("module/metering-alarming", b"down"), Some(News::Modules(both, false)));
        let wrong: [(&str, &[u8]); 6] = [
            ("module/metering-pump", b"up"),
            ("meter/brokers-1/warmth", br#"{"value": 1, "at_ms": 1}"#),
            ("meter/brokers-1/cpu_util/x", br#"{"value": 1, "at_ms": 1}"#),
            ("alarm/high", br#"{"state": "red", "at_ms": 1}"#),
            ("nodes", b"[1]"),
            ("", b""),
        ];
        for (topic, payload) in wrong {
            assert_eq!(read(topic, payload), None, "{topic}");
        }
    }
}
