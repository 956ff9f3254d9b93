//! Counts what the webhook answers.

use crate::{
    metrics::{AdmissionMetrics, ReviewTimes},
    serve::webhook::{Answered, Observer},
};

/// Counts into metrics.
pub(super) struct Counting(pub AdmissionMetrics);

impl Observer for Counting {
    fn answered(&self, answered: &Answered) {
        let Answered { resource, status, outcome, read, admit, build, write, total } = *answered;
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

    fn turned_away(&self, reason: &'static str) {
        self.0.count_turned_away(reason);
        tracing::debug!(reason, "somebody was turned away");
    }
}
