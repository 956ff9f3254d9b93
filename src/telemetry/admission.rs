//! Metrics of the admission controller: upstream's under upstream's names, and our own.

use plimsoll_core::types::Time;

use super::{
    definition::{RESPONSE_SECONDS, STEP_SECONDS, counter, gauge, histogram},
    family::Family,
    instruments::{Counter, Gauge, Histogram},
    labels::bool_label,
    registry::metric_families,
};
use crate::cluster::server::webhook::{CompletedReview, ReviewObserver, ReviewStatus};

metric_families! {
    #[derive(Clone, Debug)]
    pub struct AdmissionMetrics via pub new {
        pods: Family<Counter, 1>[2] = counter(
            "vpa_admission_controller_admission_pods_total",
            "Reviewed pods, and whether they were patched.",
        ).labels(&["applied"], "2").absent("there was no such pod");
        latency: Family<Histogram, 2>[9] = histogram(
            "vpa_admission_controller_admission_latency_seconds",
            "Time from the arrival of a review to the end of its response.",
            RESPONSE_SECONDS,
        ).labels(&["resource", "status"], "up to 9 of 24").unit("seconds")
        .absent("there was no such review");
        steps: Family<Histogram, 1>[5] = histogram(
            "vpa_admission_controller_execution_latency_seconds",
            "Duration of each step of a review, and in total (`total`).",
            STEP_SECONDS,
        ).labels(&["step"], "5 of 26").unit("seconds").absent("there was no review");
        reviews: Family<Counter, 2>[64] = counter(
            "plimsoll_admission_reviews_total",
            "Reviews by outcome: the decision, or the kind of error.",
        ).labels(&["outcome", "resource"], "up to 64").absent("it has not happened yet");
        rejected: Family<Counter, 1>[16] = counter(
            "plimsoll_webhook_turned_away_total",
            "Connections and requests that were rejected without a review response, by reason.",
        ).labels(&["reason"], "up to 16").absent("it has not happened yet");
        expiry: Family<Gauge>[1] = gauge(
            "plimsoll_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since the Unix epoch.",
        ).unit("seconds").absent("no certificate is served");
        changes: Family<Counter, 1>[2] = counter(
            "plimsoll_webhook_certificate_changes_total",
            "Changes of the serving certificate, and certificates that were rejected.",
        ).labels(&["result"], "2").absent("it has not happened yet");
        registered: Family<Gauge>[1] = gauge(
            "plimsoll_webhook_registered",
            "1 while the registered CA bundle trusts the serving certificate, 0 while it does not.",
        ).absent("the webhook is not registered by Plimsoll");
        reachable: Gauge = gauge(
            "plimsoll_webhook_reachable",
            "1 while the webhook passes its self-check over its own port, 0 while it does not.",
        );
    }
}

impl AdmissionMetrics {
    /// Records a new serving certificate and when it expires.
    pub fn set_certificate_expiry(&self, expires: Time) {
        self.expiry.with_labels([]).set_time(expires);
        self.changes.with_labels(["shown"]).increment();
    }

    pub fn count_certificate_rejected(&self) {
        self.changes.with_labels(["refused"]).increment();
    }
}

impl ReviewObserver for AdmissionMetrics {
    fn on_review(&self, review: &CompletedReview) {
        let CompletedReview { resource, status, outcome, read, admit, build, write, total } =
            *review;
        if resource == "Pod" {
            self.pods.with_labels([bool_label(status == ReviewStatus::Applied)]).increment();
        }
        self.latency.with_labels([resource, status.into()]).observe_duration(total);
        for (step, took) in [
            ("read_request", read),
            ("admit", admit),
            ("build_response", build),
            ("write_response", write),
            ("total", total),
        ] {
            self.steps.with_labels([step]).observe_duration(took);
        }
        self.reviews.with_labels([outcome, resource]).increment();
        tracing::debug!(
            resource,
            status = <&str>::from(status),
            outcome,
            ?total,
            "completed review"
        );
    }

    fn on_rejected(&self, reason: &'static str) {
        self.rejected.with_labels([reason]).increment();
        tracing::debug!(reason, "rejected a request");
    }
}
