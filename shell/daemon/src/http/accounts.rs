//! Accounts of the password file: the same changes as those of `sedge passwd`.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use sedge_access::scram::Mechanism;

use super::error::ApiError;
use super::model::{Account, Accounts, ErrorBody, NewPassword};
use super::role::Caller;
use super::server::Api;
use crate::access::{PasswordFile, edited, hash_password, replace_file, salt, scram_verifier, wrong_user};
use crate::runtime::Shared;

/// One change of a file at a time: each begins with what the last one has written.
static TURN: Mutex<()> = Mutex::new(());

/// The names in the password file of this node.
#[utoipa::path(get, path = "/api/v1/accounts", tag = "accounts", responses(
    (status = 200, body = Accounts), (status = 409, body = ErrorBody)))]
pub(super) async fn list(State(api): State<Api>) -> Result<Json<Accounts>, ApiError> {
    let Some(path) = api.shared.gate.password_file() else { return Ok(Json(Accounts::default())) };
    let text = fs::read_to_string(path).map_err(|error| cannot("read", path, &error.to_string()))?;
    let known = PasswordFile::parse(&text).map_err(|errors| cannot("use", path, &join(&errors)))?;
    let account = |user: &str| {
        let scram = known.scram(user).map(|(mechanism, _)| words(mechanism).to_owned());
        Account { user: user.to_owned(), scram }
    };
    Ok(Json(Accounts { file: Some(path.display().to_string()), accounts: known.users().map(account).collect() }))
}

/// Gives a user a password; one who is not there yet is added. Counts at once for new connections at this node; connections of the user end. Takes
/// a token, also at a node that has none for the rest.
#[utoipa::path(put, path = "/api/v1/accounts/{user}", tag = "accounts", request_body = NewPassword,
    params(("user" = String, Path, description = "User name, percent-encoded")), responses(
    (status = 200, body = Accounts), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(user): Path<String>,
    password: Result<Json<NewPassword>, JsonRejection>,
) -> Result<Json<Accounts>, ApiError> {
    let Json(NewPassword { password }) = password.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    if let Some(what) = wrong_user(&user) {
        return Err(ApiError::BadRequest(what.to_owned()));
    }
    if password.is_empty() {
        return Err(ApiError::BadRequest("the password is empty".to_owned()));
    }
    change(api, caller, user, Some(password)).await
}

/// Takes a user out of the password file. Its connections end.
#[utoipa::path(delete, path = "/api/v1/accounts/{user}", tag = "accounts",
    params(("user" = String, Path, description = "User name, percent-encoded")), responses(
    (status = 200, body = Accounts), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(user): Path<String>,
) -> Result<Json<Accounts>, ApiError> {
    change(api, caller, user, None).await
}

async fn change(api: Api, caller: Caller, user: String, password: Option<String>) -> Result<Json<Accounts>, ApiError> {
    if !caller.shown {
        return Err(ApiError::TokenOnly);
    }
    let shared = Arc::clone(&api.shared);
    // Hashing takes time and memory, and a disk may be slow.
    let done = tokio::task::spawn_blocking(move || write(&shared, &user, password.as_deref())).await;
    done.map_err(|error| ApiError::Conflict(error.to_string()))??;
    list(State(api)).await
}

fn write(shared: &Arc<Shared>, user: &str, password: Option<&str>) -> Result<(), ApiError> {
    let path: PathBuf = shared
        .gate
        .password_file()
        .map(FilePath::to_owned)
        .ok_or_else(|| ApiError::Conflict("this node has no password file (auth.password_file)".to_owned()))?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error.to_string()))?;
    let known = PasswordFile::parse(&text).map_err(|errors| cannot("use", &path, &join(&errors)))?;
    if password.is_none() && !known.contains(user) {
        return Err(ApiError::NotFound(format!("there is no account of {user:?}")));
    }
    let hash =
        password.map(|password| hashed(password, known.scram(user))).transpose().map_err(ApiError::BadRequest)?;
    let text = edited(&text, user, hash.as_deref()).map_err(|errors| cannot("use", &path, &errors.join("; ")))?;
    replace_file(&path, &text).map_err(|error| cannot("write", &path, &error.to_string()))?;
    let what = if password.is_some() { "has a new password" } else { "was removed" };
    shared.note_order(None, &format!("the account of {user:?} {what}"));
    tracing::warn!(user, what, "an account was changed by request");
    match crate::reload::reload_access(shared).problem {
        None => Ok(()),
        Some(problem) => Err(ApiError::Conflict(format!("the file was written and cannot be read again: {problem}"))),
    }
}

/// A hash of the same kind as the one before.
fn hashed(password: &str, before: Option<(Mechanism, u32)>) -> Result<String, String> {
    match before {
        Some((mechanism, iterations)) => scram_verifier(mechanism, iterations, password, &salt()?),
        None => hash_password(password.as_bytes(), &salt()?),
    }
}

const fn words(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Sha256 => "sha-256",
        Mechanism::Sha512 => "sha-512",
    }
}

fn join(errors: &[crate::access::PasswordError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn cannot(what: &str, path: &FilePath, why: &str) -> ApiError {
    ApiError::Conflict(format!("cannot {what} {}: {why}", path.display()))
}
