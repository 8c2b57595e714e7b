//! The API of Kubernetes, as far as the driver needs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

const PATIENCE: Duration = Duration::from_secs(15);
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// So much of a refusal stands in an event.
const MAX_COMPLAINT_CHARS: usize = 300;
/// Where a pod finds its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Answer of the API: a status and a value.
pub(super) type Answer = (u16, Value);

/// A Kubernetes API server: `SEDGE_KUBERNETES_API`, or that of the pod that this program runs in.
#[derive(Debug)]
pub(super) struct Api {
    agent: Agent,
    base: String,
    /// Directory with `token`, `ca.crt` and `namespace`: `SEDGE_KUBERNETES_ACCOUNT`, or that of the pod.
    account: PathBuf,
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn own_address() -> Option<String> {
    let (host, port) = (given("KUBERNETES_SERVICE_HOST")?, given("KUBERNETES_SERVICE_PORT")?);
    // An address of IPv6 stands in brackets in a URL.
    Some(if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
}

impl Api {
    pub(super) fn new() -> Result<Self, String> {
        let base = given("SEDGE_KUBERNETES_API").or_else(own_address).ok_or(
            "no Kubernetes API server is known: run the controller in a pod, or set SEDGE_KUBERNETES_API, for example to \
             http://127.0.0.1:8001 while kubectl proxy runs",
        )?;
        let base = base.trim_end_matches('/').to_owned();
        if !base.starts_with("https://") && !base.starts_with("http://") {
            return Err(format!("SEDGE_KUBERNETES_API {base:?}: write http://HOST:PORT or https://HOST:PORT"));
        }
        let account = PathBuf::from(given("SEDGE_KUBERNETES_ACCOUNT").unwrap_or_else(|| ACCOUNT.to_owned()));
        let mut config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).proxy(None);
        // A client that follows a redirect would show the token to whatever server the redirect names.
        config = config.max_redirects(0);
        if base.starts_with("https://") {
            let path = account.join("ca.crt");
            let pem = std::fs::read(&path).map_err(|error| {
                format!("cannot read {}: {error}; it has the authority of the Kubernetes API", path.display())
            })?;
            let mut authorities = Vec::new();
            for item in ureq::tls::parse_pem(&pem) {
                if let PemItem::Certificate(found) = item.map_err(|error| format!("{}: {error}", path.display()))? {
                    authorities.push(found);
                }
            }
            let tls = TlsConfig::builder()
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .root_certs(RootCerts::new_with_certs(&authorities));
            config = config.tls_config(tls.build());
        }
        Ok(Self { agent: config.build().into(), base, account })
    }

    /// The namespace of the account, or `default`.
    pub(super) fn namespace(&self) -> String {
        let text = std::fs::read_to_string(self.account.join("namespace")).unwrap_or_default();
        if text.trim().is_empty() { "default".to_owned() } else { text.trim().to_owned() }
    }

    /// The account's token, which is renewed on the disk from time to time.
    fn authorization(&self) -> Option<String> {
        let token = std::fs::read_to_string(self.account.join("token")).ok()?;
        Some(format!("Bearer {}", token.trim()))
    }

    /// Reads `path`; a status of 404 is an answer.
    pub(super) fn get(&self, path: &str) -> Result<Answer, String> {
        let mut request = self.agent.get(format!("{}{path}", self.base)).header("accept", "application/json");
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        self.read(request.call(), &[404])
    }

    /// Changes the object at `path`; a status of 409 is an answer: somebody else has changed the object meanwhile.
    pub(super) fn patch(&self, path: &str, body: &Value) -> Result<Answer, String> {
        let request = self.agent.patch(format!("{}{path}", self.base)).header("accept", "application/json");
        let mut request = request.header("content-type", "application/merge-patch+json");
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        self.read(request.send(body.to_string()), &[409])
    }

    fn read(&self, answer: Result<Response<ureq::Body>, ureq::Error>, fine: &[u16]) -> Result<Answer, String> {
        let failed = |error: ureq::Error| format!("the Kubernetes API at {} does not answer: {error}", self.base);
        let mut answer = answer.map_err(failed)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().map_err(failed)?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if (200..300).contains(&status) || fine.contains(&status) {
            return Ok((status, value));
        }
        let said = value.get("message").and_then(Value::as_str).unwrap_or(&text);
        let said: String = said.trim().chars().take(MAX_COMPLAINT_CHARS).collect();
        let advice = match status {
            401 => "; is the account's token right?",
            403 => "; allow it to get pods, and to get and patch statefulsets/scale",
            _ => "",
        };
        Err(format!("the Kubernetes API at {} says: {said} (status {status}){advice}", self.base))
    }
}
