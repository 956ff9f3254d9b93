//! One object follows a series: the code and the formulas, step by step.

use plimsoll_core::types::Time;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{
        MetricSourceType, MetricValue, Pod, Scale,
        pod_readiness::{NamespacedName, Phase},
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Band, DecisionInput, EffectiveSpec, EvaluationContext, MetricHistory, MetricInput,
        Restriction, conditions,
        status_update::{ScaleOutcome, StatusBuilder},
    },
};
use serde_json::json;

use super::reference_model::{ReferenceModel, State};

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplaySummary {
    /// Steps that were made.
    pub steps: u64,
    /// Steps that changed replicas.
    pub changes: u64,
    /// Steps that ended with fewer or more replicas than the metric asked for.
    pub restricted: u64,
}

/// Whose ways are followed, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Whose ways.
    pub compat: Compat,
    /// Replicas at first.
    pub replicas: i64,
    /// When they were last changed, in seconds as the series has it.
    pub last: Option<i64>,
}

/// Follows a series of values in thousandths, each with its second. `Err`: where the two part.
pub fn replay_series(
    plain: &ReferenceModel,
    series: &[(i64, i64)],
    start: Start,
) -> Result<ReplaySummary, String> {
    let fixes = Fixes::for_compat(start.compat);
    let mut fields = plain.fields();
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
    let mut has = start.replicas as i32;
    let mut followed = ReplaySummary::default();
    for &(second, sum) in series {
        let now = Time::from_secs(second);
        let pods: Vec<Pod> = (0..has).map(|_| ready(now)).collect();
        let object = NamespacedName { namespace: "shop", name: "web" };
        let readiness = rules.readiness_policy(object, now, fixes);
        let scale = Scale { spec_replicas: has, status_replicas: has };
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
            band: Some(Band { low: plain.low, high: plain.high, tolerance: rules.tolerance }),
            value: Ok(MetricValue::Sum { sum, at: Some(now) }),
        };
        let sources = [source];
        let question = DecisionInput {
            rules: &rules,
            context: setting,
            metrics: &sources,
            blocked_reason: None,
            status: &status,
            history: &MetricHistory::default(),
            now,
            fixes,
        };
        let decision = question.decide();
        let made =
            if decision.change.is_some() { ScaleOutcome::Done } else { ScaleOutcome::NoChange };
        let writing = StatusBuilder {
            spec: &spec,
            namespace: "shop",
            compat: start.compat,
            skips_idle_events: true,
            now,
            fixes,
        };
        status = writing.status(&status, &decision, &made);
        followed.steps += 1;
        followed.changes += u64::from(decision.desired != has);
        let is_restricted = |it: &Restriction| *it != Restriction::WithinBounds;
        followed.restricted += u64::from(decision.restrictions(&rules).iter().any(is_restricted));
        has = decision.desired;
        let expected = plain.step(&mut state, sum, second);
        if i64::from(has) != expected {
            return Err(format!(
                "{has} replicas and not {expected} at second {second}, for {sum}: {plain:?}, {start:?}"
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
    }
}
