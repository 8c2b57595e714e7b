//! Frames to bytes: PUBLISH packets of quality of service 0 (`docs/protocol/link.md`, "Frames").

use bytes::BufMut;
use sedge_base::{ClientId, Outbox};
use sedge_mqtt::{Delivery, Message, PublishParts, Version, encode_publish_parts, publish_len};
use smallvec::SmallVec;

use super::text::Text;
use super::{Frame, Publication, Waybill};

/// Name of the user property that every numbered frame starts with.
pub(super) const FRAME: &str = "s";
/// Name of the user property with the publisher.
pub(super) const PUBLISHER: &str = "p";
/// Name of the user property with the waybill.
pub(super) const WAYBILL: &str = "w";
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

/// Flags of a publication, by the bits plain, retained copy, publisher, waybill.
pub(super) const FLAGS: [&str; 16] =
    [NONE, "p", "c", "pc", "f", "pf", "cf", "pcf", "w", "pw", "cw", "pcw", "fw", "pfw", "cfw", "pcfw"];
/// Most bytes of a waybill: sender, life and hops, and each destination.
const WAYBILL_BYTES: (usize, usize) = (48, 60);

/// Most bytes that the link itself adds to a frame, strings of the message and of groups aside.
const OVERHEAD: usize = 256;
/// Most bytes of an MQTT string.
const MAX_STRING: usize = 65_535;

/// At least as many bytes as the frame takes on the wire; at most [`OVERHEAD`] more.
pub(super) fn size_bound(frame: &Frame) -> usize {
    match frame {
        Frame::Control { topic, payload } => OVERHEAD + topic.as_str().len() + payload.len(),
        Frame::Publication(publication) => {
            let message = &publication.message;
            let groups: usize = publication.groups.iter().map(|group| pair_len(GROUP, group.as_str().len())).sum();
            let publisher = publisher(message).map_or(0, |client| pair_len(PUBLISHER, client.as_str().len()));
            let ends = publication.waybill.as_ref().map(|waybill| waybill.ends.len());
            let waybill = ends.map_or(0, |ends| pair_len(WAYBILL, WAYBILL_BYTES.0 + WAYBILL_BYTES.1 * ends));
            OVERHEAD + publish_len(message, &Delivery::default(), Version::V5) + groups + publisher + waybill
        }
    }
}

/// Appends the frame with its number on this channel.
pub(super) fn frame(frame: &Frame, seq: u64, out: &mut Outbox) {
    match frame {
        Frame::Control { topic, payload } => {
            let mut text = Text::default();
            text.number(seq);
            let parts = PublishParts {
                topic: topic.as_str().as_bytes(),
                retain: false,
                first: &[(FRAME, text.as_bytes())],
                properties: None,
                payload_len: payload.len(),
            };
            out.append(|out| encode_publish_parts(&parts, out));
            out.push(payload.clone());
        }
        Frame::Publication(frame) => publication(frame, seq, out),
    }
}

/// Appends a PUBLISH of the link itself: a number in decimal digits to a topic.
pub(super) fn number(topic: &'static str, number: u64, out: &mut Outbox) {
    let mut text = Text::default();
    text.number(number);
    let digits = text.as_bytes();
    let parts = PublishParts {
        topic: topic.as_bytes(),
        retain: false,
        first: &[],
        properties: None,
        payload_len: digits.len(),
    };
    out.append(|out| {
        encode_publish_parts(&parts, out);
        out.put_slice(digits);
    });
}

fn publication(publication: &Publication, seq: u64, out: &mut Outbox) {
    let message = &*publication.message;
    let publisher = publisher(message);
    let text = publication_text(publication, publisher.is_some(), seq);
    let waybill = publication.waybill.as_deref().map(waybill_text);
    let mut first: SmallVec<[(&str, &[u8]); 4]> = SmallVec::new();
    first.push((FRAME, text.as_bytes()));
    first.extend(publisher.map(|client| (PUBLISHER, client.as_str().as_bytes())));
    first.extend(waybill.as_ref().map(|text| (WAYBILL, text.as_bytes())));
    first.extend(publication.groups.iter().map(|group| (GROUP, group.as_str().as_bytes())));
    let parts = PublishParts {
        topic: message.topic.as_bytes(),
        retain: message.retain,
        first: &first,
        properties: message.properties.as_deref(),
        payload_len: message.payload.len(),
    };
    out.append(|out| encode_publish_parts(&parts, out));
    out.push(message.payload.clone());
}

/// `seq node incarnation shard number qos flags millis counter (= | node shard) expires groups`
fn publication_text(publication: &Publication, has_publisher: bool, seq: u64) -> Text {
    let message = &*publication.message;
    let (id, stamp) = (message.id, message.stamp);
    let mut text = Text::default();
    text.number(seq).node(id.node).number(id.incarnation.get()).number(u64::from(id.shard.0)).number(id.seq);
    text.number(u64::from(message.qos.as_u8()));
    let flags = [publication.plain, publication.retained_copy, has_publisher, publication.waybill.is_some()];
    text.word(FLAGS[flags.iter().rev().fold(0, |bits, flag| bits * 2 + usize::from(*flag))]);
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

/// `sender incarnation hops`, then for each destination `node number behind`
fn waybill_text(waybill: &Waybill) -> Text {
    let mut text = Text::default();
    text.node(waybill.sender).number(waybill.incarnation.get()).number(u64::from(waybill.hops));
    for end in &waybill.ends {
        text.node(end.node).number(end.number).number(end.behind);
    }
    text
}

/// The publisher, if an MQTT string can hold its name; every client id that came in a CONNECT can.
fn publisher(message: &Message) -> Option<&ClientId> {
    let fits = |client: &&ClientId| client.as_str().len() <= MAX_STRING && !client.as_str().contains('\0');
    message.publisher.as_ref().filter(fits)
}

/// Bytes of a user property.
const fn pair_len(name: &str, value_len: usize) -> usize {
    5 + name.len() + value_len
}
