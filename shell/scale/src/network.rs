//! Requests to nodes, and free ports.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

use crate::process::listen;

/// Ports that nodes get: below those that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// The HTTP API of nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    agent: Agent,
    token: String,
}

impl Nodes {
    /// An agent whose requests show `token` and take at most `patience`.
    pub(crate) fn new(token: &str, patience: Duration) -> Self {
        let config = Agent::config_builder().timeout_global(Some(patience)).http_status_as_error(false).proxy(None);
        Self { agent: config.build().into(), token: token.to_owned() }
    }

    /// The node's answer at `path`.
    pub(crate) fn text(&self, http: &str, path: &str) -> Result<String, String> {
        let request = self.agent.get(format!("http://{http}{path}")).header("authorization", self.authorization());
        Self::read(request.call(), http)
    }

    /// The same as JSON.
    pub(crate) fn json(&self, http: &str, path: &str) -> Result<Value, String> {
        serde_json::from_str(&self.text(http, path)?)
            .map_err(|error| format!("{http} does not answer as a Sedge node: {error}"))
    }

    /// Asks the node to do something.
    pub(crate) fn post(&self, http: &str, path: &str) -> Result<String, String> {
        let request = self.agent.post(format!("http://{http}{path}")).header("authorization", self.authorization());
        Self::read(request.header("content-type", "application/json").send("{}"), http)
    }

    /// Tells the node something.
    pub(crate) fn put(&self, http: &str, path: &str, json: &str) -> Result<String, String> {
        let request = self.agent.put(format!("http://{http}{path}")).header("authorization", self.authorization());
        Self::read(request.header("content-type", "application/json").send(json), http)
    }

    /// Asks the node to end something.
    pub(crate) fn delete(&self, http: &str, path: &str) -> Result<String, String> {
        let request = self.agent.delete(format!("http://{http}{path}")).header("authorization", self.authorization());
        Self::read(request.header("content-type", "application/json").call(), http)
    }

    /// Whether the node is ready for clients.
    pub(crate) fn is_ready(&self, http: &str) -> bool {
        self.text(http, "/health/ready").is_ok()
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    fn read(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>, http: &str) -> Result<String, String> {
        let mut answer = answer.map_err(|error| format!("{http} does not answer: {error}"))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let body = body.map_err(|error| format!("{http} does not answer: {error}"))?;
        if answer.status().is_success() {
            return Ok(body);
        }
        let said: Option<Value> = serde_json::from_str(&body).ok();
        let detail = said.and_then(|said| said.get("detail").and_then(Value::as_str).map(str::to_owned));
        Err(detail.unwrap_or_else(|| format!("{http} answers with status {}", answer.status())))
    }
}

/// Free ports, none of them in `taken`.
pub(crate) fn free_ports<const N: usize>(taken: &BTreeSet<u16>) -> Option<[u16; N]> {
    // Where the search begins differs, so that two controllers at once do not try the same ports.
    let span = u64::from(PORTS.end - PORTS.start);
    let offset = u16::try_from(getrandom::u64().unwrap_or(0) % span).unwrap_or(0);
    let turned = (PORTS.start + offset..PORTS.end).chain(PORTS.start..PORTS.start + offset);
    let mut free = turned.filter(|port| !taken.contains(port) && listen(*port, true).is_ok());
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free.next()?;
    }
    Some(ports)
}

/// `text` as one segment of a path (RFC 3986 section 2.3).
pub fn segment(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            let _ = write!(safe, "%{byte:02X}");
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_safe_in_paths() {
        assert_eq!(segment("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(segment("a/b ü%"), "a%2Fb%20%C3%BC%25");
    }

    #[test]
    fn free_ports_differ_and_are_not_taken() {
        let [a, b, c] = free_ports::<3>(&BTreeSet::new()).unwrap();
        assert!(a != b && b != c && a != c);
        let taken: BTreeSet<u16> = PORTS.filter(|port| *port != a).collect();
        assert_eq!(free_ports::<1>(&taken), Some([a]));
        assert_eq!(free_ports::<2>(&taken), None);
    }
}
