use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use sedge_base::{NodeId, Rng};

use super::*;
use crate::skip_graph::{End, Errand, Key, Note, Peer, Range, Role, Side, Status, Vector};

/// Signals as hexadecimal text, one a line, that are refused.
const CORPUS: &str = include_str!("corpus.txt");

fn topic() -> impl Strategy<Value = TopicName> {
    "[a-c/]{1,6}".prop_map(|text| TopicName::new(&text).unwrap())
}

fn key() -> impl Strategy<Value = Key<TopicName>> {
    (of(topic()), any::<bool>(), any::<u64>()).prop_map(|(topic, subscriber, node)| match topic {
        None => Key::placeholder(NodeId::new(node)),
        Some(topic) => Key::new(topic, if subscriber { Role::Subscriber } else { Role::Publisher }, NodeId::new(node)),
    })
}

fn peer() -> impl Strategy<Value = Peer<TopicName>> {
    (key(), any::<u64>(), any::<u64>()).prop_map(|(key, vector, life)| Peer { key, vector: Vector::new(vector), life })
}

fn status() -> impl Strategy<Value = Status> {
    (any::<bool>(), any::<u64>()).prop_map(|(active, epoch)| Status { active, epoch })
}

fn range() -> impl Strategy<Value = Range<TopicName>> {
    let end = || (key(), any::<bool>()).prop_map(|(key, included)| End { key, included });
    (end(), end()).prop_map(|(low, high)| Range { low, high })
}

fn note() -> impl Strategy<Value = Note<TopicName>> {
    let parts = (range(), range(), any::<u64>(), any::<u16>());
    parts.prop_map(|(whole, piece, source, hops)| Note { whole, piece, source: NodeId::new(source), hops })
}

fn errand() -> impl Strategy<Value = Errand<TopicName>> {
    prop_oneof![peer().prop_map(Errand::Join), peer().prop_map(Errand::Meet), topic().prop_map(Errand::Report)]
}

fn message() -> impl Strategy<Value = Message<TopicName>> {
    let side = any::<bool>().prop_map(|right| if right { Side::Right } else { Side::Left });
    prop_oneof![
        (of(key()), key(), any::<u16>(), errand()).prop_map(|(to, target, hops, errand)| Message::Route {
            to,
            target,
            hops,
            errand
        }),
        (key(), of(peer()), of(peer()), of(status())).prop_map(|(to, left, right, status)| Message::Joined {
            to,
            left,
            right,
            status
        }),
        (key(), peer(), side).prop_map(|(to, peer, side)| Message::Walk { to, peer, side }),
        (key(), peer(), any::<u32>()).prop_map(|(to, peer, level)| Message::Link { to, peer, level }),
        (key(), peer(), of(peer()), of(status())).prop_map(|(to, peer, hint, status)| Message::Linked {
            to,
            peer,
            hint,
            status
        }),
        (key(), key(), any::<u64>(), of(peer()), any::<u16>())
            .prop_map(|(to, key, life, right, hops)| Message::Leave { to, key, life, right, hops }),
        (key(), peer()).prop_map(|(to, by)| Message::Left { to, by }),
        (key(), any::<u64>(), vec(peer(), 0..4)).prop_map(|(key, life, instead)| Message::Gone { key, life, instead }),
        (note(), topic(), status()).prop_map(|(note, topic, status)| Message::Cast { note, topic, status }),
        (topic(), status()).prop_map(|(topic, status)| Message::Order { topic, status }),
        (key(), key()).prop_map(|(to, from)| Message::Ask { to, from }),
        (key(), status()).prop_map(|(to, status)| Message::Answer { to, status }),
        Just(Message::Outside),
        Just(Message::Ping),
        Just(Message::Pong),
    ]
}

fn signals() -> impl Strategy<Value = Signal> {
    let base = prop_oneof![Just(Base::Two), Just(Base::Four), Just(Base::Sixteen)];
    prop_oneof![
        vec(any::<u8>(), 1..20).prop_map(|bytes| Signal::Mesh(bytes.into())),
        (base, vec(message(), 1..6)).prop_map(|(base, messages)| Signal::Graph { base, messages }),
        vec((topic(), any::<bool>()), 1..6).prop_map(Signal::News),
        (any::<u64>(), vec(topic(), 1..6)).prop_map(|(number, topics)| Signal::Ask { number, topics }),
        (any::<u64>(), vec(any::<u8>(), 1..6)).prop_map(|(number, bytes)| {
            Signal::Answer { number, answers: bytes.into_iter().flat_map(bits).collect() }
        }),
    ]
}

proptest! {
    #[test]
    fn signals_come_back_as_they_were(signal in signals()) {
        prop_assert_eq!(Signal::decode(&signal.encode()), Ok(signal));
    }

    #[test]
    fn a_changed_signal_is_refused_or_another(signal in signals(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let mut bytes = signal.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fuzz_decode(&bytes);
        prop_assert_ne!(Signal::decode(&bytes.into()), Ok(signal));
    }

    #[test]
    fn a_cut_signal_is_refused_or_shorter(signal in signals(), cut in any::<prop::sample::Index>()) {
        let bytes = signal.encode();
        let cut = bytes.slice(..cut.index(bytes.len()));
        fuzz_decode(&cut);
        prop_assert_ne!(Signal::decode(&cut), Ok(signal));
    }

    #[test]
    fn pieces_hold_everything_in_order(sizes in vec(1_usize..50, 0..30), limit in 1_usize..100) {
        let pieces = cut(sizes.clone(), limit, |size| *size);
        for piece in &pieces {
            let (_, before) = piece.split_last().expect("no empty pieces");
            prop_assert!(before.iter().sum::<usize>() < limit);
        }
        prop_assert_eq!(pieces.concat(), sizes);
    }

    #[test]
    fn the_length_of_a_message_is_known(message in message()) {
        let signal = Signal::Graph { base: Base::Two, messages: vec![message.clone()] };
        prop_assert_eq!(signal.encode().len(), 3 + message_len(&message));
    }
}

#[test]
fn the_corpus_and_random_bytes_do_no_harm() {
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let digit = |at: usize| u8::from_str_radix(line.get(at..at + 2).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
        fuzz_decode(&bytes);
        assert!(Signal::decode(&bytes.into()).is_err(), "{line}");
    }
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = vec![VERSION];
        bytes.resize_with(rng.index(60) + 1, || rng.next_u64().to_le_bytes()[0] & 0x0f);
        fuzz_decode(&bytes);
    }
}

/// A virtual node has at most one neighbour a digit on each side. All of them, with the longest names, fit behind a signal that is
/// nearly full.
#[test]
fn the_longest_message_fits() {
    let key = Key::new(TopicName::new(&"x".repeat(MAX_TOPIC_BYTES)).unwrap(), Role::Subscriber, NodeId::new(1));
    let peer = Peer { key: key.clone(), vector: Vector::new(1), life: 1 };
    let gone = Message::Gone { key, life: 1, instead: vec![peer; 65] };
    assert!(message_len(&gone) < 512 * 1024 - 4);
    let signal = Signal::Graph { base: Base::Two, messages: vec![gone] };
    assert_eq!(Signal::decode(&signal.encode()), Ok(signal));
}

/// The bytes are drawn in `docs/protocol/skip-graph.md` and must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let topic = TopicName::new("a/b").unwrap();
    assert_eq!(&Signal::News(vec![(topic.clone(), true)]).encode()[..], b"\x01\x03\x01\0\x03a/b");
    let ask = Signal::Ask { number: 258, topics: vec![topic.clone()] };
    assert_eq!(&ask.encode()[..], b"\x01\x04\0\0\0\0\0\0\x01\x02\0\x03a/b");
    let answers = vec![true, false, false, false, false, false, false, false, false, true];
    let answer = Signal::Answer { number: 258, answers };
    assert_eq!(&answer.encode()[..], b"\x01\x05\0\0\0\0\0\0\x01\x02\x01\x02");
    assert_eq!(&Signal::Mesh(Bytes::from_static(b"\x01\x06")).encode()[..], b"\x01\x01\x01\x06");
    let to = Key::new(topic.clone(), Role::Publisher, NodeId::new(1));
    let peer = Peer { key: Key::new(topic, Role::Subscriber, NodeId::new(2)), vector: Vector::new(3), life: 4 };
    let messages = vec![Message::Ping, Message::Link { to, peer, level: 5 }];
    let expected = b"\x01\x02\x10\
        \x0e\
        \x04\
        \x01\0\x03a/b\0\0\0\0\0\0\0\x01\
        \x02\0\x03a/b\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\
        \0\0\0\x05";
    assert_eq!(&Signal::Graph { base: Base::Sixteen, messages }.encode()[..], expected);
}
