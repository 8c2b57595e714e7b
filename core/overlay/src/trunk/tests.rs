use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::{NodeId, Rng};

use super::signal::{Signal, SignalError, fuzz_decode};
use crate::spanning::{Claim, UNREACHABLE};

fn nodes() -> impl Strategy<Value = NodeId> {
    any::<u64>().prop_map(NodeId::new)
}

fn claims() -> impl Strategy<Value = Claim> {
    let cost = prop_oneof![Just(0), Just(UNREACHABLE), any::<u32>()];
    (any::<(u64, u32, u64)>(), nodes(), cost, nodes()).prop_map(|((epoch, version, capability), root, cost, parent)| {
        let parent = (cost != 0 && cost != UNREACHABLE).then_some(parent);
        Claim { epoch, version, capability, root, cost, parent }
    })
}

fn signals() -> impl Strategy<Value = Signal> {
    (claims(), vec(nodes(), 0..5), vec((nodes(), claims()), 0..5)).prop_map(|(claim, deaf, passed)| Signal {
        claim,
        deaf,
        passed,
    })
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
    fn a_cut_signal_is_refused(signal in signals(), cut in any::<prop::sample::Index>()) {
        let bytes = signal.encode();
        prop_assert!(Signal::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = vec![1];
        bytes.resize_with(rng.index(90) + 1, || rng.next_u64().to_le_bytes()[0] & 1);
        fuzz_decode(&bytes);
    }
}

/// `docs/protocol/tree.md` draws it: the bytes must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let claim =
        Claim { epoch: 1, version: 2, capability: 3, root: NodeId::new(4), cost: 5, parent: Some(NodeId::new(6)) };
    let root = Claim { cost: 0, parent: None, ..claim };
    let signal = Signal { claim, deaf: vec![NodeId::new(7)], passed: vec![(NodeId::new(8), root)] };
    let expected =
        b"\x01\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\x05\x01\0\0\0\0\0\0\0\x06\
        \0\x01\0\0\0\0\0\0\0\x07\
        \0\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0";
    assert_eq!(&signal.encode()[..], expected);
}

#[test]
fn what_cannot_be_is_refused() {
    let claim = Claim { epoch: 1, version: 1, capability: 1, root: NodeId::new(1), cost: 0, parent: None };
    let good = Signal { claim, deaf: vec![], passed: vec![] }.encode().to_vec();
    let decode = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Signal::decode(&bytes).unwrap_err()
    };
    assert_eq!(decode(&|bytes| bytes[0] = 2), SignalError::Version(2));
    assert_eq!(decode(&|bytes| bytes.push(0)), SignalError::Trailing);
    assert_eq!(decode(&|bytes| bytes[33] = 2), SignalError::Cut, "neither with nor without a parent");
    assert_eq!(decode(&|bytes| bytes[32] = 9), SignalError::Cut, "on the way without a parent");
    let len = good.len();
    assert_eq!(decode(&|bytes| bytes[len - 2..].copy_from_slice(&[0xff, 0xff])), SignalError::Count(65_535));
}
