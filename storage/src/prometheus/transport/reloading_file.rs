//! Secrets in files that are reread when they change.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{Secret, TransportError, config::SecretSource};

/// When to check the file.
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
    state: Mutex<FileState>,
}

#[derive(Debug, Default)]
struct FileState {
    value: Secret,
    /// How often the value has changed; 0 before the first read.
    version: u64,
    checked_at: Option<Instant>,
}

impl ReloadingFile {
    pub(super) fn new(what: &'static str, source: SecretSource, check_interval: Duration) -> Self {
        Self { what, source, check_interval, state: Mutex::default() }
    }

    /// Returns the value, and how often it has changed so far.
    pub(super) async fn read(&self, reload: Reload) -> Result<(Secret, u64), TransportError> {
        let path = match &self.source {
            SecretSource::Literal(secret) => return Ok((secret.clone(), 0)),
            SecretSource::File(path) => path,
        };
        let mut state = self.state.lock().await;
        let is_recent =
            state.checked_at.is_some_and(|checked_at| checked_at.elapsed() < self.check_interval);
        if reload == Reload::Now || !is_recent {
            match self.read_file(path).await {
                Ok(value) => {
                    if state.version == 0 || value != state.value {
                        state.version += 1;
                    }
                    state.value = value;
                }
                // A file that is being replaced is missing for a moment: keep the previous value until it is rejected.
                Err(error) if state.version > 0 && reload == Reload::IfDue => {
                    tracing::warn!(%error, "failed to read file; still using the previous value");
                }
                Err(error) => return Err(error),
            }
            state.checked_at = Some(Instant::now());
        }
        Ok((state.value.clone(), state.version))
    }

    /// Returns an error about the value, with the place where it is configured.
    pub(super) fn complain(&self, why: impl Into<String>) -> TransportError {
        match &self.source {
            SecretSource::Literal(_) => TransportError::setting(self.what, why),
            SecretSource::File(path) => self.complain_about(path, why),
        }
    }

    async fn read_file(&self, path: &Path) -> Result<Secret, TransportError> {
        let bytes =
            tokio::fs::read(path).await.map_err(|error| TransportError::UnreadableFile {
                what: self.what,
                path: path.display().to_string(),
                why: error.to_string(),
            })?;
        let text =
            String::from_utf8(bytes).map_err(|_| self.complain_about(path, "it is not UTF-8"))?;
        match text.trim() {
            "" => Err(self.complain_about(path, "it is empty")),
            value => Ok(value.into()),
        }
    }

    fn complain_about(&self, path: &Path, why: impl Into<String>) -> TransportError {
        TransportError::file(self.what, &path.display().to_string(), why)
    }
}
