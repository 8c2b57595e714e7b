//! A server's record of a password (RFC 5802 section 3).

use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

/// Fewest iterations of PBKDF2 that a verifier may have (RFC 7677 section 4).
pub const ITERATIONS_MIN: u32 = 4096;
/// Most iterations: each client has to do as many.
pub const ITERATIONS_MAX: u32 = 10_000_000;

/// Mechanism of SCRAM, by the hash that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM-SHA-256 (RFC 7677).
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Its name, in MQTT the authentication method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The mechanism of a name; case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Bytes of a hash, and of all keys.
    pub const fn size(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    pub(super) fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        // An HMAC takes keys of any length.
        match self {
            Self::Sha256 => Hmac::<Sha256>::new_from_slice(key)
                .map(|mac| mac.chain_update(text).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
            Self::Sha512 => Hmac::<Sha512>::new_from_slice(key)
                .map(|mac| mac.chain_update(text).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    pub(super) fn hash(self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(text).to_vec(),
            Self::Sha512 => Sha512::digest(text).to_vec(),
        }
    }
}

/// Why a text is no verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifierError {
    /// The text does not read `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
    #[error(
        "a SCRAM verifier reads SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey, in Base64 but for the iterations"
    )]
    Form,
    /// The iterations of the verifier are out of range.
    #[error("the iterations of a SCRAM verifier are from {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    Iterations,
}

/// A server's record of a password: it checks proofs, and proves the server, but does not tell the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    mechanism: Mechanism,
    iterations: u32,
    salt: Box<[u8]>,
    stored_key: Box<[u8]>,
    server_key: Box<[u8]>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

impl Verifier {
    /// The verifier of a password: `salted` is PBKDF2 of it with the hash of the mechanism, `salt` and `iterations`, as long as the
    /// hash.
    pub fn new(mechanism: Mechanism, iterations: u32, salt: &[u8], salted: &[u8]) -> Self {
        let stored_key = mechanism.hash(&mechanism.hmac(salted, b"Client Key")).into();
        let server_key = mechanism.hmac(salted, b"Server Key").into();
        Self { mechanism, iterations, salt: salt.into(), stored_key, server_key }
    }

    /// A verifier that no password fits, for users that do not exist: the same for the same `secret`, so that asking twice does
    /// not tell them from those that do.
    pub fn of_nobody(mechanism: Mechanism, iterations: u32, secret: &[u8], user: &str) -> Self {
        let mut salt = mechanism.hmac(secret, user.as_bytes());
        salt.truncate(16);
        let unknown = mechanism.hmac(secret, &salt).into_boxed_slice();
        Self { mechanism, iterations, salt: salt.into(), stored_key: unknown.clone(), server_key: unknown }
    }

    /// The mechanism of the verifier, which tells its hash.
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Iterations of PBKDF2.
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Salt of PBKDF2.
    pub const fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Whether this is of the password that `salted` was made of.
    pub fn is_of(&self, salted: &[u8]) -> bool {
        let stored = self.mechanism.hash(&self.mechanism.hmac(salted, b"Client Key"));
        stored.ct_eq(&self.stored_key).into()
    }

    /// The server's signature if `proof` is a proof of the password for `auth_message`.
    pub(super) fn check(&self, auth_message: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        if proof.len() != self.mechanism.size() {
            return None;
        }
        let signature = self.mechanism.hmac(&self.stored_key, auth_message);
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(proof, signature)| proof ^ signature).collect();
        let right: bool = self.mechanism.hash(&client_key).ct_eq(&self.stored_key).into();
        right.then(|| self.mechanism.hmac(&self.server_key, auth_message))
    }

    /// Reads `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, the format of `PostgreSQL`.
    pub fn parse(text: &str) -> Result<Self, VerifierError> {
        let decode = |text: &str| STANDARD.decode(text).ok().map(Vec::into_boxed_slice).ok_or(VerifierError::Form);

        let mut fields = text.split('$');
        let mechanism = fields.next().and_then(Mechanism::from_name).ok_or(VerifierError::Form)?;
        let mut pair = || fields.next().and_then(|field| field.split_once(':')).ok_or(VerifierError::Form);
        let ((iterations, salt), (stored_key, server_key)) = (pair()?, pair()?);
        let iterations: u32 = iterations.parse().ok().ok_or(VerifierError::Form)?;
        let (salt, stored_key, server_key) = (decode(salt)?, decode(stored_key)?, decode(server_key)?);
        let keys_fit = stored_key.len() == mechanism.size() && server_key.len() == mechanism.size();
        if !keys_fit || salt.is_empty() || fields.next().is_some() {
            return Err(VerifierError::Form);
        }
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(VerifierError::Iterations);
        }
        Ok(Self { mechanism, iterations, salt, stored_key, server_key })
    }

    /// The text that [`Verifier::parse`] reads.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt, &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        format!("{}${}:{salt}${stored}:{server}", self.mechanism.name(), self.iterations)
    }
}
