//! Answers that are none.

use axum::Json;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sedge_base::ShardId;

use super::model::ErrorBody;
use super::role::Role;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A shard does not answer.
    Busy(ShardId),
    /// Another node does not answer.
    Silent,
    /// The node is about to end.
    Stopping,
    /// There is no such thing.
    NotFound(String),
    /// The question makes no sense.
    BadRequest(String),
    /// The node cannot do that as things are.
    Conflict(String),
    /// The request shows no token.
    NoToken,
    /// The request shows a token that is not known.
    WrongToken,
    /// The token that it shows is of another role.
    NeedsRole {
        /// Role that the request needs.
        needed: Role,
        /// Role of the token.
        has: Role,
    },
    /// The request changes accounts, and shows no token.
    TokenOnly,
    /// The host that the request names may be anybody's name for this address.
    ForeignHost(String),
    /// A page of another site sent the request.
    ForeignOrigin(String),
    /// The request changes something, and a form of any page could have sent it.
    OfAForm,
    /// As many streams of events are open as may be.
    TooManyStreams(usize),
    /// Another machine asks for the dashboard of a node without a token.
    Remote,
    /// The body of the request is longer than so many bytes.
    TooLarge(usize),
    /// The path exists, but not for this method.
    WrongMethod,
}

impl ApiError {
    /// Status, word and sentence of the answer.
    pub(super) fn parts(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Busy(shard) => {
                (StatusCode::SERVICE_UNAVAILABLE, "busy", format!("shard {} does not answer in time", shard.0))
            }
            Self::Silent => {
                (StatusCode::GATEWAY_TIMEOUT, "silent", "another node does not answer in time; try again".to_owned())
            }
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", "the node stops".to_owned()),
            Self::NotFound(detail) => (StatusCode::NOT_FOUND, "not_found", detail),
            Self::TooLarge(most) => {
                let detail = format!("the body is longer than {most} bytes (http.max_body_bytes)");
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
            }
            Self::BadRequest(detail) => (StatusCode::BAD_REQUEST, "bad_request", detail),
            Self::Conflict(detail) => (StatusCode::CONFLICT, "conflict", detail),
            Self::NoToken => {
                let detail = "this node wants a token: send 'Authorization: Bearer TOKEN'; the commands of sedge take --token-file FILE, \
                              SEDGE_API_TOKEN_FILE or SEDGE_API_TOKEN";
                (StatusCode::UNAUTHORIZED, "no_token", detail.to_owned())
            }
            Self::WrongToken => {
                let detail = "the token is not one of this node (http.token, http.token_file)".to_owned();
                (StatusCode::UNAUTHORIZED, "wrong_token", detail)
            }
            Self::NeedsRole { needed, has } => {
                let (name, keys) = (needed.name(), needed.keys());
                let detail = format!(
                    "this takes the role {name}; the token that was shown has {}: show one of {keys}",
                    has.name()
                );
                (StatusCode::FORBIDDEN, "role", detail)
            }
            Self::TokenOnly => {
                let detail = "accounts are changed with a token only: give the node one (http.token_file)".to_owned();
                (StatusCode::FORBIDDEN, "token_only", detail)
            }
            Self::ForeignHost(host) => {
                let detail = format!(
                    "the host {host} is no address, not localhost and not in http.names; show the token of the node (http.token_file) or ask by address"
                );
                (StatusCode::FORBIDDEN, "foreign_host", detail)
            }
            Self::ForeignOrigin(header) => {
                let detail = format!(
                    "a page of another site asks ({header}); it has to show the token of the node (http.token_file)"
                );
                (StatusCode::FORBIDDEN, "foreign_origin", detail)
            }
            Self::OfAForm => {
                let detail = "a form of any web page can send such a POST: add the header 'X-Sedge: 1' or 'Content-Type: application/json'";
                (StatusCode::FORBIDDEN, "form", detail.to_owned())
            }
            Self::TooManyStreams(limit) => {
                let detail =
                    format!("{limit} streams of events are open, more are not served; close another dashboard");
                (StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail)
            }
            Self::Remote => {
                let detail = "without a token the dashboard is for browsers on this machine only: set http.token_file (docs/dashboard.md)";
                (StatusCode::FORBIDDEN, "remote", detail.to_owned())
            }
            Self::WrongMethod => {
                let detail = "this path does not know that method; see /api/v1/openapi.json".to_owned();
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, error, detail) = self.parts();
        let mut response = (status, Json(ErrorBody { error: error.to_owned(), detail })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = match error {
                "wrong_token" => "Bearer realm=\"sedge\", error=\"invalid_token\"",
                _ => "Bearer realm=\"sedge\"",
            };
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
