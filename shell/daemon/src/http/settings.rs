//! The settings of the configuration, as `sedge config show` prints them.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::model::{ErrorBody, SettingEntry, Settings};
use super::server::Api;
use crate::config::{Setting, is_exchanged};

/// Every key with its value and where that comes from, as the files and variables of this node have them now. Secrets are left out.
#[utoipa::path(get, path = "/api/v1/settings", tag = "node", responses(
    (status = 200, body = Settings), (status = 409, body = ErrorBody)))]
pub(super) async fn settings(State(api): State<Api>) -> Result<Json<Settings>, ApiError> {
    let read = move || match api.shared.again.get() {
        Some(again) => again.settings(),
        None => Err("this node was not started from a configuration".to_owned()),
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| ApiError::Conflict(error.to_string()))?;
    let (settings, changed) = read.map_err(ApiError::Conflict)?;
    let entry = |Setting { key, value, words, source }: Setting| {
        let waits = changed.contains(&key);
        let waits_for = waits.then(|| if is_exchanged(&key) { "reload" } else { "restart" }.to_owned());
        let words = value.is_none().then_some(words);
        SettingEntry { key, value, words, from: source.to_string(), waits_for }
    };
    Ok(Json(Settings { settings: settings.into_iter().map(entry).collect() }))
}
