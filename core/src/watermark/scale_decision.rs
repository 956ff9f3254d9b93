//! The record of a decision: from it status, metrics and reports are rendered.

use super::{
    combine::{CombinedProposal, MetricEvaluation, ProposalError},
    cooldown::HoldReason,
    decide::Decision,
    scale_rate::LimitHit,
    spec::EffectiveSpec,
};
use crate::{
    scaling::{
        MetricDecision, MetricError, PodsNotReady, Restriction, Scale, ScaleDecision, UnknownMetric,
    },
    types::Time,
};

/// The restrictions that a WatermarkPodAutoscaler can have.
pub const RESTRICTIONS: [Restriction; 13] = [
    Restriction::WithinBounds,
    Restriction::UpscaleCapping,
    Restriction::DownscaleCapping,
    Restriction::ForbiddenWindow,
    Restriction::Delay,
    Restriction::Min,
    Restriction::Max,
    Restriction::DryRun,
    Restriction::MetricUnknown,
    Restriction::Availability,
    Restriction::Lifecycle,
    Restriction::Disabled,
    Restriction::VpaWave,
];

/// The part of the record that the decision itself depends on: the metrics, each with since when it is in its state.
pub(super) fn record_metrics(
    rows: &[MetricEvaluation],
    combined: &Result<CombinedProposal, ProposalError>,
    scale: Scale,
    previous: &ScaleDecision,
    now: Time,
) -> ScaleDecision {
    // If pods are not ready, the metric was not queried, so it does not count as unavailable.
    let is_unknown = match combined {
        Err(ProposalError::Metric { why: MetricError::PodsNotReady(why), .. }) => {
            matches!(why, PodsNotReady::NoUsage)
        }
        Err(ProposalError::Metric { .. }) => true,
        Err(ProposalError::NoMetrics | ProposalError::Blocked(_)) | Ok(_) => false,
    };
    let mut record = ScaleDecision {
        at: now,
        current: Some(scale.spec_replicas),
        metrics: rows.iter().map(metric_decision).collect(),
        proposed: combined.as_ref().ok().map(|combined| combined.replicas.max(0)),
        ..ScaleDecision::default()
    };
    record.set_since(previous, is_unknown);
    record
}

/// Adds to the record what was decided.
pub(super) fn complete_record(decision: &mut Decision, rules: &EffectiveSpec) {
    decision.record = ScaleDecision {
        limited: decision.limited.map(|limited| limited.replicas),
        desired: (decision.proposal.is_ok() || decision.change.is_some())
            .then_some(decision.desired),
        restrictions: restrictions(decision, rules),
        held_until: match decision.cooldown.and_then(|result| result.hold_reason) {
            Some(HoldReason::ForbiddenWindow { until }) => Some(until),
            Some(HoldReason::Delay { until } | HoldReason::UpdateWave { until }) => until,
            Some(HoldReason::NoChange) | None => None,
        },
        ..std::mem::take(&mut decision.record)
    };
}

fn metric_decision(row: &MetricEvaluation) -> MetricDecision {
    let found = row.result.as_ref().ok();
    MetricDecision {
        label: row.label.clone(),
        name: row.name.clone(),
        value: found.map(|found| found.value),
        is_ignored: found.is_some_and(|found| found.is_ignored_zero),
        bounds: row.band.map(|band| band.bounds()),
        position: found.map(|found| found.position),
        since: None,
        proposal: found.map(|found| found.replicas),
        is_chosen: row.is_chosen,
        unknown: row
            .result
            .as_ref()
            .err()
            .map(|why| UnknownMetric { reason: why.as_str(), message: why.to_string() }),
    }
}

/// Why the workload does not have the replicas that its metrics ask for.
fn restrictions(decision: &Decision, rules: &EffectiveSpec) -> Vec<Restriction> {
    let mut found = Vec::new();
    if decision.scale.spec_replicas == 0 && !rules.may_be_zero() {
        found.push(Restriction::Disabled);
    }
    match &decision.proposal {
        Ok(_) if decision.is_within_bounds() => found.push(Restriction::WithinBounds),
        Ok(_) | Err(ProposalError::NoMetrics) => {}
        Err(ProposalError::Blocked(_)) => found.push(Restriction::Lifecycle),
        Err(ProposalError::Metric { why, .. }) => found.push(match why {
            MetricError::PodsNotReady(
                PodsNotReady::NoneReady { .. } | PodsNotReady::TooFewReady { .. },
            ) => Restriction::Availability,
            _ => Restriction::MetricUnknown,
        }),
    }
    if let Some(limited) = decision.limited {
        if limited.upscale_capping == Some(true) {
            found.push(Restriction::UpscaleCapping);
        }
        if limited.downscale_capping == Some(true) {
            found.push(Restriction::DownscaleCapping);
        }
        // A rate-limited proposal may also end at a bound.
        let proposed = decision.record.proposed.unwrap_or(limited.replicas);
        let limits = &rules.limits;
        if limited.limit_hit == LimitHit::BelowOne
            || (limited.replicas == limits.min && proposed < limits.min)
        {
            found.push(Restriction::Min);
        }
        if limited.replicas == limits.max && proposed > limits.max {
            found.push(Restriction::Max);
        }
    }
    match decision.cooldown.and_then(|result| result.hold_reason) {
        Some(HoldReason::ForbiddenWindow { .. }) => found.push(Restriction::ForbiddenWindow),
        Some(HoldReason::Delay { .. }) => found.push(Restriction::Delay),
        Some(HoldReason::UpdateWave { .. }) => found.push(Restriction::VpaWave),
        Some(HoldReason::NoChange) | None => {}
    }
    if rules.dry_run && decision.change.is_some() {
        found.push(Restriction::DryRun);
    }
    found
}
