//! What an MQTT message is as a Kafka record.

use sedge_mqtt::{Publish, UserProperties};

use crate::config::{BridgeConfig, Key};
use crate::map::CLIENT;
use crate::template::Template;

/// Longest name of a Kafka topic.
const TOPIC_BYTES_MAX: usize = 249;

/// Header with what the cluster calls a publication.
const IDENTITY: &str = "sedge-id";

/// A record before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) topic: String,
    pub(super) key: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// What the cluster calls the publication.
    pub(super) fn identity(&self) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| name == IDENTITY)?;
        std::str::from_utf8(value).ok()
    }
}

/// Names of records.
#[derive(Debug)]
pub(super) struct Naming {
    template: Template,
    key: Key,
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
        Self { template: config.template().unwrap_or_default(), key: config.key.clone() }
    }

    /// The record for a message; `None`: it has no name that Kafka allows.
    pub(super) fn record(&self, message: &Publish) -> Option<Record> {
        let topic = message.topic.as_ref()?.as_str();
        let user = message.properties.as_ref().map(|properties| &properties.user);
        let key = match &self.key {
            Key::Topic => Some(topic.as_bytes().to_vec()),
            Key::Client => user.and_then(|user| find(user, CLIENT)).map(|client| client.as_bytes().to_vec()),
            Key::Json(path) => json_field(&message.payload, path),
        };
        Some(Record { topic: kafka_name(&self.template.fill(topic, None)?)?, key, headers: headers(message, topic) })
    }
}

fn find<'a>(user: &'a UserProperties, wanted: &str) -> Option<&'a str> {
    user.iter().find(|(name, _)| name.as_str() == wanted).map(|(_, value)| value.as_str())
}

/// What goes beside the payload: `mqtt-` for what MQTT says, user properties under their own names.
fn headers(message: &Publish, topic: &str) -> Vec<(String, Vec<u8>)> {
    let mut headers = vec![
        ("mqtt-topic".to_owned(), topic.as_bytes().to_vec()),
        ("mqtt-qos".to_owned(), message.qos.as_u8().to_string().into_bytes()),
        ("mqtt-retain".to_owned(), u8::from(message.retain).to_string().into_bytes()),
    ];
    let Some(properties) = &message.properties else { return headers };
    if let Some(kind) = &properties.content_type {
        headers.push(("mqtt-content-type".to_owned(), kind.as_bytes().to_vec()));
    }
    if let Some(response) = &properties.response_topic {
        headers.push(("mqtt-response-topic".to_owned(), response.as_bytes().to_vec()));
    }
    if let Some(correlation) = &properties.correlation_data {
        headers.push(("mqtt-correlation-data".to_owned(), correlation.to_vec()));
    }
    let user = properties.user.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    headers.extend(user);
    headers
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
    use sedge_mqtt::{PublishProperties, QoS, TopicName, Utf8};

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
        let record = naming("plant-{1}", Key::Topic).record(&message("plant/7/t", "1")).unwrap();
        assert_eq!((record.topic.as_str(), record.key.as_deref()), ("plant-7", Some(&b"plant/7/t"[..])));
        let header = |wanted: &str| record.headers.iter().find(|(name, _)| name == wanted).map(|(_, v)| v.clone());
        assert_eq!(header("mqtt-qos").unwrap(), b"1");
        assert_eq!(header("mqtt-retain").unwrap(), b"1");
        assert_eq!(header("mqtt-topic").unwrap(), b"plant/7/t");
        assert_eq!(record.identity(), Some("1/2/3/4"));
        assert_eq!(naming("{topic}", Key::Topic).record(&message("a/b c", "")).unwrap().topic, "a.b_c");
        assert_eq!(naming("{4}", Key::Topic).record(&message("a/b", "")), None);
    }

    /// DP-01
    #[test]
    fn a_field_of_the_payload_can_be_the_key() {
        let key = |path: &[&str], payload| {
            let key = Key::Json(path.iter().map(|name| (*name).to_owned()).collect());
            naming("t", key).record(&message("a", payload)).unwrap().key
        };
        assert_eq!(key(&["device"], r#"{"device":"d1"}"#).unwrap(), b"d1");
        assert_eq!(key(&["a", "b"], r#"{"a":{"b":7}}"#).unwrap(), b"7");
        assert_eq!(key(&["a"], "no json"), None);
    }
}
