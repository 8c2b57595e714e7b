use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sedge_base::Rng;

use super::*;

/// Signals as hexadecimal text, one a line, that are refused.
const CORPUS: &str = include_str!("corpus.txt");

fn interests() -> impl Strategy<Value = Interest> {
    let publishers = "[a-c]{1}(/\\PC{0,3}){0,3}".prop_filter_map("a topic", |text| {
        let filter = TopicFilter::new(&text).ok().filter(|filter| !filter.has_wildcard())?;
        Some(Interest { filter, role: Role::Publisher })
    });
    let subscribers = "[a-c+$]{1}(/[a-c+]{1}){0,3}(/#)?";
    let subscribers = subscribers.prop_map(|text| Interest::subscriber(TopicFilter::new(&text).unwrap()));
    prop_oneof![publishers, subscribers]
}

fn changes(endings: bool) -> impl Strategy<Value = Vec<Change>> {
    let ended =
        interests().prop_map(move |interest| if endings { Change::Ends(interest) } else { Change::Begins(interest) });
    let groups = ("[a-z]{1,5}", any::<(u32, u32)>()).prop_map(move |(group, (online, offline))| {
        let offline = if endings { offline } else { offline.max(1) };
        Change::Group(TopicFilter::new(&format!("$share/{group}/a/+")).unwrap(), Counts { online, offline })
    });
    vec(prop_oneof![interests().prop_map(Change::Begins), ended, groups], 1..10)
}

fn signals() -> impl Strategy<Value = Signal> {
    let node = || any::<u64>().prop_map(NodeId::new);
    let facts = (any::<(u32, u32, u32)>(), btree_map(node(), any::<u32>(), 0..6));
    let facts = facts.prop_map(|((capacity, clients, rooted), round_trips)| {
        let round_trips = round_trips.into_iter().collect();
        Signal::Facts(Facts { capacity, clients, rooted, round_trips })
    });
    prop_oneof![
        Just(Signal::SnapshotBegin),
        changes(false).prop_map(Signal::SnapshotChunk),
        any::<u64>().prop_map(Signal::SnapshotEnd),
        (any::<u64>(), changes(true)).prop_map(|(number, changes)| Signal::Ask { number, changes }),
        any::<u64>().prop_map(|number| Signal::Ask { number, changes: Vec::new() }),
        vec(interests(), 1..10).prop_map(Signal::Answer),
        any::<(u64, bool)>().prop_map(|(number, whole)| Signal::Confirm { number, whole }),
        any::<(u64, u64, u64)>().prop_map(|(signals, entries, hash)| Signal::Digest { signals, entries, hash }),
        Just(Signal::Pull),
        facts,
        vec((any::<u64>(), node()), 1..10).prop_map(Signal::Roots),
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
        prop_assert_ne!(Signal::decode(&bytes), Ok(signal));
    }

    #[test]
    fn a_cut_signal_is_refused_or_shorter(signal in signals(), cut in any::<prop::sample::Index>()) {
        let bytes = signal.encode();
        let cut = &bytes[..cut.index(bytes.len())];
        fuzz_decode(cut);
        prop_assert_ne!(Signal::decode(cut), Ok(signal));
    }

    #[test]
    fn the_length_of_entries_is_known_before(changes in changes(true), key: u64, root: u64) {
        let len: usize = changes.iter().filter_map(change_len).sum();
        prop_assert_eq!(Signal::Ask { number: 1, changes }.encode().len(), 10 + len);
        prop_assert_eq!(Signal::Roots(vec![(key, NodeId::new(root))]).encode().len(), 2 + ROOT_LEN);
    }
}

#[test]
fn the_corpus_and_random_bytes_do_no_harm() {
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let digit = |at: usize| u8::from_str_radix(line.get(at..at + 2).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
        fuzz_decode(&bytes);
        assert!(Signal::decode(&bytes).is_err(), "{line}");
    }
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = vec![VERSION];
        bytes.resize_with(rng.index(60) + 1, || rng.next_u64().to_le_bytes()[0] & 0x0f);
        fuzz_decode(&bytes);
    }
}

/// The bytes are drawn in `docs/protocol/topic-tree.md` and must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let filter = |text| TopicFilter::new(text).unwrap();
    let ask = Signal::Ask {
        number: 258,
        changes: vec![
            Change::Begins(Interest::subscriber(filter("a/#"))),
            Change::Ends(Interest { filter: filter("t"), role: Role::Publisher }),
            Change::Group(filter("$share/g/x"), Counts { online: 1, offline: 2 }),
        ],
    };
    let group = b"\x05\0\x0a$share/g/x\0\0\0\x01\0\0\0\x02";
    assert_eq!(ask.encode(), [&b"\x01\x04\0\0\0\0\0\0\x01\x02\x02\0\x03a/#\x03\0\x01t"[..], group].concat());
    assert_eq!(&Signal::Confirm { number: 1, whole: true }.encode()[..], b"\x01\x06\0\0\0\0\0\0\0\x01\x01");
    let facts = Facts { capacity: 1, clients: 2, rooted: 3, round_trips: vec![(NodeId::new(4), 5)] };
    let bytes = b"\x01\x09\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\x05";
    assert_eq!(&Signal::Facts(facts).encode()[..], bytes);
    let roots = Signal::Roots(vec![(1, NodeId::new(2))]);
    assert_eq!(&roots.encode()[..], b"\x01\x0a\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
}
