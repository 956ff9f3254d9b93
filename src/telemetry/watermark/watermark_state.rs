//! What the exported state has of a WatermarkPodAutoscaler alone: its spec, its conditions, and the limits that upstream's
//! families export.

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::MetricError,
    types::{
        Time,
        compat::{Fix, Fixes},
    },
    watermark::{
        Decision, EffectiveSpec, ProposalError,
        conditions::{ConditionType, condition_since, from_timestamp},
    },
};

use crate::telemetry::replicas::ExportedState;

/// The maximum length of a label value about a target, in bytes: no valid kind or name is longer. Objects are exported
/// before their spec is validated.
const MAX_LABEL_BYTES: usize = 253;

fn truncated(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_LABEL_BYTES)].to_owned()
}

/// The state according to the spec, with the rest taken from the previous state.
pub fn from_spec(
    spec: &WatermarkPodAutoscalerSpec,
    before: Option<&ExportedState>,
    now: Time,
) -> ExportedState {
    let target = &spec.scale_target_ref;
    let rules = EffectiveSpec::from_spec(spec);
    ExportedState {
        target: (truncated(&target.kind), truncated(&target.name)),
        dry_run: spec.dry_run,
        bounds: (rules.limits.min, rules.limits.max),
        tolerance: rules.tolerance,
        reconciled_at: now,
        decision: None,
        ..before.cloned().unwrap_or_default()
    }
}

/// Initialises the cooldown from the last scale time in the status, before this process has made a decision.
pub fn start_cooldown(
    state: &mut ExportedState,
    filled: &WatermarkPodAutoscalerSpec,
    status: &WatermarkPodAutoscalerStatus,
) {
    if let (None, Some(last)) = (state.cooldown_seconds, &status.last_scale_time) {
        let rules = EffectiveSpec::from_spec(filled);
        let remaining = |window| {
            from_timestamp(last).later(window).nanos_since(state.reconciled_at).max(0) as f64 / 1e9
        };
        state.cooldown_seconds =
            Some((remaining(rules.upscale_window), remaining(rules.downscale_window)));
    }
}

pub fn set_conditions(state: &mut ExportedState, status: &WatermarkPodAutoscalerStatus) {
    let holds = |fact: ConditionType| {
        let exists = status.conditions.iter().any(|condition| condition.kind == fact.into_str());
        exists.then(|| condition_since(status, fact).holds)
    };
    state.scaling_active = holds(ConditionType::ScalingActive) == Some(true);
    let labelled =
        ConditionType::ALL.iter().filter_map(|&fact| Some((fact.label()?, holds(fact)?)));
    state.conditions = labelled.collect();
}

/// Updates what only upstream's families export of a decision.
pub fn set_limits(state: &mut ExportedState, decision: &Decision, fixes: Fixes) {
    match &decision.proposal {
        Ok(_) => {
            let exports_bounds = fixes.has(Fix::CappingIsShownRight);
            state.within_bounds = Some(exports_bounds && decision.is_within_bounds());
            if let Some(limited) = decision.limited {
                state.upscale_capping = limited.upscale_capping.or(state.upscale_capping);
                state.downscale_capping = limited.downscale_capping.or(state.downscale_capping);
            }
        }
        // Without a proposal the limits are unknown. Pods that are not ready do not change them.
        Err(ProposalError::Metric { why: MetricError::PodsNotReady(_), .. }) => {}
        Err(_) => state.clear_limits(),
    }
    if let Some(remaining) = decision.cooldown.and_then(|cooldown| cooldown.remaining) {
        state.cooldown_seconds = Some((remaining.up, remaining.down));
    }
}
