//! A sample of `sedge rule test`: one line of JSON that stands for a publication.

use bytes::Bytes;
use sedge_base::Timestamp;
use sedge_mqtt::{PublishProperties, QoS, TopicName, Utf8};
use sedge_rules::Input;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Fields that a line may have. `sedge sub --json` writes more; unknown fields are passed over.
#[derive(Deserialize)]
struct Line<'a> {
    topic: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_hex: Option<String>,
    #[serde(default)]
    qos: u8,
    #[serde(default)]
    retain: Value,
    #[serde(default)]
    properties: Map<String, Value>,
    client: Option<String>,
    time: Option<u64>,
}

/// A publication.
#[derive(Debug)]
pub(super) struct Sample {
    topic: TopicName,
    payload: Bytes,
    qos: QoS,
    retain: bool,
    properties: PublishProperties,
    client: Option<String>,
    pub(super) time: Option<Timestamp>,
}

impl Sample {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let topic = TopicName::new(&line.topic).map_err(|error| format!("{:?}: {error}", line.topic))?;
        let payload = match (line.payload, line.payload_hex) {
            (Some(payload), _) => payload_of(payload),
            (None, Some(digits)) => Bytes::from(unhex(&digits).ok_or("payload_hex is not hexadecimal digits")?),
            (None, None) => Bytes::new(),
        };
        Ok(Self {
            topic,
            payload,
            qos: QoS::from_u8(line.qos).ok_or("qos is 0, 1 or 2")?,
            retain: matches!(line.retain, Value::Bool(true)) || line.retain == 1,
            properties: properties(&line.properties)?,
            client: line.client,
            time: line.time.map(Timestamp::from_millis),
        })
    }

    pub(super) fn input(&self) -> Input<'_> {
        Input {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            properties: Some(&self.properties),
            client: self.client.as_deref(),
        }
    }
}

/// A string stands for its text, everything else for itself.
fn payload_of(payload: &RawValue) -> Bytes {
    match serde_json::from_str::<String>(payload.get()) {
        Ok(text) => Bytes::from(text),
        Err(_) => Bytes::copy_from_slice(payload.get().as_bytes()),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}

fn properties(map: &Map<String, Value>) -> Result<PublishProperties, String> {
    let mut properties = PublishProperties::default();
    let text = |name: &str, value: &Value| {
        let text = value.as_str().ok_or_else(|| format!("properties.{name} is not a string"))?;
        Utf8::new(text).map_err(|error| format!("properties.{name}: {error}"))
    };
    for (name, value) in map {
        match (name.as_str(), value) {
            ("content-type", value) => properties.content_type = Some(text(name, value)?),
            ("user-properties", Value::Array(list)) => {
                for (name, value) in list.iter().filter_map(Value::as_object).flatten() {
                    properties.user.push((Utf8::new(name).map_err(|error| error.to_string())?, text(name, value)?));
                }
            }
            // Another string is a user property; the other values that sedge sub --json writes say nothing to rules.
            (_, Value::String(_)) => {
                properties.user.push((Utf8::new(name).map_err(|error| error.to_string())?, text(name, value)?));
            }
            _ => {}
        }
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_what_people_write_and_what_sub_prints() {
        let sample =
            Sample::parse(r#"{"topic":"a","payload":{"v": 1},"time":5,"retain":true,"properties":{"unit":"C"}}"#);
        let sample = sample.unwrap();
        assert_eq!((&sample.payload[..], sample.retain), (&br#"{"v": 1}"#[..], true));
        assert_eq!(sample.time, Some(Timestamp::from_millis(5)));
        assert_eq!(sample.properties.user[0].1.as_str(), "C");
        let printed = r#"{"tst":"x","topic":"a","qos":1,"retain":1,"payloadlen":4,"payload":"21.5",
            "properties":{"content-type":"text/plain","user-properties":[{"unit":"C"}]}}"#;
        let sample = Sample::parse(printed).unwrap();
        assert_eq!((&sample.payload[..], sample.qos, sample.retain), (&b"21.5"[..], QoS::AtLeastOnce, true));
        assert_eq!((sample.properties.user.len(), sample.properties.content_type.is_some()), (1, true));
        assert_eq!(&Sample::parse(r#"{"topic":"a","payload_hex":"00ff"}"#).unwrap().payload[..], b"\x00\xff");
    }

    #[test]
    fn a_bad_sample_says_what_is_wrong_with_it() {
        for (text, wanted) in [
            ("{", "EOF"),
            (r#"{"payload":1}"#, "topic"),
            (r#"{"topic":"a/#"}"#, "a/#"),
            (r#"{"topic":"a","qos":3}"#, "qos"),
            (r#"{"topic":"a","payload_hex":"0"}"#, "payload_hex"),
        ] {
            let error = Sample::parse(text).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
