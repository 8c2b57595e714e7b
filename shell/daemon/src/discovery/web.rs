//! Asking services that speak HTTP and JSON.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};

/// Time for one answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// So much of an answer that is a refusal stands in the log.
const COMPLAINT_CHARS_MAX: usize = 200;

/// Certificates of a service and for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trust {
    /// Authorities of the service (PEM).
    pub(super) ca: Option<Vec<u8>>,
    /// Certificates of this node for it, and their private key (PEM).
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody can be reached, or what comes makes no sense.
    Unreachable(String),
    /// The service refuses, with this status.
    Refused(u16, String),
}

impl Failure {
    /// For people.
    pub(super) fn text(self) -> String {
        match self {
            Self::Unreachable(why) => why,
            Self::Refused(status, why) => format!("status {status}: {why}"),
        }
    }
}

/// A client.
pub(super) struct Web(Agent);

impl Web {
    pub(super) fn new(trust: &Trust) -> Result<Self, String> {
        let wrong = |what: &'static str| move |error: ureq::Error| format!("{what}: {error}");
        let authorities = trust.ca.as_deref().map(certificates).transpose().map_err(wrong("its authority"))?;
        let identity = match &trust.identity {
            Some((chain, key)) => {
                let key = PrivateKey::from_pem(key).map_err(wrong("the private key"))?;
                Some(ClientCert::new_with_certs(&certificates(chain).map_err(wrong("the certificate"))?, key))
            }
            None => None,
        };
        Ok(Self(agent(&authorities.unwrap_or_default(), identity)))
    }

    /// GET with a bearer token.
    pub(super) fn get(&self, url: &str, token: &str) -> Result<Value, Failure> {
        let request = self.0.get(url).header("accept", "application/json");
        answer(request.header("authorization", format!("Bearer {token}")).call())
    }

    /// POST of JSON, with the token as it is if there is one.
    pub(super) fn post(&self, url: &str, token: Option<&str>, body: &Value) -> Result<Value, Failure> {
        let mut request = self.0.post(url).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        answer(request.send(body.to_string()))
    }
}

fn answer(answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, Failure> {
    let unreachable = |error: ureq::Error| Failure::Unreachable(error.to_string());
    let mut answer = answer.map_err(unreachable)?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(unreachable)?;
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body);
        let said = serde_json::from_slice::<Value>(&body).ok();
        let said = said.as_ref().and_then(|said| said.get("message")).and_then(Value::as_str).unwrap_or(&text);
        return Err(Failure::Refused(status.as_u16(), said.trim().chars().take(COMPLAINT_CHARS_MAX).collect()));
    }
    serde_json::from_slice(&body).map_err(|error| Failure::Unreachable(format!("its answer is not JSON: {error}")))
}

/// A client of services that these authorities vouch for; each answer takes [`TIMEOUT`] at most.
pub(crate) fn agent(authorities: &[Certificate<'static>], identity: Option<ClientCert>) -> Agent {
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(authorities))
        .client_cert(identity);
    // A proxy would see tokens, and so would whoever a redirect leads to.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
    config.max_redirects(0).tls_config(tls.build()).build().into()
}

/// The certificates in a PEM text.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, ureq::Error> {
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item? {
            found.push(certificate);
        }
    }
    Ok(found)
}

/// Reads a file that a key names.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
