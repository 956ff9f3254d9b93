//! Secrets in files that are reread when they change.

use std::{
    fmt::Display,
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{Secret, TransportError, config::SecretSource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// Only if the check interval has passed.
    IfDue,
    /// Now, because the server rejected a request.
    Now,
}

/// A secret from a setting or from a file that may change. Concurrent readers wait for one check.
#[derive(Debug)]
pub(super) struct ReloadingFile {
    what: &'static str,
    source: SecretSource,
    check_interval: Duration,
    /// The value, and when the file was checked last.
    last: Mutex<Option<(Secret, Instant)>>,
}

impl ReloadingFile {
    pub(super) fn new(what: &'static str, source: SecretSource, check_interval: Duration) -> Self {
        Self { what, source, check_interval, last: Mutex::default() }
    }

    pub(super) async fn read(&self, reload: Reload) -> Result<Secret, TransportError> {
        let path = match &self.source {
            SecretSource::Literal(secret) => return Ok(secret.clone()),
            SecretSource::File(path) => path,
        };
        let mut last = self.last.lock().await;
        if let Some((value, checked_at)) = &*last
            && reload == Reload::IfDue
            && checked_at.elapsed() < self.check_interval
        {
            return Ok(value.clone());
        }
        let value = match (self.read_file(path).await, &*last) {
            // A file that is being replaced is missing for a moment: keep the previous value until it is rejected.
            (Err(error), Some((previous, _))) if reload == Reload::IfDue => {
                tracing::warn!(%error, "failed to read file; still using the previous value");
                previous.clone()
            }
            (result, _) => result?,
        };
        *last = Some((value.clone(), Instant::now()));
        Ok(value)
    }

    /// Returns an error about the value, with the place where it is configured.
    pub(super) fn complain(&self, why: impl Display) -> TransportError {
        match &self.source {
            SecretSource::Literal(_) => TransportError::setting(self.what, why),
            SecretSource::File(path) => TransportError::file(self.what, path.display(), why),
        }
    }

    async fn read_file(&self, path: &Path) -> Result<Secret, TransportError> {
        let bytes = tokio::fs::read(path).await;
        let bytes =
            bytes.map_err(|why| TransportError::unreadable(self.what, path.display(), &why))?;
        let text = String::from_utf8(bytes).map_err(|_| self.complain("it is not UTF-8"))?;
        match text.trim() {
            "" => Err(self.complain("it is empty")),
            value => Ok(value.into()),
        }
    }
}
