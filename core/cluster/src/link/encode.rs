//! Frames to bytes: PUBLISH packets of quality of service 0 (`docs/protocol/link.md`, "Frames").

use bytes::{BufMut, Bytes, BytesMut};
use sedge_base::{ClientId, Outbox};
use sedge_mqtt::{Message, PublishProperties, Utf8};

use super::text::Text;
use super::{Frame, Publication};

/// Name of the user property that every numbered frame starts with.
pub(super) const FRAME: &str = "s";
/// Name of the user property with the publisher.
pub(super) const PUBLISHER: &str = "p";
/// Name of the user property with a shared subscription.
pub(super) const GROUP: &str = "g";
/// Topic of acknowledgements.
pub(super) const ACK: &str = "$sedge/ack";
/// Topic on which the dialler tells the round trip it has measured.
pub(super) const ROUND_TRIP: &str = "$sedge/rtt";
/// In place of a field that repeats another, or has no value.
pub(super) const SAME: &str = "=";
/// In place of a value that is absent.
pub(super) const NONE: &str = "-";

/// Most bytes that the link itself adds to a frame, strings of the message and of groups aside.
const OVERHEAD: usize = 256;
/// Most bytes of an MQTT string.
const MAX_STRING: usize = 65_535;

const PUBLISH: u8 = 0x30;
const RETAIN: u8 = 1;
const PAYLOAD_IS_UTF8: u8 = 0x01;
const CONTENT_TYPE: u8 = 0x03;
const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION_DATA: u8 = 0x09;
const USER: u8 = 0x26;

/// At least as many bytes as the frame takes on the wire; at most [`OVERHEAD`] more.
pub(super) fn size_bound(frame: &Frame) -> usize {
    match frame {
        Frame::Control { topic, payload } => OVERHEAD + topic.as_str().len() + payload.len(),
        Frame::Publication(publication) => {
            let message = &publication.message;
            let groups: usize = publication.groups.iter().map(|group| pair_len(GROUP, group.as_str().len())).sum();
            let publisher = publisher(message).map_or(0, |client| pair_len(PUBLISHER, client.as_str().len()));
            let properties = message.properties.as_deref().map_or(0, properties_len);
            OVERHEAD + message.topic.as_bytes().len() + message.payload.len() + groups + publisher + properties
        }
    }
}

/// Appends the frame with its number on this channel.
pub(super) fn frame(frame: &Frame, seq: u64, out: &mut Outbox) {
    match frame {
        Frame::Control { topic, payload } => {
            let mut text = Text::default();
            text.number(seq);
            let properties_len = pair_len(FRAME, text.as_bytes().len());
            out.append(|out| {
                head(out, 0, topic.as_str().as_bytes(), properties_len, payload.len());
                pair(out, FRAME, text.as_bytes());
            });
            out.push(payload.clone());
        }
        Frame::Publication(frame) => publication(frame, seq, out),
    }
}

/// Appends a PUBLISH of the link itself: a number in decimal digits to a topic.
pub(super) fn number(topic: &'static str, number: u64, out: &mut Outbox) {
    let mut text = Text::default();
    text.number(number);
    out.append(|out| {
        head(out, 0, topic.as_bytes(), 0, text.as_bytes().len());
        out.put_slice(text.as_bytes());
    });
}

fn publication(publication: &Publication, seq: u64, out: &mut Outbox) {
    let message = &*publication.message;
    let publisher = publisher(message);
    let text = publication_text(publication, publisher.is_some(), seq);
    let own = message.properties.as_deref();
    let groups: usize = publication.groups.iter().map(|group| pair_len(GROUP, group.as_str().len())).sum();
    let properties_len = pair_len(FRAME, text.as_bytes().len())
        + publisher.map_or(0, |client| pair_len(PUBLISHER, client.as_str().len()))
        + groups
        + own.map_or(0, properties_len);
    out.append(|out| {
        let flags = if message.retain { RETAIN } else { 0 };
        head(out, flags, message.topic.as_bytes(), properties_len, message.payload.len());
        pair(out, FRAME, text.as_bytes());
        if let Some(client) = publisher {
            pair(out, PUBLISHER, client.as_str().as_bytes());
        }
        for group in &publication.groups {
            pair(out, GROUP, group.as_str().as_bytes());
        }
        if let Some(own) = own {
            properties(out, own);
        }
    });
    out.push(message.payload.clone());
}

/// `seq node incarnation shard number qos flags millis counter (= | node shard) expires groups`
fn publication_text(publication: &Publication, has_publisher: bool, seq: u64) -> Text {
    let message = &*publication.message;
    let (id, stamp) = (message.id, message.stamp);
    let mut text = Text::default();
    text.number(seq).node(id.node).number(id.incarnation.get()).number(u64::from(id.shard.0)).number(id.seq);
    text.number(u64::from(message.qos.as_u8()));
    text.word(match (publication.plain, publication.retained_copy, has_publisher) {
        (false, false, false) => NONE,
        (true, false, false) => "p",
        (false, true, false) => "c",
        (true, true, false) => "pc",
        (false, false, true) => "f",
        (true, false, true) => "pf",
        (false, true, true) => "cf",
        (true, true, true) => "pcf",
    });
    text.number(stamp.millis).number(u64::from(stamp.counter));
    if (stamp.node, stamp.shard) == (id.node, id.shard) {
        text.word(SAME);
    } else {
        text.node(stamp.node).number(u64::from(stamp.shard.0));
    }
    match message.expires_at {
        Some(at) => text.number(at.as_millis()),
        None => text.word(NONE),
    };
    text.number(publication.groups.len() as u64);
    text
}

/// The publisher, if an MQTT string can hold its name; every client id that came in a CONNECT can.
fn publisher(message: &Message) -> Option<&ClientId> {
    let fits = |client: &&ClientId| client.as_str().len() <= MAX_STRING && !client.as_str().contains('\0');
    message.publisher.as_ref().filter(fits)
}

fn head(out: &mut BytesMut, flags: u8, topic: &[u8], properties_len: usize, payload_len: usize) {
    let head_len = 2 + topic.len() + var_int_len(properties_len) + properties_len;
    out.reserve(5 + head_len);
    out.put_u8(PUBLISH | flags);
    var_int(out, head_len + payload_len);
    binary(out, topic);
    var_int(out, properties_len);
}

fn properties(out: &mut BytesMut, own: &PublishProperties) {
    if let Some(is_utf8) = own.payload_is_utf8 {
        out.put_slice(&[PAYLOAD_IS_UTF8, u8::from(is_utf8)]);
    }
    let strings = [
        (CONTENT_TYPE, own.content_type.as_ref().map(Utf8::as_bytes)),
        (RESPONSE_TOPIC, own.response_topic.as_ref().map(Utf8::as_bytes)),
        (CORRELATION_DATA, own.correlation_data.as_ref()),
    ];
    for (property, value) in strings {
        if let Some(value) = value {
            out.put_u8(property);
            binary(out, value);
        }
    }
    for (name, value) in &own.user {
        out.put_u8(USER);
        binary(out, name.as_bytes());
        binary(out, value.as_bytes());
    }
}

fn properties_len(own: &PublishProperties) -> usize {
    let string = |value: Option<&Bytes>| value.map_or(0, |value| 3 + value.len().min(MAX_STRING));
    let user: usize = own.user.iter().map(|(name, value)| 5 + name.len() + value.len()).sum();
    own.payload_is_utf8.map_or(0, |_| 2)
        + string(own.content_type.as_ref().map(Utf8::as_bytes))
        + string(own.response_topic.as_ref().map(Utf8::as_bytes))
        + string(own.correlation_data.as_ref())
        + user
}

fn pair(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.put_u8(USER);
    binary(out, name.as_bytes());
    binary(out, value);
}

const fn pair_len(name: &str, value_len: usize) -> usize {
    5 + name.len() + value_len
}

/// What exceeds the format is cut off; nothing that was decoded or checked does.
fn binary(out: &mut BytesMut, bytes: &[u8]) {
    let bytes = bytes.get(..MAX_STRING).unwrap_or(bytes);
    out.put_u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
    out.put_slice(bytes);
}

fn var_int(out: &mut BytesMut, value: usize) {
    let mut rest = value;
    loop {
        let low = rest.to_le_bytes()[0] & 0x7f;
        rest >>= 7;
        if rest == 0 {
            return out.put_u8(low);
        }
        out.put_u8(low | 0x80);
    }
}

const fn var_int_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}
