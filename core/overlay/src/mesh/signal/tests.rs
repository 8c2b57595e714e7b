use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::Rng;

use super::*;

/// Signals as hexadecimal text, one a line, that are refused.
const CORPUS: &str = include_str!("corpus.txt");

fn changes(removals: bool) -> impl Strategy<Value = Vec<Advert>> {
    let filters = prop_oneof![
        "[a-c+]{1}(/[a-c+]{1}){0,3}(/#)?".prop_map(|text| TopicFilter::new(&text).unwrap()),
        "[a-z]{1,5}".prop_map(|group| TopicFilter::new(&format!("$share/{group}/a/+")).unwrap()),
    ];
    let ops = prop_oneof![
        Just(AdvertOp::Add { online: true }),
        Just(AdvertOp::Add { online: false }),
        Just(if removals { AdvertOp::Remove } else { AdvertOp::Add { online: true } }),
    ];
    let change = ("\\PC{0,20}", filters, ops).prop_map(|(client, filter, op)| {
        let client = ClientId::new(&client);
        Advert { client, filter, op }
    });
    vec(change, 1..10)
}

fn signals() -> impl Strategy<Value = Signal> {
    prop_oneof![
        Just(Signal::SnapshotBegin),
        changes(false).prop_map(Signal::SnapshotChunk),
        any::<u64>().prop_map(Signal::SnapshotEnd),
        (any::<u64>(), changes(true)).prop_map(|(number, changes)| Signal::Adv { number, changes }),
        any::<u64>().prop_map(|number| Signal::Adv { number, changes: Vec::new() }),
        any::<u64>().prop_map(Signal::Ack),
        Just(Signal::SyncOk),
        any::<(u64, u64)>().prop_map(|(entries, hash)| Signal::Digest { entries, hash }),
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
    fn a_cut_signal_is_refused_or_shorter(signal in signals(), cut in any::<prop::sample::Index>()) {
        let bytes = signal.encode();
        let cut = &bytes[..cut.index(bytes.len())];
        fuzz_decode(cut);
        prop_assert_ne!(Signal::decode(cut), Ok(signal));
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

/// The bytes are drawn in the module's documentation and must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let change = Advert {
        client: ClientId::new("c1"),
        filter: TopicFilter::new("a/#").unwrap(),
        op: AdvertOp::Add { online: true },
    };
    let adv = Signal::Adv { number: 258, changes: vec![change] };
    assert_eq!(&adv.encode()[..], b"\x01\x04\0\0\0\0\0\0\x01\x02\x02\0\x02c1\0\x03a/#");
    assert_eq!(&Signal::Ack(1).encode()[..], b"\x01\x05\0\0\0\0\0\0\0\x01");
    assert_eq!(&Signal::Pull.encode()[..], b"\x01\x08");
}
