//! Metrics of the admission controller: upstream's under upstream's names, and our own.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;

use super::{
    definition::{Definition, RESPONSE_SECONDS, STEP_SECONDS, counter, gauge, histogram},
    family::Family,
    instruments::{Counter, Gauge, Histogram},
    labels::bool_label,
    registry::Registry,
};

const PODS: Definition = counter(
    "vpa_admission_controller_admission_pods_total",
    "Reviewed pods, and whether they were patched.",
)
.labels(&["applied"], "2")
.absent("there was no such pod");
const LATENCY: Definition = histogram(
    "vpa_admission_controller_admission_latency_seconds",
    "Time from the arrival of a review to the end of its response.",
    RESPONSE_SECONDS,
)
.labels(&["resource", "status"], "up to 9 of 24")
.unit("seconds")
.absent("there was no such review");
const STEPS: Definition = histogram(
    "vpa_admission_controller_execution_latency_seconds",
    "Duration of each step of a review, and in total (`total`).",
    STEP_SECONDS,
)
.labels(&["step"], "5 of 26")
.unit("seconds")
.absent("there was no review");
const REVIEWS: Definition = counter(
    "plimsoll_admission_reviews_total",
    "Reviews by outcome: the decision, or the kind of error.",
)
.labels(&["outcome", "resource"], "up to 64")
.absent("it has not happened yet");
const REJECTED: Definition = counter(
    "plimsoll_webhook_turned_away_total",
    "Connections and requests that were rejected without a review response, by reason.",
)
.labels(&["reason"], "up to 16")
.absent("it has not happened yet");
const EXPIRY: Definition = gauge(
    "plimsoll_webhook_certificate_expiry_timestamp_seconds",
    "When the serving certificate expires, in seconds since the Unix epoch.",
)
.unit("seconds")
.absent("no certificate is served");
const CHANGES: Definition = counter(
    "plimsoll_webhook_certificate_changes_total",
    "Changes of the serving certificate, and certificates that were rejected.",
)
.labels(&["result"], "2")
.absent("it has not happened yet");
const REGISTERED: Definition = gauge(
    "plimsoll_webhook_registered",
    "1 while the registered CA bundle trusts the serving certificate, 0 while it does not.",
)
.absent("the webhook is not registered by Plimsoll");
const REACHABLE: Definition = gauge(
    "plimsoll_webhook_reachable",
    "1 while the webhook passes its self-check over its own port, 0 while it does not.",
);

/// The metrics of an admission controller.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    pods: Arc<Family<Counter, 1>>,
    latency: Arc<Family<Histogram, 2>>,
    steps: Arc<Family<Histogram, 1>>,
    reviews: Arc<Family<Counter, 2>>,
    rejected: Arc<Family<Counter, 1>>,
    expiry: Arc<Family<Gauge>>,
    changes: Arc<Family<Counter, 1>>,
    registered: Arc<Family<Gauge>>,
    reachable: Arc<Gauge>,
}

/// Durations of the steps of a review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewTimes {
    /// Reading the request.
    pub read: Duration,
    /// Making the decision.
    pub admit: Duration,
    /// Building the response.
    pub build: Duration,
    /// Writing the response.
    pub write: Duration,
    /// The whole review.
    pub total: Duration,
}

impl AdmissionMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            pods: registry.family(PODS, 2),
            latency: registry.family(LATENCY, 9),
            steps: registry.family(STEPS, 5),
            reviews: registry.family(REVIEWS, 64),
            rejected: registry.family(REJECTED, 16),
            expiry: registry.family(EXPIRY, 1),
            changes: registry.family(CHANGES, 2),
            registered: registry.family(REGISTERED, 1),
            reachable: registry.gauge(REACHABLE),
        }
    }

    /// Records a review. `resource` is `Pod`, `VPA` or `unknown`, `status` is `error`, `skipped` or `applied`.
    pub fn observe_review(&self, resource: &str, status: &str, outcome: &str, times: &ReviewTimes) {
        if resource == "Pod" {
            self.pods.with_labels([bool_label(status == "applied")]).increment();
        }
        self.latency.with_labels([resource, status]).observe(times.total.as_secs_f64());
        for (step, took) in [
            ("read_request", times.read),
            ("admit", times.admit),
            ("build_response", times.build),
            ("write_response", times.write),
            ("total", times.total),
        ] {
            self.steps.with_labels([step]).observe(took.as_secs_f64());
        }
        self.reviews.with_labels([outcome, resource]).increment();
    }

    /// Counts a connection or request that was rejected without a review response.
    pub fn count_rejected(&self, reason: &str) {
        self.rejected.with_labels([reason]).increment();
    }

    /// Records a new serving certificate and when it expires.
    pub fn set_certificate_expiry(&self, expires: Time) {
        self.expiry.with_labels([]).set(expires.as_nanos() as f64 / 1e9);
        self.changes.with_labels(["shown"]).increment();
    }

    /// Counts a certificate that was rejected.
    pub fn count_certificate_rejected(&self) {
        self.changes.with_labels(["refused"]).increment();
    }

    /// Sets whether the registered CA bundle trusts the serving certificate.
    pub fn set_registered(&self, registered: bool) {
        self.registered.with_labels([]).set(f64::from(u8::from(registered)));
    }

    /// Sets whether the webhook passes its self-check.
    pub fn set_reachable(&self, reachable: bool) {
        self.reachable.set(f64::from(u8::from(reachable)));
    }
}
