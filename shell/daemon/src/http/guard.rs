//! Who may use the HTTP API: whoever has the token (RFC 6750).

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::ApiError;
use crate::config::{HttpConfig, HttpOpen};
use crate::runtime::Shared;

/// Fewest bytes of a token: one that can be guessed is none.
const TOKEN_BYTES_MIN: usize = 16;

/// Hash of a token: two of them are compared in the same time whatever the tokens have in common.
type Print = [u8; 32];

fn print(token: &[u8]) -> Print {
    Sha256::digest(token).into()
}

/// What a request has to show.
#[derive(Debug)]
pub(crate) struct Guard {
    config: HttpConfig,
    token: RwLock<Option<Print>>,
}

impl Guard {
    /// `Err`: what is wrong with the file.
    pub(crate) fn new(config: &HttpConfig) -> Result<Self, String> {
        let guard = Self { config: config.clone(), token: RwLock::default() };
        guard.read()?;
        Ok(guard)
    }

    /// Reads the token again. If it cannot be used the one before stays.
    pub(crate) fn read(&self) -> Result<(), String> {
        let token = match (&self.config.token, &self.config.token_file) {
            (_, Some(path)) => Some(print(read_token(path)?.as_bytes())),
            (Some(token), None) => Some(print(token.expose().as_bytes())),
            (None, None) => None,
        };
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// Whether reading again may bring another token.
    pub(crate) const fn has_file(&self) -> bool {
        self.config.token_file.is_some()
    }

    fn check(&self, path: &str, shown: Option<&[u8]>) -> Result<(), ApiError> {
        let HttpOpen { health, metrics } = self.config.open;
        let token = *self.token.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = token else { return Ok(()) };
        if (health && path.starts_with("/health/")) || (metrics && path == "/metrics") {
            return Ok(());
        }
        let Some(shown) = shown else { return Err(ApiError::NoToken) };
        // The scheme is not case-sensitive (RFC 9110 section 11.1).
        let (scheme, shown) = shown.split_at_checked(7).ok_or(ApiError::NoToken)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(ApiError::NoToken);
        }
        let right: bool = print(shown.trim_ascii()).ct_eq(&token).into();
        if right { Ok(()) } else { Err(ApiError::WrongToken) }
    }
}

/// The token in a file; white space around it does not count.
pub(crate) fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let token = text.trim();
    match wrong_token(token) {
        Some(what) => Err(format!("{}: {what}", path.display())),
        None => Ok(token.to_owned()),
    }
}

/// What is wrong with a token; `None`: nothing.
pub(crate) fn wrong_token(token: &str) -> Option<String> {
    // What a header can carry (RFC 6750 section 2.1).
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.len() < TOKEN_BYTES_MIN {
        return Some(format!("a token has at least {TOKEN_BYTES_MIN} characters"));
    }
    (!token.bytes().all(fits)).then(|| "a token is of letters, digits and -._~+/=".to_owned())
}

/// Lets requests pass that show the token.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
    match shared.api_guard.check(request.uri().path(), shown) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const TOKEN: &str = "0123456789abcdef";

    fn guarded(open: HttpOpen) -> Guard {
        Guard::new(&HttpConfig { token: Some(Secret::new(TOKEN)), open, ..HttpConfig::default() }).unwrap()
    }

    #[test]
    fn only_the_token_opens_the_api() {
        let guard = guarded(HttpOpen::default());
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "BEARER  0123456789abcdef "] {
            assert!(guard.check("/api/v1/status", Some(right.as_bytes())).is_ok(), "{right}");
        }
        for wrong in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer 0123456789abcdeff", "Bearer "] {
            assert!(matches!(guard.check("/api/v1/status", Some(wrong.as_bytes())), Err(ApiError::WrongToken)));
        }
        for none in [None, Some("Basic 0123456789abcdef"), Some("0123456789abcdef"), Some("")] {
            assert!(matches!(guard.check("/x", none.map(str::as_bytes)), Err(ApiError::NoToken)), "{none:?}");
        }
        assert!(Guard::new(&HttpConfig::default()).unwrap().check("/api/v1/status", None).is_ok());
    }

    #[test]
    fn health_and_metrics_are_open_if_they_are_to_be() {
        let usual = guarded(HttpOpen::default());
        assert!(usual.check("/health/ready", None).is_ok() && usual.check("/metrics", None).is_ok());
        assert!(usual.check("/health", None).is_err() && usual.check("/metrics/x", None).is_err());
        let closed = guarded(HttpOpen { health: false, metrics: false });
        assert!(closed.check("/health/ready", None).is_err() && closed.check("/metrics", None).is_err());
    }

    #[test]
    fn tokens_can_be_sent_and_not_be_guessed() {
        assert_eq!(wrong_token(TOKEN), None);
        assert!(wrong_token("short").is_some() && wrong_token("0123456789 abcdef").is_some());
    }
}
