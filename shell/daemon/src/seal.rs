//! Seals datagrams between nodes with the cluster key.
//!
//! ```text
//! datagram = content || first 16 bytes of HMAC-SHA256(key, "sedge datagram 1\0" || content)
//! refusal  = "sedge refusal 1\0" || cause u8
//! beacon   = content || first 16 bytes of HMAC-SHA256(key, "sedge beacon 1\0" || cluster name || "\0" || content)
//! ```
//!
//! A seal proves that a member made the datagram. It does not prove when: a replayed datagram passes. Only membership gossip can be
//! replayed, where an old statement loses against a newer incarnation of the same node. Contents are not hidden.
//! A refusal proves nothing: the receiver makes of it a line for its operator, no more.
//! Without a key datagrams are not sealed, and only those of this machine itself are taken. Beacons are sealed with an empty key then:
//! that keeps clusters of different names apart.

use std::net::SocketAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sedge_cluster::{Mistrust, is_datagram};
use sha2::Sha256;

const TAG_BYTES: usize = 16;
/// Keeps these tags apart from whatever else the key is used for.
const DATAGRAM: &[u8] = b"sedge datagram 1\0";
const BEACON: &[u8] = b"sedge beacon 1\0";
/// Beginning of a refusal: a datagram that tells its receiver that its own was not taken. No datagram of membership begins so.
const REFUSAL: &[u8] = b"sedge refusal 1\0";

/// A datagram that does not open. Its sender is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// It is no datagram of a node.
    Noise,
    /// It looks like a datagram of a node that has another key, or none.
    Mistrusted(Mistrust),
    /// It says that a datagram of this node was not taken, and the reason as the other node sees it.
    Refusal(Mistrust),
}

/// Seals and checks datagrams.
pub(crate) struct Seal {
    mac: Option<Hmac<Sha256>>,
    /// Whether datagrams from elsewhere are taken.
    is_secret: bool,
}

impl Seal {
    /// Of datagrams between members.
    pub(crate) fn new(key: Option<&[u8]>) -> Self {
        let mac = key.and_then(|key| Hmac::<Sha256>::new_from_slice(key).ok());
        Self { mac: mac.map(|mac| mac.chain_update(DATAGRAM)), is_secret: key.is_some() }
    }

    /// The seal of beacons, which nodes send to nodes that they do not know.
    pub(crate) fn of_beacons(key: Option<&[u8]>, cluster: &str) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(key.unwrap_or_default()).ok();
        let mac = mac.map(|mac| mac.chain_update(BEACON).chain_update(cluster).chain_update(b"\0"));
        Self { mac, is_secret: key.is_some() }
    }

    /// `content`, sealed.
    pub(crate) fn close(&self, content: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(content.len() + TAG_BYTES);
        datagram.extend_from_slice(content);
        if let Some(mac) = &self.mac {
            let tag = mac.clone().chain_update(content).finalize().into_bytes();
            datagram.extend_from_slice(&tag[..TAG_BYTES]);
        }
        datagram
    }

    /// The refusal that tells the sender of a datagram that it was not taken.
    pub(crate) fn refusal(cause: Mistrust) -> Vec<u8> {
        [REFUSAL, &[cause.code()]].concat()
    }

    /// The probable kind of a datagram that does not open.
    pub(crate) fn explain(&self, from: SocketAddr, datagram: &[u8]) -> Unopened {
        if let Some(rest) = datagram.strip_prefix(REFUSAL) {
            let [code] = rest else { return Unopened::Noise };
            return Mistrust::from_code(*code).map_or(Unopened::Noise, Unopened::Refusal);
        }
        let is_plain = is_datagram(datagram);
        let is_here = from.ip().to_canonical().is_loopback();
        match (self.is_secret, is_plain) {
            (true, true) => Unopened::Mistrusted(Mistrust::KeyHereOnly),
            (true, false) if is_sealed(datagram) => Unopened::Mistrusted(Mistrust::OtherKey),
            (false, true) if !is_here => Unopened::Mistrusted(Mistrust::NoKey),
            (false, false) if is_sealed(datagram) => Unopened::Mistrusted(Mistrust::KeyThereOnly),
            _ => Unopened::Noise,
        }
    }

    /// The content of a datagram, if a member made it.
    pub(crate) fn open<'a>(&self, from: SocketAddr, datagram: &'a [u8]) -> Option<&'a [u8]> {
        if !self.is_secret && !from.ip().to_canonical().is_loopback() {
            return None;
        }
        if datagram.starts_with(REFUSAL) {
            return None;
        }
        let Some(mac) = &self.mac else {
            // A sealed one of this machine is refused in words.
            return Some(datagram).filter(|datagram| !is_sealed(datagram));
        };
        let (content, tag) = datagram.split_at_checked(datagram.len().checked_sub(TAG_BYTES)?)?;
        mac.clone().chain_update(content).verify_truncated_left(tag).ok()?;
        Some(content)
    }
}

/// Whether bytes have the form of a sealed datagram.
fn is_sealed(datagram: &[u8]) -> bool {
    datagram.len().checked_sub(TAG_BYTES).and_then(|end| datagram.get(..end)).is_some_and(is_datagram)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(ip: [u8; 4]) -> SocketAddr {
        SocketAddr::from((ip, 7883))
    }

    #[test]
    fn a_seal_opens_with_the_same_key_only() {
        let (seal, other) = (Seal::new(Some(b"0123456789abcdef")), Seal::new(Some(b"0123456789abcdeg")));
        let mut datagram = seal.close(b"ping");
        assert_eq!(datagram.len(), 4 + TAG_BYTES);
        assert_eq!(seal.open(from([10, 0, 0, 1]), &datagram), Some(&b"ping"[..]));
        assert_eq!(other.open(from([10, 0, 0, 1]), &datagram), None);
        assert_eq!(other.explain(from([10, 0, 0, 1]), &datagram), Unopened::Noise, "this is no datagram of a node");
        datagram[0] ^= 1;
        assert_eq!(seal.open(from([127, 0, 0, 1]), &datagram), None);
        assert_eq!(seal.open(from([127, 0, 0, 1]), b"short"), None);
    }

    #[test]
    fn without_a_key_only_this_machine_is_heard() {
        let seal = Seal::new(None);
        assert_eq!(seal.open(from([127, 0, 0, 1]), &seal.close(b"ping")), Some(&b"ping"[..]));
        assert_eq!(seal.open(from([10, 0, 0, 1]), b"ping"), None);
    }

    /// FT-21: bytes of a stranger count as noise, which is no reason for a message, and nodes with and without a key read a refusal.
    #[test]
    fn refusals_are_told_from_noise() {
        let (lan, seals) = (from([10, 0, 0, 1]), [Seal::new(None), Seal::new(Some(b"0123456789abcdef"))]);
        for seal in seals {
            let refusal = Seal::refusal(Mistrust::NoKey);
            assert_eq!(seal.open(lan, &refusal), None);
            assert_eq!(seal.explain(lan, &refusal), Unopened::Refusal(Mistrust::NoKey));
            for noise in [&b""[..], b"x", REFUSAL, b"sedge refusal 1\0\x09", b"sedge refusal 1\0\x01\x01", &[0x5e; 80]]
            {
                assert_eq!(seal.explain(lan, noise), Unopened::Noise, "{noise:?}");
            }
        }
    }

    /// EL-02: strangers, and clusters of another name, do not hear each other.
    #[test]
    fn a_beacon_is_for_nodes_with_the_same_key_and_name() {
        let (here, lan) = (from([127, 0, 0, 1]), from([10, 0, 0, 1]));
        let key = Some(&b"0123456789abcdef"[..]);
        let beacon = Seal::of_beacons(key, "sedge").close(b"me");
        assert_eq!(Seal::of_beacons(key, "sedge").open(lan, &beacon), Some(&b"me"[..]));
        assert_eq!(Seal::of_beacons(key, "other").open(lan, &beacon), None);
        assert_eq!(Seal::of_beacons(None, "sedge").open(here, &beacon), None);
        assert_eq!(Seal::new(key).open(lan, &beacon), None, "a beacon is no datagram of a member");
        let plain = Seal::of_beacons(None, "sedge").close(b"me");
        assert_eq!(Seal::of_beacons(None, "sedge").open(here, &plain), Some(&b"me"[..]));
        assert_eq!(Seal::of_beacons(None, "other").open(here, &plain), None);
        assert_eq!(Seal::of_beacons(None, "sedge").open(lan, &plain), None);
    }
}
