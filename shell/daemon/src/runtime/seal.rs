//! Seals datagrams between nodes with the cluster key.
//!
//! ```text
//! datagram = content || first 16 bytes of HMAC-SHA256(key, "sedge datagram 1\0" || content)
//! ```
//!
//! A seal proves that a member made the datagram. It does not prove when: a replayed datagram passes. What can be replayed is
//! membership gossip, where an old statement loses against a newer incarnation of the same node. Contents are not hidden.
//! Without a key nothing is sealed, and only datagrams of this machine itself are taken.

use std::net::SocketAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const TAG_BYTES: usize = 16;
/// Keeps these tags apart from whatever else the key is used for.
const PURPOSE: &[u8] = b"sedge datagram 1\0";

/// Seals and checks datagrams.
pub(crate) struct Seal(Option<Hmac<Sha256>>);

impl Seal {
    pub(crate) fn new(key: Option<&[u8]>) -> Self {
        let mac = key.and_then(|key| Hmac::<Sha256>::new_from_slice(key).ok());
        Self(mac.map(|mac| mac.chain_update(PURPOSE)))
    }

    /// `content`, sealed.
    pub(crate) fn close(&self, content: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(content.len() + TAG_BYTES);
        datagram.extend_from_slice(content);
        if let Some(mac) = &self.0 {
            let tag = mac.clone().chain_update(content).finalize().into_bytes();
            datagram.extend_from_slice(&tag[..TAG_BYTES]);
        }
        datagram
    }

    /// The content of a datagram, if a member made it.
    pub(crate) fn open<'a>(&self, from: SocketAddr, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let Some(mac) = &self.0 else { return from.ip().to_canonical().is_loopback().then_some(datagram) };
        let (content, tag) = datagram.split_at_checked(datagram.len().checked_sub(TAG_BYTES)?)?;
        mac.clone().chain_update(content).verify_truncated_left(tag).ok()?;
        Some(content)
    }
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
}
