//! Replays a series for one object: compares the code with the formulas, step by step.

use plimsoll_core::types::Time;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{
        MetricSourceType, MetricValue, Pod, Restriction, Scale, ScaleDecision, ScaleOutcome,
        pod_readiness::{NamespacedName, Phase},
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Band, DecisionInput, EffectiveSpec, EvaluationContext, MetricInput, conditions,
        status_update::StatusBuilder,
    },
};
use serde_json::json;

use super::reference_model::{ReferenceModel, State};

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplaySummary {
    /// Number of steps.
    pub steps: u64,
    /// Steps that changed the replicas.
    pub changes: u64,
    /// Steps that ended with fewer or more replicas than proposed.
    pub restricted: u64,
}

/// The mode, and the state at the start.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The mode.
    pub compat: Compat,
    /// Replicas at the start.
    pub replicas: i64,
    /// Time of the last scale update before the start, in seconds of the series.
    pub last: Option<i64>,
}

/// Replays a series of values in thousandths, each with its second. `Err` describes the first difference.
pub fn replay_series(
    model: &ReferenceModel,
    series: &[(i64, i64)],
    start: Start,
) -> Result<ReplaySummary, String> {
    let fixes = Fixes::for_compat(start.compat);
    let mut fields = model.fields();
    fields["scaleTargetRef"] =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec: WatermarkPodAutoscalerSpec =
        serde_json::from_value(fields).map_err(|why| why.to_string())?;
    let rules = EffectiveSpec::from_spec(&spec);
    let never = (false, i64::MIN / 4);
    let mut state =
        State { replicas: start.replicas, last: start.last, above: never, below: never };
    let mut status = WatermarkPodAutoscalerStatus {
        last_scale_time: start.last.map(|second| conditions::to_timestamp(Time::from_secs(second))),
        ..WatermarkPodAutoscalerStatus::default()
    };
    let mut replicas = start.replicas as i32;
    let mut followed = ReplaySummary::default();
    for &(second, sum) in series {
        let now = Time::from_secs(second);
        let pods: Vec<Pod> = (0..replicas).map(|_| ready(now)).collect();
        let object = NamespacedName { namespace: "shop", name: "web" };
        let readiness = rules.readiness_policy(object, now, fixes);
        let scale = Scale { spec_replicas: replicas, status_replicas: replicas };
        let setting = EvaluationContext {
            rules: &rules,
            readiness,
            selector: "app=web",
            pods: &pods,
            scale,
            oldest_sample: None,
            fixes,
        };
        let source = MetricInput {
            kind: MetricSourceType::External,
            label: "load".to_owned(),
            name: "load{map[]}".to_owned(),
            selector: String::new(),
            address: None,
            band: Some(Band { low: model.low, high: model.high, tolerance: rules.tolerance }),
            value: Ok(MetricValue::Sum { sum, at: Some(now) }),
        };
        let sources = [source];
        let question = DecisionInput {
            context: setting,
            metrics: &sources,
            blocked_reason: None,
            removal_hold: None,
            status: &status,
            previous: &ScaleDecision::default(),
            now,
        };
        let decision = question.decide();
        let outcome =
            if decision.change.is_some() { ScaleOutcome::Done } else { ScaleOutcome::NoChange };
        let writing = StatusBuilder {
            spec: spec.clone(),
            namespace: "shop".to_owned(),
            compat: start.compat,
            skips_idle_events: true,

            fixes,
        };
        status = writing.status(&status, &decision, &outcome, now);
        followed.steps += 1;
        followed.changes += u64::from(decision.desired != replicas);
        let is_restricted = |restriction: &Restriction| *restriction != Restriction::WithinBounds;
        followed.restricted += u64::from(decision.record.restrictions.iter().any(is_restricted));
        replicas = decision.desired;
        let expected = model.step(&mut state, sum, second);
        if i64::from(replicas) != expected {
            return Err(format!(
                "{replicas} replicas and not {expected} at second {second}, for {sum}: {model:?}, {start:?}"
            ));
        }
    }
    Ok(followed)
}

fn ready(now: Time) -> Pod {
    Pod {
        name: "any".into(),
        owned_by_target: true,
        phase: Phase::Running,
        ready: Some((true, now)),
        started: Some(now),
        terminating: false,
        resizing: false,
    }
}
