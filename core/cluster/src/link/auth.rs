//! Proofs that both sides of a handshake know the cluster key (`docs/protocol/link.md`, "Handshake").
//!
//! Every proof is an HMAC-SHA-256 over a role and everything said so far by both sides, so that nothing can be changed, spliced
//! from two handshakes, or reflected. The nonces of both sides are part of what was said.

use bytes::{Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac, digest::array::Array};
use sedge_base::Rng;
use sedge_mqtt::{Packet, Version, encode};
use sha2::{Digest, Sha256};

use super::{Binding, Hello};

/// The authentication method in CONNECT, AUTH and CONNACK, over a plain connection.
const PLAIN: &str = "sedge-hmac-sha256";
/// The same over an encrypted connection, to which the proofs are bound.
const BOUND: &str = "sedge-hmac-sha256-tls-exporter";
/// Bytes of a nonce.
pub(super) const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;

/// The authentication method of a connection.
pub(super) const fn method(binding: Option<Binding>) -> &'static str {
    match binding {
        None => PLAIN,
        Some(_) => BOUND,
    }
}

/// The side that proves its key, and the point of the handshake.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// The acceptor, in its AUTH.
    Acceptor,
    /// The dialler, in its AUTH.
    Dialler,
    /// The acceptor, in its CONNACK.
    Accepted,
}

impl Role {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Acceptor => b"sedge link 1 acceptor",
            Self::Dialler => b"sedge link 1 dialler",
            Self::Accepted => b"sedge link 1 accepted",
        }
    }
}

/// Everything both sides have said, as a running hash.
#[derive(Clone, Debug)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    /// Nothing has been said, over this connection.
    pub(super) fn new(binding: Option<Binding>) -> Self {
        let mut said = Self(Sha256::new());
        if let Some(Binding(bytes)) = binding {
            said.bytes(&bytes);
        }
        said
    }

    /// Adds a packet, as it is encoded. Both sides encode it from its fields, which are what the proofs are about.
    pub(super) fn packet(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        encode(packet, Version::V5, &mut bytes);
        self.bytes(&bytes);
    }

    /// Adds bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    /// The proof of `role` at this point.
    pub(super) fn prove(&self, key: &[u8], role: Role) -> Bytes {
        Bytes::copy_from_slice(&self.mac(key, role).finalize().into_bytes())
    }

    /// Whether `proof` is that of `role` at this point. Takes the same time whatever is wrong with it.
    pub(super) fn verify(&self, key: &[u8], role: Role, proof: &[u8]) -> bool {
        self.mac(key, role).verify_slice(proof).is_ok()
    }

    fn mac(&self, key: &[u8], role: Role) -> Hmac<Sha256> {
        keyed(key).chain_update(role.label()).chain_update(self.0.clone().finalize())
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length; the empty key that stands in is unreachable.
    Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Array::default()))
}

/// A number used once. Nobody without the key can foresee it, though the generator itself is not made for secrets and
/// strangers see its fruits.
pub(super) fn nonce(key: &[u8], me: &Hello, rng: &mut Rng, count: u64) -> Bytes {
    let mac = keyed(key)
        .chain_update(b"sedge link 1 nonce")
        .chain_update(me.node.get().to_be_bytes())
        .chain_update(me.incarnation.get().to_be_bytes())
        .chain_update(count.to_be_bytes())
        .chain_update(rng.next_u64().to_be_bytes())
        .chain_update(rng.next_u64().to_be_bytes());
    Bytes::copy_from_slice(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FT-21
    #[test]
    fn a_proof_stands_for_key_role_and_all_that_was_said() {
        let mut said = Transcript::new(None);
        said.bytes(b"ab");
        said.bytes(b"c");
        let proof = said.prove(b"key", Role::Dialler);
        assert_eq!(proof.len(), PROOF_BYTES);
        assert!(said.verify(b"key", Role::Dialler, &proof));
        assert!(!said.verify(b"kex", Role::Dialler, &proof));
        assert!(!said.verify(b"key", Role::Acceptor, &proof));
        assert!(!said.verify(b"key", Role::Dialler, &proof[..31]));
        let mut other = Transcript::new(None);
        other.bytes(b"a");
        other.bytes(b"bc");
        assert!(!other.verify(b"key", Role::Dialler, &proof));
    }

    /// FT-21
    #[test]
    fn a_proof_stands_for_one_connection() {
        let proofs = [None, Some(Binding([1; 32])), Some(Binding([2; 32]))].map(|binding| {
            let mut said = Transcript::new(binding);
            said.bytes(b"CONNECT");
            said.prove(b"key", Role::Acceptor)
        });
        assert_ne!(proofs[0], proofs[1]);
        assert_ne!(proofs[1], proofs[2]);
        assert_ne!(method(None), method(Some(Binding([1; 32]))));
    }
}
