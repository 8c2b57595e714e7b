//! Requests to the collector.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

/// Time for one request: as long a node that stops may wait.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// See [`HttpClient`].
#[derive(Debug)]
pub(super) struct Client(Agent);

impl Client {
    /// Trusts the authorities in this file (PEM), or those of the system.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let found = authorities.map_or_else(|| Ok(of_the_system()), of_the_file)?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&found));
        // A proxy would see the keys in the headers, and so would whoever a redirect leads to.
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
        Ok(Self(config.max_redirects(0).tls_config(tls.build()).build().into()))
    }
}

fn of_the_system() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().map(|found| Certificate::from_der(found).to_owned()).collect()
}

fn of_the_file(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let pem = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let items = ureq::tls::parse_pem(&pem).filter_map(Result::ok);
    let found: Vec<_> =
        items.filter_map(|item| if let PemItem::Certificate(found) = item { Some(found) } else { None }).collect();
    if found.is_empty() { Err(format!("{}: there is no certificate in it", file.display())) } else { Ok(found) }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let agent = self.0.clone();
        let request = request.map(|body| body.to_vec());
        let answer = tokio::task::spawn_blocking(move || {
            let (parts, mut body) = agent.run(request)?.into_parts();
            let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
            Ok::<_, ureq::Error>(Response::from_parts(parts, Bytes::from(body)))
        });
        Ok(answer.await??)
    }
}
