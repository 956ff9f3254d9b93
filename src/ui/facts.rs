//! What pages show of autoscaler objects, as plain data. Those of VPAs are many, so they share their texts.

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
};
use kube::ResourceExt as _;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler},
    hpa::takeover::requested_mode,
    rightsizing::survey::Amounts,
    types::{
        Time,
        interner::Interner,
        units::{Bytes, MilliCpu},
    },
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::{controllers::updater::status_reporter::CONDITION, report::explain::WpaReport};

/// A VerticalPodAutoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaFacts {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub target_kind: Arc<str>,
    pub target_name: Arc<str>,
    pub update_mode: Arc<str>,
    /// The recommender that it selects.
    pub recommender: Arc<str>,
    /// Why the updater holds updates back.
    pub held_back: Option<Box<HeldBack>>,
    pub conditions: Box<[ConditionFacts]>,
    /// Its recommendation.
    pub containers: Box<[VpaContainer]>,
}

/// The recommendation for a container, in millicores and bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaContainer {
    pub name: Arc<str>,
    pub target: Amounts,
    /// The lower bound.
    pub lower: Amounts,
    /// The upper bound.
    pub upper: Amounts,
}

/// Why nothing is changed although a change is needed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// The reason: a label value of `plimsoll_restricted_scaling`.
    pub reason: Arc<str>,
    /// The reason in a sentence.
    pub message: Arc<str>,
    pub since: Option<Time>,
    /// Until when, if that is known.
    pub until: Option<Time>,
}

/// A condition of an object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionFacts {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    pub reason: Arc<str>,
    pub message: Arc<str>,
    pub since: Option<Time>,
}

/// A HorizontalPodAutoscaler or WatermarkPodAutoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerFacts {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub target_kind: String,
    pub target_name: String,
    /// What Plimsoll does with it: a WPA is in `dryRun` or `active`; an HPA in `shadow`, `assist` or `drive`.
    pub mode: String,
    /// The minimum number of replicas.
    pub min: i32,
    /// The maximum number of replicas.
    pub max: i32,
    /// The current replicas.
    pub current: i32,
    /// The desired replicas.
    pub desired: i32,
    /// What the metrics ask for, before limits and windows.
    pub proposal: Option<i32>,
    /// The proposal after limits.
    pub limited: Option<i32>,
    pub last_change: Option<Time>,
    /// When replicas may be added again.
    pub up_allowed_at: Option<Time>,
    /// When replicas may be removed again.
    pub down_allowed_at: Option<Time>,
    /// Until when replicas are not changed, if that is known.
    pub held_until: Option<Time>,
    /// Why the replicas differ from what the metrics ask for.
    pub restrictions: Vec<String>,
    pub metrics: Vec<MetricFacts>,
    pub conditions: Vec<ConditionFacts>,
    /// Problems.
    pub findings: Vec<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricFacts {
    pub name: String,
    pub value: Option<String>,
    /// The target of an HPA.
    pub target: Option<String>,
    /// Replicas are removed below this value.
    pub low: Option<String>,
    /// Replicas are added above this value.
    pub high: Option<String>,
    /// `above`, `inside` or `below`.
    pub position: Option<String>,
    /// The replicas that it proposes.
    pub proposal: Option<i32>,
    /// Whether its proposal was chosen.
    pub chosen: bool,
    /// Why it has no value.
    pub error: Option<String>,
}

impl VpaFacts {
    /// What pages show of a VPA. `texts` has what it may share with others.
    pub fn of(vpa: &VerticalPodAutoscaler, texts: &mut Interner<str>) -> Self {
        let status = vpa.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let conditions: Box<[ConditionFacts]> = conditions
            .iter()
            .map(|condition| ConditionFacts {
                kind: texts.intern(&condition.kind),
                status: texts.intern(&condition.status),
                reason: texts.intern(&condition.reason),
                message: texts.intern(&condition.message),
                since: condition.last_transition_time.as_ref().map(|at| at.0.into()),
            })
            .collect();
        let held_back =
            conditions.iter().find(|one| &*one.kind == CONDITION && &*one.status == "True");
        let held_back = held_back.map(|condition| HeldBack {
            reason: Arc::clone(&condition.reason),
            message: Arc::clone(&condition.message),
            since: condition.since,
            until: None,
        });
        let recommended = status.and_then(|status| status.recommendation.as_ref());
        let containers = recommended.map_or(&[][..], |one| &one.container_recommendations);
        let amounts = |list: &plimsoll_core::api::resource_list::ResourceList| Amounts {
            cpu: list.cpu().map(|cpu| MilliCpu(cpu.milli_value())),
            memory: list.memory().map(|memory| Bytes(memory.value())),
        };
        Self {
            namespace: texts.intern(vpa.metadata.namespace.as_deref().unwrap_or_default()),
            name: texts.intern(vpa.metadata.name.as_deref().unwrap_or_default()),
            target_kind: texts.intern(&vpa.spec.target_ref.kind),
            target_name: texts.intern(&vpa.spec.target_ref.name),
            update_mode: texts.intern(vpa.spec.update_mode().into_str()),
            recommender: texts.intern(vpa.spec.recommender_name()),
            held_back: held_back.map(Box::new),
            containers: containers
                .iter()
                .map(|container| VpaContainer {
                    name: texts.intern(&container.container_name),
                    target: amounts(&container.target),
                    lower: amounts(&container.lower_bound),
                    upper: amounts(&container.upper_bound),
                })
                .collect(),
            conditions,
        }
    }
}

impl AutoscalerFacts {
    /// What pages show of a WatermarkPodAutoscaler.
    pub fn of_wpa(object: &WatermarkPodAutoscaler, now: Time) -> Self {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let status = object.status.clone().unwrap_or_default();
        let key = (&*namespace, &*name);
        let report = WpaReport::of(key, object.annotations(), &object.spec, &status, now);
        let decision = report.decision.unwrap_or_default();
        let text = |quantity: Option<plimsoll_core::types::quantity::Quantity>| {
            quantity.map(|quantity| quantity.to_string())
        };
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        let ends = |seconds: i64| {
            let left = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            (seconds > 0).then(|| now.later(left))
        };
        let metrics = decision.sources.into_iter().map(|source| MetricFacts {
            name: source.name,
            value: text(source.value),
            target: None,
            low: text(source.low),
            high: text(source.high),
            position: filled(source.position),
            proposal: source.proposal,
            chosen: source.chosen,
            error: filled(source.message).or(filled(source.unknown)),
        });
        Self {
            kind: "WatermarkPodAutoscaler".to_owned(),
            target_kind: object.spec.scale_target_ref.kind.clone(),
            target_name: object.spec.scale_target_ref.name.clone(),
            mode: if report.dry_run { "dryRun" } else { "active" }.to_owned(),
            min: report.bounds.0,
            max: report.bounds.1,
            current: report.replicas.0,
            desired: report.replicas.1,
            proposal: decision.proposal,
            limited: decision.limited,
            last_change: report.changes.1,
            up_allowed_at: ends(report.left.0),
            down_allowed_at: ends(report.left.1),
            held_until: decision.held_until.map(|at| at.0.into()),
            restrictions: decision.restrictions,
            metrics: metrics.collect(),
            conditions: report
                .conditions
                .into_iter()
                .map(|condition| ConditionFacts {
                    kind: condition.kind.into(),
                    status: condition.status.into(),
                    reason: condition.reason.into(),
                    message: condition.message.into(),
                    since: condition.last_transition_time.map(|at| at.0.into()),
                })
                .collect(),
            findings: report.findings.into_iter().map(|finding| finding.message).collect(),
            namespace,
            name,
        }
    }

    /// What pages show of a HorizontalPodAutoscaler.
    pub fn of_hpa(object: &HorizontalPodAutoscaler) -> Self {
        let spec = object.spec.clone().unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        let values = status.current_metrics.unwrap_or_default();
        let metrics = spec.metrics.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let conditions: Vec<ConditionFacts> = conditions
            .into_iter()
            .map(|condition| ConditionFacts {
                kind: condition.type_.into(),
                status: condition.status.into(),
                reason: condition.reason.unwrap_or_default().into(),
                message: condition.message.unwrap_or_default().into(),
                since: condition.last_transition_time.map(|at| at.0.into()),
            })
            .collect();
        let is_limited =
            |one: &&ConditionFacts| &*one.kind == "ScalingLimited" && &*one.status == "True";
        let is_failing =
            |one: &&ConditionFacts| &*one.kind != "ScalingLimited" && &*one.status == "False";
        Self {
            kind: "HorizontalPodAutoscaler".to_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            target_kind: spec.scale_target_ref.kind,
            target_name: spec.scale_target_ref.name,
            // An invalid value is that of the default.
            mode: requested_mode(object.annotations()).unwrap_or_default().as_str().to_owned(),
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
            current: status.current_replicas.unwrap_or_default(),
            desired: status.desired_replicas,
            last_change: status.last_scale_time.map(|at| at.0.into()),
            restrictions: conditions
                .iter()
                .filter(is_limited)
                .map(|one| one.reason.as_ref().to_owned())
                .collect(),
            metrics: metrics
                .iter()
                .enumerate()
                .map(|(place, metric)| hpa_metric(metric, values.get(place)))
                .collect(),
            findings: conditions
                .iter()
                .filter(is_failing)
                .map(|one| format!("{}: {}", one.reason, one.message))
                .collect(),
            conditions,
            ..Self::default()
        }
    }
}

/// A metric of an HPA, with the value at the same place of the status.
fn hpa_metric(spec: &MetricSpec, status: Option<&MetricStatus>) -> MetricFacts {
    let (name, target, value) = if let Some(metric) = &spec.resource {
        let value = status.and_then(|status| status.resource.as_ref());
        (metric.name.clone(), &metric.target, value.map(|value| &value.current))
    } else if let Some(metric) = &spec.container_resource {
        let value = status.and_then(|status| status.container_resource.as_ref());
        let name = format!("{} of container {}", metric.name, metric.container);
        (name, &metric.target, value.map(|value| &value.current))
    } else if let Some(metric) = &spec.pods {
        let value = status.and_then(|status| status.pods.as_ref());
        (metric.metric.name.clone(), &metric.target, value.map(|value| &value.current))
    } else if let Some(metric) = &spec.external {
        let value = status.and_then(|status| status.external.as_ref());
        (metric.metric.name.clone(), &metric.target, value.map(|value| &value.current))
    } else if let Some(metric) = &spec.object {
        let value = status.and_then(|status| status.object.as_ref());
        let of = &metric.described_object;
        let name = format!("{} of {} {}", metric.metric.name, of.kind, of.name);
        (name, &metric.target, value.map(|value| &value.current))
    } else {
        return MetricFacts { name: spec.type_.clone(), ..MetricFacts::default() };
    };
    let value = value.and_then(value_text);
    let error = value.is_none().then(|| "the status has no value".to_owned());
    MetricFacts { name, target: target_text(target), value, error, ..MetricFacts::default() }
}

fn target_text(target: &MetricTarget) -> Option<String> {
    let percent = target.average_utilization.map(|percent| format!("{percent}%"));
    let average = target.average_value.as_ref().map(|value| format!("{} per pod", value.0));
    percent.or(average).or(target.value.as_ref().map(|value| value.0.clone()))
}

fn value_text(value: &MetricValueStatus) -> Option<String> {
    let percent = value.average_utilization.map(|percent| format!("{percent}%"));
    let average = value.average_value.as_ref().map(|value| format!("{} per pod", value.0));
    percent.or(average).or(value.value.as_ref().map(|value| value.0.clone()))
}
