//! Requests to the collector.

use std::path::Path;

use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use ureq::Agent;
use ureq::tls::Certificate;

use crate::discovery::web;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// See [`HttpClient`].
#[derive(Debug)]
pub(super) struct Client(Agent);

impl Client {
    /// Trusts the authorities in this file (PEM), or those of the system.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let found = authorities.map_or_else(|| Ok(of_the_system()), of_the_file)?;
        Ok(Self(web::agent(&found, None)))
    }
}

fn of_the_system() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().map(|found| Certificate::from_der(found).to_owned()).collect()
}

fn of_the_file(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let found = web::certificates(&web::file(file)?).map_err(|error| format!("{}: {error}", file.display()))?;
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
