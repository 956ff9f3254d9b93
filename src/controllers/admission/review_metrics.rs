//! Counts what the webhook answers.

use crate::{
    cluster::server::webhook::{CompletedReview, ReviewObserver},
    telemetry::{AdmissionMetrics, ReviewTimes},
};

/// Counts into metrics.
pub(super) struct ReviewMetrics(pub AdmissionMetrics);

impl ReviewObserver for ReviewMetrics {
    fn on_review(&self, answered: &CompletedReview) {
        let CompletedReview { resource, status, outcome, read, admit, build, write, total } =
            *answered;
        let times = ReviewTimes { read, admit, build, write, total };
        self.0.observe_review(resource, status.as_str(), outcome, &times);
        tracing::debug!(
            resource,
            status = status.as_str(),
            outcome,
            ?total,
            "a review is answered"
        );
    }

    fn on_rejected(&self, reason: &'static str) {
        self.0.count_rejected(reason);
        tracing::debug!(reason, "somebody was turned away");
    }
}
