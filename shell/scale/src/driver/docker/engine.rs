//! The API of a Docker engine (version 1.41 and later), as far as the driver needs it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

use super::socket::{NoResolver, UnixConnector};

/// Creating a container may have to wait for the disk.
const PATIENCE: Duration = Duration::from_mins(2);
const MAX_ANSWER_BYTES: u64 = 64 << 20;
const VERSION: &str = "/v1.41";

/// A Docker engine: `DOCKER_HOST` (`unix://PATH` or `tcp://HOST:PORT`), or `/var/run/docker.sock`.
#[derive(Debug)]
pub(in crate::driver) struct Engine {
    agent: Agent,
    base: String,
    /// How people know it.
    name: String,
}

/// Answer of the engine: a status and a value.
type Answer = (u16, Value);

impl Engine {
    pub(in crate::driver) fn new() -> Result<Self, String> {
        let name = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
        let name = name.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
        let config =
            Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).proxy(None).build();
        if let Some(path) = name.strip_prefix("unix://") {
            let agent = Agent::with_parts(config, UnixConnector { path: PathBuf::from(path) }, NoResolver);
            return Ok(Self { agent, base: format!("http://docker{VERSION}"), name });
        }
        if let Some(address) = name.strip_prefix("tcp://") {
            return Ok(Self { agent: config.into(), base: format!("http://{address}{VERSION}"), name });
        }
        Err(format!("DOCKER_HOST {name:?}: write unix://PATH or tcp://HOST:PORT"))
    }

    /// How people know it.
    pub(in crate::driver) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::driver) fn get(&self, path: &str) -> Result<Answer, String> {
        self.read(self.agent.get(format!("{}{path}", self.base)).call())
    }

    pub(in crate::driver) fn post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        let request = self.agent.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        self.read(request.send(body.to_string()))
    }

    pub(in crate::driver) fn delete(&self, path: &str) -> Result<Answer, String> {
        self.read(self.agent.delete(format!("{}{path}", self.base)).call())
    }

    /// The same, where each status but those of success and those in `fine` is a failure.
    pub(in crate::driver) fn must(&self, answer: Result<Answer, String>, fine: &[u16]) -> Result<Answer, String> {
        let (status, value) = answer?;
        if (200..300).contains(&status) || fine.contains(&status) {
            return Ok((status, value));
        }
        let said = value.get("message").and_then(Value::as_str).unwrap_or("no reason is given");
        Err(format!("the Docker engine at {} says: {said} (status {status})", self.name))
    }

    fn read(&self, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, String> {
        let failed = |error: ureq::Error| {
            format!("no Docker engine answers at {}: {error}; is it running, and is DOCKER_HOST right?", self.name)
        };
        let mut answer = answer.map_err(failed)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().map_err(failed)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }
}
