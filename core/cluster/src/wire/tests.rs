//! Mail that is written is read again; any other is refused and does no harm.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sedge_base::{ClientId, Duration, Incarnation, NodeId, ShardId, Timestamp};
use sedge_broker::{
    BUCKETS, InboundState, InflightPhase, InflightState, QueuedState, SessionState, SubscriptionState, WillState,
};
use sedge_mqtt::{
    Message, MessageId, PacketId, PublishProperties, QoS, ReadAt, ReasonCode, Stamp, SubscriptionOptions, TopicFilter,
    TopicName, Utf8, Version, Will, WillProperties,
};

use super::*;
use crate::lineage::{Given, Lineage};
use crate::mail::{Known, Life};

fn message(seq: u64) -> Arc<Message> {
    let properties = PublishProperties { content_type: Some(Utf8::from_static("text")), ..Default::default() };
    Arc::new(Message {
        id: MessageId { node: NodeId::new(7), incarnation: Incarnation::new(8), shard: ShardId(9), seq },
        topic: TopicName::new("a/b").unwrap(),
        payload: Bytes::from_static(b"payload"),
        qos: QoS::ExactlyOnce,
        retain: true,
        properties: Some(Box::new(properties)),
        stamp: Stamp { millis: 1, counter: 2, node: NodeId::new(3), shard: ShardId(4) },
        expires_at: Some(Timestamp::from_millis(5)),
        publisher: Some(ClientId::new("pub")),
        read_at: ReadAt::default(),
    })
}

fn session() -> SessionState {
    let filter = TopicFilter::new("$share/g/a/+").unwrap();
    let queued = |seq| QueuedState {
        message: message(seq),
        qos: QoS::AtLeastOnce,
        retain: true,
        subscription_ids: vec![1, 2],
        group: Some(filter.clone()),
    };
    let packet_id = PacketId::MIN;
    SessionState {
        client: ClientId::new("c"),
        epoch: 1,
        version: Version::V311,
        expiry_secs: 2,
        disconnected_at: Timestamp::from_millis(3),
        subscriptions: vec![SubscriptionState {
            filter: filter.clone(),
            options: SubscriptionOptions::default(),
            id: Some(4),
        }],
        inflight: vec![
            InflightState { packet_id, phase: InflightPhase::Sent(queued(1)) },
            InflightState { packet_id: PacketId::MAX, phase: InflightPhase::Released },
        ],
        queue: vec![queued(2), queued(3)],
        inbound: vec![
            InboundState { packet_id, answer: Some(ReasonCode::Success) },
            InboundState { packet_id: PacketId::MAX, answer: None },
        ],
        will: Some(WillState {
            will: Box::new(Will {
                topic: TopicName::new("w").unwrap(),
                payload: Bytes::from_static(b"will"),
                qos: QoS::AtLeastOnce,
                retain: false,
                properties: WillProperties { delay: Some(5), ..Default::default() },
            }),
            remaining: Duration::from_millis(6),
        }),
    }
}

fn session_bytes() -> Bytes {
    let mut out = Writer::default();
    write_session(&mut out, &session());
    out.finish()
}

fn directory_mail() -> Vec<DirectoryMail> {
    let client = ClientId::new("c");
    vec![
        DirectoryMail::Claim { client: client.clone(), clean_start: true },
        DirectoryMail::Granted { client: client.clone(), epoch: 1, from: Some(NodeId::new(2)) },
        DirectoryMail::Granted { client: client.clone(), epoch: 1, from: None },
        DirectoryMail::Relinquish { client: client.clone(), epoch: 1, clean_start: false, to: NodeId::new(2) },
        DirectoryMail::Register { view: 1, last: true, clients: vec![(client.clone(), 2), (client.clone(), 3)] },
        DirectoryMail::Forget { client: client.clone(), epoch: 4 },
        DirectoryMail::Give { client: client.clone(), epoch: 5, to: NodeId::new(6) },
        DirectoryMail::Given { client, epoch: 7, from: NodeId::new(8) },
    ]
}

fn replica_mail() -> [ReplicaMail; 13] {
    let (of, incarnation, shard) = (NodeId::new(1), Incarnation::new(2), ShardId(3));
    let stray = Stray { message: message(1), plain: true, groups: vec![TopicFilter::new("$share/g/a").unwrap()] };
    [
        ReplicaMail::Begin { attempt: 4, shards: 5 },
        ReplicaMail::Batch { shard, number: 6, last: true, bytes: Bytes::from_static(b"bytes") },
        ReplicaMail::Copied { attempt: 7, shard, number: 8, whole: true },
        ReplicaMail::Backups { nodes: vec![of, NodeId::new(9)] },
        ReplicaMail::Want { of, incarnation },
        ReplicaMail::Strays { of, incarnation, last: false, strays: vec![stray] },
        ReplicaMail::Taken { of, incarnation },
        ReplicaMail::Safe { of, incarnation },
        ReplicaMail::Ask { of, incarnation, client: ClientId::new("c"), epoch: 10 },
        ReplicaMail::Nothing,
        ReplicaMail::End,
        ReplicaMail::Keeps { of, incarnation, client: ClientId::new("c"), epoch: 11 },
        ReplicaMail::Has { client: ClientId::new("c"), epoch: 12, has: true },
    ]
}

fn node_mail() -> [NodeMail; 13] {
    let (client, reason) = (ClientId::new("c"), ReasonCode::AdministrativeAction);
    [
        NodeMail::Clients { address: Utf8::from_static("host:1883") },
        NodeMail::Kick { request: 1, client, reason, end_session: true },
        NodeMail::Kicked { request: 2, owned: false },
        NodeMail::Full { full: true },
        NodeMail::ClosedTopics { filters: vec![TopicFilter::new("a/+").unwrap()] },
        NodeMail::Draining { draining: true },
        NodeMail::Hear { number: 8 },
        NodeMail::Heard { number: 9 },
        NodeMail::Ask { request: 3, question: Bytes::from_static(b"why") },
        NodeMail::Answer { request: 4, answer: Bytes::new() },
        NodeMail::Name { name: Utf8::new("kitchen").unwrap() },
        NodeMail::Time { cluster: Timestamp::from_millis(5), system_ahead: -3, serving: true },
        NodeMail::Serving { members: vec![NodeId::new(1), NodeId::new(7)] },
    ]
}

fn relay_mail() -> [RelayMail; 4] {
    let incarnation = Incarnation::new(5);
    [
        RelayMail::Begin { incarnation, behind: 6 },
        RelayMail::Arrived { incarnation, up_to: 7 },
        RelayMail::Missing { incarnation, up_to: 8, before: u64::MAX },
        RelayMail::Fence { incarnation, number: 9, behind: 10 },
    ]
}

fn carry_mail() -> [CarryMail; 4] {
    let mail = |to, word| CarryMail { to, from: NodeId::new(2), number: u64::MAX, by_opener: to.is_some(), word };
    let bytes = Bytes::from_static(b"bytes");
    [
        mail(Some(NodeId::new(1)), CarryWord::Open),
        mail(None, CarryWord::Bytes { offset: 3, bytes }),
        mail(Some(NodeId::new(1)), CarryWord::Read(4)),
        mail(None, CarryWord::Close),
    ]
}

#[test]
fn all_mail_comes_back_as_it_was() {
    for mail in directory_mail() {
        assert_eq!(DirectoryMail::decode(mail.encode()), Ok(mail));
    }
    let mut digests = Box::new([0; BUCKETS]);
    digests[3] = 4;
    for mail in [
        RetainedMail::Digests { answer: true, digests },
        RetainedMail::Messages(vec![message(1), message(2)]),
        RetainedMail::Done,
    ] {
        assert_eq!(RetainedMail::decode(mail.encode()), Ok(mail));
    }
    for mail in node_mail() {
        assert_eq!(NodeMail::decode(mail.encode()), Ok(mail));
    }
    for mail in relay_mail() {
        assert_eq!(RelayMail::decode(mail.encode()), Ok(mail));
    }
    for mail in carry_mail() {
        assert_eq!(CarryMail::decode(mail.encode()), Ok(mail));
    }
    for mail in replica_mail() {
        assert_eq!(ReplicaMail::decode(mail.encode()), Ok(mail));
    }
    let client = ClientId::new("c");
    for mail in [
        SessionMail::Part { client: client.clone(), epoch: 1, leftovers: true, last: false, bytes: session_bytes() },
        SessionMail::Release { client: client.clone(), epoch: 2, known_to: Some(vec![NodeId::new(1), NodeId::new(7)]) },
        SessionMail::Release { client: client.clone(), epoch: 2, known_to: None },
        SessionMail::Had {
            client: client.clone(),
            marks: vec![message(1).id, message(2).id],
            gaps: vec![(message(1).id, 7)],
            fills: vec![message(2).id],
            came: Lineage::new([Given { from: NodeId::new(3), epoch: 5 }, Given { from: NodeId::new(4), epoch: 4 }]),
        },
        SessionMail::Safe { client: client.clone(), epoch: 3 },
        SessionMail::Known(Known {
            client,
            from: Life { node: NodeId::new(3), incarnation: Incarnation::new(4) },
            copied: vec![message(1).id],
            added: Vec::new(),
            filters: Some(session().subscriptions.into_iter().map(|subscription| subscription.filter).collect()),
        }),
    ] {
        assert_eq!(SessionMail::decode(mail.encode()), Ok(mail));
    }
    let mut reader = Reader::new(session_bytes());
    assert_eq!(read_session(&mut reader), Ok(session()));
    assert_eq!(reader.end(), Ok(()));
}

#[test]
fn what_is_cut_short_is_refused_at_every_place() {
    let whole = session_bytes();
    for length in 0..whole.len() {
        assert!(read_session(&mut Reader::new(whole.slice(..length))).is_err(), "{length}");
    }
    for mail in directory_mail() {
        let bytes = mail.encode();
        assert!((0..bytes.len()).all(|length| DirectoryMail::decode(bytes.slice(..length)).is_err()));
        let longer: Bytes = bytes.iter().copied().chain([0]).collect();
        assert!(DirectoryMail::decode(longer).is_err());
    }
    for mail in relay_mail() {
        let bytes = mail.encode();
        assert!((0..bytes.len()).all(|length| RelayMail::decode(bytes.slice(..length)).is_err()));
        let longer: Bytes = bytes.iter().copied().chain([0]).collect();
        assert!(RelayMail::decode(longer).is_err());
    }
    for mail in carry_mail() {
        let bytes = mail.encode();
        assert!((0..bytes.len()).all(|length| CarryMail::decode(bytes.slice(..length)).is_err()));
        let longer: Bytes = bytes.iter().copied().chain([0]).collect();
        assert!(CarryMail::decode(longer).is_err());
    }
    for mail in node_mail() {
        let bytes = mail.encode();
        assert!((0..bytes.len()).all(|length| NodeMail::decode(bytes.slice(..length)).is_err()));
        let longer: Bytes = bytes.iter().copied().chain([0]).collect();
        assert!(NodeMail::decode(longer).is_err());
    }
}

proptest! {
    #[test]
    fn whatever_comes_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..400, byte: u8) {
        let bytes = Bytes::from(bytes);
        let _ = DirectoryMail::decode(bytes.clone());
        let _ = RetainedMail::decode(bytes.clone());
        let _ = NodeMail::decode(bytes.clone());
        let _ = ReplicaMail::decode(bytes.clone());
        let _ = RelayMail::decode(bytes.clone());
        let _ = CarryMail::decode(bytes.clone());
        let _ = SessionMail::decode(bytes.clone());
        let _ = read_session(&mut Reader::new(bytes));
        let mut broken = session_bytes().to_vec();
        let at = at % broken.len();
        broken[at] = byte;
        let _ = read_session(&mut Reader::new(Bytes::from(broken)));
    }
}

#[test]
fn what_a_node_remembers_of_its_cluster_is_read_back() {
    let members = ["10.0.0.2:7883", "[fe80::1]:7883"].map(|address| address.parse().unwrap());
    let members = (2..).zip(members).map(|(node, address)| Remembered { node: NodeId::new(node), address }).collect();
    let life = |node| Life { node: NodeId::new(node), incarnation: Incarnation::new(1_700_000_000_000) };
    let known = Entry::Known(vec![NodeId::new(2), NodeId::new(9)]);
    let safe = Entry::SafeElsewhere(vec![SafeAt { life: life(2), by: NodeId::new(3) }]);
    let taken = Entry::Taken(vec![life(2), life(3)]);
    let own = Entry::Life(Incarnation::new(1_700_000_000_001));
    let written = [Entry::Members(members), taken, safe, own, known, Entry::Members(Vec::new())];
    let mut out = BytesMut::new();
    for entry in &written {
        write_entry(&mut out, entry);
    }
    let bytes = out.freeze();
    let mut read = Vec::new();
    read_entries(bytes.clone(), |entry| read.push(entry)).unwrap();
    assert_eq!(read, written);
    assert!(read_entries(bytes.slice(..bytes.len() - 1), |_| {}).is_err());
}
