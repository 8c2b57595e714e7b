//! A received message with all that can be printed of it.

use std::fmt::Write;

use sedge_mqtt::{Publish, PublishProperties, TopicName};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::clock::Moment;

/// A message at its arrival.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) topic: &'a TopicName,
    pub(super) publish: &'a Publish,
    pub(super) client_id: &'a str,
    pub(super) at: Moment,
}

/// The object that `%j`, `%J` and `--json` print: the names are those of `mosquitto_sub`.
#[derive(Serialize)]
struct Document<'a> {
    tst: String,
    topic: &'a str,
    qos: u8,
    retain: u8,
    payloadlen: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    mid: Option<u16>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Value>,
    #[serde(flatten)]
    payload: Payload<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Text { payload: &'a str },
    Json { payload: &'a RawValue },
    Binary { payload_hex: String },
}

impl Record<'_> {
    /// The message as JSON with its payload as text, or in hexadecimal digits where it is no text.
    pub(super) fn json(&self, pretty: bool) -> Result<String, String> {
        let payload = std::str::from_utf8(&self.publish.payload)
            .map_or_else(|_| Payload::Binary { payload_hex: self.hex(false) }, |payload| Payload::Text { payload });
        self.document(payload, pretty)
    }

    /// The message as JSON with its payload embedded as the JSON that it has to be.
    pub(super) fn json_embedded(&self, pretty: bool) -> Result<String, String> {
        let payload: &RawValue = serde_json::from_slice(&self.publish.payload)
            .map_err(|error| format!("the payload on {} is no JSON: {error}", self.topic))?;
        self.document(Payload::Json { payload }, pretty)
    }

    fn document(&self, payload: Payload<'_>, pretty: bool) -> Result<String, String> {
        let document = Document {
            tst: self.at.iso(),
            topic: self.topic.as_str(),
            qos: self.publish.qos.as_u8(),
            retain: u8::from(self.publish.retain),
            payloadlen: self.publish.payload.len(),
            mid: self.publish.packet_id.map(std::num::NonZero::get),
            properties: self.properties().map(describe).unwrap_or_default(),
            payload,
        };
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        text.map_err(|error| error.to_string())
    }

    pub(super) fn properties(&self) -> Option<&PublishProperties> {
        self.publish.properties.as_deref()
    }

    /// The payload in hexadecimal digits.
    pub(super) fn hex(&self, upper: bool) -> String {
        let mut digits = String::with_capacity(self.publish.payload.len() * 2);
        for byte in &self.publish.payload {
            let _ = if upper { write!(digits, "{byte:02X}") } else { write!(digits, "{byte:02x}") };
        }
        digits
    }
}

fn describe(properties: &PublishProperties) -> Map<String, Value> {
    let mut map = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    add("payload-format-indicator", properties.payload_is_utf8.map(|is| json!(u8::from(is))));
    add("message-expiry-interval", properties.message_expiry.map(Value::from));
    add("topic-alias", properties.topic_alias.map(Value::from));
    add("content-type", properties.content_type.as_ref().map(|text| json!(text.as_str())));
    add("response-topic", properties.response_topic.as_ref().map(|text| json!(text.as_str())));
    add("correlation-data", properties.correlation_data.as_ref().map(|data| json!(String::from_utf8_lossy(data))));
    let user: Vec<_> = properties.user.iter().map(|(name, value)| json!({ name.as_str(): value.as_str() })).collect();
    add("user-properties", (!user.is_empty()).then(|| Value::from(user)));
    let ids: Vec<u32> = properties.subscription_ids.to_vec();
    add("subscription-identifiers", (!ids.is_empty()).then(|| Value::from(ids)));
    map
}
