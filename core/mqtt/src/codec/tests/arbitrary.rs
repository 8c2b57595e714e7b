//! Any legal packet of one side.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::Side;
use crate::{
    Ack, Auth, ConnAck, ConnAckProperties, Connect, ConnectProperties, Disconnect, Packet, PacketId, PacketKind,
    Publish, PublishProperties, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscriptionOptions,
    SubscriptionRequest, TopicFilter, TopicName, UnsubAck, Unsubscribe, UserProperties, Utf8, Version, Will,
    WillProperties,
};

/// A packet that `side` may send in MQTT 5.0; [`as_old`] makes it one of 3.1.1.
pub(super) fn any_packet(side: Side) -> BoxedStrategy<Packet> {
    let acks = prop_oneof![
        any_ack(PacketKind::PubAck).prop_map(Packet::PubAck),
        any_ack(PacketKind::PubRec).prop_map(Packet::PubRec),
        any_ack(PacketKind::PubRel).prop_map(Packet::PubRel),
        any_ack(PacketKind::PubComp).prop_map(Packet::PubComp),
    ];
    let both = prop_oneof![
        3 => any_publish(side).prop_map(Packet::Publish),
        2 => acks,
        1 => any_disconnect(side).prop_map(Packet::Disconnect),
        1 => any_auth(side).prop_map(Packet::Auth),
    ];
    match side {
        Side::Client => prop_oneof![
            4 => both,
            2 => any_connect().prop_map(|packet| Packet::Connect(Box::new(packet))),
            1 => any_subscribe().prop_map(Packet::Subscribe),
            1 => any_unsubscribe().prop_map(Packet::Unsubscribe),
            1 => Just(Packet::PingReq),
        ]
        .boxed(),
        Side::Server => prop_oneof![
            4 => both,
            2 => any_connack().prop_map(|packet| Packet::ConnAck(Box::new(packet))),
            1 => any_suback(),
            1 => any_unsuback(),
            1 => Just(Packet::PingResp),
        ]
        .boxed(),
    }
}

/// The parts of a packet of `side` that 3.1.1 can carry; `None` if 3.1.1 has no such packet.
pub(super) fn as_old(side: Side, packet: Packet) -> Option<Packet> {
    let plain = |ack: Ack| Ack::new(ack.packet_id, ReasonCode::Success);
    Some(match packet {
        Packet::Connect(packet) => Packet::Connect(Box::new(Connect {
            version: Version::V311,
            password: packet.password.filter(|_| packet.username.is_some()),
            properties: ConnectProperties::default(),
            will: packet.will.map(|will| Box::new(Will { properties: WillProperties::default(), ..*will })),
            ..*packet
        })),
        Packet::ConnAck(packet) => Packet::ConnAck(Box::new(ConnAck {
            reason: ReasonCode::from_v311_connect_code(packet.reason.v311_connect_code())?,
            properties: ConnAckProperties::default(),
            ..*packet
        })),
        Packet::Publish(packet) => {
            let topic = Some(packet.topic?);
            Packet::Publish(Publish { topic, properties: None, ..packet })
        }
        Packet::PubAck(ack) => Packet::PubAck(plain(ack)),
        Packet::PubRec(ack) => Packet::PubRec(plain(ack)),
        Packet::PubRel(ack) => Packet::PubRel(plain(ack)),
        Packet::PubComp(ack) => Packet::PubComp(plain(ack)),
        Packet::Subscribe(mut packet) => {
            for request in &mut packet.requests {
                request.options = SubscriptionOptions { qos: request.options.qos, ..SubscriptionOptions::default() };
            }
            Packet::Subscribe(Subscribe { subscription_id: None, user: Vec::new(), ..packet })
        }
        Packet::SubAck(mut packet) => {
            for reason in packet.reasons.iter_mut().filter(|reason| reason.is_error()) {
                *reason = ReasonCode::UnspecifiedError;
            }
            Packet::SubAck(SubAck { reason_string: None, user: Vec::new(), ..packet })
        }
        Packet::Unsubscribe(packet) => Packet::Unsubscribe(Unsubscribe { user: Vec::new(), ..packet }),
        Packet::UnsubAck(UnsubAck { packet_id, .. }) => {
            Packet::UnsubAck(UnsubAck { packet_id, reasons: Vec::new(), reason_string: None, user: Vec::new() })
        }
        Packet::PingReq | Packet::PingResp => packet,
        Packet::Disconnect(_) if side == Side::Server => return None,
        Packet::Disconnect(_) => Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
        Packet::Auth(_) => return None,
    })
}

fn any_text() -> impl Strategy<Value = Utf8> {
    "[a-c/ä€𝄞\u{1}+#$]{0,9}".prop_map(|text| Utf8::new(&text).unwrap())
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn any_topic() -> impl Strategy<Value = TopicName> {
    "[a-c/ä$]{1,9}".prop_map(|text| TopicName::new(&text).unwrap())
}

fn any_filter() -> impl Strategy<Value = TopicFilter> {
    let text = prop_oneof!["[a-c/ä$]{1,9}", "([a-c+]?/){0,3}#", "\\$share/[a-c]{1,2}/[a-c+](/[+])?"];
    text.prop_map(|text| TopicFilter::new(&text).unwrap())
}

fn any_user() -> impl Strategy<Value = UserProperties> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec((any_text(), any_text()), 1..4)]
}

fn any_qos() -> impl Strategy<Value = QoS> {
    (0_u8..3).prop_map(|number| QoS::from_u8(number).unwrap())
}

fn any_id() -> impl Strategy<Value = PacketId> {
    any::<PacketId>()
}

fn any_reason(kind: PacketKind) -> impl Strategy<Value = ReasonCode> {
    let codes: Vec<_> = ReasonCode::ALL.iter().copied().filter(|code| code.valid_for(kind)).collect();
    prop::sample::select(codes)
}

fn response_topic() -> impl Strategy<Value = Option<Utf8>> {
    of(any_topic()).prop_map(|topic| topic.map(|topic| topic.as_utf8().clone()))
}

type Method = (Option<Utf8>, Option<Bytes>);

fn any_method() -> impl Strategy<Value = Method> {
    of((any_text(), of(any_bytes()))).prop_map(|method| match method {
        Some((method, data)) => (Some(method), data),
        None => (None, None),
    })
}

fn any_connect() -> impl Strategy<Value = Connect> {
    let head =
        (any::<bool>(), any::<bool>(), any::<u16>(), any_text(), of(any_will()), of(any_text()), of(any_bytes()));
    let version = prop_oneof![Just(Version::V311), Just(Version::V5)];
    (version, head, any_connect_properties()).prop_map(|(version, head, properties)| {
        let (bridge, clean_start, keep_alive, client_id, will, username, password) = head;
        let will = will.map(Box::new);
        let packet = Connect {
            version: Version::V5,
            bridge,
            clean_start,
            keep_alive,
            client_id,
            will,
            username,
            password,
            properties,
        };
        if version == Version::V5 {
            return packet;
        }
        match as_old(Side::Client, Packet::Connect(Box::new(packet))) {
            Some(Packet::Connect(old)) => *old,
            _ => unreachable!("a CONNECT stays one"),
        }
    })
}

fn any_connect_properties() -> impl Strategy<Value = ConnectProperties> {
    let numbers = (of(any::<u32>()), of(1_u16..), of(1_u32..), of(any::<u16>()), of(any::<bool>()), of(any::<bool>()));
    (numbers, any_user(), any_method()).prop_map(|(numbers, user, method)| ConnectProperties {
        session_expiry: numbers.0,
        receive_maximum: numbers.1,
        maximum_packet_size: numbers.2,
        topic_alias_maximum: numbers.3,
        request_response_information: numbers.4,
        request_problem_information: numbers.5,
        user,
        authentication_method: method.0,
        authentication_data: method.1,
    })
}

fn any_will() -> impl Strategy<Value = Will> {
    let numbers = (of(any::<u32>()), of(any::<bool>()), of(any::<u32>()));
    let texts = (of(any_text()), response_topic(), of(any_bytes()), any_user());
    let properties = (numbers, texts).prop_map(|(numbers, texts)| WillProperties {
        delay: numbers.0,
        payload_is_utf8: numbers.1,
        message_expiry: numbers.2,
        content_type: texts.0,
        response_topic: texts.1,
        correlation_data: texts.2,
        user: texts.3,
    });
    (any_topic(), any_bytes(), any_qos(), any::<bool>(), properties)
        .prop_map(|(topic, payload, qos, retain, properties)| Will { topic, payload, qos, retain, properties })
}

fn any_connack() -> impl Strategy<Value = ConnAck> {
    let numbers = (of(any::<u32>()), of(1_u16..), of(any::<bool>()), of(1_u32..), of(any::<u16>()), of(any::<u16>()));
    let flags = (of(any::<bool>()), of(any::<bool>()), of(any::<bool>()), of(any::<bool>()));
    let texts = (of(any_text()), of(any_text()), of(any_text()), of(any_text()), any_user(), any_method());
    let properties = (numbers, flags, texts).prop_map(|(numbers, flags, texts)| ConnAckProperties {
        session_expiry: numbers.0,
        receive_maximum: numbers.1,
        maximum_qos: numbers.2.map(|one| if one { QoS::AtLeastOnce } else { QoS::AtMostOnce }),
        retain_available: flags.0,
        maximum_packet_size: numbers.3,
        assigned_client_id: texts.0,
        topic_alias_maximum: numbers.4,
        reason_string: texts.1,
        user: texts.4,
        wildcard_subscription_available: flags.1,
        subscription_ids_available: flags.2,
        shared_subscription_available: flags.3,
        server_keep_alive: numbers.5,
        response_information: texts.2,
        server_reference: texts.3,
        authentication_method: texts.5.0,
        authentication_data: texts.5.1,
    });
    (any::<bool>(), any_reason(PacketKind::ConnAck), properties).prop_map(|(session, reason, properties)| ConnAck {
        session_present: session && !reason.is_error(),
        reason,
        properties,
    })
}

fn any_publish(side: Side) -> impl Strategy<Value = Publish> {
    let head = (any::<bool>(), any_qos(), any::<bool>(), any_topic(), any_id(), any_bytes(), any::<bool>());
    let numbers = (of(any::<bool>()), of(any::<u32>()), of(1_u16..), vec(1_u32..=268_435_455, 0..4));
    let texts = (response_topic(), of(any_bytes()), any_user(), of(any_text()));
    (head, of((numbers, texts))).prop_map(move |(head, properties)| {
        let (dup, qos, retain, topic, packet_id, payload, omit_topic) = head;
        let properties = properties.map(|(numbers, texts)| PublishProperties {
            payload_is_utf8: numbers.0,
            message_expiry: numbers.1,
            topic_alias: numbers.2,
            subscription_ids: if side == Side::Server { numbers.3.into() } else { smallvec::smallvec![] },
            response_topic: texts.0,
            correlation_data: texts.1,
            user: texts.2,
            content_type: texts.3,
        });
        let properties = properties.filter(|found| *found != PublishProperties::default()).map(Box::new);
        let has_alias = properties.as_ref().is_some_and(|found| found.topic_alias.is_some());
        let (dup, packet_id) = if qos == QoS::AtMostOnce { (false, None) } else { (dup, Some(packet_id)) };
        let topic = if omit_topic && has_alias { None } else { Some(topic) };
        Publish { dup, qos, retain, topic, packet_id, payload, properties }
    })
}

fn any_ack(kind: PacketKind) -> impl Strategy<Value = Ack> {
    (any_id(), any_reason(kind), of(any_text()), any_user()).prop_map(|(packet_id, reason, text, user)| {
        let has_properties = text.is_some() || !user.is_empty();
        Ack { packet_id, reason, properties: has_properties.then(|| Box::new((text, user))) }
    })
}

fn any_disconnect(side: Side) -> impl Strategy<Value = Disconnect> {
    let texts = (of(any_text()), any_user(), of(any_text()));
    (any_reason(PacketKind::Disconnect), of(any::<u32>()), texts).prop_map(move |(reason, expiry, texts)| Disconnect {
        reason,
        session_expiry: expiry.filter(|_| side == Side::Client),
        reason_string: texts.0,
        user: texts.1,
        server_reference: texts.2.filter(|_| side == Side::Server),
    })
}

fn any_auth(side: Side) -> impl Strategy<Value = Auth> {
    let own = if side == Side::Client { ReasonCode::ReAuthenticate } else { ReasonCode::Success };
    let reason = prop_oneof![Just(own), Just(ReasonCode::ContinueAuthentication)];
    (reason, any_text(), of(any_bytes()), of(any_text()), any_user()).prop_map(
        |(reason, method, data, reason_string, user)| Auth { reason, method: Some(method), data, reason_string, user },
    )
}

fn any_subscribe() -> impl Strategy<Value = Subscribe> {
    let handling = [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend];
    let options = (any_qos(), any::<bool>(), any::<bool>(), prop::sample::select(handling.to_vec()));
    let request =
        (any_filter(), options).prop_map(|(filter, (qos, no_local, retain_as_published, retain_handling))| {
            let no_local = no_local && filter.share_group().is_none();
            let options = SubscriptionOptions { qos, no_local, retain_as_published, retain_handling };
            SubscriptionRequest { filter, options }
        });
    (any_id(), vec(request, 1..5), of(1_u32..=268_435_455), any_user()).prop_map(
        |(packet_id, requests, subscription_id, user)| Subscribe { packet_id, requests, subscription_id, user },
    )
}

fn any_unsubscribe() -> impl Strategy<Value = Unsubscribe> {
    (any_id(), vec(any_filter(), 1..5), any_user()).prop_map(|(packet_id, filters, user)| Unsubscribe {
        packet_id,
        filters,
        user,
    })
}

fn any_suback() -> impl Strategy<Value = Packet> {
    (any_id(), vec(any_reason(PacketKind::SubAck), 1..5), of(any_text()), any_user()).prop_map(
        |(packet_id, reasons, reason_string, user)| Packet::SubAck(SubAck { packet_id, reasons, reason_string, user }),
    )
}

fn any_unsuback() -> impl Strategy<Value = Packet> {
    (any_id(), vec(any_reason(PacketKind::UnsubAck), 1..5), of(any_text()), any_user()).prop_map(
        |(packet_id, reasons, reason_string, user)| {
            Packet::UnsubAck(UnsubAck { packet_id, reasons, reason_string, user })
        },
    )
}
