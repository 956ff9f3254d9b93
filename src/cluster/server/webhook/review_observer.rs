//! Observes completed and rejected reviews, for metrics.

use std::time::Duration;

/// The status of a review, in upstream's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewStatus {
    /// It could not be parsed, or its kind has no reviewer.
    Error,
    Skipped,
    /// A patch was returned.
    Applied,
}

impl ReviewStatus {
    /// Label value in upstream's metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Applied => "applied",
        }
    }
}

/// A completed review, and how long each step took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedReview {
    /// The `resource` label in upstream's metrics.
    pub resource: &'static str,
    pub status: ReviewStatus,
    /// The reason for the decision, as a label value.
    pub outcome: &'static str,
    pub read: Duration,
    pub admit: Duration,
    pub build: Duration,
    /// Time to send the response.
    pub write: Duration,
    pub total: Duration,
}

pub trait ReviewObserver: Send + Sync {
    fn on_review(&self, review: &CompletedReview);

    /// Called when a request got no review response; `reason` is a label value.
    fn on_rejected(&self, reason: &'static str);
}
