//! Whole conversations, as they pass by.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sedge_base::{Duration, Instant};
use sedge_mqtt::{
    Ack, ConnAck, ConnAckProperties, Connect, ConnectProperties, Disconnect, Packet, PacketId, Publish,
    PublishProperties, QoS, ReasonCode, SubAck, Subscribe, SubscriptionOptions, SubscriptionRequest, TopicFilter,
    TopicName, UnsubAck, Unsubscribe, Utf8, Version, Will, WillProperties, encode,
};

use super::segment::tests::packet;
use super::{Segment, SniffConfig, SniffOutput, Sniffer};

const NOW: Instant = Instant::from_millis(5_000);
const BROKER: &str = "10.0.0.1:1883";

/// A client whose packets are captured, each at once and in both directions.
struct Tap {
    sniffer: Sniffer,
    now: Instant,
}

struct Talk {
    client: &'static str,
    version: Version,
    up: u32,
    down: u32,
}

fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

fn bytes_of(packet: &Packet, version: Version) -> Bytes {
    let mut out = BytesMut::new();
    encode(packet, version, &mut out);
    out.freeze()
}

fn connect(name: &str, clean_start: bool, will: bool) -> Packet {
    let will = will.then(|| {
        Box::new(Will {
            topic: TopicName::new("will").unwrap(),
            payload: Bytes::from_static(b"gone"),
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: WillProperties::default(),
        })
    });
    Packet::Connect(Box::new(Connect {
        version: Version::V311,
        bridge: false,
        clean_start,
        keep_alive: 60,
        client_id: Utf8::new(name).unwrap(),
        will,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }))
}

fn connack(reason: ReasonCode) -> Packet {
    Packet::ConnAck(Box::new(ConnAck { session_present: false, reason, properties: ConnAckProperties::default() }))
}

fn publish(topic: Option<&str>, payload: &'static str, qos: QoS, number: u16) -> Publish {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: topic.map(|topic| TopicName::new(topic).unwrap()),
        packet_id: (qos > QoS::AtMostOnce).then(|| id(number)),
        payload: Bytes::from_static(payload.as_bytes()),
        properties: None,
    }
}

fn subscribe(number: u16, filters: &[&str]) -> Packet {
    let request = |filter: &&str| SubscriptionRequest {
        filter: TopicFilter::new(filter).unwrap(),
        options: SubscriptionOptions::default(),
    };
    Packet::Subscribe(Subscribe {
        packet_id: id(number),
        requests: filters.iter().map(request).collect(),
        subscription_id: None,
        user: Vec::new(),
    })
}

fn suback(number: u16, reasons: &[ReasonCode]) -> Packet {
    Packet::SubAck(SubAck { packet_id: id(number), reasons: reasons.to_vec(), reason_string: None, user: Vec::new() })
}

impl Tap {
    fn new() -> Self {
        let config = SniffConfig {
            addresses: vec![BROKER.parse().unwrap()],
            own_prefix: "sedge-sniff-".to_owned(),
            ..SniffConfig::default()
        };
        Self { sniffer: Sniffer::new(config), now: NOW }
    }

    fn capture(&mut self, segment: &Segment) {
        self.sniffer.handle(self.now, &packet(segment));
    }

    /// A connection from its beginning.
    fn opens(&mut self, client: &'static str) -> Talk {
        let mut talk = Talk { client, version: Version::V311, up: u32::MAX - 5, down: 77 };
        self.capture(&Segment { syn: true, ..talk.segment(true, Bytes::new()) });
        self.capture(&Segment { syn: true, ..talk.segment(false, Bytes::new()) });
        (talk.up, talk.down) = (talk.up.wrapping_add(1), talk.down + 1);
        talk
    }

    /// As [`Tap::opens`], and the broker takes the client.
    fn begins(&mut self, client: &'static str, connect: &Packet) -> Talk {
        let mut talk = self.opens(client);
        self.says(&mut talk, connect);
        self.hears(&mut talk, &connack(ReasonCode::Success));
        talk
    }

    fn says(&mut self, talk: &mut Talk, packet: &Packet) {
        let bytes = bytes_of(packet, talk.version);
        let segment = talk.segment(true, bytes);
        // On the loopback interface everything passes twice.
        self.capture(&segment);
        self.capture(&segment);
        talk.up = talk.up.wrapping_add(u32::try_from(segment.payload.len()).unwrap());
    }

    fn hears(&mut self, talk: &mut Talk, packet: &Packet) {
        let segment = talk.segment(false, bytes_of(packet, talk.version));
        self.capture(&segment);
        talk.down += u32::try_from(segment.payload.len()).unwrap();
    }

    fn ends(&mut self, talk: &Talk) {
        let segment = Segment { fin: true, ..talk.segment(true, Bytes::new()) };
        self.capture(&segment);
        self.capture(&segment);
    }

    /// Outputs of the sniffer: publications as `topic=payload`, filters as `+filter` and `-filter`.
    fn news(&mut self) -> Vec<String> {
        let text = |output| match output {
            SniffOutput::Publish(publish) => {
                let topic = publish.topic.unwrap();
                format!("{}={}", topic.as_str(), String::from_utf8_lossy(&publish.payload))
            }
            SniffOutput::Want(filter, is_wanted) => format!("{}{}", if is_wanted { '+' } else { '-' }, filter.as_str()),
            SniffOutput::Encrypted(client) => format!("TLS of {client}"),
        };
        std::iter::from_fn(|| self.sniffer.poll_output()).map(text).collect()
    }
}

impl Talk {
    fn segment(&self, up: bool, payload: Bytes) -> Segment {
        let (client, broker) = (self.client.parse().unwrap(), BROKER.parse().unwrap());
        let (from, to, seq) = if up { (client, broker, self.up) } else { (broker, client, self.down) };
        Segment { from, to, seq, syn: false, fin: false, rst: false, payload }
    }
}

/// FT-03: publications and subscriptions are learned without being on the path; subscriptions that the broker has not granted do not count.
#[test]
fn a_conversation_is_followed() {
    let mut tap = Tap::new();
    let mut talk = tap.begins("10.0.0.9:4000", &connect("c", true, false));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "0", QoS::AtMostOnce, 0)));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "1", QoS::AtLeastOnce, 1)));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "2", QoS::ExactlyOnce, 2)));
    let again = Publish { dup: true, ..publish(Some("a"), "2", QoS::ExactlyOnce, 2) };
    tap.says(&mut talk, &Packet::Publish(again));
    tap.says(&mut talk, &Packet::PubRel(Ack::new(id(2), ReasonCode::Success)));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "3", QoS::ExactlyOnce, 2)));
    tap.says(&mut talk, &Packet::Publish(publish(Some("$SYS/x"), "4", QoS::AtMostOnce, 0)));
    assert_eq!(tap.news(), ["a=0", "a=1", "a=2", "a=3"]);
    tap.says(&mut talk, &subscribe(3, &["f/#", "denied", "$share/g/s"]));
    assert_eq!(tap.news(), Vec::<String>::new());
    let reasons = [ReasonCode::GrantedQoS1, ReasonCode::UnspecifiedError, ReasonCode::Success];
    tap.hears(&mut talk, &suback(3, &reasons));
    assert_eq!(tap.news(), ["+f/#", "+s"]);
    let filters = vec![TopicFilter::new("f/#").unwrap()];
    tap.says(&mut talk, &Packet::Unsubscribe(Unsubscribe { packet_id: id(4), filters, user: Vec::new() }));
    let unsuback = UnsubAck { packet_id: id(4), reasons: Vec::new(), reason_string: None, user: Vec::new() };
    tap.hears(&mut talk, &Packet::UnsubAck(unsuback));
    assert_eq!(tap.news(), ["-f/#"]);
    tap.says(&mut talk, &Packet::Disconnect(Disconnect::new(ReasonCode::Success)));
    tap.ends(&talk);
    assert_eq!(tap.news(), ["-s"]);
    let counters = *tap.sniffer.counters();
    assert_eq!((counters.connections, counters.blind, counters.publications), (1, 0, 4));
    tap.sniffer.handle_timeout(NOW + Duration::from_mins(1));
    assert_eq!((tap.sniffer.followed(), tap.sniffer.poll_timeout()), (0, None));
}

#[test]
fn what_a_client_says_before_the_broker_has_taken_it_waits() {
    let mut tap = Tap::new();
    let mut talk = tap.opens("10.0.0.9:4000");
    tap.says(&mut talk, &connect("c", true, true));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "1", QoS::AtMostOnce, 0)));
    assert_eq!(tap.news(), Vec::<String>::new());
    tap.hears(&mut talk, &connack(ReasonCode::Success));
    assert_eq!(tap.news(), ["a=1"]);
    let mut refused = tap.opens("10.0.0.9:4001");
    tap.says(&mut refused, &connect("d", true, true));
    tap.says(&mut refused, &Packet::Publish(publish(Some("a"), "2", QoS::AtMostOnce, 0)));
    tap.hears(&mut refused, &connack(ReasonCode::NotAuthorized));
    tap.ends(&refused);
    assert_eq!(tap.news(), Vec::<String>::new());
}

#[test]
fn wills_go_out_unless_the_client_says_goodbye() {
    let mut tap = Tap::new();
    let talk = tap.begins("10.0.0.9:4000", &connect("c", true, true));
    tap.ends(&talk);
    assert_eq!(tap.news(), ["will=gone"]);
    let mut talk = tap.begins("10.0.0.9:4001", &connect("c", true, true));
    tap.says(&mut talk, &Packet::Disconnect(Disconnect::new(ReasonCode::Success)));
    tap.ends(&talk);
    assert_eq!(tap.news(), Vec::<String>::new());
}

#[test]
fn a_session_that_is_kept_keeps_its_filters() {
    let mut tap = Tap::new();
    let mut talk = tap.begins("10.0.0.9:4000", &connect("c", false, false));
    tap.says(&mut talk, &subscribe(1, &["f"]));
    tap.hears(&mut talk, &suback(1, &[ReasonCode::Success]));
    tap.ends(&talk);
    assert_eq!(tap.news(), ["+f"]);
    let talk = tap.begins("10.0.0.9:4001", &connect("c", true, false));
    assert_eq!(tap.news(), ["-f"]);
    tap.ends(&talk);
    // Two clients want the same: it is wanted once, until nobody does.
    for (client, name) in [("10.0.0.9:4002", "d"), ("10.0.0.9:4003", "e")] {
        let mut talk = tap.begins(client, &connect(name, true, false));
        tap.says(&mut talk, &subscribe(1, &["g"]));
        tap.hears(&mut talk, &suback(1, &[ReasonCode::Success]));
        if name == "d" {
            assert_eq!(tap.news(), ["+g"]);
            tap.ends(&talk);
            assert_eq!(tap.news(), ["-g"]);
        }
    }
    assert_eq!(tap.news(), ["+g"]);
}

/// FT-03: blind connections and losses are counted, and end nothing else.
#[test]
fn blind_encrypted_and_own_connections_are_counted() {
    let mut tap = Tap::new();
    // First seen in the middle.
    let mut talk = Talk { client: "10.0.0.9:1", version: Version::V311, up: 9, down: 9 };
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "1", QoS::AtMostOnce, 0)));
    // TLS, twice; the first is said.
    for client in ["10.0.0.9:2", "10.0.0.9:3"] {
        let talk = tap.opens(client);
        tap.capture(&talk.segment(true, Bytes::from_static(&[22, 3, 1, 2, 0, 1, 0, 1])));
    }
    assert_eq!(tap.news(), ["TLS of 10.0.0.9:2"]);
    // A node's own connection.
    let mut talk = tap.begins("10.0.0.9:4", &connect("sedge-sniff-a1", true, true));
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "2", QoS::AtMostOnce, 0)));
    // A hole that nobody fills.
    let mut talk = tap.begins("10.0.0.9:5", &connect("c", true, false));
    talk.up = talk.up.wrapping_add(100);
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "3", QoS::AtMostOnce, 0)));
    tap.now = NOW + Duration::from_secs(10);
    tap.says(&mut talk, &Packet::Publish(publish(Some("a"), "4", QoS::AtMostOnce, 0)));
    // No MQTT.
    let talk = tap.opens("10.0.0.9:6");
    tap.capture(&talk.segment(true, Bytes::from_static(b"GET / HTTP/1.1\r\n")));
    assert_eq!(tap.news(), Vec::<String>::new());
    let counters = *tap.sniffer.counters();
    let found = (counters.blind, counters.encrypted, counters.own, counters.holes, counters.publications);
    assert_eq!(found, (5, 2, 1, 1, 0));
}

#[test]
fn topic_aliases_are_names() {
    let mut tap = Tap::new();
    let mut talk = tap.opens("10.0.0.9:4000");
    let Packet::Connect(mut hello) = connect("c", true, false) else { panic!() };
    hello.version = Version::V5;
    talk.version = Version::V5;
    tap.says(&mut talk, &Packet::Connect(hello));
    tap.hears(&mut talk, &connack(ReasonCode::Success));
    let with = |topic, payload| {
        let properties = PublishProperties { topic_alias: Some(3), ..PublishProperties::default() };
        Publish { properties: Some(Box::new(properties)), ..publish(topic, payload, QoS::AtMostOnce, 0) }
    };
    tap.says(&mut talk, &Packet::Publish(with(Some("long/name"), "1")));
    tap.says(&mut talk, &Packet::Publish(with(None, "2")));
    assert_eq!(tap.news(), ["long/name=1", "long/name=2"]);
}

proptest! {
    /// FT-03: captured packets of any content, in any order, do no harm.
    #[test]
    fn noise_does_no_harm(pieces in prop::collection::vec((0_u16..3, any::<bool>(), 0_u32..60, any::<[bool; 3]>(), any::<Vec<u8>>()), 0..60)) {
        let mut tap = Tap::new();
        for (port, up, seq, [syn, fin, rst], bytes) in pieces {
            let (client, broker) = (format!("10.0.0.9:{}", port + 1).parse().unwrap(), BROKER.parse().unwrap());
            let (from, to) = if up { (client, broker) } else { (broker, client) };
            tap.capture(&Segment { from, to, seq, syn, fin, rst, payload: bytes.into() });
        }
        tap.news();
        tap.sniffer.handle_timeout(NOW + Duration::from_mins(1));
    }

    /// FT-03: segments of any size that come out of order give the same as those in order.
    #[test]
    fn order_and_size_of_segments_do_not_matter(sizes in prop::collection::vec(1_usize..40, 1..60), swaps in prop::collection::vec(any::<bool>(), 60)) {
        let mut tap = Tap::new();
        let talk = tap.begins("10.0.0.9:4000", &connect("c", true, false));
        let mut stream = Vec::new();
        for number in 0..20 {
            stream.extend(bytes_of(&Packet::Publish(publish(Some("a"), "x", QoS::AtLeastOnce, number + 1)), Version::V311));
        }
        let mut segments = Vec::new();
        let mut at = 0;
        for size in sizes.into_iter().cycle() {
            if at == stream.len() {
                break;
            }
            let end = (at + size).min(stream.len());
            let mut segment = talk.segment(true, Bytes::copy_from_slice(&stream[at..end]));
            segment.seq = talk.up.wrapping_add(u32::try_from(at).unwrap());
            segments.push(segment);
            at = end;
        }
        for index in 1..segments.len() {
            if swaps[index % swaps.len()] {
                segments.swap(index - 1, index);
            }
        }
        for segment in &segments {
            tap.capture(segment);
        }
        prop_assert_eq!(tap.news().len(), 20);
        prop_assert_eq!(tap.sniffer.counters().blind, 0);
    }
}
