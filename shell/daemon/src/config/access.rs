//! `[auth]` and `[acl]`.

use std::path::PathBuf;
use std::time::Duration;

/// `[auth]`: who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Clients that may connect without proof; `None`: [`Anonymous::Loopback`] without accounts, [`Anonymous::Never`] with them.
    pub anonymous: Option<Anonymous>,
    /// Lines of `user:hash`.
    pub password_file: Option<PathBuf>,
    /// JWK Set, or one secret, for tokens in place of passwords.
    pub jwt_keys_file: Option<PathBuf>,
    /// Claim `iss` that tokens need; empty: any.
    pub jwt_issuer: String,
    /// Claim `aud` that tokens need; empty: any.
    pub jwt_audience: String,
    /// Claim that holds the user name.
    pub jwt_user_claim: String,
    /// Claim that has to be the client id; empty: none.
    pub jwt_client_claim: String,
    /// Server that is asked about users who are not in the password file; empty: none.
    pub http_url: String,
    /// How long it may take to answer.
    pub http_timeout: Duration,
    /// Questions to it at the same time.
    pub http_workers: usize,
    /// Passwords hashed at the same time.
    pub workers: usize,
    /// Clients that may wait for either; the next one is refused (0x89).
    pub max_waiting: usize,
    /// How long an answer is remembered.
    pub cache_time: Duration,
    /// How many answers are remembered.
    pub max_cached: usize,
}

/// From where anonymous clients may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// From nowhere.
    Never,
    /// From this machine.
    Loopback,
    /// From everywhere.
    Always,
}

impl AuthConfig {
    /// Whether anything is known about users.
    pub(crate) const fn has_accounts(&self) -> bool {
        self.password_file.is_some() || self.jwt_keys_file.is_some() || !self.http_url.is_empty()
    }

    /// From where anonymous clients may come.
    pub(crate) fn anonymous(&self) -> Anonymous {
        let usual = if self.has_accounts() { Anonymous::Never } else { Anonymous::Loopback };
        self.anonymous.unwrap_or(usual)
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            anonymous: None,
            password_file: None,
            jwt_keys_file: None,
            jwt_issuer: String::new(),
            jwt_audience: String::new(),
            jwt_user_claim: "sub".to_owned(),
            jwt_client_claim: String::new(),
            http_url: String::new(),
            http_timeout: Duration::from_secs(2),
            http_workers: 8,
            workers: 2,
            max_waiting: 1000,
            cache_time: Duration::from_mins(5),
            max_cached: 10_000,
        }
    }
}

/// `[acl]`: what clients may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclConfig {
    /// File with access rules; `None`: everybody may do everything.
    pub file: Option<PathBuf>,
    /// Whether a client that publishes what it may not is disconnected.
    pub disconnect: bool,
}
