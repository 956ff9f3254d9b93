//! What is told of each review, for whoever counts.

use std::time::Duration;

/// What became of a review, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewStatus {
    /// It could not be read, or nobody decides about its kind.
    Error,
    /// Nothing was changed.
    Skipped,
    /// Something was.
    Applied,
}

impl ReviewStatus {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Applied => "applied",
        }
    }
}

/// A review that was answered, and how long each step took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedReview {
    /// What the kind is called in upstream's metrics.
    pub resource: &'static str,
    /// What became of it.
    pub status: ReviewStatus,
    /// Why it came to that, in one word.
    pub outcome: &'static str,
    /// Until the request was there.
    pub read: Duration,
    /// Until it was decided.
    pub admit: Duration,
    /// Until the answer was made.
    pub build: Duration,
    /// Until it was handed over.
    pub write: Duration,
    /// All of it.
    pub total: Duration,
}

/// Somebody who counts.
pub trait ReviewObserver: Send + Sync {
    /// A review was answered.
    fn on_review(&self, answered: &CompletedReview);

    /// Somebody got no answer to a review, for this reason, in one word.
    fn on_rejected(&self, reason: &'static str);
}
