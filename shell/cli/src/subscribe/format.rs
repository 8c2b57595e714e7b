//! `-F`.

use std::fmt::Write;

use super::record::Record;

/// A format string, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(char),
}

/// Letters that stand for a part of the message.
const FIELDS: &str = "ACDEFIJPRSUXijlmpqrtx";

impl Format {
    /// Takes `text` apart.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => plain.push(escape(letters.next())?),
                '%' => match letters.next() {
                    Some('%') => plain.push('%'),
                    Some(field) if FIELDS.contains(field) => {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                        pieces.push(Piece::Field(field));
                    }
                    Some(other) => return Err(format!("%{other} is not supported; see sedge sub --help")),
                    None => return Err("ends with a single %; write %% for a percent sign".to_owned()),
                },
                '@' => match letters.next() {
                    Some('@') => plain.push('@'),
                    _ => return Err("@ conversions are not supported; use %I or %U, and @@ for an @".to_owned()),
                },
                letter => plain.push(letter),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// The bytes to print for `record`.
    pub(super) fn apply(&self, record: &Record<'_>, pretty: bool) -> Result<Vec<u8>, String> {
        let mut line = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => line.extend_from_slice(text.as_bytes()),
                Piece::Field('p') => line.extend_from_slice(&record.publish.payload),
                Piece::Field('j') => line.extend_from_slice(record.json(pretty)?.as_bytes()),
                Piece::Field('J') => line.extend_from_slice(record.json_embedded(pretty)?.as_bytes()),
                Piece::Field(field) => line.extend_from_slice(value(*field, record).as_bytes()),
            }
        }
        Ok(line)
    }
}

fn escape(letter: Option<char>) -> Result<char, String> {
    match letter {
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('a') => Ok('\u{7}'),
        Some('e') => Ok('\u{1b}'),
        Some('v') => Ok('\u{b}'),
        Some('0') => Ok('\0'),
        Some('\\') => Ok('\\'),
        Some(other) => Err(format!("\\{other} is no escape; write \\\\ for a backslash")),
        None => Err("ends with a single backslash; write \\\\".to_owned()),
    }
}

fn value(field: char, record: &Record<'_>) -> String {
    let publish = record.publish;
    match field {
        't' => record.topic.as_str().to_owned(),
        'l' => publish.payload.len().to_string(),
        'q' => publish.qos.as_u8().to_string(),
        'r' => u8::from(publish.retain).to_string(),
        'm' => publish.packet_id.map_or(0, std::num::NonZero::get).to_string(),
        'i' => record.client_id.to_owned(),
        'x' => record.hex(false),
        'X' => record.hex(true),
        'I' => record.at.iso(),
        'U' => record.at.unix(),
        _ => property(field, record).unwrap_or_default(),
    }
}

fn property(field: char, record: &Record<'_>) -> Option<String> {
    let properties = record.properties()?;
    match field {
        'A' => properties.topic_alias.map(|alias| alias.to_string()),
        'C' => properties.content_type.as_ref().map(ToString::to_string),
        'D' => properties.correlation_data.as_ref().map(|data| String::from_utf8_lossy(data).into_owned()),
        'E' => properties.message_expiry.map(|seconds| seconds.to_string()),
        'F' => properties.payload_is_utf8.map(|is| u8::from(is).to_string()),
        'R' => properties.response_topic.as_ref().map(ToString::to_string),
        'S' => Some(joined(properties.subscription_ids.iter())),
        'P' => Some(joined(properties.user.iter().map(|(name, value)| format!("{name}:{value}")))),
        _ => None,
    }
}

fn joined(parts: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let mut text = String::new();
    for part in parts {
        let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { " " });
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sedge_mqtt::{PacketId, Publish, PublishProperties, QoS, TopicName, Utf8};

    use super::super::clock::Moment;
    use super::*;

    fn print(format: &str, payload: &'static [u8]) -> Result<String, String> {
        let user = vec![(Utf8::from_static("a"), Utf8::from_static("b")), (Utf8::from_static("c"), Utf8::default())];
        let properties = PublishProperties { user, content_type: Some(Utf8::from_static("x/y")), ..Default::default() };
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: None,
            packet_id: PacketId::new(9),
            payload: Bytes::from_static(payload),
            properties: Some(Box::new(properties)),
        };
        let topic = TopicName::new("k/t").unwrap();
        let record = Record { topic: &topic, publish: &publish, client_id: "me", at: Moment::now() };
        Format::parse(format)?.apply(&record, false).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn fields_are_filled_in() {
        assert_eq!(print("%t|%p|%l|%q|%r|%m|%i", b"hi").unwrap(), "k/t|hi|2|1|1|9|me");
        assert_eq!(print("%x %X %C %P[%R]", b"\xab\x01").unwrap(), "ab01 AB01 x/y a:b c:[]");
        assert_eq!(print("100%%\\t@@\\n", b"").unwrap(), "100%\t@\n");
    }

    #[test]
    fn json_holds_the_payload_as_text_or_as_json() {
        let text = print("%j", b"{\"a\": 1}").unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["payload"], "{\"a\": 1}");
        assert_eq!(
            (value["topic"].as_str(), value["qos"].as_u64(), value["mid"].as_u64()),
            (Some("k/t"), Some(1), Some(9))
        );
        assert_eq!(value["properties"]["user-properties"][0]["a"], "b");
        let value: serde_json::Value = serde_json::from_str(&print("%J", b"{\"a\": 1}").unwrap()).unwrap();
        assert_eq!(value["payload"]["a"], 1);
        assert!(print("%J", b"{").unwrap_err().contains("k/t"));
        assert!(print("%j", b"\xff").unwrap().contains("\"payload_hex\":\"ff\""));
    }

    #[test]
    fn unknown_conversions_are_refused() {
        for (format, word) in [("%z", "%z"), ("a%", "%%"), ("@Y", "%I"), ("\\q", "\\q"), ("\\", "backslash")] {
            assert!(Format::parse(format).unwrap_err().contains(word), "{format}");
        }
    }
}
