//! Access to the HTTP API: a request may do what the role of its token allows; a node without tokens admits everybody but pages of other sites.

use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::role::{Caller, Role};
use super::tokens::Tokens;
use super::visitors::Peer;
use super::{assets, origin};
use crate::config::{HttpConfig, HttpOpen};
use crate::runtime::Shared;

/// Tokens that admit requests, and the settings of the port.
#[derive(Debug)]
pub(crate) struct Guard {
    config: HttpConfig,
    tokens: RwLock<Tokens>,
}

impl Guard {
    /// `Err`: which key is wrong, and what. `node_name` is a name of this node as those of `http.names` are.
    pub(crate) fn new(config: &HttpConfig, node_name: &str) -> Result<Self, (&'static str, String)> {
        let mut config = config.clone();
        config.names.push(node_name.to_owned());
        let guard = Self { config, tokens: RwLock::default() };
        guard.read()?;
        Ok(guard)
    }

    /// Reads the tokens again. If one of the files cannot be used those before stay.
    pub(crate) fn read(&self) -> Result<(), (&'static str, String)> {
        let tokens = Tokens::read(&self.config)?;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        Ok(())
    }

    /// Whether reading again may bring other tokens.
    pub(crate) fn has_file(&self) -> bool {
        let HttpConfig { token_file, operate_token_file, view_token_file, .. } = &self.config;
        [token_file, operate_token_file, view_token_file].into_iter().any(Option::is_some)
    }

    /// The sender of this request, with its role.
    fn check(&self, request: &Request) -> Result<Caller, ApiError> {
        let path = request.uri().path();
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.config.max_body_bytes as u64) {
            return Err(ApiError::TooLarge(self.config.max_body_bytes));
        }
        let shown = request.headers().get(AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let HttpOpen { health, metrics, reads } = self.config.open;
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let has_tokens = !tokens.is_empty();
        let looks = Caller { role: Role::View, shown: false, asks: has_tokens };
        if (health && path.starts_with("/health/")) || (metrics && path == "/metrics") {
            return Ok(looks);
        }
        if assets::has(path) {
            return if has_tokens || is_of_this_machine(request) { Ok(looks) } else { Err(ApiError::Remote) };
        }
        let is_open = !has_tokens || (reads && shown.is_none() && is_of_this_machine(request));
        if is_open {
            origin::check(request.method(), request.headers(), &self.config.names)?;
        }
        if !has_tokens {
            return Ok(Caller { role: Role::Admin, shown: false, asks: false });
        }
        if is_open && request.method().is_safe() {
            return Ok(looks);
        }
        let Some(shown) = shown else { return Err(ApiError::NoToken) };
        // The scheme is not case-sensitive (RFC 9110 section 11.1).
        let (scheme, shown) = shown.split_at_checked(7).ok_or(ApiError::NoToken)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(ApiError::NoToken);
        }
        let role = tokens.role(shown.trim_ascii()).ok_or(ApiError::WrongToken)?;
        Ok(Caller { role, shown: true, asks: false })
    }
}

/// Whether the other end of the connection is on this machine.
fn is_of_this_machine(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    peer.is_some_and(|ConnectInfo(Peer(peer))| peer.ip().to_canonical().is_loopback())
}

/// Lets requests pass that show a token, or that need none, and notes what they may do.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    match shared.api_guard.check(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::config::Secret;

    const TOKEN: &str = "0123456789abcdef";

    fn asked(guard: &Guard, path: &str, shown: Option<&[u8]>) -> Result<Caller, ApiError> {
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
        let looks = Caller { role: Role::View, shown: false, asks: true };
        assert_eq!(from("GET", "127.0.0.1:5", None).unwrap(), looks);
        assert_eq!(from("HEAD", "[::1]:5", None).unwrap(), looks);
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
        let shown = from("POST", "10.0.0.7:5", Some(("authorization", &format!("Bearer {TOKEN}")))).unwrap();
        assert_eq!(shown, Caller { role: Role::Admin, shown: true, asks: false });
    }
}
