//! The file that every delivery is written to.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::error::BenchError;
use crate::measure::{Delivery, HEAD};

/// The file that every delivery is written to, if there is to be one.
#[derive(Debug)]
pub(super) struct RawFile(Option<(PathBuf, File)>);

impl RawFile {
    /// Begins the file at `path`.
    pub(super) fn create(path: Option<&PathBuf>) -> Result<Self, BenchError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let failed = |source| BenchError::File { path: path.clone(), source };
        let mut file = File::create(path).map_err(failed)?;
        file.write_all(HEAD.as_bytes()).map_err(failed)?;
        Ok(Self(Some((path.clone(), file))))
    }

    /// Appends `deliveries`.
    pub(super) fn write(&mut self, deliveries: &[Delivery]) -> Result<(), BenchError> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let mut text = String::with_capacity(deliveries.len() * 64);
        for delivery in deliveries {
            delivery.write(&mut text);
        }
        file.write_all(text.as_bytes()).map_err(|source| BenchError::File { path: path.clone(), source })
    }
}
