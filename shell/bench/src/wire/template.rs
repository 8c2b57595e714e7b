//! PUBLISH packets from a prepared beginning: a few copies per message.

use sedge_mqtt::{TopicName, Version};

use super::stamp::{STAMP_BYTES, Stamp};

/// A message to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// Stamp at the beginning of the payload.
    pub(crate) stamp: Stamp,
    /// Packet identifier; of no meaning at QoS 0.
    pub(crate) id: u16,
    /// The message is sent again.
    pub(crate) dup: bool,
    /// Length of the payload, at least that of a stamp.
    pub(crate) size: usize,
}

/// Largest payload that is prepared whole: one copy is cheaper than three, but each stream has its own.
const PREPARED: usize = 256;

/// The PUBLISH packets of one topic.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Everything before the payload, for payloads of `size` bytes; with such a payload if it is small.
    head: Vec<u8>,
    /// Length of `head` before topic.
    topic_at: usize,
    /// Length of `head` before the payload.
    payload_at: usize,
    size: usize,
    qos: u8,
    version: Version,
}

const DUP: u8 = 0x08;

impl Template {
    /// Publications to `topic`, prepared for payloads of `size` bytes that are filled up from `filler`.
    pub(crate) fn new(topic: &TopicName, (qos, version): (u8, Version), size: usize, filler: &[u8]) -> Self {
        let name = topic.as_bytes();
        let rest = rest_len(name.len(), qos, version) + size;
        let mut head = vec![0x30 | qos << 1];
        write_varint(rest, &mut head);
        let topic_at = head.len();
        // A topic name is at most 65,535 bytes, checked at its construction.
        head.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend_from_slice(name);
        if qos > 0 {
            head.extend_from_slice(&[0, 0]);
        }
        if version == Version::V5 {
            head.push(0);
        }
        let payload_at = head.len();
        if (STAMP_BYTES..=PREPARED).contains(&size) {
            head.extend_from_slice(&[0; STAMP_BYTES]);
            fill(size, filler, &mut head);
        }
        Self { head, topic_at, payload_at, size, qos, version }
    }

    /// Appends one message; its payload is filled up from `filler`, in turn if that is too short.
    pub(crate) fn write(&self, message: Outgoing, filler: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if message.size == self.size {
            out.extend_from_slice(&self.head);
        } else {
            out.push(0x30 | self.qos << 1);
            let behind = self.head.get(self.topic_at..self.payload_at).unwrap_or_default();
            write_varint(behind.len() + message.size, out);
            out.extend_from_slice(behind);
        }
        let whole = message.size == self.size && self.head.len() > self.payload_at;
        let payload = if whole { start + self.payload_at } else { out.len() };
        if let Some(flags) = out.get_mut(start).filter(|_| message.dup) {
            *flags |= DUP;
        }
        if self.qos > 0 {
            let end = payload - usize::from(self.version == Version::V5);
            if let Some(place) = out.get_mut(end - 2..end) {
                place.copy_from_slice(&message.id.to_be_bytes());
            }
        }
        let stamp = message.stamp.to_bytes();
        if let Some(place) = out.get_mut(payload..payload + STAMP_BYTES).filter(|_| whole) {
            place.copy_from_slice(&stamp);
        } else {
            out.extend_from_slice(&stamp);
            fill(message.size, filler, out);
        }
    }
}

/// Appends what a payload of `size` bytes has behind its stamp.
fn fill(size: usize, filler: &[u8], out: &mut Vec<u8>) {
    let mut missing = size.saturating_sub(STAMP_BYTES);
    while missing > 0 && !filler.is_empty() {
        let piece = filler.get(..missing).unwrap_or(filler);
        out.extend_from_slice(piece);
        missing -= piece.len();
    }
}

/// Bytes behind the fixed header, without the payload.
fn rest_len(topic: usize, qos: u8, version: Version) -> usize {
    2 + topic + if qos > 0 { 2 } else { 0 } + usize::from(version == Version::V5)
}

fn write_varint(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        out.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sedge_mqtt::{Decoder, Packet, QoS};

    use super::*;

    #[test]
    fn the_codec_reads_what_a_template_writes() {
        let topic = TopicName::new("some/topic").expect("a topic");
        let stamp = Stamp { run: 1, stream: 2, sequence: 3, sent: 4 };
        for version in [Version::V311, Version::V5] {
            for qos in 0..=2 {
                for size in [24, 32, 200, 20_000] {
                    let template = Template::new(&topic, (qos, version), 32, &[b'x'; 64]);
                    let mut out = vec![0xc0, 0];
                    template.write(Outgoing { stamp, id: 77, dup: qos > 0, size }, &[b'x'; 64], &mut out);
                    let mut decoder = Decoder::server(1 << 20);
                    decoder.set_version(version);
                    decoder.feed(Bytes::from(out));
                    assert_eq!(decoder.next(), Ok(Some(Packet::PingReq)));
                    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { panic!("no PUBLISH") };
                    assert_eq!(publish.topic.as_ref().map(TopicName::as_str), Some("some/topic"));
                    assert_eq!(Some(publish.qos), QoS::from_u8(qos));
                    assert_eq!(publish.dup, qos > 0);
                    assert_eq!(publish.packet_id.map(std::num::NonZero::get), (qos > 0).then_some(77));
                    assert_eq!(publish.payload.len(), size);
                    assert!(publish.payload.iter().skip(STAMP_BYTES).all(|byte| *byte == b'x'));
                    assert_eq!(Stamp::read(&publish.payload), Some(stamp));
                    assert_eq!(decoder.buffered(), 0);
                }
            }
        }
    }
}
