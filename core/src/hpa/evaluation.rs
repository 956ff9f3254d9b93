//! One entry of `spec.metrics`: the request it needs, and its proposal.

use k8s_openapi::api::autoscaling::v2::MetricStatus;
use serde::Serialize;

use super::{
    error::{Api, Cause, MetricError},
    fixes::Fix,
    labels::{Action, Computed, Failure},
    options::UtilizationOf,
    proposal::{Calculator, Origin, Proposal},
    requests::RequestRules,
    samples::{self, Fetched, MetricRequest},
    selector::{Selector, as_in_messages},
    spec::{Metric, MetricId, Source, Target},
    status,
};

/// Inputs shared by all evaluations of one object.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The namespace of the object.
    pub namespace: &'a str,
    /// `status.currentReplicas` of the previous pass; the `action` label of an evaluation is relative to it.
    pub previous_replicas: i32,
    /// Pods, replicas and tolerance.
    pub calculator: Calculator<'a>,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// What utilization is relative to.
    pub utilization_of: UtilizationOf,
}

/// The evaluation of one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The name of the metric in reasons and messages.
    pub name: String,
    /// The proposal, or why there is none.
    pub outcome: Result<Proposal, Failed>,
    /// The entry in the status.
    pub status: MetricStatus,
    /// The labels of the counter of evaluations.
    pub computed: Computed,
    /// Whether the metric is in the spec, and so in the status. Others are added by annotations.
    #[serde(skip)]
    pub is_in_spec: bool,
}

/// Why a metric has no proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The error, as in the metric's event and condition.
    pub error: MetricError,
    /// The reason of that event and condition.
    pub reason: &'static str,
    /// The message with the type of the source, as in the error of the pass.
    pub in_pass: String,
}

/// The target of a source: a value or an average in milli-units, or a utilization in percent.
pub(super) enum TargetType {
    Value(i64),
    Average(i64),
    Utilization(i32),
}

/// The request for a metric; `None` if the metric fails without one.
pub fn request(metric: &Metric, selector: &Selector, namespace: &str) -> Option<MetricRequest> {
    target_of(metric).ok()?;
    let of_metric = |metric: &MetricId| Selector::of_metric(metric.selector.as_ref()).ok();
    Some(match &metric.source {
        Source::Resource { .. } | Source::ContainerResource { .. } => {
            MetricRequest::Resource { selector: selector.clone() }
        }
        Source::Pods { metric, .. } => MetricRequest::Pods {
            selector: selector.clone(),
            metric: metric.name.clone(),
            metric_selector: of_metric(metric)?,
        },
        Source::Object { described, metric, .. } => {
            let version = described.api_version.as_deref().unwrap_or_default();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let is_namespace = described.kind == "Namespace" && group.is_empty();
            let name = if is_namespace { namespace } else { &described.name };
            MetricRequest::Object {
                group: group.to_owned(),
                kind: described.kind.clone(),
                name: name.to_owned(),
                is_namespaced: !is_namespace,
                metric: metric.name.clone(),
                metric_selector: of_metric(metric)?,
            }
        }
        Source::External { metric, .. } => MetricRequest::External {
            metric: metric.name.clone(),
            metric_selector: of_metric(metric)?,
        },
        Source::Prometheus { query, .. } => MetricRequest::Prometheus { query: query.clone() },
        Source::Unknown => return None,
    })
}

/// Evaluates a metric, given the response to its request.
pub fn evaluate(metric: &Metric, fetched: Option<&Fetched>, context: &Context<'_>) -> Evaluation {
    let outcome = propose(metric, fetched, context);
    let failure = match &outcome {
        Ok(_) => Failure::None,
        Err(failed) if failed.error.cause == Cause::UnknownType => Failure::Spec,
        Err(_) => Failure::Internal,
    };
    let action = outcome.as_ref().map_or(Action::None, |proposal| {
        Action::between(context.previous_replicas, proposal.replicas)
    });
    Evaluation {
        name: name(metric, context.utilization_of),
        status: status::of_metric(metric, outcome.as_ref().ok()),
        computed: Computed { metric_type: metric.type_name.clone(), action, error: failure },
        is_in_spec: !matches!(metric.source, Source::Prometheus { .. }),
        outcome,
    }
}

/// The name of a metric in messages.
fn name(metric: &Metric, utilization_of: UtilizationOf) -> String {
    let is_utilization = matches!(target_of(metric), Ok(TargetType::Utilization(_)));
    let of = match utilization_of {
        UtilizationOf::Request => "request",
        UtilizationOf::Limit => "limit",
        UtilizationOf::Template => "the pod template's request",
    };
    match &metric.source {
        Source::Resource { resource, .. } if is_utilization => {
            format!("{resource} resource utilization (percentage of {of})")
        }
        Source::ContainerResource { resource, .. } if is_utilization => {
            format!("{resource} container resource utilization (percentage of {of})")
        }
        Source::Resource { resource, .. } | Source::ContainerResource { resource, .. } => {
            format!("{resource} resource")
        }
        Source::Pods { metric, .. } => format!("pods metric {}", metric.name),
        Source::Object { described, metric, target } if target.type_name == "Value" => {
            format!("{} metric {}", described.kind, metric.name)
        }
        Source::Object { metric, .. } | Source::External { metric, .. } => {
            format!("external metric {}({})", metric.name, as_in_messages(metric.selector.as_ref()))
        }
        Source::Prometheus { metric, .. } => format!("Prometheus metric {}", metric.name),
        Source::Unknown => metric.type_name.clone(),
    }
}

/// The part of the target that a source uses.
pub(super) fn target_of(metric: &Metric) -> Result<TargetType, MetricError> {
    let average = |target: &Target| target.average_value.map(TargetType::Average);
    match &metric.source {
        Source::Resource { target, .. } => average(target)
            .or(target.average_utilization.map(TargetType::Utilization))
            .ok_or_else(|| no_target("resource")),
        Source::ContainerResource { target, .. } => average(target)
            .or(target.average_utilization.map(TargetType::Utilization))
            .ok_or_else(|| no_target("resource")),
        Source::Pods { target, .. } => average(target).ok_or_else(|| no_target("pods")),
        Source::Object { target, .. } => match target.type_name.as_str() {
            "Value" => target.value.map(TargetType::Value),
            "AverageValue" => average(target),
            _ => None,
        }
        .ok_or_else(|| no_target("object")),
        Source::External { target, .. } | Source::Prometheus { target, .. } => average(target)
            .or(target.value.map(TargetType::Value))
            .ok_or_else(|| no_target("external")),
        Source::Unknown => Err(unknown_type(metric)),
    }
}

fn propose(
    metric: &Metric,
    fetched: Option<&Fetched>,
    context: &Context<'_>,
) -> Result<Proposal, Failed> {
    let not_fetched = Err("it was not fetched".to_owned());
    let fetched = fetched.unwrap_or(&not_fetched);
    let (reason, proposal) = match &metric.source {
        Source::Resource { resource, .. } => {
            ("FailedGetResourceMetric", of_resource(metric, resource, None, fetched, context))
        }
        Source::ContainerResource { resource, container, .. } => (
            "FailedGetContainerResourceMetric",
            of_resource(metric, resource, Some(container), fetched, context),
        ),
        Source::Pods { metric: id, .. } => {
            ("FailedGetPodsMetric", of_pods(metric, id, fetched, context))
        }
        Source::Object { described, metric: id, .. } => {
            let wrap = |cause: &str| {
                let namespace = context.namespace;
                format!(
                    "unable to get metric {}: {} on {namespace} {}/{cause}",
                    id.name, described.kind, described.name
                )
            };
            let value = samples::of_object(fetched, context.calculator.fixes);
            let value = value.map_err(|error| error.within(wrap));
            ("FailedGetObjectMetric", of_value(metric, id, value, Origin::Object, context))
        }
        Source::External { metric: id, .. } => {
            let wrap = |cause: &str| {
                let selector = as_in_messages(id.selector.as_ref());
                format!(
                    "unable to get external metric {}/{}/{selector}: {cause}",
                    context.namespace, id.name
                )
            };
            let is_average = matches!(target_of(metric), Ok(TargetType::Average(_)));
            let fixes = context.calculator.fixes;
            let value = samples::of_external(fetched, Api::External, is_average, fixes);
            let value = value.map_err(|error| error.within(wrap));
            ("FailedGetExternalMetric", of_value(metric, id, value, Origin::External, context))
        }
        // Tools know the reasons of upstream alone.
        Source::Prometheus { metric: id, target, .. } => {
            let wrap =
                |cause: &str| format!("unable to get Prometheus metric {}: {cause}", id.name);
            // Upstream's rule for negative values is for the metrics that it has.
            let fixes = context.calculator.fixes.with(Fix::NegativeIsUnknown);
            let is_average = target.average_value.is_some();
            let value = samples::of_external(fetched, Api::Prometheus, is_average, fixes);
            let value = value.map_err(|error| error.within(wrap));
            ("FailedGetExternalMetric", of_value(metric, id, value, Origin::External, context))
        }
        Source::Unknown => ("InvalidMetricSourceType", Err(unknown_type(metric))),
    };
    proposal.map_err(|error| Failed { in_pass: in_pass(metric, &error), error, reason })
}

fn of_resource(
    metric: &Metric,
    resource: &str,
    container: Option<&str>,
    fetched: &Fetched,
    context: &Context<'_>,
) -> Result<Proposal, MetricError> {
    let goal = target_of(metric)?;
    let fixes = context.calculator.fixes;
    let of_goal = if matches!(goal, TargetType::Utilization(_)) { "utilization" } else { "usage" };
    let wrap = |error: MetricError| {
        error.within(|cause| format!("failed to get {resource} {of_goal}: {cause}"))
    };
    let now = context.calculator.readiness.now();
    let samples = samples::of_resource(fetched, resource, container, now, fixes)
        .map_err(|error| {
            error.within(|cause| format!("unable to get metrics for resource {resource}: {cause}"))
        })
        .map_err(wrap)?;
    let proposal = match goal {
        // The target would be an average value if the request in the template were known.
        TargetType::Utilization(_) if context.utilization_of == UtilizationOf::Template => {
            Err(MetricError::missing_template_request(resource, container))
        }
        TargetType::Utilization(target) => {
            let pod_level_resources = context.pod_level_resources;
            let of = context.utilization_of;
            let rules = RequestRules { resource, container, pod_level_resources, of, fixes };
            context.calculator.utilization(samples, target, rules)
        }
        TargetType::Average(target) | TargetType::Value(target) => {
            context.calculator.average(samples, target, resource == "cpu")
        }
    };
    proposal.map_err(wrap)
}

fn of_pods(
    metric: &Metric,
    id: &MetricId,
    fetched: &Fetched,
    context: &Context<'_>,
) -> Result<Proposal, MetricError> {
    check_selector(id)?;
    let TargetType::Average(target) = target_of(metric)? else { return Err(no_target("pods")) };
    let samples = samples::of_pods(fetched, context.calculator.fixes).map_err(|error| {
        error.within(|cause| format!("unable to get metric {}: {cause}", id.name))
    })?;
    context.calculator.average(samples, target, false)
}

fn of_value(
    metric: &Metric,
    id: &MetricId,
    value: Result<i64, MetricError>,
    origin: Origin,
    context: &Context<'_>,
) -> Result<Proposal, MetricError> {
    let goal = match origin {
        Origin::Object => check_selector(id).and_then(|()| target_of(metric))?,
        Origin::External => target_of(metric).and_then(|goal| check_selector(id).map(|()| goal))?,
    };
    match goal {
        TargetType::Value(target) => context.calculator.value(value?, target),
        TargetType::Average(target) => Ok(context.calculator.value_per_pod(value?, target, origin)),
        TargetType::Utilization(_) => Err(no_target("object")),
    }
}

fn check_selector(id: &MetricId) -> Result<(), MetricError> {
    let checked = Selector::of_metric(id.selector.as_ref());
    checked.map(drop).map_err(|error| MetricError::new(Cause::InvalidSelector, error.to_string()))
}

fn unknown_type(metric: &Metric) -> MetricError {
    MetricError::new(
        Cause::UnknownType,
        format!("unknown metric source type {:?}", metric.type_name),
    )
}

fn no_target(kind: &str) -> MetricError {
    let (first, second) = if kind == "resource" {
        ("an average utilization target", "an average value (usage) target")
    } else {
        ("a value target", "an average value target")
    };
    MetricError::new(
        Cause::NoTarget,
        format!("invalid {kind} metric source: neither {first} nor {second} was set"),
    )
}

/// Wraps the message with the type of the source.
fn in_pass(metric: &Metric, error: &MetricError) -> String {
    match &metric.source {
        Source::Resource { resource, .. } => {
            format!("failed to get {resource} resource metric value: {error}")
        }
        // Upstream names the container here, not the resource.
        Source::ContainerResource { container, .. } => {
            format!("failed to get {container} container metric value: {error}")
        }
        Source::Pods { .. } => format!("failed to get pods metric value: {error}"),
        Source::Object { metric, target, .. } if is_average_of_object(target, error) => {
            let name = &metric.name;
            format!(
                "failed to get object metric value: failed to get {name} object metric: {error}"
            )
        }
        Source::Object { .. } => format!("failed to get object metric value: {error}"),
        Source::External { metric, .. } if error.cause == Cause::NoTarget => {
            format!("failed to get {} external metric value: {error}", metric.name)
        }
        Source::External { metric: MetricId { name, .. }, target } => {
            let what = match target.average_value {
                Some(_) => format!("{name} external metric"),
                None => format!("external metric {name}"),
            };
            format!("failed to get {name} external metric value: failed to get {what}: {error}")
        }
        Source::Prometheus { metric, .. } => {
            format!("failed to get {} Prometheus metric value: {error}", metric.name)
        }
        Source::Unknown => error.message.clone(),
    }
}

/// Upstream uses another message once it started to calculate the average.
fn is_average_of_object(target: &Target, error: &MetricError) -> bool {
    let is_average = target.type_name == "AverageValue" && target.average_value.is_some();
    is_average && error.cause != Cause::InvalidSelector
}
