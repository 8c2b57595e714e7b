//! Reads the stream of a broker in place and looks only at what is counted.
//!
//! The codec of the broker builds a packet that owns its parts; that costs a load generator more than all the rest it does
//! for a message. What is rare is left to the codec: [`Seen::Other`].

use sedge_mqtt::Version;

/// Packet that a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// A message.
    Publish {
        /// Quality of service of the delivery.
        qos: u8,
        /// Packet identifier, 0 at QoS 0.
        id: u16,
        /// Payload.
        payload: &'a [u8],
    },
    /// An acknowledgement.
    Ack {
        /// Kind of the acknowledgement.
        kind: AckKind,
        /// Packet identifier.
        id: u16,
        /// Whether the acknowledgement is a refusal.
        refused: bool,
    },
    /// PINGRESP.
    Pong,
    /// Any other packet, whole.
    Other(&'a [u8]),
}

/// Kind of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckKind {
    /// PUBACK.
    Ack,
    /// PUBREC.
    Rec,
    /// PUBREL.
    Rel,
    /// PUBCOMP.
    Comp,
}

/// The stream is no MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The first packet of `bytes` and its length, none if it is not whole.
pub(crate) fn scan(bytes: &[u8], version: Version) -> Result<Option<(Seen<'_>, usize)>, Broken> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    let Some((length, header)) = varint(rest)? else { return Ok(None) };
    let total = 1 + header + length;
    let Some(packet) = bytes.get(..total) else { return Ok(None) };
    let body = packet.get(1 + header..).ok_or(Broken)?;
    let seen = match first >> 4 {
        3 => publish(first & 0x0f, body, version)?,
        4 => ack(AckKind::Ack, body)?,
        5 => ack(AckKind::Rec, body)?,
        6 => ack(AckKind::Rel, body)?,
        7 => ack(AckKind::Comp, body)?,
        13 => Seen::Pong,
        0 => return Err(Broken),
        _ => Seen::Other(packet),
    };
    Ok(Some((seen, total)))
}

/// A number of one to four bytes with how many they were.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, Broken> {
    let mut value = 0;
    for (place, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(Some((value, place + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Broken) }
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), Broken> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Broken)?;
    Ok((u16::from_be_bytes(*number), rest))
}

fn publish(flags: u8, body: &[u8], version: Version) -> Result<Seen<'_>, Broken> {
    let (topic, rest) = number(body)?;
    let mut rest = rest.get(usize::from(topic)..).ok_or(Broken)?;
    let qos = flags >> 1 & 3;
    let mut id = 0;
    if qos > 0 {
        (id, rest) = number(rest)?;
    }
    if version == Version::V5 {
        let (length, header) = varint(rest)?.ok_or(Broken)?;
        rest = rest.get(header + length..).ok_or(Broken)?;
    }
    Ok(Seen::Publish { qos, id, payload: rest })
}

fn ack(kind: AckKind, body: &[u8]) -> Result<Seen<'_>, Broken> {
    let (id, rest) = number(body)?;
    Ok(Seen::Ack { kind, id, refused: rest.first().is_some_and(|reason| *reason >= 0x80) })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use bytes::{Bytes, BytesMut};
    use sedge_mqtt::{Ack, Packet, Publish, PublishProperties, QoS, ReasonCode, TopicName, encode};

    use super::*;

    fn encoded(packet: &Packet, version: Version) -> BytesMut {
        let mut out = BytesMut::new();
        encode(packet, version, &mut out);
        out
    }

    #[test]
    fn publications_of_the_codec_are_understood() {
        let properties = PublishProperties { message_expiry: Some(5), ..PublishProperties::default() };
        for (version, qos) in [Version::V311, Version::V5].into_iter().flat_map(|v| (0..=2).map(move |q| (v, q))) {
            let publish = Publish {
                dup: false,
                qos: QoS::from_u8(qos).expect("a QoS"),
                retain: false,
                topic: Some(TopicName::new("a/b").expect("a topic")),
                packet_id: NonZeroU16::new(if qos > 0 { 300 } else { 0 }),
                payload: Bytes::from(vec![b'p'; 200]),
                properties: Some(Box::new(properties.clone())),
            };
            let bytes = encoded(&Packet::Publish(publish), version);
            let id = if qos > 0 { 300 } else { 0 };
            let expected = Seen::Publish { qos, id, payload: &[b'p'; 200] };
            assert_eq!(scan(&bytes, version), Ok(Some((expected, bytes.len()))));
            for cut in 0..bytes.len() {
                assert_eq!(scan(bytes.get(..cut).expect("a part"), version), Ok(None), "cut at {cut}");
            }
        }
    }

    #[test]
    fn acknowledgements_and_refusals_are_told_apart() {
        let id = NonZeroU16::new(9).expect("not 0");
        for (reason, refused) in [(ReasonCode::Success, false), (ReasonCode::QuotaExceeded, true)] {
            let bytes = encoded(&Packet::PubRec(Ack::new(id, reason)), Version::V5);
            let expected = Seen::Ack { kind: AckKind::Rec, id: 9, refused };
            assert_eq!(scan(&bytes, Version::V5), Ok(Some((expected, bytes.len()))));
        }
        assert_eq!(scan(&[0xd0, 0], Version::V5), Ok(Some((Seen::Pong, 2))));
        assert_eq!(scan(&[0x20, 2, 0, 0, 1], Version::V311), Ok(Some((Seen::Other(&[0x20, 2, 0, 0]), 4))));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = sedge_base::Rng::new(3);
        for _ in 0..20_000 {
            let length = rng.index(24);
            let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(rng.below(256)).unwrap_or(0)).collect();
            let _ = scan(&bytes, Version::V5);
            let _ = scan(&bytes, Version::V311);
        }
        assert_eq!(scan(&[0x30, 0xff, 0xff, 0xff, 0xff], Version::V5), Err(Broken));
        assert_eq!(scan(&[0x30, 1, 0], Version::V5), Err(Broken));
    }
}
