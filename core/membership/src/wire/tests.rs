use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::Rng;

use super::*;
use crate::fuzz::decode;

/// Datagrams as hexadecimal text, one a line, that once were of interest.
const CORPUS: &str = include_str!("corpus.txt");

fn addrs() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        Just(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
}

fn members() -> impl Strategy<Value = Member> {
    (1..=u64::MAX, any::<u64>(), addrs(), addrs(), any::<u32>(), any::<bool>()).prop_map(
        |(node, incarnation, swim, link, generation, departed)| Member {
            generation,
            departed,
            ..Member::new(NodeId::new(node), Incarnation::new(incarnation), swim, link)
        },
    )
}

fn messages() -> impl Strategy<Value = Message<Member>> {
    (0_u8..10, members(), any::<u8>()).prop_map(|(kind, peer, probe_number)| match kind {
        0 => Message::Ping(probe_number),
        1 => Message::Ack(probe_number),
        2 => Message::PingReq { target: peer, probe_number },
        3 => Message::IndirectPing { origin: peer, probe_number },
        4 => Message::IndirectAck { target: peer, probe_number },
        5 => Message::ForwardedAck { origin: peer, probe_number },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        _ => Message::TurnUndead,
    })
}

fn datagrams() -> impl Strategy<Value = Datagram> {
    let states = prop_oneof![Just(State::Alive), Just(State::Suspect), Just(State::Down)];
    let update = (members(), any::<u16>(), states).prop_map(|(id, life, state)| foca::Member::new(id, life, state));
    (members(), any::<u16>(), members(), messages(), vec(update, 0..20)).prop_map(
        |(src, src_incarnation, dst, message, updates)| Datagram {
            updates: if carries_updates(&message) { updates } else { Vec::new() },
            header: Header { src, src_incarnation, dst, message },
        },
    )
}

fn encoded(datagram: &Datagram) -> Vec<u8> {
    let mut bytes = Vec::new();
    datagram.encode(&mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn datagrams_come_back_as_they_were(datagram in datagrams()) {
        prop_assert_eq!(Datagram::decode(&encoded(&datagram)), Ok(datagram));
    }

    #[test]
    fn a_cut_datagram_is_refused(datagram in datagrams(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&datagram);
        let cut = cut.index(bytes.len());
        prop_assert_eq!(Datagram::decode(&bytes[..cut]), Err(WireError::Truncated));
    }

    #[test]
    fn a_changed_datagram_is_refused_or_another(datagram in datagrams(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let mut bytes = encoded(&datagram);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        decode(&bytes);
        prop_assert_ne!(Datagram::decode(&bytes), Ok(datagram));
    }

    #[test]
    fn foca_reads_what_we_read(datagram in datagrams()) {
        let bytes = encoded(&datagram);
        let mut codec = WireCodec { me: NodeId::new(1) };
        let mut input = &bytes[..];
        prop_assert_eq!(codec.decode_header(&mut input), Ok(datagram.header));
    }
}

#[test]
fn the_corpus_and_random_bytes_do_no_harm() {
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let digit = |at: usize| u8::from_str_radix(line.get(at..at + 2).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
        decode(&bytes);
        assert!(bytes.is_empty() || Datagram::decode(&bytes).is_err(), "{line}");
    }
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = vec![MAGIC, VERSION];
        bytes.resize_with(rng.index(200), || rng.next_u64().to_le_bytes()[0] & 0x1f);
        decode(&bytes);
    }
}

#[test]
fn other_versions_and_protocols_are_named() {
    assert_eq!(Datagram::decode(b""), Err(WireError::Truncated));
    assert_eq!(Datagram::decode(b"GET /"), Err(WireError::Magic));
    assert_eq!(Datagram::decode(&[MAGIC, 2, 0]), Err(WireError::Version(2)));
}

/// The bytes are drawn in the module's documentation and must not change within a version.
#[test]
fn the_layout_is_as_documented() {
    let member = |node, port| {
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), port);
        Member::new(NodeId::new(node), Incarnation::new(2), addr, addr)
    };
    let header =
        Header { src: member(1, 0x1ECB), src_incarnation: 3, dst: member(4, 0x1ECC), message: Message::Ping(7) };
    let bytes = encoded(&Datagram { header, updates: vec![foca::Member::new(member(5, 1), 6, State::Suspect)] });
    let mut expected = vec![0x5E, 1, 0];
    expected
        .extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 8, 10, 0, 0, 1, 0x1E, 0xCB, 0x1E, 0xCB]);
    expected.extend([0, 3]);
    expected
        .extend([0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 8, 10, 0, 0, 1, 0x1E, 0xCC, 0x1E, 0xCC]);
    expected.extend([7, 0, 1]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 8, 10, 0, 0, 1, 0, 1, 0, 1, 0, 6, 1]);
    assert_eq!(bytes, expected);
}
