//! Who may use the HTTP API: whoever has the token (RFC 6750); without one, everybody but pages of other sites.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::ApiError;
use super::origin;
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
    /// `Err`: what is wrong with the file. `node_name` is a name of this node as those of `http.names` are.
    pub(crate) fn new(config: &HttpConfig, node_name: &str) -> Result<Self, String> {
        let mut config = config.clone();
        config.names.push(node_name.to_owned());
        let guard = Self { config, token: RwLock::default() };
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

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let path = request.uri().path();
        let shown = request.headers().get(AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let HttpOpen { health, metrics } = self.config.open;
        let token = *self.token.read().unwrap_or_else(PoisonError::into_inner);
        if (health && path.starts_with("/health/")) || (metrics && path == "/metrics") {
            return Ok(());
        }
        let Some(token) = token else { return origin::check(request.method(), request.headers(), &self.config.names) };
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

/// Lets requests pass that show the token, or that need none.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match shared.api_guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const TOKEN: &str = "0123456789abcdef";

    fn asked(guard: &Guard, path: &str, shown: Option<&[u8]>) -> Result<(), ApiError> {
        let mut request = Request::get(path).header("host", "gw-1:8080");
        if let Some(shown) = shown {
            request = request.header(AUTHORIZATION, shown);
        }
        guard.check(&request.body(axum::body::Body::empty()).unwrap())
    }

    fn guarded(open: HttpOpen) -> Guard {
        Guard::new(&HttpConfig { token: Some(Secret::new(TOKEN)), open, ..HttpConfig::default() }, "gw-1").unwrap()
    }

    #[test]
    fn only_the_token_opens_the_api() {
        let guard = guarded(HttpOpen::default());
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "BEARER  0123456789abcdef "] {
            assert!(asked(&guard, "/api/v1/status", Some(right.as_bytes())).is_ok(), "{right}");
        }
        for wrong in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer 0123456789abcdeff", "Bearer "] {
            assert!(matches!(asked(&guard, "/api/v1/status", Some(wrong.as_bytes())), Err(ApiError::WrongToken)));
        }
        for none in [None, Some("Basic 0123456789abcdef"), Some("0123456789abcdef"), Some("")] {
            assert!(matches!(asked(&guard, "/x", none.map(str::as_bytes)), Err(ApiError::NoToken)), "{none:?}");
        }
        assert!(asked(&Guard::new(&HttpConfig::default(), "gw-1").unwrap(), "/api/v1/status", None).is_ok());
    }

    #[test]
    fn health_and_metrics_are_open_if_they_are_to_be() {
        let usual = guarded(HttpOpen::default());
        assert!(asked(&usual, "/health/ready", None).is_ok() && asked(&usual, "/metrics", None).is_ok());
        assert!(asked(&usual, "/health", None).is_err() && asked(&usual, "/metrics/x", None).is_err());
        let closed = guarded(HttpOpen { health: false, metrics: false });
        assert!(asked(&closed, "/health/ready", None).is_err() && asked(&closed, "/metrics", None).is_err());
    }

    #[test]
    fn tokens_can_be_sent_and_not_be_guessed() {
        assert_eq!(wrong_token(TOKEN), None);
        assert!(wrong_token("short").is_some() && wrong_token("0123456789 abcdef").is_some());
    }
}
