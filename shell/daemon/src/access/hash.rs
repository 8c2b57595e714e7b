//! Hashed passwords of every kind that is understood.

use std::num::NonZeroU32;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, phc};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, pbkdf2};
use sedge_access::scram::{ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, Verifier};
use subtle::ConstantTimeEq;

/// More iterations than anyone sets; a file with more would hold a thread for minutes.
const PBKDF2_ITERATIONS_MAX: u32 = 10_000_000;
/// Most memory one argon2 hash may ask for, in KiB.
const ARGON2_MEMORY_MAX: u32 = 1 << 20;
/// Memory that a thread keeps between two hashes, in KiB: as much as a hash of `sedge passwd` needs. Otherwise each hash would get memory
/// of its own from the kernel, or from an arena of the allocator that keeps it.
const KEPT_MEMORY: usize = Params::DEFAULT_M_COST as usize;

/// Memory for argon2, used for one hash after the other.
#[derive(Default)]
pub(super) struct Workspace(Vec<Block>);

impl Workspace {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        if self.0.len() < count {
            self.0 = vec![Block::new(); count];
        }
        self.0.get_mut(..count).unwrap_or_default()
    }

    fn tidy(&mut self) {
        if self.0.len() > KEPT_MEMORY {
            self.0 = Vec::new();
        }
    }
}

/// One hashed password.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Hash {
    /// In the PHC string format.
    Argon2(Box<str>),
    /// Mosquitto's `$7$`.
    Pbkdf2 { iterations: NonZeroU32, salt: Box<[u8]>, hash: Box<[u8]> },
    /// Mosquitto's `$6$`.
    Sha512 { salt: Box<[u8]>, hash: Box<[u8]> },
    /// For enhanced authentication, and for passwords.
    Scram(Verifier),
}

impl Hash {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "is no hash that is understood: $argon2id$ or SCRAM-SHA-256$ (sedge passwd), $7$ or $6$ (mosquitto_passwd); set the \
             password again"
                .to_owned()
        };
        if text.starts_with("SCRAM-") {
            let found = Verifier::parse(text);
            return found.map(Self::Scram).map_err(|error| format!("cannot be used: {error}; set the password again"));
        }
        if text.starts_with("$argon2") {
            let hash = PasswordHash::new(text).ok().ok_or_else(wrong)?;
            let memory = hash.params.get_decimal("m").unwrap_or(0);
            if memory > ARGON2_MEMORY_MAX {
                return Err(format!("asks for more than {ARGON2_MEMORY_MAX} KiB of memory for one password"));
            }
            return Ok(Self::Argon2(text.into()));
        }
        let mut fields = text.split('$').skip(1);
        let decode = |field: Option<&str>| {
            let bytes = field.and_then(|field| STANDARD.decode(field).ok()).map(Vec::into_boxed_slice);
            bytes.filter(|bytes| !bytes.is_empty())
        };
        let found = match fields.next() {
            Some("7") => {
                let iterations = fields.next().and_then(|field| field.parse().ok()).and_then(NonZeroU32::new);
                let iterations = iterations.filter(|count| count.get() <= PBKDF2_ITERATIONS_MAX);
                iterations
                    .zip(decode(fields.next()).zip(decode(fields.next())))
                    .map(|(iterations, (salt, hash))| Self::Pbkdf2 { iterations, salt, hash })
            }
            Some("6") => {
                decode(fields.next()).zip(decode(fields.next())).map(|(salt, hash)| Self::Sha512 { salt, hash })
            }
            _ => None,
        };
        found.filter(|_| fields.next().is_none()).ok_or_else(wrong)
    }

    pub(super) fn verify(&self, workspace: &mut Workspace, password: &[u8]) -> bool {
        match self {
            Self::Argon2(text) => verify_argon2(workspace, text, password).unwrap_or(false),
            Self::Pbkdf2 { iterations, salt, hash } => {
                pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, *iterations, salt, password, hash).is_ok()
            }
            Self::Sha512 { salt, hash } => {
                let mut context = digest::Context::new(&digest::SHA512);
                context.update(password);
                context.update(salt);
                context.finish().as_ref().ct_eq(hash).into()
            }
            Self::Scram(verifier) => salted(verifier.mechanism(), verifier.iterations(), verifier.salt(), password)
                .is_some_and(|salted| verifier.is_of(&salted)),
        }
    }
}

/// `None` if the hash is not usable after all.
fn verify_argon2(workspace: &mut Workspace, text: &str, password: &[u8]) -> Option<bool> {
    let hash = PasswordHash::new(text).ok()?;
    let algorithm = Algorithm::try_from(hash.algorithm.as_str()).ok()?;
    let version = hash.version.map(Version::try_from).transpose().ok()?.unwrap_or_default();
    let params = Params::try_from(&hash).ok()?;
    let (salt, expected) = (hash.salt?, hash.hash?);
    let blocks = workspace.blocks(params.block_count());
    let mut found = [0; phc::Output::MAX_LENGTH];
    let found = found.get_mut(..expected.len())?;
    let done = Argon2::new(algorithm, version, params).hash_password_into_with_memory(password, &salt, found, blocks);
    workspace.tidy();
    done.ok()?;
    Some((*found).ct_eq(expected.as_bytes()).into())
}

/// `SaltedPassword` of RFC 5802 section 3.
fn salted(mechanism: Mechanism, iterations: u32, salt: &[u8], password: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match mechanism {
        Mechanism::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        Mechanism::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
    };
    let mut salted = vec![0; mechanism.size()];
    pbkdf2::derive(algorithm, NonZeroU32::new(iterations)?, salt, password, &mut salted);
    Some(salted)
}

/// The hash of a password for a line of a password file: argon2id with 19 MiB and two passes, and a random salt.
pub fn hash_password(password: &[u8], salt: &[u8; 16]) -> Result<String, String> {
    let hash = Argon2::default().hash_password_with_salt(password, salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// The SCRAM verifier of a password for a line of a password file, with a random salt. The password is printable ASCII: clients differ in
/// the preparation of other passwords before hashing (RFC 4013).
pub fn scram_verifier(
    mechanism: Mechanism,
    iterations: u32,
    password: &str,
    salt: &[u8; 16],
) -> Result<String, String> {
    if !password.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(
            "a password for SCRAM is of printable ASCII: clients do not agree on how others are hashed".to_owned()
        );
    }
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return Err(format!("iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}"));
    }
    let salted = salted(mechanism, iterations, salt, password.as_bytes()).ok_or("no iterations")?;
    Ok(Verifier::new(mechanism, iterations, salt, &salted).to_text())
}
