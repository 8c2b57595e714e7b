//! Password files: lines of `user:hash`, as `sedge passwd` and `mosquitto_passwd` write them.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, pbkdf2};

/// More iterations than anyone sets; a file with more would hold a thread for minutes.
const PBKDF2_ITERATIONS_MAX: u32 = 10_000_000;
/// Most memory one argon2 hash may ask for, in KiB.
const ARGON2_MEMORY_MAX: u32 = 1 << 20;

/// What is wrong with one line of a password file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordError {
    /// Which line, counted from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// One hashed password.
#[derive(Clone, PartialEq, Eq)]
enum Hash {
    /// In the PHC string format.
    Argon2(Box<str>),
    /// Mosquitto's `$7$`.
    Pbkdf2 { iterations: NonZeroU32, salt: Box<[u8]>, hash: Box<[u8]> },
    /// Mosquitto's `$6$`.
    Sha512 { salt: Box<[u8]>, hash: Box<[u8]> },
}

impl Hash {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "is no hash that is understood: $argon2id$ (sedge passwd), $7$ or $6$ (mosquitto_passwd); set the password again"
                .to_owned()
        };
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

    fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2(text) => {
                PasswordHash::new(text).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
            }
            Self::Pbkdf2 { iterations, salt, hash } => {
                pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, *iterations, salt, password, hash).is_ok()
            }
            Self::Sha512 { salt, hash } => {
                let mut context = digest::Context::new(&digest::SHA512);
                context.update(password);
                context.update(salt);
                let found = context.finish();
                let differ = found.as_ref().iter().zip(hash).fold(0, |differ, (a, b)| differ | (a ^ b));
                found.as_ref().len() == hash.len() && differ == 0
            }
        }
    }
}

/// All accounts of a password file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PasswordFile(BTreeMap<String, Hash>);

impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl PasswordFile {
    /// Reads `user:hash` lines; empty ones and those that start with `#` say nothing. Reports everything that is wrong.
    pub fn parse(text: &str) -> Result<Self, Vec<PasswordError>> {
        let mut accounts = BTreeMap::new();
        let mut errors = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut wrong = |what: String| errors.push(PasswordError { line: index + 1, what });
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((user, hash)) = line.split_once(':').filter(|(user, _)| !user.is_empty()) else {
                wrong("a line reads user:hash".to_owned());
                continue;
            };
            match Hash::parse(hash.trim_end()) {
                Err(what) => wrong(format!("the password of {user:?} {what}")),
                Ok(_) if accounts.contains_key(user) => wrong(format!("{user:?} has a second line")),
                Ok(hash) => {
                    accounts.insert(user.to_owned(), hash);
                }
            }
        }
        if errors.is_empty() { Ok(Self(accounts)) } else { Err(errors) }
    }

    /// Whether there is an account of this name.
    pub fn contains(&self, user: &str) -> bool {
        self.0.contains_key(user)
    }

    /// Whether the password of `user` is right. Takes milliseconds, and up to 19 MiB of memory with the usual parameters.
    pub fn verify(&self, user: &str, password: &[u8]) -> bool {
        self.0.get(user).is_some_and(|hash| hash.verify(password))
    }
}

/// The hash of a password for a line of a password file: argon2id with 19 MiB and two passes, and a random salt.
pub fn hash_password(password: &[u8], salt: &[u8; 16]) -> Result<String, String> {
    let hash = Argon2::default().hash_password_with_salt(password, salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-19
    #[test]
    fn every_kind_of_hash_is_checked() {
        let argon2 = hash_password(b"geheim", &[7; 16]).unwrap();
        let (salt, mut derived) = ([1_u8; 12], [0_u8; 64]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, NonZeroU32::new(101).unwrap(), &salt, b"geheim", &mut derived);
        let pbkdf2 = format!("$7$101${}${}", STANDARD.encode(salt), STANDARD.encode(derived));
        let mut salted = b"geheim".to_vec();
        salted.extend_from_slice(&salt);
        let digest = digest::digest(&digest::SHA512, &salted);
        let sha512 = format!("$6${}${}", STANDARD.encode(salt), STANDARD.encode(digest));
        let text = format!("# accounts\na:{argon2}\n\nb:{pbkdf2}\nc:{sha512}\n");
        let file = PasswordFile::parse(&text).unwrap();
        for user in ["a", "b", "c"] {
            assert!(file.verify(user, b"geheim"), "{user}");
            assert!(!file.verify(user, b"Geheim") && !file.verify(user, b""), "{user}");
        }
        assert!(!file.verify("d", b"geheim") && !file.contains("d"));
        assert!(!format!("{file:?}").contains('$'));
    }

    #[test]
    fn errors_name_their_lines() {
        let text = "a:$7$101$AAAA$AAAA\nno hash\na:$6$AAAA$AAAA\nb:plain\n:x\nc:$7$0$AAAA$AAAA\nd:$argon2id$v=19$m=9999999,t=1,p=1$AAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA\n";
        let errors = PasswordFile::parse(text).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    }
}
