//! Accounts of the password file: the same changes as those of `sedge passwd`.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use sedge_access::scram::Mechanism;
use sedge_base::NodeId;
use serde::{Deserialize, Serialize};

use super::desk::{Heard, Inquiry, ask_members};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{Account, AccountElsewhere, Accounts, ErrorBody, NewPassword};
use super::role::Caller;
use super::scope::{Whose, labels, scope};
use super::server::Api;
use crate::access::{
    PasswordFile, SCRAM_ITERATIONS, edited, hash_password, replace_file, salt, scram_verifier, wrong_user,
};
use crate::runtime::Shared;

/// One change of a file at a time: each begins with what the last one has written.
static TURN: Mutex<()> = Mutex::new(());

/// A change that one node asks another for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    user: String,
    /// `None`: the account goes.
    hashes: Option<Hashes>,
}

/// One password, hashed for each kind of account: the password itself stays at the node that was asked.
#[derive(Clone, Serialize, Deserialize)]
struct Hashes {
    argon2id: String,
    sha256: String,
    sha512: String,
}

impl std::fmt::Debug for Hashes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hashes")
    }
}

/// The answer to a [`Change`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Changed {
    /// The node has changed its file.
    Yes,
    /// The account that goes is not in it.
    NoAccount(String),
    /// The file is as before, for this reason.
    No(String),
}

/// The new password of an account, or its end.
enum New<'a> {
    Password(&'a str),
    Hashes(&'a Hashes),
    Nothing,
}

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
    Ok(Json(Accounts {
        file: Some(path.display().to_string()),
        accounts: known.users().map(account).collect(),
        elsewhere: Vec::new(),
    }))
}

/// Gives a user a password; one who is not there yet is added. Counts at once for new connections; connections of the user end. Takes a token,
/// also at a node that has none for the rest. With `node=*` the node that is asked changes its file first: if it cannot, no other node is asked.
#[utoipa::path(put, path = "/api/v1/accounts/{user}", tag = "accounts", request_body = NewPassword,
    params(("user" = String, Path, description = "User name, percent-encoded"), Whose), responses(
    (status = 200, body = Accounts), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 504, body = ErrorBody)))]
pub(super) async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(user): Path<String>,
    query: Result<Query<Whose>, QueryRejection>,
    password: Result<Json<NewPassword>, JsonRejection>,
) -> Result<Json<Accounts>, ApiError> {
    let Json(NewPassword { password }) = password.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    if let Some(what) = wrong_user(&user) {
        return Err(ApiError::BadRequest(what.to_owned()));
    }
    if password.is_empty() {
        return Err(ApiError::BadRequest("the password is empty".to_owned()));
    }
    change(api, caller, parameters(query)?, user, Some(password)).await
}

/// Takes a user out of the password file. Its connections end.
#[utoipa::path(delete, path = "/api/v1/accounts/{user}", tag = "accounts",
    params(("user" = String, Path, description = "User name, percent-encoded"), Whose), responses(
    (status = 200, body = Accounts), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 504, body = ErrorBody)))]
pub(super) async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(user): Path<String>,
    query: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<Accounts>, ApiError> {
    change(api, caller, parameters(query)?, user, None).await
}

async fn change(
    api: Api,
    caller: Caller,
    whose: Whose,
    user: String,
    password: Option<String>,
) -> Result<Json<Accounts>, ApiError> {
    if !caller.shown {
        return Err(ApiError::TokenOnly);
    }
    let (others, here) = scope(&api, whose.node.as_deref()).await?.parts();
    let shared = Arc::clone(&api.shared);
    let alone = others.is_empty();
    // Hashing takes time and memory, and a disk may be slow.
    let change = blocking(move || {
        if here {
            write(&shared, &user, &password.as_deref().map_or(New::Nothing, New::Password))?;
        }
        let hashes = password.filter(|_| !alone).map(|password| all_kinds(&password)).transpose();
        hashes.map(|hashes| Change { user, hashes }).map_err(ApiError::BadRequest)
    });
    let told = elsewhere(&api, &others, change.await?).await?;
    match told.first() {
        Some((_, Changed::NoAccount(why))) if !here => return Err(ApiError::NotFound(why.clone())),
        Some((_, Changed::No(why))) if !here => return Err(ApiError::Conflict(why.clone())),
        _ => {}
    }
    // Nodes of one machine may share a file: an account that has gone there is no problem.
    let problem = |changed| if let Changed::No(why) = changed { Some(why) } else { None };
    let elsewhere =
        told.into_iter().map(|(node, changed)| AccountElsewhere { node, problem: problem(changed) }).collect();
    let Json(accounts) = list(State(api)).await?;
    Ok(Json(Accounts { elsewhere, ..accounts }))
}

/// Other nodes change their files, all at once. Their names, in order, and what they answer.
async fn elsewhere(api: &Api, others: &[NodeId], change: Change) -> Result<Vec<(String, Changed)>, ApiError> {
    let Heard { answers, silent } = ask_members::<Changed>(api, others, &Inquiry::Account(change)).await;
    let silent = silent.into_iter().map(|node| (node, Changed::No("the node has not answered".to_owned())));
    let (nodes, told): (Vec<NodeId>, Vec<Changed>) = answers.into_iter().chain(silent).unzip();
    let mut told: Vec<_> = labels(api, &nodes).await?.into_iter().zip(told).collect();
    told.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(told)
}

/// Another node asks for a change.
pub(super) async fn asked(api: &Api, Change { user, hashes }: Change) -> Changed {
    let shared = Arc::clone(&api.shared);
    let done = blocking(move || write(&shared, &user, &hashes.as_ref().map_or(New::Nothing, New::Hashes))).await;
    match done {
        Ok(()) => Changed::Yes,
        Err(ApiError::NotFound(why)) => Changed::NoAccount(why),
        Err(error) => Changed::No(error.parts().2),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::Conflict(error.to_string()))?
}

fn write(shared: &Arc<Shared>, user: &str, new: &New<'_>) -> Result<(), ApiError> {
    let path: PathBuf = shared
        .gate
        .password_file()
        .map(FilePath::to_owned)
        .ok_or_else(|| ApiError::Conflict("this node has no password file (auth.password_file)".to_owned()))?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error.to_string()))?;
    let known = PasswordFile::parse(&text).map_err(|errors| cannot("use", &path, &join(&errors)))?;
    let hash = match new {
        New::Nothing if !known.contains(user) => {
            return Err(ApiError::NotFound(format!("there is no account of {user:?}")));
        }
        New::Nothing => None,
        New::Password(password) => Some(hashed(password, known.scram(user)).map_err(ApiError::BadRequest)?),
        New::Hashes(hashes) => Some(hashes.of_kind(known.scram(user).map(|(mechanism, _)| mechanism)).to_owned()),
    };
    let text = edited(&text, user, hash.as_deref()).map_err(|errors| cannot("use", &path, &errors.join("; ")))?;
    replace_file(&path, &text).map_err(|error| cannot("write", &path, &error.to_string()))?;
    let what = if hash.is_some() { "has a new password" } else { "was removed" };
    shared.note_order(None, &format!("the account of {user:?} {what}"));
    tracing::warn!(user, what, "an account was changed by request");
    match crate::reload::reload_access(shared).problem {
        None => Ok(()),
        Some(problem) => Err(ApiError::Conflict(format!("the file was written and cannot be read again: {problem}"))),
    }
}

impl Hashes {
    fn of_kind(&self, scram: Option<Mechanism>) -> &str {
        match scram {
            None => &self.argon2id,
            Some(Mechanism::Sha256) => &self.sha256,
            Some(Mechanism::Sha512) => &self.sha512,
        }
    }
}

fn all_kinds(password: &str) -> Result<Hashes, String> {
    let scram = |mechanism| scram_verifier(mechanism, SCRAM_ITERATIONS, password, &salt()?);
    Ok(Hashes {
        argon2id: hash_password(password.as_bytes(), &salt()?)?,
        sha256: scram(Mechanism::Sha256)?,
        sha512: scram(Mechanism::Sha512)?,
    })
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
