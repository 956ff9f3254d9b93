//! Why a metric has no proposal: a closed set of causes, with upstream's texts.

use std::fmt;

use serde::Serialize;

/// A metrics API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// metrics.k8s.io
    Resource,
    /// custom.metrics.k8s.io
    Custom,
    /// external.metrics.k8s.io
    External,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resource => "resource metrics API",
            Self::Custom => "custom metrics API",
            Self::External => "external metrics API",
        })
    }
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The metrics API could not be asked, or refused.
    FetchFailed,
    /// The metrics API has no values.
    NoValues,
    /// The selector matches no pod.
    NoPods,
    /// No pod with a sample is ready.
    NoReadyPods,
    /// Samples are of other pods than those with requests.
    NoKnownPods,
    /// A container or pod has no request.
    MissingRequest,
    /// The container that is measured does not exist.
    ContainerNotFound,
    /// The selector of the metric is invalid.
    InvalidSelector,
    /// The target names nothing that this source can be held to.
    NoTarget,
    /// The type of the source is unknown.
    UnknownType,
    /// The value is below zero.
    Negative,
    /// There is no metric at all.
    NoMetric,
}

/// Why a metric has no proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricError {
    /// As one of a closed set.
    pub cause: Cause,
    /// As upstream words it.
    pub message: String,
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MetricError {}

impl MetricError {
    /// A cause with its text.
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }

    /// The same cause with more around its text.
    #[must_use]
    pub fn within(self, message: impl FnOnce(&str) -> String) -> Self {
        Self { cause: self.cause, message: message(&self.message) }
    }

    /// An API that could not be asked.
    pub fn fetch(api: Api, cause: &str) -> Self {
        Self::new(Cause::FetchFailed, format!("unable to fetch metrics from {api}: {cause}"))
    }

    /// An API that answered with an empty list.
    pub fn empty(api: Api) -> Self {
        Self::new(Cause::NoValues, format!("no metrics returned from {api}"))
    }

    /// An answer to another question than the one that was asked.
    pub fn foreign_answer(api: Api) -> Self {
        Self::new(Cause::FetchFailed, format!("unexpected kind of answer from {api}"))
    }

    /// A value below zero.
    pub fn negative(milli: i64) -> Self {
        Self::new(
            Cause::Negative,
            format!("the metric is negative ({milli}m): its value is treated as unknown"),
        )
    }

    /// No pod is selected.
    pub fn no_pods() -> Self {
        Self::new(Cause::NoPods, "no pods returned by selector while calculating replica count")
    }

    /// No sample is left.
    pub fn no_ready_pods() -> Self {
        let message = "did not receive metrics for targeted pods (pods might be unready)";
        Self::new(Cause::NoReadyPods, message)
    }

    /// Samples and requests have no pod in common.
    pub fn no_known_pods() -> Self {
        Self::new(Cause::NoKnownPods, "no metrics returned matched known pods")
    }

    /// A container without a request.
    pub fn missing_request(resource: &str, container: &str, pod: &str) -> Self {
        let message =
            format!("missing request for {resource} in container {container} of Pod {pod}");
        Self::new(Cause::MissingRequest, message)
    }

    /// A pod that has requests, but neither it nor its containers have this one.
    pub fn missing_pod_request(resource: &str, pod: &str) -> Self {
        let message = format!("missing pod-level request for {resource} in Pod {pod}");
        Self::new(Cause::MissingRequest, message)
    }

    /// A pod without the container that is measured.
    pub fn no_container(container: &str, pod: &str) -> Self {
        Self::new(Cause::ContainerNotFound, format!("container {container} not found in Pod {pod}"))
    }
}
