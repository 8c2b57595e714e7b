//! Requests to the collector.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use ureq::Agent;
use ureq::tls::Certificate;

use crate::discovery::web;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// HTTP status of the collector's last answer; 0 if it gave none to the last request.
#[derive(Clone, Debug, Default)]
pub(super) struct LastStatus(Arc<AtomicU16>);

impl LastStatus {
    /// Whether the collector will refuse the same spans again. OTLP 1.9, "Failures": only 429, 502, 503 and 504 may be retried.
    pub(super) fn is_final(&self) -> bool {
        is_final(self.0.load(Ordering::Relaxed))
    }
}

const fn is_final(status: u16) -> bool {
    status >= 400 && !matches!(status, 429 | 502 | 503 | 504)
}

/// The exporter's HTTP client: ureq, on a thread that may block.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    last: LastStatus,
}

impl Client {
    /// Trusts the authorities in this file (PEM), or those of the system.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let found = authorities.map_or_else(|| Ok(of_the_system()), of_the_file)?;
        Ok(Self { agent: web::agent(&found, None), last: LastStatus::default() })
    }

    /// The place where this client notes what the collector answers.
    pub(super) fn last_status(&self) -> LastStatus {
        self.last.clone()
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
        let agent = self.agent.clone();
        self.last.0.store(0, Ordering::Relaxed);
        let request = request.map(|body| body.to_vec());
        let answer = tokio::task::spawn_blocking(move || {
            let (parts, mut body) = agent.run(request)?.into_parts();
            let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
            Ok::<_, ureq::Error>(Response::from_parts(parts, Bytes::from(body)))
        });
        let answer = answer.await??;
        self.last.0.store(answer.status().as_u16(), Ordering::Relaxed);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::is_final;

    /// OP-07: OTLP 1.9, "Failures".
    #[test]
    fn the_answers_that_may_change_are_those_of_otlp() {
        let retried: Vec<u16> = (100..600).filter(|status| *status >= 400 && !is_final(*status)).collect();
        assert_eq!(retried, [429, 502, 503, 504]);
        assert!(!is_final(0) && !is_final(200));
    }
}
