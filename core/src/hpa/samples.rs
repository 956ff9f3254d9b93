//! What metrics APIs are asked for, what they answer, and which of it is usable.

use std::{collections::BTreeMap, time::Duration};

use super::{
    error::{Api, MetricError},
    fixes::{Fix, Fixes},
    numbers::{milli, sum},
    pod::Resources,
    selector::Selector,
};
use crate::types::{Quantity, Time};

/// The window of a custom metric that does not name one.
const DEFAULT_WINDOW: Duration = Duration::from_mins(1);

/// What has to be fetched for one metric.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricRequest {
    /// metrics.k8s.io: the usage of the pods of a selector.
    Resource {
        /// Which pods.
        selector: Selector,
    },
    /// custom.metrics.k8s.io: a metric of the pods of a selector.
    Pods {
        /// Which pods.
        selector: Selector,
        /// Its name.
        metric: String,
        /// Which series of it.
        metric_selector: Selector,
    },
    /// custom.metrics.k8s.io: a metric of one object.
    Object {
        /// The object's API group.
        group: String,
        /// Its kind.
        kind: String,
        /// Its name; a Namespace is always the one of the HorizontalPodAutoscaler.
        name: String,
        /// Whether it lies in the namespace of the HorizontalPodAutoscaler. Only a Namespace does not.
        is_namespaced: bool,
        /// The name of the metric.
        metric: String,
        /// Which series of it.
        metric_selector: Selector,
    },
    /// external.metrics.k8s.io.
    External {
        /// Its name.
        metric: String,
        /// Which series of it.
        metric_selector: Selector,
    },
}

/// What an API answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`MetricRequest::Resource`].
    Resource(Vec<PodMetrics>),
    /// To [`MetricRequest::Pods`].
    Pods(Vec<PodValue>),
    /// To [`MetricRequest::Object`].
    Object(Quantity),
    /// To [`MetricRequest::External`]: the value of each series.
    External(Vec<Quantity>),
}

/// An answer, or what a client says instead.
pub type Fetched = Result<Answer, String>;

/// Usage of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodMetrics {
    /// The name of the pod.
    pub pod: String,
    /// The end of what was measured.
    pub timestamp: Time,
    /// For how long it was measured.
    pub window: Duration,
    /// Usage by container.
    pub containers: Vec<(String, Resources)>,
}

/// A custom metric of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodValue {
    /// The name of the pod.
    pub pod: String,
    /// The value.
    pub value: Quantity,
    /// The end of what was measured.
    pub timestamp: Time,
    /// For how long it was measured.
    pub window_seconds: Option<i64>,
}

/// One number of a pod, in milli-units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number.
    pub value: i64,
    /// The end of what was measured.
    pub timestamp: Time,
    /// For how long it was measured.
    pub window: Duration,
    /// What each container contributed; empty for custom metrics.
    pub containers: Vec<(String, i64)>,
}

/// Samples by the name of the pod.
pub type Samples = BTreeMap<String, Sample>;

/// Usage of a resource by pod: of one container, or of all of them. A pod of which any of that is unknown is left out.
pub fn of_resource(
    fetched: &Fetched,
    resource: &str,
    container: Option<&str>,
    fixes: Fixes,
) -> Result<Samples, MetricError> {
    let Answer::Resource(pods) = answered(fetched, Api::Resource)? else {
        return Err(MetricError::foreign_answer(Api::Resource));
    };
    if pods.is_empty() {
        return Err(MetricError::empty(Api::Resource));
    }
    let mut samples = Samples::new();
    for pod in pods {
        let wanted =
            pod.containers.iter().filter(|(name, _)| container.is_none_or(|one| name == one));
        let wanted = wanted.take(if container.is_some() { 1 } else { usize::MAX });
        let usage: Option<Vec<_>> = wanted
            .map(|(name, usage)| Some((name.clone(), milli(*usage.get(resource)?, fixes))))
            .collect();
        let Some(containers) = usage.filter(|usage| !usage.is_empty()) else { continue };
        let value = sum(containers.iter().map(|(_, milli)| *milli), fixes);
        reject_negative(value, fixes)?;
        let sample = Sample { value, timestamp: pod.timestamp, window: pod.window, containers };
        samples.insert(pod.pod.clone(), sample);
    }
    Ok(samples)
}

/// A custom metric by pod.
pub fn of_pods(fetched: &Fetched, fixes: Fixes) -> Result<Samples, MetricError> {
    let Answer::Pods(values) = answered(fetched, Api::Custom)? else {
        return Err(MetricError::foreign_answer(Api::Custom));
    };
    if values.is_empty() {
        return Err(MetricError::empty(Api::Custom));
    }
    let mut samples = Samples::new();
    for one in values {
        let window = one.window_seconds.map_or(DEFAULT_WINDOW, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        });
        let value = milli(one.value, fixes);
        reject_negative(value, fixes)?;
        let sample = Sample { value, timestamp: one.timestamp, window, containers: Vec::new() };
        samples.insert(one.pod.clone(), sample);
    }
    Ok(samples)
}

/// The metric of an object.
pub fn of_object(fetched: &Fetched, fixes: Fixes) -> Result<i64, MetricError> {
    let Answer::Object(value) = answered(fetched, Api::Custom)? else {
        return Err(MetricError::foreign_answer(Api::Custom));
    };
    let value = milli(*value, fixes);
    reject_negative(value, fixes)?;
    Ok(value)
}

/// The sum of an external metric's series. One that gets too large is the largest number there is, and so is one that
/// gets negative on its way to an average.
pub fn of_external(fetched: &Fetched, is_average: bool, fixes: Fixes) -> Result<i64, MetricError> {
    let Answer::External(values) = answered(fetched, Api::External)? else {
        return Err(MetricError::foreign_answer(Api::External));
    };
    if values.is_empty() {
        return Err(MetricError::empty(Api::External));
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

fn answered(fetched: &Fetched, api: Api) -> Result<&Answer, MetricError> {
    fetched.as_ref().map_err(|cause| MetricError::fetch(api, cause))
}

fn reject_negative(value: i64, fixes: Fixes) -> Result<(), MetricError> {
    if value < 0 && fixes.has(Fix::NegativeIsUnknown) {
        return Err(MetricError::negative(value));
    }
    Ok(())
}
