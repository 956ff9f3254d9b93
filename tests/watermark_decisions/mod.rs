//! The number of replicas of a workload: golden vectors, fixes, and properties for any object.

mod calculator;
mod cooldown;
mod events_and_conditions;
mod fixes;
mod options;
mod passes;
mod pod_readiness;
mod properties;
mod recommender_response;
mod replay;
mod scale_limits;
mod status_updates;
mod update_wave;
mod upstream_messages;
mod validation;

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    coordination::RemovalHold,
    scaling::{
        MetricError, MetricSourceType, MetricValue, Pod, Scale, ScaleDecision,
        pod_readiness::{NamespacedName, Phase, Usage},
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Band, Decision, DecisionInput, EffectiveSpec, EvaluationContext, MetricInput, WpaOptions,
        conditions::{self, ConditionType, ConditionUpdate},
    },
};
use serde_json::{Value, json};

pub const NOW: Time = Time::from_secs(1_800_000_000);
pub const OBJECT: NamespacedName<'static> = NamespacedName { namespace: "shop", name: "web" };

/// Both modes, for tests that expect the same of them.
pub fn both_modes() -> [Fixes; 2] {
    [Fixes::for_compat(Compat::Upstream), Fixes::for_compat(Compat::Plimsoll)]
}

pub fn ago(seconds: u64) -> Time {
    NOW.earlier(Duration::from_secs(seconds))
}

/// Returns an object with these fields in addition to the required ones.
pub fn spec(fields: Value) -> WatermarkPodAutoscalerSpec {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 1_000_000,
    });
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    for (key, value) in fields {
        spec[key] = value;
    }
    serde_json::from_value(spec).expect("valid spec")
}

/// Returns a pod that has been ready for an hour.
pub fn pod(number: usize) -> Pod {
    Pod {
        name: format!("web-{number}").into(),
        owned_by_target: true,
        phase: Phase::Running,
        ready: Some((true, ago(3_600))),
        started: Some(ago(3_660)),
        terminating: false,
        resizing: false,
    }
}

pub fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(pod).collect()
}

/// Returns a pod that has been pending for this many seconds.
pub fn pending_pod(number: usize, seconds: u64) -> Pod {
    Pod {
        phase: Phase::Pending,
        ready: Some((false, ago(seconds))),
        started: Some(ago(seconds)),
        ..pod(number)
    }
}

/// Returns a metric with this sum and these watermarks.
pub fn external_metric(sum: i64, low: i64, high: i64) -> MetricInput {
    source("requests", Ok(MetricValue::Sum { sum, at: None }), (low, high))
}

pub fn source(
    name: &str,
    value: Result<MetricValue, MetricError>,
    (low, high): (i64, i64),
) -> MetricInput {
    MetricInput {
        kind: MetricSourceType::External,
        label: name.to_owned(),
        name: format!("{name}{{map[]}}"),
        selector: String::new(),
        address: None,
        band: Some(Band { low, high, tolerance: 0 }),
        value,
    }
}

/// Returns a CPU metric with these samples per pod; a pod with value zero has no sample.
pub fn cpu_metric(samples: &[i64], low: i64, high: i64) -> MetricInput {
    let usage: Usage = samples
        .iter()
        .enumerate()
        .filter(|(_, amount)| **amount != 0)
        .map(|(number, amount)| (format!("web-{number}").into(), *amount))
        .collect();
    let value = Ok(MetricValue::Usage { usage, is_cpu: true, at: None });
    MetricInput { kind: MetricSourceType::Resource, ..source("cpu", value, (low, high)) }
}

/// An object with all inputs of a decision.
#[derive(Clone, Debug)]
pub struct DecisionCase {
    pub rules: EffectiveSpec,
    pub scale: Scale,
    pub pods: Vec<Pod>,
    pub sources: Vec<MetricInput>,
    pub status: WatermarkPodAutoscalerStatus,
    pub memory: ScaleDecision,
    pub removal_hold: Option<RemovalHold>,
    pub now: Time,
    pub fixes: Fixes,
}

impl DecisionCase {
    pub fn new(fixes: Fixes, fields: Value, wanted: i32, sources: Vec<MetricInput>) -> Self {
        let rules = EffectiveSpec::from_spec(&spec(fields));
        let tolerance = rules.tolerance;
        let with = |source: MetricInput| MetricInput {
            band: source.band.map(|band| Band { tolerance, ..band }),
            ..source
        };
        Self {
            rules,
            scale: Scale { spec_replicas: wanted, status_replicas: wanted },
            pods: pods(wanted.try_into().unwrap_or(0)),
            sources: sources.into_iter().map(with).collect(),
            status: WatermarkPodAutoscalerStatus::default(),
            memory: ScaleDecision::default(),
            removal_hold: None,
            now: NOW,
            fixes,
        }
    }

    /// Sets the last scale update to this many seconds ago.
    pub fn scaled_ago(mut self, seconds: u64) -> Self {
        self.status.last_scale_time = Some(conditions::to_timestamp(ago(seconds)));
        self
    }

    /// Sets options beyond the object's fields.
    pub fn with_options(mut self, options: WpaOptions) -> Self {
        self.rules = self.rules.with_options(options);
        self
    }

    /// Sets a condition that has lasted for this many seconds.
    pub fn with_condition(mut self, update: &ConditionUpdate, seconds: u64) -> Self {
        conditions::set_condition(&mut self.status, update, ago(seconds));
        self
    }

    pub fn setting(&self) -> EvaluationContext<'_> {
        EvaluationContext {
            rules: &self.rules,
            readiness: self.rules.readiness_policy(OBJECT, self.now, self.fixes),
            selector: "app=web",
            pods: &self.pods,
            scale: self.scale,
            oldest_sample: None,
            fixes: self.fixes,
        }
    }

    pub fn decide(&self) -> Decision {
        let setting = self.setting();
        let (sources, status) = (self.sources.as_slice(), &self.status);
        let memory = &self.memory;
        DecisionInput {
            context: setting,
            metrics: sources,
            blocked_reason: None,
            removal_hold: self.removal_hold,
            status,
            previous: memory,
            now: self.now,
        }
        .decide()
    }
}

/// Returns the last update of a condition in a decision.
pub fn last_condition(decision: &Decision, fact: ConditionType) -> Option<&ConditionUpdate> {
    decision.conditions.iter().rfind(|update| update.condition_type == fact)
}
