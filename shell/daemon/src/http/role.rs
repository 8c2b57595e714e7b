//! Roles: the rights of a request, by the token that it shows.

use axum::{Extension, Json};

use super::model::Standing;

/// Each role may do everything that the roles before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Looks, and changes nothing.
    View,
    /// Steers: ends connections, empties a node, traces, changes the level of the log, pauses scaling.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// Its name in the API.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The keys of its tokens.
    pub(super) const fn keys(self) -> &'static str {
        match self {
            Self::View => "http.view_token_file",
            Self::Operate => "http.operate_token_file",
            Self::Admin => "http.token_file",
        }
    }
}

/// Sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) role: Role,
    /// The sender has shown a token.
    pub(super) shown: bool,
    /// The sender has shown no token, and one might allow more.
    pub(super) asks: bool,
}

/// What whoever asks may do: the role of the token that the request shows; `admin` if the node has no token.
#[utoipa::path(get, path = "/api/v1/role", tag = "node", responses((status = 200, body = Standing)))]
pub(super) async fn role(Extension(caller): Extension<Caller>) -> Json<Standing> {
    Json(Standing { role: caller.role.name().to_owned(), asks: caller.asks })
}
