//! Asking an HTTP server whether a user name and password are right.

use std::time::Duration;

use sedge_mqtt::ReasonCode;
use serde_json::json;
use ureq::Agent;

use super::cache::Outcome;
use super::gate::Question;

/// A server to ask.
pub(super) struct CallOut {
    url: String,
    agent: Agent,
}

impl CallOut {
    pub(super) fn new(url: &str, timeout: Duration) -> Self {
        // A proxy would see passwords.
        let config = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false).proxy(None);
        Self { url: url.to_owned(), agent: config.max_redirects(0).build().into() }
    }

    /// Asks with a POST of `{"user": ..., "password": ..., "client": ..., "peer": ...}`: a status of 2xx is yes, one of 4xx is no,
    /// anything else is no answer.
    pub(super) fn ask(&self, question: &Question) -> Outcome {
        let Ok(password) = std::str::from_utf8(&question.password) else {
            return Err(ReasonCode::BadUserNameOrPassword);
        };
        let (user, client, peer) = (&question.user, &question.client, &question.peer);
        let body = json!({ "user": user, "password": password, "client": client, "peer": peer }).to_string();
        match self.agent.post(&self.url).header("content-type", "application/json").send(body) {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) if response.status().is_client_error() => Err(ReasonCode::BadUserNameOrPassword),
            Ok(response) => {
                tracing::warn!(url = self.url, status = response.status().as_u16(), "auth.http_url gives no answer");
                Err(ReasonCode::ServerUnavailable)
            }
            Err(error) => {
                tracing::warn!(url = self.url, %error, "auth.http_url gives no answer");
                Err(ReasonCode::ServerUnavailable)
            }
        }
    }
}
