//! The export of traces in a build without the feature `otlp`: there is none, and a configuration with `otlp.endpoint` is refused.

use tokio::sync::watch;

use super::server::{Api, Facts};
use crate::StartError;
use crate::config::OtlpConfig;

/// See `otlp/mod.rs`.
pub(crate) enum Export {}

impl Export {
    /// There is never one.
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(crate) const fn new(_: &OtlpConfig, _: &Facts) -> Result<Option<Self>, StartError> {
        Ok(None)
    }

    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub(super) async fn run(self, _: Api, _: watch::Receiver<bool>) {
        match self {}
    }
}
