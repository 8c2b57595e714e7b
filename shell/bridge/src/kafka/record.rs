//! Conversion of an MQTT message to a Kafka record.

use std::sync::Arc;

use rdkafka::message::{Header, OwnedHeaders};
use sedge_mqtt::{Publish, QoS, TopicName, UserProperties};

use crate::config::{BridgeConfig, Key};
use crate::map::CLIENT;
use crate::template::Template;

/// Longest name of a Kafka topic.
const TOPIC_BYTES_MAX: usize = 249;

/// Header with what the cluster calls a publication.
const IDENTITY: &str = "sedge-id";

/// A record before it is sent.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) topic: Arc<str>,
    pub(super) key: RecordKey,
    pub(super) headers: OwnedHeaders,
    /// The cluster's name for the publication, if the bridge has to remember that.
    pub(super) identity: Option<String>,
}

/// The key of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordKey {
    /// The topic of the message.
    Topic,
    Bytes(Vec<u8>),
    Missing,
}

impl RecordKey {
    /// The key of the record for `message`.
    pub(super) fn of<'a>(&'a self, message: &'a Publish) -> Option<&'a [u8]> {
        match self {
            Self::Topic => message.topic.as_ref().map(TopicName::as_bytes),
            Self::Bytes(bytes) => Some(bytes),
            Self::Missing => None,
        }
    }
}

impl From<Option<Vec<u8>>> for RecordKey {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Missing, Self::Bytes)
    }
}

/// Names of records.
#[derive(Debug)]
pub(super) struct Naming {
    template: Template,
    /// The name of every record's topic, if the template asks for nothing of a message.
    constant: Option<Arc<str>>,
    key: Key,
    remembers: bool,
}

/// A name as Kafka allows it: letters, digits, `.`, `_` and `-`; levels are separated by dots.
pub(super) fn kafka_name(text: &str) -> Option<String> {
    let letter = |c: char| match c {
        '/' => '.',
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
        _ => '_',
    };
    let name: String = text.chars().map(letter).collect();
    (!name.is_empty() && name.len() <= TOPIC_BYTES_MAX && name != "." && name != "..").then_some(name)
}

impl Naming {
    pub(super) fn new(config: &BridgeConfig) -> Self {
        // A template that is wrong was refused with the configuration.
        let template = config.template().unwrap_or_default();
        let constant = template.fill("", None).filter(|_| template.is_constant());
        let constant = constant.and_then(|name| kafka_name(&name)).map(Arc::from);
        Self { template, constant, key: config.key.clone(), remembers: config.transactional }
    }

    /// The record for a message; `None`: it has no name that Kafka allows.
    pub(super) fn record(&self, message: &Publish) -> Option<Record> {
        let topic = message.topic.as_ref()?.as_str();
        let user = message.properties.as_ref().map(|properties| &properties.user);
        let key = match &self.key {
            Key::Topic => RecordKey::Topic,
            Key::Client => user.and_then(|user| find(user, CLIENT)).map(|client| client.as_bytes().to_vec()).into(),
            Key::Json(path) => json_field(&message.payload, path).into(),
        };
        let identity = user.filter(|_| self.remembers).and_then(|user| find(user, IDENTITY)).map(str::to_owned);
        let topic_there = match &self.constant {
            Some(name) => Arc::clone(name),
            None => kafka_name(&self.template.fill(topic, None)?)?.into(),
        };
        Some(Record { topic: topic_there, key, headers: headers(message, topic), identity })
    }
}

fn find<'a>(user: &'a UserProperties, wanted: &str) -> Option<&'a str> {
    user.iter().find(|(name, _)| name.as_bytes() == wanted.as_bytes()).map(|(_, value)| value.as_str())
}

/// Headers of a record: `mqtt-` for the properties of MQTT, user properties under their own names.
fn headers(message: &Publish, topic: &str) -> OwnedHeaders {
    let qos: &[u8] = match message.qos {
        QoS::AtMostOnce => b"0",
        QoS::AtLeastOnce => b"1",
        QoS::ExactlyOnce => b"2",
    };
    let retain: &[u8] = if message.retain { b"1" } else { b"0" };
    let own = [("mqtt-topic", topic.as_bytes()), ("mqtt-qos", qos), ("mqtt-retain", retain)];
    let properties = message.properties.as_deref();
    let optional = properties.into_iter().flat_map(|properties| {
        let kind = properties.content_type.as_ref().map(|kind| ("mqtt-content-type", &**kind.as_bytes()));
        let response = properties.response_topic.as_ref().map(|topic| ("mqtt-response-topic", &**topic.as_bytes()));
        let correlation = properties.correlation_data.as_ref().map(|data| ("mqtt-correlation-data", &**data));
        [kind, response, correlation].into_iter().flatten()
    });
    let user = properties.map_or(&[][..], |properties| &properties.user);
    let user = user.iter().map(|(name, value)| (name.as_str(), &**value.as_bytes()));
    let room = OwnedHeaders::new_with_capacity(own.len() + user.len());
    let all = own.into_iter().chain(optional).chain(user);
    all.fold(room, |all, (key, value)| all.insert(Header { key, value: Some(value) }))
}

/// The field of a JSON payload, as text; `None` if it is not there.
fn json_field(payload: &[u8], path: &[String]) -> Option<Vec<u8>> {
    let mut value = &serde_json::from_slice::<serde_json::Value>(payload).ok()?;
    for name in path {
        value = value.get(name)?;
    }
    Some(value.as_str().map_or_else(|| value.to_string().into_bytes(), |text| text.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rdkafka::message::Headers;
    use sedge_mqtt::{PublishProperties, TopicName, Utf8};

    use super::*;

    fn message(topic: &str, payload: &'static str) -> Publish {
        let user = vec![(Utf8::from_static("sedge-id"), Utf8::from_static("1/2/3/4"))];
        Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: Some(TopicName::new(topic).unwrap()),
            packet_id: sedge_mqtt::PacketId::new(1),
            payload: Bytes::from_static(payload.as_bytes()),
            properties: Some(Box::new(PublishProperties { user, ..PublishProperties::default() })),
        }
    }

    fn naming(topic: &str, key: Key) -> Naming {
        Naming::new(&BridgeConfig { topic: topic.to_owned(), key, ..BridgeConfig::default() })
    }

    /// DP-01: the key is the topic unless something else is said, and the headers say what MQTT has beside the payload.
    #[test]
    fn a_message_becomes_a_record() {
        let sent = message("plant/7/t", "1");
        let record = naming("plant-{1}", Key::Topic).record(&sent).unwrap();
        assert_eq!((&*record.topic, record.key.of(&sent)), ("plant-7", Some(&b"plant/7/t"[..])));
        let record = naming("plant", Key::Topic).record(&sent).unwrap();
        assert_eq!(&*record.topic, "plant");
        let headers = record.headers.as_borrowed();
        let header = |wanted: &str| headers.iter().find(|header| header.key == wanted).and_then(|header| header.value);
        assert_eq!(header("mqtt-qos").unwrap(), b"1");
        assert_eq!(header("mqtt-retain").unwrap(), b"1");
        assert_eq!(header("mqtt-topic").unwrap(), b"plant/7/t");
        assert_eq!(header("sedge-id").unwrap(), b"1/2/3/4");
        assert_eq!(record.identity, None);
        assert_eq!(naming("{topic}", Key::Topic).record(&message("a/b c", "")).unwrap().topic.as_ref(), "a.b_c");
        assert!(naming("{4}", Key::Topic).record(&message("a/b", "")).is_none());
        let config = BridgeConfig { topic: "{topic}".to_owned(), transactional: true, ..BridgeConfig::default() };
        let record = Naming::new(&config).record(&message("a", "1")).unwrap();
        assert_eq!(record.identity.as_deref(), Some("1/2/3/4"));
    }

    /// DP-01
    #[test]
    fn a_field_of_the_payload_can_be_the_key() {
        let key = |path: &[&str], payload| {
            let key = Key::Json(path.iter().map(|name| (*name).to_owned()).collect());
            naming("t", key).record(&message("a", payload)).unwrap().key
        };
        assert_eq!(key(&["device"], r#"{"device":"d1"}"#), RecordKey::Bytes(b"d1".to_vec()));
        assert_eq!(key(&["a", "b"], r#"{"a":{"b":7}}"#), RecordKey::Bytes(b"7".to_vec()));
        assert_eq!(key(&["a"], "no json"), RecordKey::Missing);
    }
}
