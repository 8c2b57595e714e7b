//! Body of the fuzz target.

use bytes::{Buf, BufMut};
use sedge_base::{Duration, Instant, Rng};

use super::{Beacons, ECHOES_MAX, HEARD_MAX, MAGIC, PAUSE_MIN, Unheard, VERSION, put_address, read};

/// Longest beacon without its seal.
const BEACON_BYTES_MAX: usize = 2 + 19 + 8 + 1 + 8 * ECHOES_MAX;

/// Feeds steps to the beacons of one node. All numbers are big-endian:
///
/// ```text
/// step   0 a beacon comes   length u16 | beacon
///        1 time passes      milliseconds u16
/// ```
///
/// Holds: no panic; a beacon that is read is written as it came, all others are malformed; only a node that has repeated a nonce is
/// believed; no more nodes are known than there is room for; the node's own beacons can be read, and are never in haste.
pub(crate) fn beacon(data: &[u8]) {
    let mut input = data;
    let mut subject = Subject::new();
    while subject.step(&mut input).is_some() {}
}

struct Subject {
    beacons: Beacons,
    now: Instant,
}

impl Subject {
    fn new() -> Self {
        let now = Instant::from_millis(1_000);
        Self { beacons: Beacons::new(now, ([10, 0, 0, 1], 7883).into(), Rng::new(1)), now }
    }

    /// Takes one step; none if there is no more.
    fn step(&mut self, input: &mut &[u8]) -> Option<()> {
        match input.try_get_u8().ok()? {
            0 => {
                let len = usize::from(input.try_get_u16().ok()?).min(input.len());
                let (content, rest) = input.split_at_checked(len)?;
                *input = rest;
                self.hear(content);
            }
            1 => {
                self.now = self.now + Duration::from_millis(input.try_get_u16().ok()?.into());
                self.speak();
            }
            _ => return None,
        }
        Some(())
    }

    fn hear(&mut self, content: &[u8]) {
        let is_read = is_beacon(content);
        let before = self.beacons.addresses(self.now);
        let heard = self.beacons.hear(self.now, content);
        assert_eq!(heard == Err(Unheard::Malformed), !is_read, "{content:02x?}");
        let after = self.beacons.addresses(self.now);
        let repeats = |nonce: &u64| content.windows(8).any(|window| window == nonce.to_be_bytes());
        assert!(before.is_superset(&after) || self.beacons.nonces.iter().any(repeats), "somebody is believed");
        assert!(!after.contains(&self.beacons.me) && self.beacons.heard.len() <= HEARD_MAX);
    }

    fn speak(&mut self) {
        let Some(beacon) = self.beacons.beacon(self.now) else { return };
        assert!(beacon.len() <= BEACON_BYTES_MAX && is_beacon(&beacon), "{beacon:02x?}");
        assert!(self.beacons.next() >= self.now + PAUSE_MIN);
        assert_eq!(self.beacons.beacon(self.now), None, "in haste");
    }
}

/// Whether this is what a node would have written.
fn is_beacon(content: &[u8]) -> bool {
    let Some(beacon) = read(content) else { return false };
    let mut again = Vec::new();
    again.put_slice(&[MAGIC, VERSION]);
    put_address(beacon.address, &mut again);
    again.put_u64(beacon.nonce);
    again.put_u8(beacon.echoes.len().try_into().unwrap_or(u8::MAX));
    beacon.echoes.iter().for_each(|nonce| again.put_u64(*nonce));
    assert_eq!(again, content);
    true
}
