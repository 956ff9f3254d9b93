//! Observes completed and rejected reviews, for metrics.

use std::time::Duration;

/// The status of a review, and its label value in upstream's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ReviewStatus {
    /// It could not be parsed, or its kind has no reviewer.
    Error,
    Skipped,
    /// A patch was returned.
    Applied,
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
