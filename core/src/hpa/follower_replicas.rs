//! The replicas of a target, from the spec, annotations and status of its HorizontalPodAutoscaler.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerStatus, MetricStatus, MetricValueStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    conditions::{ABLE_TO_SCALE, SCALING_ACTIVE},
    config::Config,
    hpa_state::Windows,
    record::{HpaRecord, RECORD_ANNOTATION},
    scale_point::{RequestMetric, request_metrics},
    spec::{Behavior, SelectPolicy, Source, Spec, Target},
    takeover::{ObjectMode, takeover},
    tolerance_option::ToleranceOption,
};
use crate::{
    api::hpa_annotations::TOLERANCE,
    coordination::{ObservedReplicas, ReplicaStatus},
    types::{Quantity, Time},
};

/// The keys of annotations with queries.
const QUERY_PREFIX: &str = "query.plimsoll.dev/";

/// The replicas of the target of an object. Who changes them makes no difference.
pub(super) fn observed_replicas(
    metadata: &ObjectMeta,
    spec: &Spec,
    status: Option<&HorizontalPodAutoscalerStatus>,
) -> ObservedReplicas {
    let no_annotations = BTreeMap::new();
    let annotations = metadata.annotations.as_ref().unwrap_or(&no_annotations);
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let takeover = takeover(annotations, owners, spec);
    let behavior = takeover.effective_spec(spec).behavior;
    let config = Config::default();
    let status = status.filter(|status| is_current(status));
    let current = status.and_then(|status| status.current_replicas);
    let mut tolerance = config.tolerances(behavior.as_ref());
    // The annotations of an object that another controller scales do not matter: its request is not changed.
    if let Ok(Some(own)) = TOLERANCE.read(annotations, |text| text.parse::<ToleranceOption>().ok())
    {
        tolerance = own.apply(tolerance, current.unwrap_or(1));
    }
    let is_disabled = |policy: fn(&Behavior) -> SelectPolicy| {
        behavior.as_ref().is_some_and(|behavior| policy(behavior) == SelectPolicy::Disabled)
    };
    let (adds, removes) = (
        !is_disabled(|behavior| behavior.scale_up.select_policy),
        !is_disabled(|behavior| behavior.scale_down.select_policy),
    );
    // The result of a query is not in the status. It may be what keeps the replicas.
    let queries = annotations.keys().any(|key| key.starts_with(QUERY_PREFIX));
    // While Plimsoll changes the replicas, the status of the other controller does not show when, nor what comes next.
    let record = annotations.get(RECORD_ANNOTATION).and_then(|text| HpaRecord::parse(text).ok());
    let record = record.filter(|_| takeover.mode != ObjectMode::Shadow).unwrap_or_default();
    let by_status = status.and_then(|status| status.last_scale_time.as_ref());
    let by_record = record.last_scale.iter().chain(&record.pending).map(|change| change.at);
    ObservedReplicas {
        min: spec.min_replicas,
        max: spec.max_replicas,
        down_window: Windows::of(behavior.as_ref(), config.downscale_stabilization).down,
        tolerance_up: adds.then_some(tolerance.up),
        tolerance_down: removes.then_some(tolerance.down),
        changed: by_status.map(|at| Time::from(at.0)).into_iter().chain(by_record).max(),
        status: status.and_then(|status| {
            let found = replica_status(spec, status, record.desired_replicas)?;
            let other_ratio = if queries {
                Some(found.other_ratio.map_or(1.0, |ratio| ratio.max(1.0)))
            } else {
                found.other_ratio
            };
            Some(ReplicaStatus { other_ratio, ..found })
        }),
    }
}

/// Whether a status is that of a pass which found the scale and the metrics. Another one keeps values of an earlier pass.
fn is_current(status: &HorizontalPodAutoscalerStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    [ABLE_TO_SCALE, SCALING_ACTIVE].into_iter().all(|name| {
        conditions.iter().any(|condition| condition.type_ == name && condition.status == "True")
    })
}

/// The replicas in a status; `None` if a metric has no value.
fn replica_status(
    spec: &Spec,
    status: &HorizontalPodAutoscalerStatus,
    recorded: Option<i32>,
) -> Option<ReplicaStatus> {
    let current = status.current_replicas?;
    let followed: Vec<usize> = request_metrics(spec).map(|metric| metric.index).collect();
    let mut other_ratio: Option<f64> = None;
    for (index, metric) in spec.metrics.iter().enumerate() {
        if followed.contains(&index) {
            continue;
        }
        let (value, target) = value_and_target(&metric.source, entry(status, index)?)?;
        let ratio = ratio(value, target)?;
        other_ratio = Some(other_ratio.map_or(ratio, |other| other.max(ratio)));
    }
    // A decision that is recorded and not made yet is the later one.
    let recorded = recorded.filter(|recorded| *recorded != current);
    let desired = recorded.unwrap_or(status.desired_replicas);
    Some(ReplicaStatus { current, desired, other_ratio })
}

fn entry(status: &HorizontalPodAutoscalerStatus, index: usize) -> Option<&MetricStatus> {
    status.current_metrics.as_deref().unwrap_or_default().get(index)
}

/// The current value of a metric, with its target. The entry of a metric that failed is empty.
fn value_and_target<'a>(
    source: &'a Source,
    entry: &'a MetricStatus,
) -> Option<(&'a MetricValueStatus, &'a Target)> {
    match source {
        Source::Resource { resource, target } => {
            let entry = entry.resource.as_ref().filter(|entry| entry.name == *resource)?;
            Some((&entry.current, target))
        }
        Source::ContainerResource { resource, container, target } => {
            let entry = entry
                .container_resource
                .as_ref()
                .filter(|entry| entry.name == *resource && entry.container == *container)?;
            Some((&entry.current, target))
        }
        Source::Pods { metric, target } => {
            let entry = entry.pods.as_ref().filter(|entry| entry.metric.name == metric.name)?;
            Some((&entry.current, target))
        }
        Source::Object { metric, target, .. } => {
            let entry = entry.object.as_ref().filter(|entry| entry.metric.name == metric.name)?;
            Some((&entry.current, target))
        }
        Source::External { metric, target } => {
            let entry = entry.external.as_ref().filter(|entry| entry.metric.name == metric.name)?;
            Some((&entry.current, target))
        }
        Source::Prometheus { .. } | Source::Unknown => None,
    }
}

fn ratio(current: &MetricValueStatus, target: &Target) -> Option<f64> {
    let milli = |quantity: Option<&ApiQuantity>| {
        let quantity: Quantity = quantity?.0.trim().parse().ok()?;
        Some(quantity.milli_value() as f64)
    };
    let (value, target) = if let Some(target) = target.average_value {
        (milli(current.average_value.as_ref())?, target as f64)
    } else if let Some(target) = target.value {
        (milli(current.value.as_ref())?, target as f64)
    } else {
        (current.average_utilization?.into(), target.average_utilization?.into())
    };
    (target > 0.0).then(|| value / target)
}

/// The mean usage per pod of a metric that is relative to requests, in milli-units; `None` if it is unknown.
pub(super) fn usage_per_pod(
    spec: &Spec,
    metric: RequestMetric<'_>,
    status: Option<&HorizontalPodAutoscalerStatus>,
) -> Option<i64> {
    let status = status.filter(|status| is_current(status))?;
    let source = &spec.metrics.get(metric.index)?.source;
    let (current, _) = value_and_target(source, entry(status, metric.index)?)?;
    let average: Quantity = current.average_value.as_ref()?.0.trim().parse().ok()?;
    Some(average.milli_value())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        coordination::{ContainerRequests, SharedRequest, SharingContext, TemplateRequests},
        hpa::request_follower,
    };

    /// An object of five replicas with a target of 60 % of the requests, 500m in the template, and a usage of 300m.
    fn object() -> Value {
        json!({
            "metadata": {"name": "web", "annotations": {"plimsoll.dev/hpa": "drive"}},
            "spec": {
                "minReplicas": 2, "maxReplicas": 10,
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 60}}}],
                "behavior": {"scaleUp": {"selectPolicy": "Disabled"},
                    "scaleDown": {"selectPolicy": "Disabled"}},
            },
            "status": {
                "currentReplicas": 5, "desiredReplicas": 5,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageValue": "300m", "averageUtilization": 75}}}],
                "conditions": [
                    {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
                    {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
                ],
            },
        })
    }

    fn shared(object: &Value) -> SharedRequest {
        let parse = |part: &str| object[part].clone();
        let status: Option<HorizontalPodAutoscalerStatus> =
            serde_json::from_value(parse("status")).expect("a status");
        let follower = request_follower(
            &serde_json::from_value(parse("metadata")).expect("metadata"),
            &serde_json::from_value(parse("spec")).expect("a spec"),
            status.as_ref(),
        );
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        follower
            .shared_requests(Some(&template), SharingContext::default())
            .next()
            .expect("it follows one request")
    }

    fn with(change: impl FnOnce(&mut Value)) -> SharedRequest {
        let mut object = object();
        change(&mut object);
        shared(&object)
    }

    #[test]
    fn the_usage_relative_to_the_scale_point_is_what_the_metrics_ask_for() {
        for (average, proposed, lacks_replicas) in
            [("300m", 5, false), ("320m", 5, false), ("480m", 8, false), ("150m", 3, false)]
        {
            let shared = with(|object| {
                object["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"] =
                    json!(average);
            });
            assert_eq!(shared.replicas.proposed, Some(proposed), "{average}");
            assert_eq!(shared.lacks_replicas, lacks_replicas, "{average}");
        }
        let at_max = with(|object| {
            object["status"]["currentReplicas"] = json!(10);
            object["status"]["desiredReplicas"] = json!(10);
            object["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"] =
                json!("400m");
        });
        assert!(at_max.lacks_replicas);
    }

    #[test]
    fn another_metric_can_be_what_keeps_the_replicas() {
        let external = |current: Value| {
            with(|object| {
                let metric = json!({"type": "External", "external": {"metric": {"name": "queue"},
                    "target": {"type": "AverageValue", "averageValue": "10"}}});
                object["spec"]["metrics"].as_array_mut().expect("metrics").push(metric);
                let metrics = object["status"]["currentMetrics"].as_array_mut();
                metrics.expect("metrics").push(current);
                object["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"] =
                    json!("100m");
            })
        };
        let value = |average: &str| {
            json!({"type": "External", "external": {"metric": {"name": "queue"},
                "current": {"averageValue": average}}})
        };
        assert_eq!(external(value("10")).replicas.proposed, Some(5));
        assert_eq!(external(value("20")).replicas.proposed, Some(10));
        assert_eq!(external(json!({"type": ""})).replicas.proposed, None, "it failed");
    }

    #[test]
    fn what_is_not_known_is_unknown() {
        type Change = fn(&mut Value);
        let changes: [Change; 5] = [
            |object| object["status"] = Value::Null,
            |object| object["status"]["conditions"] = json!([]),
            |object| object["status"]["conditions"][0]["status"] = json!("False"),
            |object| object["status"]["conditions"][1]["status"] = json!("False"),
            |object| object["status"]["currentMetrics"] = json!([{"type": ""}]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let shared = with(change);
            assert_eq!(shared.replicas.proposed, None, "{index}");
            assert!(!shared.lacks_replicas, "{index}");
            assert_eq!((shared.replicas.min, shared.replicas.max), (2, 10), "{index}");
        }
    }

    #[test]
    fn the_last_change_and_the_window_are_those_of_the_controller_that_changes_the_replicas() {
        let (earlier, later) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        let record = json!({"desiredReplicas": 5,
            "lastScale": {"from": 4, "to": 5, "at": later}})
        .to_string();
        let driven = with(|object| {
            object["status"]["lastScaleTime"] = json!(earlier);
            object["metadata"]["annotations"]["plimsoll.dev/decision"] = json!(record);
            object["metadata"]["annotations"]["plimsoll.dev/behavior"] =
                json!(r#"{"scaleDown":{"stabilizationWindowSeconds":600}}"#);
        });
        let time = |text: &str| serde_json::from_value::<Time>(json!(text)).expect("a time");
        assert_eq!(driven.replicas.changed, Some(time(later)));
        assert_eq!(driven.replicas.down_window, Duration::from_mins(10));
        assert_eq!(driven.replicas.proposed, Some(5));
        let pending = json!({"desiredReplicas": 6}).to_string();
        let deciding = with(|object| {
            object["metadata"]["annotations"]["plimsoll.dev/decision"] = json!(pending);
        });
        assert_eq!(deciding.replicas.proposed, Some(6));
        // Without the mode, the record is one of the past.
        let shadowed = with(|object| {
            object["status"]["lastScaleTime"] = json!(earlier);
            object["metadata"]["annotations"] = json!({"plimsoll.dev/decision": record});
            object["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
        });
        assert_eq!(shadowed.replicas.changed, Some(time(earlier)));
        assert_eq!(shadowed.replicas.down_window, Duration::from_mins(1));
    }
}
