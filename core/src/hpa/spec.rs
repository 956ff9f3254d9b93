//! The spec of a HorizontalPodAutoscaler, with quantities as numbers.

use k8s_openapi::api::autoscaling::v2 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use serde::Serialize;

use crate::types::{Quantity, quantity};

/// `spec`, parsed once per change of the object.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The minimum replicas.
    pub min_replicas: i32,
    /// The maximum replicas.
    pub max_replicas: i32,
    /// The metrics, in the order of the object.
    pub metrics: Vec<Metric>,
    /// The scaling behavior, if set.
    pub behavior: Option<Behavior>,
}

/// One entry of `spec.metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// `type`, as in the object.
    pub type_name: String,
    /// The source and its target.
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A resource of all containers of each pod.
    Resource {
        /// `cpu`, `memory`, …
        resource: String,
        /// The target of the average.
        target: Target,
    },
    /// A resource of one container of each pod.
    ContainerResource {
        /// `cpu`, `memory`, …
        resource: String,
        container: String,
        /// The target of the average.
        target: Target,
    },
    /// A custom metric of each pod.
    Pods {
        /// The name and selector of the metric.
        metric: MetricId,
        /// The target of the average.
        target: Target,
    },
    /// A custom metric of one object.
    Object {
        described: api::CrossVersionObjectReference,
        /// The name and selector of the metric.
        metric: MetricId,
        /// The target of the value or of its average per pod.
        target: Target,
    },
    /// An external metric, which belongs to no object.
    External {
        /// The name and selector of the metric.
        metric: MetricId,
        /// The target of the value or of its average per pod.
        target: Target,
    },
    /// The result of a PromQL query, which an annotation adds.
    Prometheus {
        metric: MetricId,
        query: String,
        /// The target of the value or of its average per pod.
        target: Target,
    },
    /// The type is unknown, or its block is missing.
    Unknown,
}

/// The name and selector of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricId {
    pub name: String,
    /// Selects the series of the metric.
    pub selector: Option<LabelSelector>,
}

/// The target of a metric, in milli-units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// `Utilization`, `Value` or `AverageValue`.
    pub type_name: String,
    /// Target for the total value.
    pub value: Option<i64>,
    /// Target for the average per pod.
    pub average_value: Option<i64>,
    /// Target utilization in percent of the request.
    pub average_utilization: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behavior {
    pub scale_up: ScalingRules,
    pub scale_down: ScalingRules,
}

/// One direction of `spec.behavior`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingRules {
    /// How long past recommendations delay a change.
    pub stabilization_window_seconds: Option<i32>,
    /// Which policy applies.
    pub select_policy: SelectPolicy,
    pub policies: Vec<Policy>,
    /// The tolerance of this direction.
    pub tolerance: Option<f64>,
}

/// Which of several policies applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum SelectPolicy {
    /// The policy that allows the largest change.
    #[default]
    Max,
    /// The policy that allows the smallest change.
    Min,
    /// No change in this direction.
    Disabled,
}

/// A scaling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The unit of the value.
    pub kind: PolicyKind,
    /// The maximum change in one period.
    pub value: i32,
    /// The length of the period.
    pub period_seconds: i32,
}

/// The unit of a scaling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PolicyKind {
    Pods,
    /// Percent of the replicas at the start of the period.
    Percent,
}

/// An invalid quantity. The API server rejects such objects.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} of the HorizontalPodAutoscaler: {error}")]
pub struct SpecError {
    field: &'static str,
    error: quantity::ParseError,
}

fn amount(field: &'static str, quantity: &ApiQuantity) -> Result<Quantity, SpecError> {
    quantity.0.trim().parse().map_err(|error| SpecError { field, error })
}

impl Spec {
    /// Parses an object as the API server stores it, with its defaults.
    pub fn read(spec: &api::HorizontalPodAutoscalerSpec) -> Result<Self, SpecError> {
        let metrics = spec.metrics.iter().flatten().map(Metric::read);
        Ok(Self {
            min_replicas: spec.min_replicas.unwrap_or(1),
            max_replicas: spec.max_replicas,
            metrics: metrics.collect::<Result<_, _>>()?,
            behavior: spec.behavior.as_ref().map(Behavior::read).transpose()?,
        })
    }

    /// Whether a target can scale up from zero: only these metrics exist without pods.
    pub fn has_object_or_external_metric(&self) -> bool {
        let is_podless =
            |metric: &Metric| matches!(metric.type_name.as_str(), "Object" | "External");
        self.metrics.iter().any(is_podless)
    }
}

impl Source {
    /// The resource whose usage this is, if it is one.
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::Resource { resource, .. } | Self::ContainerResource { resource, .. } => {
                Some(resource)
            }
            Self::Pods { .. }
            | Self::Object { .. }
            | Self::External { .. }
            | Self::Prometheus { .. }
            | Self::Unknown => None,
        }
    }
}

impl Metric {
    /// The name of a metric whose value is that of a query.
    pub fn query_name(&self) -> Option<&str> {
        match &self.source {
            Source::Prometheus { metric, .. } => Some(&metric.name),
            _ => None,
        }
    }

    fn read(metric: &api::MetricSpec) -> Result<Self, SpecError> {
        let source = match metric.type_.as_str() {
            "Resource" => metric.resource.as_ref().map(|source| {
                Ok(Source::Resource {
                    resource: source.name.clone(),
                    target: Target::read(&source.target)?,
                })
            }),
            "ContainerResource" => metric.container_resource.as_ref().map(|source| {
                Ok(Source::ContainerResource {
                    resource: source.name.clone(),
                    container: source.container.clone(),
                    target: Target::read(&source.target)?,
                })
            }),
            "Pods" => metric.pods.as_ref().map(|source| {
                Ok(Source::Pods {
                    metric: MetricId::read(&source.metric),
                    target: Target::read(&source.target)?,
                })
            }),
            "Object" => metric.object.as_ref().map(|source| {
                Ok(Source::Object {
                    described: source.described_object.clone(),
                    metric: MetricId::read(&source.metric),
                    target: Target::read(&source.target)?,
                })
            }),
            "External" => metric.external.as_ref().map(|source| {
                Ok(Source::External {
                    metric: MetricId::read(&source.metric),
                    target: Target::read(&source.target)?,
                })
            }),
            _ => None,
        };
        let source = source.transpose()?.unwrap_or(Source::Unknown);
        Ok(Self { type_name: metric.type_.clone(), source })
    }
}

impl MetricId {
    fn read(metric: &api::MetricIdentifier) -> Self {
        Self { name: metric.name.clone(), selector: metric.selector.clone() }
    }

    pub(super) fn to_api(&self) -> api::MetricIdentifier {
        api::MetricIdentifier { name: self.name.clone(), selector: self.selector.clone() }
    }
}

impl Target {
    fn read(target: &api::MetricTarget) -> Result<Self, SpecError> {
        let milli = |field, quantity: Option<&ApiQuantity>| {
            quantity.map(|quantity| Ok(amount(field, quantity)?.milli_value())).transpose()
        };
        Ok(Self {
            type_name: target.type_.clone(),
            value: milli("target.value", target.value.as_ref())?,
            average_value: milli("target.averageValue", target.average_value.as_ref())?,
            average_utilization: target.average_utilization,
        })
    }
}

impl Behavior {
    pub(super) fn read(behavior: &api::HorizontalPodAutoscalerBehavior) -> Result<Self, SpecError> {
        let rules = |rules: Option<&api::HPAScalingRules>| {
            rules.map_or_else(|| Ok(ScalingRules::default()), ScalingRules::read)
        };
        Ok(Self {
            scale_up: rules(behavior.scale_up.as_ref())?,
            scale_down: rules(behavior.scale_down.as_ref())?,
        })
    }
}

impl ScalingRules {
    fn read(rules: &api::HPAScalingRules) -> Result<Self, SpecError> {
        let select_policy = match rules.select_policy.as_deref() {
            Some("Min") => SelectPolicy::Min,
            Some("Disabled") => SelectPolicy::Disabled,
            _ => SelectPolicy::Max,
        };
        let policy = |policy: &api::HPAScalingPolicy| Policy {
            kind: if policy.type_ == "Percent" { PolicyKind::Percent } else { PolicyKind::Pods },
            value: policy.value,
            period_seconds: policy.period_seconds,
        };
        let tolerance = rules
            .tolerance
            .as_ref()
            .map(|value| amount("behavior.tolerance", value))
            .transpose()?;
        Ok(Self {
            stabilization_window_seconds: rules.stabilization_window_seconds,
            select_policy,
            policies: rules.policies.iter().flatten().map(policy).collect(),
            tolerance: tolerance.map(approximate),
        })
    }

    /// The longest policy period, in seconds.
    pub fn longest_period(&self) -> i32 {
        self.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0)
    }
}

/// Converts a quantity to a float as upstream does for the canonical form: its digits times a power of ten.
fn approximate(quantity: Quantity) -> f64 {
    let nanos = quantity.nanos();
    for (unit, factor) in [(1_000_000_000, 1.0), (1_000_000, 1e-3), (1_000, 1e-6)] {
        if nanos % unit == 0 {
            return (nanos / unit) as f64 * factor;
        }
    }
    nanos as f64 * 1e-9
}
