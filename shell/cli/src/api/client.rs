//! HTTP requests to a node.

use std::time::Duration;

use sedge_base::printable;
use sedge_daemon::http::model::{ErrorBody, Readiness};
use serde::de::DeserializeOwned;
use ureq::http::StatusCode;
use ureq::typestate::{WithBody, WithoutBody};
use ureq::{Agent, RequestBuilder};

use crate::failure::Failure;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Far more than a page of sessions takes.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// The HTTP API of one node.
#[derive(Debug)]
pub(crate) struct Api {
    base: String,
    agent: Agent,
    /// Header that shows the token.
    authorization: Option<String>,
}

/// An answer, as it came and as a value.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) body: String,
    pub(crate) value: T,
}

impl Api {
    /// The API at `base`, `http://host:port`, for requests that show `token`.
    pub(crate) fn new(base: &str, token: Option<&str>) -> Result<Self, Failure> {
        if base.starts_with("https://") {
            return Err(Failure::usage(format!("--api {base}: TLS is not supported yet; use http://")));
        }
        if !base.starts_with("http://") {
            return Err(Failure::usage(format!("--api {base}: write http://host:port")));
        }
        // A proxy would be asked for addresses of this machine that mean nothing to it.
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
        let authorization = token.map(|token| format!("Bearer {token}"));
        Ok(Self { base: base.trim_end_matches('/').to_owned(), agent: config.build().into(), authorization })
    }

    /// Gets `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        self.understand(self.with_token(self.agent.get(self.url(path))).call())
    }

    /// Gets `path` as plain text.
    pub(crate) fn text(&self, path: &str) -> Result<String, Failure> {
        let answer = self.with_token(self.agent.get(self.url(path))).call();
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(Failure::failed(format!("{}{path}: status {}", self.base, answer.status())));
        }
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        body.map_err(|error| self.unreachable(&error))
    }

    /// Deletes `path`.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        self.understand(self.with_token(self.agent.delete(self.url(path))).call())
    }

    /// Deletes something that may be gone already.
    pub(crate) fn end(&self, path: &str) {
        // A refusal is no reason to fail: the object ends by itself anyway.
        let _ = self.with_token(self.agent.delete(self.url(path))).call();
    }

    /// Posts to `path`, without a body.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        self.understand(self.empty(self.agent.post(self.url(path))).send_empty())
    }

    /// Puts to `path`, without a body.
    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        self.understand(self.empty(self.agent.put(self.url(path))).send_empty())
    }

    /// Posts to `path`, whose answer lists problems with status 422.
    pub(crate) fn post_with_problems<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        let answered = self.empty(self.agent.post(self.url(path))).send_empty();
        self.understand(answered.map(|mut response| {
            if response.status() == StatusCode::UNPROCESSABLE_ENTITY {
                *response.status_mut() = StatusCode::OK;
            }
            response
        }))
    }

    fn empty(&self, request: RequestBuilder<WithBody>) -> RequestBuilder<WithBody> {
        let request = request.header("x-sedge", "1");
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Whether anybody answers.
    pub(crate) fn is_there(&self) -> bool {
        self.agent.get(self.url("/health/live")).call().is_ok()
    }

    /// Whether the node says that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.with_token(self.agent.get(self.url("/health/ready")))
            .call()
            .is_ok_and(|answer| answer.status().is_success())
    }

    /// Whether the node is ready for clients, and why not.
    pub(crate) fn readiness(&self) -> Result<Readiness, Failure> {
        let answer = self.with_token(self.agent.get(self.url("/health/ready"))).call();
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let body = body.map_err(|error| self.unreachable(&error))?;
        serde_json::from_str(&body).map_err(|_not_json| {
            let (base, status) = (&self.base, answer.status());
            Failure::failed(format!("{base}: status {status}, where a Sedge node says whether it is ready"))
        })
    }

    fn with_token(&self, request: RequestBuilder<WithoutBody>) -> RequestBuilder<WithoutBody> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn understand<T: DeserializeOwned>(
        &self,
        result: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answer<T>, Failure> {
        let mut response = result.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let body = body.map_err(|error| self.unreachable(&error))?;
        if !status.is_success() {
            let said: Option<ErrorBody> = serde_json::from_str(&body).ok();
            let detail = said.map_or_else(|| format!("status {status}"), |said| said.detail);
            return Err(Failure::failed(format!("{}: {}", self.base, printable(&detail))));
        }
        let value = serde_json::from_str(&body).map_err(|error| {
            Failure::failed(format!("{} does not answer as a Sedge node of this version does: {error}", self.base))
        })?;
        Ok(Answer { body, value })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let base = &self.base;
        Failure::failed(format!("cannot reach the API at {base}: {error}; is a node running there? (--api, SEDGE_API)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_addresses_are_taken() {
        assert!(Api::new("https://x", None).unwrap_err().message.unwrap().contains("TLS"));
        assert_eq!(Api::new("localhost:8080", None).unwrap_err().code, 2);
        assert_eq!(Api::new("http://localhost:8080/", None).unwrap().base, "http://localhost:8080");
    }
}
