//! Who may use the HTTP API: whoever has the token (RFC 6750); without one, everybody but pages of other sites.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::ApiError;
use super::visitors::Peer;
use super::{assets, origin};
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
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.config.max_body_bytes as u64) {
            return Err(ApiError::TooLarge(self.config.max_body_bytes));
        }
        let shown = request.headers().get(AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let HttpOpen { health, metrics, reads } = self.config.open;
        let token = *self.token.read().unwrap_or_else(PoisonError::into_inner);
        if (health && path.starts_with("/health/")) || (metrics && path == "/metrics") {
            return Ok(());
        }
        if assets::has(path) {
            return if token.is_some() || is_of_this_machine(request) { Ok(()) } else { Err(ApiError::Remote) };
        }
        let is_open = token.is_none() || (reads && shown.is_none() && is_of_this_machine(request));
        if is_open {
            origin::check(request.method(), request.headers(), &self.config.names)?;
        }
        let Some(token) = token.filter(|_| !(is_open && request.method().is_safe())) else { return Ok(()) };
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

/// Whether the other end of the connection is on this machine.
fn is_of_this_machine(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    peer.is_some_and(|ConnectInfo(Peer(peer))| peer.ip().to_canonical().is_loopback())
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
    use std::net::SocketAddr;

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
        let closed = guarded(HttpOpen { health: false, metrics: false, reads: false });
        assert!(asked(&closed, "/health/ready", None).is_err() && asked(&closed, "/metrics", None).is_err());
    }

    /// The page asks for the token, so that it has to come without.
    #[test]
    fn the_dashboard_is_for_this_machine_unless_there_is_a_token() {
        let from = |guard: &Guard, peer: &str| {
            let peer: SocketAddr = peer.parse().unwrap();
            let request = Request::get("/app.js").extension(ConnectInfo(Peer(peer)));
            guard.check(&request.body(axum::body::Body::empty()).unwrap())
        };
        let open = Guard::new(&HttpConfig::default(), "gw-1").unwrap();
        for own in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(from(&open, own).is_ok(), "{own}");
        }
        assert!(matches!(from(&open, "10.0.0.7:5"), Err(ApiError::Remote)));
        assert!(matches!(asked(&open, "/", None), Err(ApiError::Remote)));
        assert!(from(&guarded(HttpOpen::default()), "10.0.0.7:5").is_ok());
    }

    /// SEC: the nodes of `sedge up` are so.
    #[test]
    fn this_machine_may_read_without_the_token_and_change_nothing() {
        let reads = guarded(HttpOpen { reads: true, ..HttpOpen::default() });
        let from = |method: &str, peer: &str, header: Option<(&str, &str)>| {
            let peer: SocketAddr = peer.parse().unwrap();
            let request = Request::builder().method(method).uri("/api/v1/sessions").header("host", "localhost:8080");
            let request = header.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            reads.check(&request.extension(ConnectInfo(Peer(peer))).body(axum::body::Body::empty()).unwrap())
        };
        assert!(from("GET", "127.0.0.1:5", None).is_ok() && from("HEAD", "[::1]:5", None).is_ok());
        assert!(matches!(from("GET", "10.0.0.7:5", None), Err(ApiError::NoToken)));
        for method in ["POST", "DELETE", "PUT", "TRACE-IT"] {
            let refused = from(method, "127.0.0.1:5", Some(("x-sedge", "1")));
            assert!(matches!(refused, Err(ApiError::NoToken)), "{method}");
        }
        let foreign = from("GET", "127.0.0.1:5", Some(("sec-fetch-site", "cross-site")));
        assert!(matches!(foreign, Err(ApiError::ForeignOrigin(_))));
        let foreign = from("POST", "127.0.0.1:5", Some(("origin", "http://evil.example")));
        assert!(matches!(foreign, Err(ApiError::ForeignOrigin(_))));
        assert!(matches!(from("GET", "127.0.0.1:5", Some(("authorization", "Bearer x"))), Err(ApiError::WrongToken)));
        assert!(from("POST", "10.0.0.7:5", Some(("authorization", &format!("Bearer {TOKEN}")))).is_ok());
    }

    #[test]
    fn tokens_can_be_sent_and_not_be_guessed() {
        assert_eq!(wrong_token(TOKEN), None);
        assert!(wrong_token("short").is_some() && wrong_token("0123456789 abcdef").is_some());
    }
}
