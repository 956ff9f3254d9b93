//! Records metrics of reviews.

use crate::{
    cluster::server::webhook::{CompletedReview, ReviewObserver},
    telemetry::{AdmissionMetrics, ReviewTimes},
};

/// Records reviews in the metrics.
pub(super) struct ReviewMetrics(pub AdmissionMetrics);

impl ReviewObserver for ReviewMetrics {
    fn on_review(&self, review: &CompletedReview) {
        let CompletedReview { resource, status, outcome, read, admit, build, write, total } =
            *review;
        let times = ReviewTimes { read, admit, build, write, total };
        self.0.observe_review(resource, status.as_str(), outcome, &times);
        tracing::debug!(resource, status = status.as_str(), outcome, ?total, "completed review");
    }

    fn on_rejected(&self, reason: &'static str) {
        self.0.rejected.with_labels([reason]).increment();
        tracing::debug!(reason, "rejected a request");
    }
}
