//! Why a metric has no proposal: a closed set of causes, with upstream's messages.

use std::{fmt, time::Duration};

use serde::Serialize;

/// A metrics API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `metrics.k8s.io`.
    Resource,
    /// `custom.metrics.k8s.io`.
    Custom,
    /// `external.metrics.k8s.io`.
    External,
    /// The HTTP API of Prometheus.
    Prometheus,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resource => "resource metrics API",
            Self::Custom => "custom metrics API",
            Self::External => "external metrics API",
            Self::Prometheus => "Prometheus",
        })
    }
}

/// The cause of a failed metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The request to the metrics API failed.
    FetchFailed,
    /// The metrics API returned no values.
    NoValues,
    /// All values that the metrics API returned are too old.
    Stale,
    /// The selector matches no pod.
    NoPods,
    /// No pod with a sample is ready.
    NoReadyPods,
    /// No sample belongs to a pod with requests.
    NoKnownPods,
    /// A container or pod has no request.
    MissingRequest,
    /// A container has no limit.
    MissingLimit,
    /// The container that is measured does not exist.
    ContainerNotFound,
    /// The selector of the metric is invalid.
    InvalidSelector,
    /// The target sets no value that this source supports.
    NoTarget,
    /// The type of the source is unknown.
    UnknownType,
    /// The value is negative.
    Negative,
    /// No metric is set.
    NoMetric,
}

/// Why a metric has no proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricError {
    pub cause: Cause,
    /// Upstream's message.
    pub message: String,
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MetricError {}

impl MetricError {
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }

    /// Wraps the message and keeps the cause.
    #[must_use]
    pub fn within(self, message: impl FnOnce(&str) -> String) -> Self {
        Self { cause: self.cause, message: message(&self.message) }
    }

    /// The request to an API failed.
    pub fn fetch(api: Api, cause: &str) -> Self {
        let message = match api {
            // The causes of the other APIs are as upstream's clients report them.
            Api::Prometheus => cause.to_owned(),
            Api::Resource | Api::Custom | Api::External => {
                format!("unable to fetch metrics from {api}: {cause}")
            }
        };
        Self::new(Cause::FetchFailed, message)
    }

    /// An API returned an empty list.
    pub fn empty(api: Api) -> Self {
        Self::new(Cause::NoValues, format!("no metrics returned from {api}"))
    }

    /// All values of an API were measured longer than this ago.
    pub fn stale(api: Api, max_age: Duration) -> Self {
        let minutes = max_age.as_secs() / 60;
        let message =
            format!("all metrics returned from {api} are more than {minutes} minutes old");
        Self::new(Cause::Stale, message)
    }

    /// The response is of another type than the request.
    pub fn foreign_answer(api: Api) -> Self {
        Self::new(Cause::FetchFailed, format!("unexpected response type from {api}"))
    }

    /// The value is negative.
    pub fn negative(milli: i64) -> Self {
        Self::new(
            Cause::Negative,
            format!("the metric is negative ({milli}m): its value is treated as unknown"),
        )
    }

    /// The selector matches no pod.
    pub fn no_pods() -> Self {
        Self::new(Cause::NoPods, "no pods returned by selector while calculating replica count")
    }

    /// No sample of a ready pod is left.
    pub fn no_ready_pods() -> Self {
        let message = "did not receive metrics for targeted pods (pods might be unready)";
        Self::new(Cause::NoReadyPods, message)
    }

    /// No sample belongs to a pod with requests.
    pub fn no_known_pods() -> Self {
        Self::new(Cause::NoKnownPods, "no metrics returned matched known pods")
    }

    /// A container has no request.
    pub fn missing_request(resource: &str, container: &str, pod: &str) -> Self {
        let message =
            format!("missing request for {resource} in container {container} of Pod {pod}");
        Self::new(Cause::MissingRequest, message)
    }

    /// A container has no limit, which utilization is relative to.
    pub fn missing_limit(resource: &str, container: &str, pod: &str) -> Self {
        let message = format!("missing limit for {resource} in container {container} of Pod {pod}");
        Self::new(Cause::MissingLimit, message)
    }

    /// The pod template has no request, or is not known, which utilization is relative to.
    pub fn missing_template_request(resource: &str, container: Option<&str>) -> Self {
        let of = container.map_or_else(String::new, |name| format!("container {name} of "));
        let message =
            format!("missing request for {resource} in {of}the pod template of the target");
        Self::new(Cause::MissingRequest, message)
    }

    /// A pod has pod-level requests, but none for this resource, and neither do its containers.
    pub fn missing_pod_request(resource: &str, pod: &str) -> Self {
        let message = format!("missing pod-level request for {resource} in Pod {pod}");
        Self::new(Cause::MissingRequest, message)
    }

    /// A pod does not have the measured container.
    pub fn no_container(container: &str, pod: &str) -> Self {
        Self::new(Cause::ContainerNotFound, format!("container {container} not found in Pod {pod}"))
    }
}
