//! Beacons: what a node says to nodes that it does not know, and what it believes of theirs.
//!
//! ```text
//! beacon   0x5D | version = 1 | address | nonce u64 | count u8 | count times nonce u64 | seal
//! address  4 or 6 | 4 or 16 bytes | port u16
//! ```
//!
//! The seal ([`crate::seal`]) proves that a node of the cluster made a beacon, and its nonces when: a node believes an address only if
//! the beacon repeats a nonce that it has sent itself in the last two minutes. So an old beacon that somebody sends again is worth
//! nothing, and no clocks have to agree. Nobody is answered: a beacon goes to the group and says nothing but the sender's own address,
//! which its datagrams show anyway, and random numbers.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut};
use sedge_base::{Duration, Instant, Rng};

const MAGIC: u8 = 0x5D;
const VERSION: u8 = 1;
const V4: u8 = 4;
const V6: u8 = 6;
/// Nonces repeated in one beacon: it fits a datagram of 1,400 bytes.
const ECHOES_MAX: usize = 128;
/// Nodes that are remembered; more are not heard.
const HEARD_MAX: usize = 1024;
/// First pause between two beacons; doubles up to the second one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A node that is new is told within this time, at a moment of chance, so that not all speak at once.
const HASTE: Duration = Duration::from_millis(150);
/// A node that was not heard for so long is forgotten.
const EXPIRY: Duration = Duration::from_secs(20);
/// How long a nonce is in use. The one before is still believed.
const NONCE_PERIOD: Duration = Duration::from_mins(1);

/// The beacons of one node, sent and heard.
#[derive(Debug)]
pub(super) struct Beacons {
    me: SocketAddr,
    /// The present nonce and the one before.
    nonces: [u64; 2],
    next_nonce: Instant,
    pause: Duration,
    next_beacon: Instant,
    last_beacon: Option<Instant>,
    heard: BTreeMap<SocketAddr, Heard>,
    rng: Rng,
}

#[derive(Debug)]
struct Heard {
    nonce: u64,
    at: Instant,
    /// When it last repeated a nonce of ours.
    proven: Option<Instant>,
    /// When its present nonce was last repeated.
    echoed: Option<Instant>,
}

/// Why a beacon was not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// Not what a node of this version would have written.
    Malformed,
    /// There are too many nodes.
    NoRoom,
    /// Its sender, on another machine, says that it is to be found on this one.
    Loopback,
}

struct Beacon {
    address: SocketAddr,
    nonce: u64,
    echoes: Vec<u64>,
}

impl Beacons {
    /// `me` is where other nodes find this one.
    pub(super) fn new(now: Instant, me: SocketAddr, mut rng: Rng) -> Self {
        let nonces = [rng.next_u64(), rng.next_u64()];
        Self {
            me,
            nonces,
            next_nonce: now + NONCE_PERIOD,
            pause: PAUSE_MIN,
            next_beacon: now,
            last_beacon: None,
            heard: BTreeMap::new(),
            rng,
        }
    }

    /// When [`Self::beacon`] is next wanted.
    pub(super) const fn next(&self) -> Instant {
        self.next_beacon
    }

    /// The beacon that is due, without its seal.
    pub(super) fn beacon(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_beacon {
            return None;
        }
        if now >= self.next_nonce {
            self.nonces = [self.rng.next_u64(), self.nonces[0]];
            self.next_nonce = now + NONCE_PERIOD;
        }
        self.heard.retain(|_, heard| now.since(heard.at) < EXPIRY);
        self.last_beacon = Some(now);
        self.next_beacon = now + self.pause;
        self.pause = self.pause.saturating_mul(2).min(PAUSE_MAX);
        // Those who wait longest for it come first, new ones before all.
        let mut waiting: Vec<&mut Heard> = self.heard.values_mut().collect();
        waiting.sort_by_key(|heard| heard.echoed);
        waiting.truncate(ECHOES_MAX);
        let mut out = Vec::new();
        out.put_slice(&[MAGIC, VERSION]);
        put_address(self.me, &mut out);
        out.put_u64(self.nonces[0]);
        out.put_u8(u8::try_from(waiting.len()).unwrap_or(u8::MAX));
        for heard in waiting {
            heard.echoed = Some(now);
            out.put_u64(heard.nonce);
        }
        Some(out)
    }

    /// A beacon of a node of this cluster has come.
    pub(super) fn hear(&mut self, now: Instant, content: &[u8]) -> Result<(), Unheard> {
        let beacon = read(content).ok_or(Unheard::Malformed)?;
        if beacon.address == self.me {
            return Ok(());
        }
        if beacon.address.ip().is_loopback() && !self.me.ip().is_loopback() {
            return Err(Unheard::Loopback);
        }
        let knows_me = beacon.echoes.iter().any(|nonce| self.nonces.contains(nonce));
        let room = self.heard.len() < HEARD_MAX;
        let known = self.heard.get(&beacon.address);
        if known.is_none() && !room {
            return Err(Unheard::NoRoom);
        }
        let before = known.filter(|heard| heard.nonce == beacon.nonce);
        let heard = Heard {
            nonce: beacon.nonce,
            at: now,
            proven: if knows_me { Some(now) } else { known.and_then(|heard| heard.proven) },
            echoed: before.and_then(|heard| heard.echoed),
        };
        let is_new = known.is_none() || (before.is_none() && !knows_me);
        self.heard.insert(beacon.address, heard);
        if is_new {
            self.hasten(now);
        }
        Ok(())
    }

    /// The addresses that are believed.
    pub(super) fn addresses(&self, now: Instant) -> BTreeSet<SocketAddr> {
        let is_proven = |heard: &Heard| heard.proven.is_some_and(|at| now.since(at) < EXPIRY);
        self.heard.iter().filter(|(_, heard)| is_proven(heard)).map(|(address, _)| *address).collect()
    }

    /// The next beacon comes soon, but not sooner after the last one than at the start: beacons that somebody repeats must not make
    /// this node speak as fast as they come.
    fn hasten(&mut self, now: Instant) {
        let chance = Duration::from_micros(self.rng.below(HASTE.as_micros().try_into().unwrap_or(u64::MAX)));
        let least = self.last_beacon.map_or(now, |last| last + PAUSE_MIN);
        self.next_beacon = self.next_beacon.min((now + chance).max(least));
    }
}

fn put_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(V4);
            out.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(V6);
            out.put_slice(&ip.octets());
        }
    }
    out.put_u16(address.port());
}

fn read(content: &[u8]) -> Option<Beacon> {
    let mut input = content;
    if input.try_get_u8().ok()? != MAGIC || input.try_get_u8().ok()? != VERSION {
        return None;
    }
    let ip = match input.try_get_u8().ok()? {
        V4 => IpAddr::V4(Ipv4Addr::from_bits(input.try_get_u32().ok()?)),
        V6 => IpAddr::V6(Ipv6Addr::from_bits(input.try_get_u128().ok()?)),
        _ => return None,
    };
    let address = SocketAddr::new(ip, input.try_get_u16().ok()?);
    let nonce = input.try_get_u64().ok()?;
    let count = usize::from(input.try_get_u8().ok()?);
    if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 || input.len() != count * size_of::<u64>() {
        return None;
    }
    let echoes = (0..count).filter_map(|_| input.try_get_u64().ok()).collect();
    Some(Beacon { address, nonce, echoes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7883))
    }

    fn millis(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn node(now: u64, host: u8) -> Beacons {
        Beacons::new(millis(now), at(host), Rng::new(u64::from(host)))
    }

    /// Everybody hears everybody, for some time; returns how many beacons there were.
    fn run(nodes: &mut [Beacons], from: u64, to: u64) -> usize {
        let mut sent = 0;
        for now in from..to {
            for speaker in 0..nodes.len() {
                let Some(beacon) = nodes[speaker].beacon(millis(now)) else { continue };
                sent += 1;
                for node in nodes.iter_mut() {
                    assert_eq!(node.hear(millis(now), &beacon), Ok(()));
                }
            }
        }
        sent
    }

    /// TR-01, TR-03
    #[test]
    fn nodes_find_each_other_at_once_and_so_does_a_late_one() {
        let mut nodes: Vec<Beacons> = (1..=5).map(|host| node(0, host)).collect();
        run(&mut nodes, 0, 600);
        assert!(nodes.iter().all(|node| node.addresses(millis(600)).len() == 4), "{nodes:?}");
        run(&mut nodes, 600, 60_000);
        let quiet = run(&mut nodes, 60_000, 120_000);
        assert!(quiet < 5 * 20, "{quiet} beacons in a minute");
        nodes.push(node(120_000, 6));
        run(&mut nodes, 120_000, 120_600);
        assert!(nodes.iter().all(|node| node.addresses(millis(120_600)).len() == 5), "{nodes:?}");
        nodes.truncate(5);
        run(&mut nodes, 120_600, 146_000);
        assert!(nodes.iter().all(|node| node.addresses(millis(146_000)).len() == 4), "one that is silent is forgotten");
    }

    #[test]
    fn a_beacon_that_is_repeated_later_is_worth_nothing() {
        let mut nodes = vec![node(0, 1), node(0, 2)];
        run(&mut nodes, 0, 10_000);
        let recorded = nodes[1].beacon(millis(20_000)).expect("it is due");
        nodes.pop();
        assert_eq!(nodes[0].hear(millis(20_000), &recorded), Ok(()));
        assert_eq!(nodes[0].addresses(millis(20_000)).len(), 1);
        run(&mut nodes, 20_000, 200_000);
        // A node that lives on, and one that began after the recording.
        for mut node in [nodes.remove(0), node(200_000, 3)] {
            let mut sent = 0;
            for now in 200_000..210_000 {
                assert_eq!(node.hear(millis(now), &recorded), Ok(()));
                sent += usize::from(node.beacon(millis(now)).is_some());
                assert_eq!(node.addresses(millis(now)), BTreeSet::new());
            }
            assert!(sent <= 10, "{sent} beacons in ten seconds");
        }
    }

    #[test]
    fn only_what_a_node_would_have_written_is_read() {
        let mut node_2 = node(0, 2);
        let good = node_2.beacon(millis(0)).expect("it is due");
        let mut me = node(0, 1);
        for length in 0..good.len() {
            assert_eq!(me.hear(millis(0), &good[..length]), Err(Unheard::Malformed));
        }
        assert_eq!(me.hear(millis(0), &[&good[..], &[0]].concat()), Err(Unheard::Malformed));
        for (byte, value) in [(0, 0), (1, 2), (2, 5)] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert_eq!(me.hear(millis(0), &bad), Err(Unheard::Malformed));
        }
        let mut loopback = good.clone();
        loopback[3] = 127;
        assert_eq!(me.hear(millis(0), &loopback), Err(Unheard::Loopback));
        assert_eq!(me.hear(millis(0), &good), Ok(()));
        let own = me.beacon(millis(0)).expect("it is due");
        assert_eq!(me.hear(millis(0), &own), Ok(()), "its own comes back");
        assert_eq!(me.heard.len(), 1);
    }

    #[test]
    fn there_is_room_for_so_many_and_all_get_their_turn() {
        let mut me = node(0, 1);
        let mut others: Vec<Beacons> = (0..300_u16)
            .map(|host| {
                let [high, low] = host.to_be_bytes();
                Beacons::new(millis(0), SocketAddr::from(([10, 1, high, low], 1)), Rng::new(u64::from(host)))
            })
            .collect();
        for now in (0..30_000).step_by(10) {
            if let Some(beacon) = me.beacon(millis(now)) {
                assert!(beacon.len() <= 1_400 - 16);
                for other in &mut others {
                    assert_eq!(other.hear(millis(now), &beacon), Ok(()));
                }
            }
            for other in &mut others {
                if let Some(beacon) = other.beacon(millis(now)) {
                    assert_eq!(me.hear(millis(now), &beacon), Ok(()));
                }
            }
        }
        assert!(others.iter().all(|other| other.addresses(millis(30_000)).contains(&at(1))));
        for host in 0..2_000_u32 {
            let [_, a, b, c] = host.to_be_bytes();
            let mut other = Beacons::new(millis(0), SocketAddr::from(([11, a, b, c], 1)), Rng::new(1));
            let beacon = other.beacon(millis(0)).expect("it is due");
            let heard = me.hear(millis(30_000), &beacon);
            assert_eq!(heard, if host < 724 { Ok(()) } else { Err(Unheard::NoRoom) });
        }
    }
}
