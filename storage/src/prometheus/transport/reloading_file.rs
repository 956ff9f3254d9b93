//! Words that live in files, and are read again when they changed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{Secret, TransportError, config::SecretSource};

/// Whether what is known will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// If it was looked at lately.
    IfDue,
    /// Not after a refusal: look now.
    Now,
}

/// A word with its history. It is looked at by whoever needs it, one at a time.
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
    /// How often it changed: 0 is never read.
    version: u64,
    checked_at: Option<Instant>,
}

impl ReloadingFile {
    pub(super) fn new(what: &'static str, word: SecretSource, look: Duration) -> Self {
        Self { what, source: word, check_interval: look, state: Mutex::default() }
    }

    /// The word, and how often it changed until now.
    pub(super) async fn read(&self, fresh: Reload) -> Result<(Secret, u64), TransportError> {
        let path = match &self.source {
            SecretSource::Literal(secret) => return Ok((secret.clone(), 0)),
            SecretSource::File(path) => path,
        };
        let mut seen = self.state.lock().await;
        let lately = seen.checked_at.is_some_and(|looked| looked.elapsed() < self.check_interval);
        if fresh == Reload::Now || !lately {
            match self.read_file(path).await {
                Ok(value) => {
                    if seen.version == 0 || value != seen.value {
                        seen.version += 1;
                    }
                    seen.value = value;
                }
                // A file that is being replaced is away for a moment: what was read before will do until it is refused.
                Err(error) if seen.version > 0 && fresh == Reload::IfDue => {
                    tracing::warn!(%error, "what was read before is used on");
                }
                Err(error) => return Err(error),
            }
            seen.checked_at = Some(Instant::now());
        }
        Ok((seen.value.clone(), seen.version))
    }

    /// Where the word is, for complaints.
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
            word => Ok(word.into()),
        }
    }

    fn complain_about(&self, path: &Path, why: impl Into<String>) -> TransportError {
        let path = path.display().to_string();
        TransportError::InvalidFile { what: self.what, path, why: why.into() }
    }
}
