//! Words that live in files, and are read again when they changed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{DoorError, Secret, config::Word};

/// Whether what is known will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// If it was looked at lately.
    Lately,
    /// Not after a refusal: look now.
    Now,
}

/// A word with its history. It is looked at by whoever needs it, one at a time.
#[derive(Debug)]
pub(super) struct Held {
    what: &'static str,
    word: Word,
    look: Duration,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    value: Secret,
    /// How often it changed: 0 is never read.
    changes: u64,
    looked: Option<Instant>,
}

impl Held {
    pub(super) fn new(what: &'static str, word: Word, look: Duration) -> Self {
        Self { what, word, look, seen: Mutex::default() }
    }

    /// The word, and how often it changed until now.
    pub(super) async fn read(&self, fresh: Fresh) -> Result<(Secret, u64), DoorError> {
        let path = match &self.word {
            Word::Given(secret) => return Ok((secret.clone(), 0)),
            Word::File(path) => path,
        };
        let mut seen = self.seen.lock().await;
        let lately = seen.looked.is_some_and(|looked| looked.elapsed() < self.look);
        if fresh == Fresh::Now || !lately {
            match self.read_file(path).await {
                Ok(value) => {
                    if seen.changes == 0 || value != seen.value {
                        seen.changes += 1;
                    }
                    seen.value = value;
                }
                // A file that is being replaced is away for a moment: what was read before will do until it is refused.
                Err(error) if seen.changes > 0 && fresh == Fresh::Lately => {
                    tracing::warn!(%error, "what was read before is used on");
                }
                Err(error) => return Err(error),
            }
            seen.looked = Some(Instant::now());
        }
        Ok((seen.value.clone(), seen.changes))
    }

    /// Where the word is, for complaints.
    pub(super) fn complain(&self, why: impl Into<String>) -> DoorError {
        match &self.word {
            Word::Given(_) => DoorError::setting(self.what, why),
            Word::File(path) => self.complain_about(path, why),
        }
    }

    async fn read_file(&self, path: &Path) -> Result<Secret, DoorError> {
        let bytes = tokio::fs::read(path).await.map_err(|error| DoorError::File {
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

    fn complain_about(&self, path: &Path, why: impl Into<String>) -> DoorError {
        let path = path.display().to_string();
        DoorError::Content { what: self.what, path, why: why.into() }
    }
}
