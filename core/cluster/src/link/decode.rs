//! PUBLISH packets back to frames. Strict: whatever [`super::encode`] would not have written is refused.

use std::sync::Arc;

use sedge_base::{ClientId, Incarnation, ShardId, Timestamp};
use sedge_mqtt::{
    Message, MessageId, Publish, PublishProperties, QoS, ReadAt, Stamp, TopicFilter, TopicName, UserProperties,
};
use smallvec::SmallVec;

use super::encode::{ACK, FLAGS, FRAME, GROUP, NONE, PUBLISHER, ROUND_TRIP, SAME, WAYBILL};
use super::text::{self, Fields};
use super::{ControlTopic, End, Frame, Publication, Waybill};

/// How the topics of links begin.
const OURS: &str = "$sedge/";

/// The meaning of a PUBLISH on a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// A frame and its number on the channel; `None`: one that only newer versions know.
    Frame(u64, Option<Frame>),
    /// Something without a number that only newer versions know.
    Unknown,
    /// All frames up to this one were taken.
    Ack(u64),
    /// The round trip in microseconds, as the other side measures it.
    RoundTrip(u32),
}

/// The meaning of a PUBLISH, or its fault. `newer`: it comes from a node of a newer version, which may have control frames
/// of other topics, and more fields.
pub(super) fn publish(packet: Publish, newer: bool) -> Result<Inbound, &'static str> {
    let Publish { dup, qos, retain, topic, packet_id: _, payload, properties } = packet;
    let Some(topic) = topic else { return Err("a PUBLISH without topic") };
    if dup || qos != QoS::AtMostOnce {
        return Err("a PUBLISH of a quality of service above 0");
    }
    let Some(mut properties) = properties else {
        let own = own(&topic, retain, core::str::from_utf8(&payload).unwrap_or_default());
        return if newer && topic.as_str().starts_with(OURS) { own.or(Ok(Inbound::Unknown)) } else { own };
    };
    if properties.message_expiry.is_some()
        || properties.topic_alias.is_some()
        || !properties.subscription_ids.is_empty()
    {
        return Err("a property that links do not use");
    }
    let Some((name, value)) = properties.user.first() else { return Err("a PUBLISH without a number") };
    if name != FRAME {
        return Err("a PUBLISH whose number does not come first");
    }
    if let Some(seq) = text::number(value.as_str()) {
        let plain = !retain && properties.user.len() == 1 && only_user(&properties);
        return match ControlTopic::from_bytes(topic.as_bytes()).filter(|_| plain) {
            Some(topic) => Ok(Inbound::Frame(seq, Some(Frame::Control { topic, payload }))),
            None if newer => Ok(Inbound::Frame(seq, None)),
            None => Err("a control frame of an unknown topic or with properties"),
        };
    }
    let ours = ours(&properties.user, newer).ok_or("a publication whose properties make no sense")?;
    properties.user.drain(..ours.count);
    let keep = !properties.user.is_empty() || !only_user(&properties);
    let message = Message {
        id: ours.id,
        topic,
        payload,
        qos: ours.qos,
        retain,
        properties: keep.then_some(properties),
        stamp: ours.stamp,
        expires_at: ours.expires_at,
        publisher: ours.publisher,
        read_at: ReadAt::default(),
    };
    let (plain, groups, retained_copy, waybill) = (ours.plain, ours.groups, ours.retained_copy, ours.waybill);
    let publication = Publication { message: Arc::new(message), plain, groups, retained_copy, waybill };
    Ok(Inbound::Frame(ours.seq, Some(Frame::Publication(publication))))
}

fn own(topic: &TopicName, retain: bool, payload: &str) -> Result<Inbound, &'static str> {
    let number = text::number(payload).filter(|_| !retain).ok_or("a PUBLISH without a number")?;
    match topic.as_str() {
        ACK => Ok(Inbound::Ack(number)),
        ROUND_TRIP => Ok(Inbound::RoundTrip(u32::try_from(number).unwrap_or(u32::MAX))),
        _ => Err("a PUBLISH without a number"),
    }
}

fn only_user(properties: &PublishProperties) -> bool {
    properties.payload_is_utf8.is_none()
        && properties.content_type.is_none()
        && properties.response_topic.is_none()
        && properties.correlation_data.is_none()
}

/// The user properties of the link that describe a publication.
struct Ours {
    seq: u64,
    id: MessageId,
    qos: QoS,
    plain: bool,
    retained_copy: bool,
    stamp: Stamp,
    expires_at: Option<Timestamp>,
    publisher: Option<ClientId>,
    groups: SmallVec<[TopicFilter; 1]>,
    waybill: Option<Box<Waybill>>,
    /// How many of the user properties are the link's.
    count: usize,
}

fn ours(user: &UserProperties, newer: bool) -> Option<Ours> {
    let mut user = user.iter();
    let mut fields = Fields::new(user.next()?.1.as_str());
    let seq = fields.number()?;
    let id = MessageId {
        node: fields.node()?,
        incarnation: Incarnation::new(fields.number()?),
        shard: shard(fields.number()?)?,
        seq: fields.number()?,
    };
    let qos = QoS::from_u8(u8::try_from(fields.number()?).ok()?)?;
    let [plain, retained_copy, has_publisher, has_waybill] = flags(fields.word()?)?;
    let (millis, counter) = (fields.number()?, u32::try_from(fields.number()?).ok()?);
    let (node, shard) = match fields.word()? {
        SAME => (id.node, id.shard),
        other => (text::node(other)?, shard(fields.number()?)?),
    };
    let expires_at = match fields.word()? {
        NONE => None,
        millis => Some(Timestamp::from_millis(text::number(millis)?)),
    };
    let group_count = usize::try_from(fields.number()?).ok()?;
    if !newer && !fields.is_at_end() {
        return None;
    }
    let publisher = if has_publisher {
        let (name, client) = user.next()?;
        Some(ClientId::new(client.as_str())).filter(|_| name == PUBLISHER)
    } else {
        None
    };
    if has_publisher && publisher.is_none() {
        return None;
    }
    let waybill = if has_waybill {
        let (_, text) = user.next().filter(|(name, _)| name == WAYBILL)?;
        Some(Box::new(waybill(text.as_str())?))
    } else {
        None
    };
    let mut groups = SmallVec::new();
    for _ in 0..group_count {
        let (_, filter) = user.next().filter(|(name, _)| name == GROUP)?;
        groups.push(TopicFilter::try_from(filter.clone()).ok()?);
    }
    let stamp = Stamp { millis, counter, node, shard };
    let count = 1 + usize::from(has_publisher) + usize::from(has_waybill) + group_count;
    Some(Ours { seq, id, qos, plain, retained_copy, stamp, expires_at, publisher, groups, waybill, count })
}

fn shard(number: u64) -> Option<ShardId> {
    u16::try_from(number).ok().map(ShardId)
}

fn waybill(text: &str) -> Option<Waybill> {
    let mut fields = Fields::new(text);
    let sender = fields.node()?;
    let incarnation = Incarnation::new(fields.number()?);
    let hops = u8::try_from(fields.number()?).ok()?;
    let mut ends = SmallVec::new();
    while !fields.is_at_end() {
        let node = fields.node()?;
        let (number, behind) = (fields.number()?, fields.number()?);
        ends.push(End { node, number, behind });
    }
    let fits = (1..=Waybill::MAX_ENDS).contains(&ends.len());
    fits.then_some(Waybill { sender, incarnation, hops, ends })
}

/// Plain, retained copy, publisher, waybill.
fn flags(word: &str) -> Option<[bool; 4]> {
    let bits = FLAGS.iter().position(|known| *known == word)?;
    Some([0, 1, 2, 3].map(|bit| bits >> bit & 1 == 1))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use sedge_base::{NodeId, Outbox};
    use sedge_mqtt::{Decoder, Packet, Utf8};

    use super::super::encode;
    use super::*;

    fn utf8() -> impl Strategy<Value = Utf8> {
        "[a-zé ]{0,9}".prop_map(|text| Utf8::new(&text).unwrap())
    }

    fn properties() -> impl Strategy<Value = Option<Box<PublishProperties>>> {
        let name = prop_oneof![
            Just(Utf8::from_static("s")),
            Just(Utf8::from_static("p")),
            Just(Utf8::from_static("g")),
            Just(Utf8::from_static("w")),
            utf8()
        ];
        let user = prop::collection::vec((name, utf8()), 0..4);
        let rest = (any::<Option<bool>>(), prop::option::of(utf8()), prop::option::of("[a-z/]{1,9}"), any::<bool>());
        (user, rest).prop_map(|(user, (payload_is_utf8, content_type, response_topic, data))| {
            let properties = PublishProperties {
                payload_is_utf8,
                content_type,
                response_topic: response_topic.map(|text| Utf8::new(&text).unwrap()),
                correlation_data: data.then(|| Bytes::from_static(&[0, 255])),
                user,
                ..PublishProperties::default()
            };
            (properties != PublishProperties::default()).then(|| Box::new(properties))
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let topic = prop_oneof!["[a-z/]{1,20}", Just("$sedge/ack".to_owned()), Just("$sedge/overlay".to_owned())];
        let id = (any::<u64>(), any::<u64>(), any::<u16>(), any::<u64>());
        let stamp = (any::<u64>(), any::<u32>(), prop::option::of((any::<u64>(), any::<u16>())));
        let rest = (0_u8..3, any::<bool>(), any::<Option<u64>>(), prop::option::of("[^\0]{0,9}"), 0_usize..9_000);
        (topic, id, stamp, rest, properties()).prop_map(|(topic, id, stamp, rest, properties)| {
            let id = MessageId {
                node: NodeId::new(id.0),
                incarnation: Incarnation::new(id.1),
                shard: ShardId(id.2),
                seq: id.3,
            };
            let (node, shard) =
                stamp.2.map_or((id.node, id.shard), |(node, shard)| (NodeId::new(node), ShardId(shard)));
            let (qos, retain, expires_at, publisher, len) = rest;
            Message {
                id,
                topic: TopicName::new(&topic).unwrap(),
                payload: Bytes::from(vec![7; len]),
                qos: QoS::from_u8(qos).unwrap(),
                retain,
                properties,
                stamp: Stamp { millis: stamp.0, counter: stamp.1, node, shard },
                expires_at: expires_at.map(Timestamp::from_millis),
                publisher: publisher.map(|text| ClientId::new(&text)),
                read_at: ReadAt::default(),
            }
        })
    }

    fn waybill() -> impl Strategy<Value = Option<Box<Waybill>>> {
        let end = (any::<u64>(), any::<u64>(), any::<u64>());
        let end = end.prop_map(|(node, number, behind)| End { node: NodeId::new(node), number, behind });
        let waybill = (any::<u64>(), any::<u64>(), any::<u8>(), prop::collection::vec(end, 1..20));
        prop::option::of(waybill.prop_map(|(sender, incarnation, hops, ends)| {
            let (sender, incarnation) = (NodeId::new(sender), Incarnation::new(incarnation));
            Box::new(Waybill { sender, incarnation, hops, ends: ends.into() })
        }))
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let groups = prop::collection::vec("\\$share/[a-z]{1,5}/[a-z]{1,5}/#", 0..4);
        let publication = (message(), any::<bool>(), groups, any::<bool>(), waybill()).prop_map(
            |(message, plain, groups, copy, waybill)| {
                let groups = groups.iter().map(|group| TopicFilter::new(group).unwrap()).collect();
                let message = Arc::new(message);
                Frame::Publication(Publication { message, plain, groups, retained_copy: copy, waybill })
            },
        );
        let control = (0..ControlTopic::ALL.len(), 0_usize..9_000).prop_map(|(topic, len)| Frame::Control {
            topic: ControlTopic::ALL[topic],
            payload: Bytes::from(vec![9; len]),
        });
        prop_oneof![4 => publication, 1 => control]
    }

    fn decode(outbox: &mut Outbox) -> Vec<Inbound> {
        let mut decoder = Decoder::server(1 << 20);
        decoder.feed(outbox.take().concat().into());
        let mut found = Vec::new();
        while let Some(packet) = decoder.next().unwrap() {
            let Packet::Publish(packet) = packet else { panic!("{packet:?}") };
            found.push(publish(packet, false).unwrap());
        }
        found
    }

    proptest! {
        /// FT-17
        #[test]
        fn frames_come_back_as_they_were(frames in prop::collection::vec((any_frame(), any::<u64>()), 1..5)) {
            let mut outbox = Outbox::new();
            for (frame, seq) in &frames {
                let before = outbox.len();
                encode::frame(frame, *seq, &mut outbox);
                let (len, bound) = (outbox.len() - before, encode::size_bound(frame));
                prop_assert!(len <= bound && bound <= len + 256, "{len} {bound}");
            }
            encode::number(ACK, 7, &mut outbox);
            encode::number(ROUND_TRIP, 8, &mut outbox);
            let mut expected: Vec<_> = frames.into_iter().map(|(frame, seq)| Inbound::Frame(seq, Some(frame))).collect();
            expected.extend([Inbound::Ack(7), Inbound::RoundTrip(8)]);
            prop_assert_eq!(decode(&mut outbox), expected);
        }

        #[test]
        fn texts_of_any_kind_do_no_harm(text in "[0-9a-f =pc-]{0,60}", name in "[spgx]") {
            let user = vec![(Utf8::new(&name).unwrap(), Utf8::new(&text).unwrap())];
            let properties = Some(Box::new(PublishProperties { user, ..PublishProperties::default() }));
            let topic = Some(TopicName::new("a").unwrap());
            let (dup, retain, qos, packet_id, payload) = (false, false, QoS::AtMostOnce, None, Bytes::new());
            let packet = Publish { dup, qos, retain, topic, packet_id, payload, properties };
            let _ = publish(packet.clone(), false);
            let _ = publish(packet, true);
        }
    }

    fn on_link(topic: &str, user: &[(&'static str, &'static str)], newer: bool) -> Result<Inbound, &'static str> {
        let user: UserProperties =
            user.iter().map(|(name, value)| (Utf8::from_static(name), Utf8::from_static(value))).collect();
        let properties =
            (!user.is_empty()).then(|| Box::new(PublishProperties { user, ..PublishProperties::default() }));
        let topic = Some(TopicName::new(topic).unwrap());
        let (dup, retain, qos, packet_id, payload) = (false, false, QoS::AtMostOnce, None, Bytes::from_static(b"7"));
        publish(Publish { dup, qos, retain, topic, packet_id, payload, properties }, newer)
    }

    /// Fields and mail that only the next version knows are passed over from a node of that version, and refused from one of the same version.
    #[test]
    fn what_only_newer_versions_know_is_passed_over() {
        assert_eq!(on_link("$sedge/later", &[("s", "5")], true), Ok(Inbound::Frame(5, None)));
        assert_eq!(on_link("$sedge/node", &[("s", "5"), ("t", "x")], true), Ok(Inbound::Frame(5, None)));
        assert_eq!(on_link("$sedge/credit", &[], true), Ok(Inbound::Unknown));
        assert_eq!(on_link("$sedge/ack", &[], true), Ok(Inbound::Ack(7)));
        let longer = [("s", "1 00000000000000a1 1 0 1 0 p 1 0 = - 0 later 8")];
        let Ok(Inbound::Frame(1, Some(Frame::Publication(found)))) = on_link("a", &longer, true) else { panic!() };
        assert!(found.plain && found.message.properties.is_none());
        for (topic, user) in [
            ("$sedge/later", &[("s", "5")][..]),
            ("$sedge/node", &[("s", "5"), ("t", "x")]),
            ("$sedge/credit", &[]),
            ("a", &longer),
        ] {
            assert!(on_link(topic, user, false).is_err(), "{topic}");
        }
        assert!(on_link("elsewhere", &[], true).is_err());
    }

    #[test]
    fn a_count_of_groups_is_not_believed() {
        let text = "1 00000000000000a1 1 0 1 0 p 1 0 = - 18446744073709551615";
        let user = vec![(Utf8::from_static("s"), Utf8::from_static(text))];
        assert!(ours(&user, false).is_none() && ours(&user, true).is_none());
    }
}
