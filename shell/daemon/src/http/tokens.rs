//! Tokens of the HTTP API (RFC 6750), each with its role. They are kept as hashes, so that two are compared in the same time whatever they have
//! in common.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::role::Role;
use crate::config::HttpConfig;

/// Fewest bytes of a token: one that can be guessed is none.
const TOKEN_BYTES_MIN: usize = 16;
/// Most tokens of one role.
const TOKENS_MAX: usize = 100;
/// Mode bits with which everybody may read or write a file.
const EVERYBODY: u32 = 0o006;

type Print = [u8; 32];

fn print(token: &[u8]) -> Print {
    Sha256::digest(token).into()
}

/// The tokens of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    all: Vec<(Print, Role)>,
}

impl Tokens {
    /// Those of the configuration and its files. `Err`: which key is wrong, and what.
    pub(crate) fn read(config: &HttpConfig) -> Result<Self, (&'static str, String)> {
        let mut tokens = Self::default();
        match (&config.token, &config.token_file) {
            (_, Some(path)) => tokens.add(Role::Admin, &read_token(path).map_err(|what| ("http.token_file", what))?)?,
            (Some(token), None) => tokens.add(Role::Admin, token.expose())?,
            (None, None) => {}
        }
        for (role, file) in [(Role::Operate, &config.operate_token_file), (Role::View, &config.view_token_file)] {
            let Some(path) = file else { continue };
            if tokens.all.first().is_none_or(|(_, role)| *role != Role::Admin) {
                let what = "needs http.token_file, too: without a token for everything, everybody may do everything";
                return Err((role.keys(), what.to_owned()));
            }
            for token in read_list(path).map_err(|what| (role.keys(), what))? {
                tokens.add(role, &token)?;
            }
        }
        Ok(tokens)
    }

    fn add(&mut self, role: Role, token: &str) -> Result<(), (&'static str, String)> {
        let print = print(token.as_bytes());
        if let Some((_, other)) = self.all.iter().find(|(known, _)| *known == print) {
            return Err((role.keys(), format!("has a token that is in {}, too", other.keys())));
        }
        self.all.push((print, role));
        Ok(())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The role of whoever shows this token.
    pub(super) fn role(&self, shown: &[u8]) -> Option<Role> {
        let shown = print(shown);
        let mut found = None;
        // All of them, so that the time says nothing of which it was.
        for (known, role) in &self.all {
            if bool::from(shown.ct_eq(known)) {
                found = Some(*role);
            }
        }
        found
    }
}

/// The token in a file; white space around it does not count.
fn read_token(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let token = text.trim();
    match wrong_token(token) {
        Some(what) => Err(format!("{}: {what}", path.display())),
        None => Ok(token.to_owned()),
    }
}

/// The tokens in a file that not everybody may read, one a line; empty lines and those that begin with `#` do not count.
fn read_list(path: &Path) -> Result<Vec<String>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let read = || Ok::<_, std::io::Error>((fs::metadata(path)?.mode(), fs::read_to_string(path)?));
    let (mode, text) = read().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if mode & EVERYBODY != 0 {
        return Err(wrong(format!(
            "everybody on this machine may read or change it; run: chmod o= {}",
            path.display()
        )));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tokens: Vec<String> = lines.map(str::to_owned).collect();
    if tokens.is_empty() || tokens.len() > TOKENS_MAX {
        return Err(wrong(format!("has {} tokens, where 1 to {TOKENS_MAX} are possible", tokens.len())));
    }
    match tokens.iter().find_map(|token| wrong_token(token)) {
        Some(what) => Err(wrong(what)),
        None => Ok(tokens),
    }
}

/// Objection to a token; `None`: the token is valid.
pub(crate) fn wrong_token(token: &str) -> Option<String> {
    // Characters that a header can carry (RFC 6750 section 2.1).
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.len() < TOKEN_BYTES_MIN {
        return Some(format!("a token has at least {TOKEN_BYTES_MIN} characters"));
    }
    (!token.bytes().all(fits)).then(|| "a token is of letters, digits and -._~+/=".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Secret;

    const ADMIN: &str = "admin-0123456789";
    const VIEWS: [&str; 2] = ["view-0123456789a", "view-0123456789b"];

    #[test]
    fn tokens_can_be_sent_and_not_be_guessed() {
        assert_eq!(wrong_token(ADMIN), None);
        assert!(wrong_token("short").is_some() && wrong_token("0123456789 abcdef").is_some());
    }

    /// SEC
    #[test]
    fn files_of_roles_hold_some_tokens_and_are_not_for_everybody() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("view");
        let config = |token: Option<&str>| HttpConfig {
            token: token.map(Secret::new),
            view_token_file: Some(file.clone()),
            ..HttpConfig::default()
        };
        let write = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        let wrong = |token| Tokens::read(&config(token)).map(drop).unwrap_err();
        write(&format!("# of the wall\n{}\n\n {} \n", VIEWS[0], VIEWS[1]), 0o640);
        let tokens = Tokens::read(&config(Some(ADMIN))).unwrap();
        let roles = [ADMIN, VIEWS[0], VIEWS[1], "nobody-012345678"].map(|token| tokens.role(token.as_bytes()));
        assert_eq!(roles, [Some(Role::Admin), Some(Role::View), Some(Role::View), None]);
        assert!(wrong(None).1.contains("http.token_file"), "anybody would be an administrator");
        write(VIEWS[0], 0o644);
        assert!(wrong(Some(ADMIN)).1.contains("chmod o="));
        for (text, what) in [("# none\n", "0 tokens"), ("short\n", "at least"), (ADMIN, "is in http.token_file, too")] {
            write(text, 0o600);
            let (key, told) = wrong(Some(ADMIN));
            assert!(key == "http.view_token_file" && told.contains(what), "{key}: {told}");
        }
        let many: Vec<String> = (0..101).map(|number| format!("view-0123456789-{number}\n")).collect();
        write(&many.concat(), 0o600);
        assert!(wrong(Some(ADMIN)).1.contains("101 tokens"));
    }
}
