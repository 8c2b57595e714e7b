use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::Rng;

use super::*;

fn entries(removals: bool) -> impl Strategy<Value = Vec<Entry>> {
    let there = move || any::<bool>().prop_map(move |there| there || !removals);
    let entry = prop_oneof![
        ("[a-c]{1,3}(/[a-c]{0,3}){0,3}", there())
            .prop_map(|(text, there)| Entry::Topic { topic: TopicName::new(&text).unwrap(), there }),
        ("[a-c+]{1}(/[a-c+]{1}){0,3}(/#)?", there())
            .prop_map(|(text, there)| Entry::Filter { filter: TopicFilter::new(&text).unwrap(), there }),
    ];
    vec(entry, 1..10)
}

fn signals() -> impl Strategy<Value = Signal> {
    prop_oneof![
        Just(Signal::SnapshotBegin),
        entries(false).prop_map(Signal::SnapshotChunk),
        any::<u64>().prop_map(Signal::SnapshotEnd),
        (any::<u64>(), entries(true)).prop_map(|(number, entries)| Signal::Changes { number, entries }),
        any::<u64>().prop_map(|number| Signal::Changes { number, entries: Vec::new() }),
        any::<u64>().prop_map(Signal::Ack),
        Just(Signal::SyncOk),
        any::<(u64, u64)>().prop_map(|(entries, sum)| Signal::Digest { entries, sum }),
        Just(Signal::Pull),
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
    fn a_cut_signal_is_refused_or_shorter(signal in signals(), at in any::<prop::sample::Index>()) {
        let bytes = signal.encode();
        let part = &bytes[..at.index(bytes.len())];
        fuzz_decode(part);
        prop_assert_ne!(Signal::decode(part), Ok(signal));
    }

    #[test]
    fn pieces_hold_everything_and_are_not_much_longer_than_asked(entries in entries(true), limit in 1..100_usize) {
        let pieces: Vec<Vec<Entry>> = cut(entries.iter().cloned(), limit).collect();
        prop_assert_eq!(pieces.concat(), entries);
        for piece in pieces {
            let (_, but_last) = piece.split_last().unwrap();
            prop_assert!(but_last.iter().map(Entry::encoded_len).sum::<usize>() < limit);
        }
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = vec![VERSION];
        bytes.resize_with(rng.index(60) + 1, || rng.next_u64().to_le_bytes()[0] & 0x0f);
        fuzz_decode(&bytes);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for (bytes, error) in [
        (&b""[..], SignalError::Truncated),
        (b"\x02\x01", SignalError::Version(2)),
        (b"\x01\x09", SignalError::Value("kind")),
        (b"\x01\x06\0", SignalError::Trailing),
        (b"\x01\x02", SignalError::Empty),
        (b"\x01\x02\x00\0\x01a", SignalError::Value("entry")),
        (b"\x01\x02\x05\0\x01a", SignalError::Value("entry")),
        (b"\x01\x02\x01\0\x02a", SignalError::Truncated),
        (b"\x01\x02\x01\0\x01#", SignalError::Value("topic")),
        (b"\x01\x02\x03\0\x02##", SignalError::Value("filter")),
        (b"\x01\x02\x03\0\x01\xff", SignalError::Value("text")),
        (b"\x01\x05\0", SignalError::Truncated),
    ] {
        assert_eq!(Signal::decode(bytes), Err(error), "{bytes:?}");
    }
}

/// The bytes are drawn in the module's documentation and must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let topic = Entry::Topic { topic: TopicName::new("t").unwrap(), there: true };
    let filter = Entry::Filter { filter: TopicFilter::new("a/#").unwrap(), there: false };
    let changes = Signal::Changes { number: 258, entries: vec![topic, filter] };
    assert_eq!(&changes.encode()[..], b"\x01\x04\0\0\0\0\0\0\x01\x02\x01\0\x01t\x02\0\x03a/#");
    assert_eq!(&Signal::Digest { entries: 1, sum: 2 }.encode()[..], b"\x01\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
}
