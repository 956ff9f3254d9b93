//! Requests to metrics APIs, their responses, and the samples read from them.

use std::{collections::BTreeMap, time::Duration};

use super::{
    error::{Api, MetricError},
    fixes::{Fix, Fixes},
    numbers::{milli, sum},
    pod::Resources,
    selector::Selector,
};
use crate::{
    scaling::pod_usage::MAX_AGE,
    types::{Quantity, Time},
};

/// The default window of a custom metric.
const DEFAULT_WINDOW: Duration = Duration::from_mins(1);

/// The request for one metric. Not [`scaling::MetricRequest`](crate::scaling::MetricRequest), whose response is the sum of
/// a metric or the usage of each pod: as in upstream, the samples of an API with their times and windows are part of the
/// decision, and so are their rounding and the errors in them.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricRequest {
    /// `metrics.k8s.io`: the usage of the pods that match a selector.
    Resource {
        /// Selects the pods.
        selector: Selector,
    },
    /// `custom.metrics.k8s.io`: a metric of the pods that match a selector.
    Pods {
        /// Selects the pods.
        selector: Selector,
        metric: String,
        /// Selects the series of the metric.
        metric_selector: Selector,
    },
    /// `custom.metrics.k8s.io`: a metric of one object.
    Object {
        /// The API group of the object.
        group: String,
        /// The kind of the object.
        kind: String,
        /// The name of the object. A Namespace is always that of the HorizontalPodAutoscaler.
        name: String,
        /// Whether the object is namespaced. Only a Namespace is not.
        is_namespaced: bool,
        metric: String,
        /// Selects the series of the metric.
        metric_selector: Selector,
    },
    /// `external.metrics.k8s.io`: an external metric.
    External {
        metric: String,
        /// Selects the series of the metric.
        metric_selector: Selector,
    },
    /// The result of a PromQL query.
    Prometheus { query: String },
}

/// The response of an API.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Response to [`MetricRequest::Resource`].
    Resource(Vec<PodMetrics>),
    /// Response to [`MetricRequest::Pods`].
    Pods(Vec<PodValue>),
    /// Response to [`MetricRequest::Object`].
    Object(Quantity),
    /// Response to [`MetricRequest::External`] and [`MetricRequest::Prometheus`]: the value of each series.
    External(Vec<Quantity>),
}

/// A response, or the error of the client.
pub type Fetched = Result<Answer, String>;

/// Usage of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodMetrics {
    pub pod: String,
    /// The end of the measurement window.
    pub timestamp: Time,
    /// The length of the measurement window.
    pub window: Duration,
    /// Usage by container.
    pub containers: Vec<(String, Resources)>,
}

/// A custom metric of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodValue {
    pub pod: String,
    pub value: Quantity,
    /// The end of the measurement window.
    pub timestamp: Time,
    /// The length of the measurement window.
    pub window_seconds: Option<i64>,
}

/// A value of one pod, in milli-units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub value: i64,
    /// The end of the measurement window.
    pub timestamp: Time,
    /// The length of the measurement window.
    pub window: Duration,
    /// The values by container; empty for custom metrics.
    pub containers: Vec<(String, i64)>,
}

/// Samples by pod name.
pub type Samples = BTreeMap<String, Sample>;

/// Usage of a resource by pod, of one container or of all. A pod with missing usage is left out.
pub fn of_resource(
    fetched: &Fetched,
    resource: &str,
    container: Option<&str>,
    now: Time,
    fixes: Fixes,
) -> Result<Samples, MetricError> {
    let Answer::Resource(pods) = response_of(fetched, Api::Resource)? else {
        return Err(MetricError::foreign_answer(Api::Resource));
    };
    if pods.is_empty() {
        return Err(MetricError::empty(Api::Resource));
    }
    let oldest = fixes.has(Fix::StaleUsageIsUnknown).then(|| now.earlier(MAX_AGE));
    let is_stale = |pod: &PodMetrics| oldest.is_some_and(|oldest| pod.timestamp < oldest);
    if pods.iter().all(is_stale) {
        return Err(MetricError::stale(Api::Resource, MAX_AGE));
    }
    let mut samples = Samples::new();
    for pod in pods.iter().filter(|pod| !is_stale(pod)) {
        let containers_of_pod = pod
            .containers
            .iter()
            .filter(|(name, _)| container.is_none_or(|expected| name == expected));
        let containers_of_pod =
            containers_of_pod.take(if container.is_some() { 1 } else { usize::MAX });
        let usage: Option<Vec<_>> = containers_of_pod
            .map(|(name, usage)| Some((name.clone(), milli(*usage.get(resource)?, fixes))))
            .collect();
        let Some(containers) = usage.filter(|usage| !usage.is_empty()) else { continue };
        for (_, milli) in &containers {
            reject_negative(*milli, fixes)?;
        }
        let value = sum(containers.iter().map(|(_, milli)| *milli), fixes);
        let sample = Sample { value, timestamp: pod.timestamp, window: pod.window, containers };
        samples.insert(pod.pod.clone(), sample);
    }
    Ok(samples)
}

/// Values of a custom metric by pod.
pub fn of_pods(fetched: &Fetched, fixes: Fixes) -> Result<Samples, MetricError> {
    let Answer::Pods(values) = response_of(fetched, Api::Custom)? else {
        return Err(MetricError::foreign_answer(Api::Custom));
    };
    if values.is_empty() {
        return Err(MetricError::empty(Api::Custom));
    }
    let mut samples = Samples::new();
    for pod in values {
        let window = pod.window_seconds.map_or(DEFAULT_WINDOW, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        });
        let value = milli(pod.value, fixes);
        reject_negative(value, fixes)?;
        let sample = Sample { value, timestamp: pod.timestamp, window, containers: Vec::new() };
        samples.insert(pod.pod.clone(), sample);
    }
    Ok(samples)
}

/// The value of a metric of an object.
pub fn of_object(fetched: &Fetched, fixes: Fixes) -> Result<i64, MetricError> {
    let Answer::Object(value) = response_of(fetched, Api::Custom)? else {
        return Err(MetricError::foreign_answer(Api::Custom));
    };
    let value = milli(*value, fixes);
    reject_negative(value, fixes)?;
    Ok(value)
}

/// The sum of the series of an external metric, or of the result of a query. It saturates if it overflows, and for an
/// average also if it becomes negative.
pub fn of_external(
    fetched: &Fetched,
    api: Api,
    is_average: bool,
    fixes: Fixes,
) -> Result<i64, MetricError> {
    let Answer::External(values) = response_of(fetched, api)? else {
        return Err(MetricError::foreign_answer(api));
    };
    if values.is_empty() {
        return Err(MetricError::empty(api));
    }
    let mut sum = 0_i64;
    for value in values {
        let value = milli(*value, fixes);
        reject_negative(value, fixes)?;
        let is_too_large = if is_average {
            sum.wrapping_add(value) < 0
        } else {
            value > 0 && sum.checked_add(value).is_none()
        };
        if is_too_large {
            return Ok(i64::MAX);
        }
        sum = sum.wrapping_add(value);
    }
    Ok(sum)
}

fn response_of(fetched: &Fetched, api: Api) -> Result<&Answer, MetricError> {
    fetched.as_ref().map_err(|cause| MetricError::fetch(api, cause))
}

fn reject_negative(value: i64, fixes: Fixes) -> Result<(), MetricError> {
    if value < 0 && fixes.has(Fix::NegativeIsUnknown) {
        return Err(MetricError::negative(value));
    }
    Ok(())
}
