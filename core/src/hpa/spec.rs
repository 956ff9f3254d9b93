//! What a HorizontalPodAutoscaler asks for, with amounts as numbers.

use k8s_openapi::api::autoscaling::v2 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use serde::Serialize;

use crate::types::{Quantity, quantity};

/// `spec`, read once per change of the object.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// At least so many replicas.
    pub min_replicas: i32,
    /// At most so many.
    pub max_replicas: i32,
    /// In the order of the object.
    pub metrics: Vec<Metric>,
    /// How fast and how soon, if the object says so.
    pub behavior: Option<Behavior>,
}

/// One entry of `spec.metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// `type`, as it is written.
    pub type_name: String,
    /// What it measures and aims at.
    pub source: Source,
}

/// What a metric measures.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A resource of all containers of each pod.
    Resource {
        /// `cpu`, `memory`, …
        resource: String,
        /// What the average is held to.
        target: Target,
    },
    /// A resource of one container of each pod.
    ContainerResource {
        /// `cpu`, `memory`, …
        resource: String,
        /// The name of the container.
        container: String,
        /// What the average is held to.
        target: Target,
    },
    /// A custom metric of each pod.
    Pods {
        /// Name and selector.
        metric: MetricId,
        /// What the average is held to.
        target: Target,
    },
    /// A custom metric of one object.
    Object {
        /// Which object.
        described: api::CrossVersionObjectReference,
        /// Name and selector.
        metric: MetricId,
        /// What the value, or its average per pod, is held to.
        target: Target,
    },
    /// A metric that belongs to no object.
    External {
        /// Name and selector.
        metric: MetricId,
        /// What the value, or its average per pod, is held to.
        target: Target,
    },
    /// A type that is unknown, or whose block is missing.
    Unknown,
}

/// A metric by its name and selector.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricId {
    /// The name.
    pub name: String,
    /// Which series of it.
    pub selector: Option<LabelSelector>,
}

/// What a metric is held to. Amounts are in milli-units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// `Utilization`, `Value` or `AverageValue`.
    pub type_name: String,
    /// Of the metric.
    pub value: Option<i64>,
    /// Per pod.
    pub average_value: Option<i64>,
    /// Percent of the request.
    pub average_utilization: Option<i32>,
}

/// `spec.behavior`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behavior {
    /// For more replicas.
    pub scale_up: ScalingRules,
    /// For fewer.
    pub scale_down: ScalingRules,
}

/// One direction of `spec.behavior`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingRules {
    /// For how long past recommendations hold a change back.
    pub stabilization_window_seconds: Option<i32>,
    /// Which policy decides.
    pub select_policy: SelectPolicy,
    /// How fast.
    pub policies: Vec<Policy>,
    /// How far a ratio may be from 1.
    pub tolerance: Option<f64>,
}

/// Which of several policies decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum SelectPolicy {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest change.
    Min,
    /// No change in this direction.
    Disabled,
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Of what.
    pub kind: PolicyKind,
    /// How much.
    pub value: i32,
    /// Within which time.
    pub period_seconds: i32,
}

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PolicyKind {
    /// Pods.
    Pods,
    /// Percent of what there was at the beginning of the period.
    Percent,
}

/// An amount that is no quantity. An API server lets none pass.
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
    /// Reads an object as the API server stores it, that is with its defaults.
    pub fn read(spec: &api::HorizontalPodAutoscalerSpec) -> Result<Self, SpecError> {
        let metrics = spec.metrics.iter().flatten().map(Metric::read);
        Ok(Self {
            min_replicas: spec.min_replicas.unwrap_or(1),
            max_replicas: spec.max_replicas,
            metrics: metrics.collect::<Result<_, _>>()?,
            behavior: spec.behavior.as_ref().map(Behavior::read).transpose()?,
        })
    }

    /// Whether a target at zero can be woken: only these metrics exist without pods.
    pub fn has_object_or_external_metric(&self) -> bool {
        let is_podless =
            |metric: &Metric| matches!(metric.type_name.as_str(), "Object" | "External");
        self.metrics.iter().any(is_podless)
    }
}

impl Metric {
    fn read(metric: &api::MetricSpec) -> Result<Self, SpecError> {
        let source = match metric.type_.as_str() {
            "Resource" => metric.resource.as_ref().map(|one| {
                Ok(Source::Resource {
                    resource: one.name.clone(),
                    target: Target::read(&one.target)?,
                })
            }),
            "ContainerResource" => metric.container_resource.as_ref().map(|one| {
                Ok(Source::ContainerResource {
                    resource: one.name.clone(),
                    container: one.container.clone(),
                    target: Target::read(&one.target)?,
                })
            }),
            "Pods" => metric.pods.as_ref().map(|one| {
                Ok(Source::Pods {
                    metric: MetricId::read(&one.metric),
                    target: Target::read(&one.target)?,
                })
            }),
            "Object" => metric.object.as_ref().map(|one| {
                Ok(Source::Object {
                    described: one.described_object.clone(),
                    metric: MetricId::read(&one.metric),
                    target: Target::read(&one.target)?,
                })
            }),
            "External" => metric.external.as_ref().map(|one| {
                Ok(Source::External {
                    metric: MetricId::read(&one.metric),
                    target: Target::read(&one.target)?,
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
            quantity.map(|one| Ok(amount(field, one)?.milli_value())).transpose()
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
    fn read(behavior: &api::HorizontalPodAutoscalerBehavior) -> Result<Self, SpecError> {
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
        let policy = |one: &api::HPAScalingPolicy| Policy {
            kind: if one.type_ == "Percent" { PolicyKind::Percent } else { PolicyKind::Pods },
            value: one.value,
            period_seconds: one.period_seconds,
        };
        let tolerance =
            rules.tolerance.as_ref().map(|one| amount("behavior.tolerance", one)).transpose()?;
        Ok(Self {
            stabilization_window_seconds: rules.stabilization_window_seconds,
            select_policy,
            policies: rules.policies.iter().flatten().map(policy).collect(),
            tolerance: tolerance.map(approximate),
        })
    }

    /// The longest period of a policy, in seconds.
    pub fn longest_period(&self) -> i32 {
        self.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0)
    }
}

/// A quantity as a float: its digits times a power of ten, as upstream multiplies them for a quantity in canonical form.
fn approximate(quantity: Quantity) -> f64 {
    let nanos = quantity.nanos();
    for (unit, factor) in [(1_000_000_000, 1.0), (1_000_000, 1e-3), (1_000, 1e-6)] {
        if nanos % unit == 0 {
            return (nanos / unit) as f64 * factor;
        }
    }
    nanos as f64 * 1e-9
}
