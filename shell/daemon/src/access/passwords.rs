//! Password files: lines of `user:hash`, as `sedge passwd` and `mosquitto_passwd` write them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sedge_access::scram::{Mechanism, Verifier};

use super::hash::{Hash, Workspace};

/// Iterations of a SCRAM verifier where nothing else is asked for.
pub const SCRAM_ITERATIONS: u32 = 50_000;

/// A fault in one line of a password file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordError {
    /// Which line, counted from 1.
    pub line: usize,
    /// The fault and its remedy.
    pub what: String,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
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

    /// Whether the password of `user` is right. Takes milliseconds, and the memory that the hash asks for: 19 MiB with the usual
    /// parameters. A user that is not there takes as long as the first one of the file, so that nobody learns who is.
    pub(super) fn verify(&self, workspace: &mut Workspace, user: &str, password: &[u8]) -> bool {
        if let Some(hash) = self.0.get(user) {
            return hash.verify(workspace, password);
        }
        if let Some(hash) = self.0.values().next() {
            hash.verify(workspace, password);
        }
        false
    }

    /// Whether there is an account of this name.
    pub fn contains(&self, user: &str) -> bool {
        self.0.contains_key(user)
    }

    /// All users, by name.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Mechanism and iterations of a user's SCRAM verifier; `None`: the user has none.
    pub fn scram(&self, user: &str) -> Option<(Mechanism, u32)> {
        let Some(Hash::Scram(verifier)) = self.0.get(user) else { return None };
        Some((verifier.mechanism(), verifier.iterations()))
    }

    /// The verifier of a user, or one of nobody for users who have none: it looks like the others, and the same each time.
    pub(super) fn verifier(&self, mechanism: Mechanism, user: &str) -> Verifier {
        let of = |hash: &Hash| {
            let Hash::Scram(verifier) = hash else { return None };
            (verifier.mechanism() == mechanism).then(|| verifier.clone())
        };
        if let Some(verifier) = self.0.get(user).and_then(of) {
            return verifier;
        }
        // A secret that nobody outside knows, and that stays the same as long as the first account does.
        let first = self.0.values().find_map(of);
        let secret = first.as_ref().map(Verifier::to_text).unwrap_or_default();
        let iterations = first.map_or(SCRAM_ITERATIONS, |verifier| verifier.iterations());
        Verifier::of_nobody(mechanism, iterations, secret.as_bytes(), user)
    }

    /// Whether anybody has a verifier for this mechanism.
    pub(super) fn offers(&self, mechanism: Mechanism) -> bool {
        self.0.values().any(|hash| matches!(hash, Hash::Scram(verifier) if verifier.mechanism() == mechanism))
    }

    /// Whether `user` has the same line in both.
    pub(super) fn agrees(&self, other: &Self, user: &str) -> bool {
        self.0.get(user) == other.0.get(user)
    }

    /// Users of this file who are not in `newer`, or have another hash there.
    pub(super) fn revoked(&self, newer: &Self) -> BTreeSet<Box<str>> {
        self.0.keys().filter(|user| !self.agrees(newer, user)).map(|user| user.as_str().into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ring::{digest, pbkdf2};

    use super::super::hash::{hash_password, scram_verifier};
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
        let scram = Mechanism::ALL.map(|mechanism| scram_verifier(mechanism, 4096, "geheim", &[7; 16]).unwrap());
        let text = format!("# accounts\na:{argon2}\n\nb:{pbkdf2}\nc:{sha512}\nd:{}\ne:{}\n", scram[0], scram[1]);
        let file = PasswordFile::parse(&text).unwrap();
        let mut workspace = Workspace::default();
        for user in ["a", "b", "c", "d", "e"] {
            assert!(file.verify(&mut workspace, user, b"geheim"), "{user}");
            assert!(!file.verify(&mut workspace, user, b"Geheim"), "{user}");
            assert!(!file.verify(&mut workspace, user, b""), "{user}");
        }
        assert!(!file.verify(&mut workspace, "x", b"geheim") && !file.contains("x"));
        assert!(!format!("{file:?}").contains('$'));
    }

    /// MQ-19: nobody sees in the server's first message whether a user exists.
    #[test]
    fn users_without_a_verifier_look_like_others() {
        let scram = scram_verifier(Mechanism::Sha256, 5000, "geheim", &[7; 16]).unwrap();
        let file =
            PasswordFile::parse(&format!("a:{scram}\nb:{}\n", hash_password(b"geheim", &[7; 16]).unwrap())).unwrap();
        let of = |user| file.verifier(Mechanism::Sha256, user);
        assert_eq!(of("a").to_text(), scram);
        for nobody in ["b", "x"] {
            assert_eq!((of(nobody).iterations(), of(nobody).salt().len()), (5000, 16));
            assert_eq!(of(nobody), of(nobody));
        }
        assert_ne!(of("x").salt(), of("y").salt());
        assert!(file.offers(Mechanism::Sha256) && !file.offers(Mechanism::Sha512));
    }

    #[test]
    fn changed_accounts_are_found() {
        let line =
            |user: &str, salt| format!("{user}:{}\n", scram_verifier(Mechanism::Sha256, 4096, "x", &salt).unwrap());
        let parse = |lines: &[String]| PasswordFile::parse(&lines.concat()).unwrap();
        let old = parse(&[line("a", [1; 16]), line("b", [1; 16]), line("c", [1; 16])]);
        let new = parse(&[line("a", [1; 16]), line("b", [2; 16]), line("d", [1; 16])]);
        assert_eq!(old.revoked(&new), BTreeSet::from(["b".into(), "c".into()]));
        assert_eq!(old.revoked(&old), BTreeSet::new());
    }

    #[test]
    fn passwords_that_clients_hash_differently_get_no_verifier() {
        for (password, iterations) in [("gr\u{fc}n", 4096), ("a\tb", 4096), ("x", 4095), ("x", 10_000_001)] {
            assert!(scram_verifier(Mechanism::Sha256, iterations, password, &[7; 16]).is_err(), "{password}");
        }
    }

    #[test]
    fn errors_name_their_lines() {
        let text = "a:$7$101$AAAA$AAAA\nno hash\na:$6$AAAA$AAAA\nb:plain\n:x\nc:$7$0$AAAA$AAAA\nd:$argon2id$v=19$m=9999999,t=1,p=1$AAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA\ne:SCRAM-SHA-256$1:AA==$AA==:AA==\n";
        let errors = PasswordFile::parse(text).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8]);
    }
}
