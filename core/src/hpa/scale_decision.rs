//! The record of a decision, in the form that all kinds of autoscalers share.

use super::{
    config::Tolerance,
    decision::Decision,
    evaluation::{Evaluation, TargetType, target_of},
    observed::Observed,
    spec::{Metric, Source},
};
use crate::scaling::{
    MetricBounds, MetricDecision, Milli, Position, Restriction, ScaleDecision, UnknownMetric,
};

/// The restrictions that a HorizontalPodAutoscaler can have.
pub const RESTRICTIONS: [Restriction; 20] = [
    Restriction::WithinTolerance,
    Restriction::Padding,
    Restriction::StabilizedUp,
    Restriction::StabilizedDown,
    Restriction::ScaleUpLimit,
    Restriction::ScaleDownLimit,
    Restriction::Min,
    Restriction::Max,
    Restriction::MetricUnknown,
    Restriction::PartialMetrics,
    Restriction::NoScale,
    Restriction::InvalidSelector,
    Restriction::AmbiguousSelector,
    Restriction::Disabled,
    Restriction::BuiltinActs,
    Restriction::Paused,
    Restriction::HoldWhile,
    Restriction::Fallback,
    Restriction::VpaWave,
    Restriction::AtScalePoint,
];

/// The record of a decision that was made from this observation. `previous` is the one before it.
pub fn scale_decision(
    decision: &Decision,
    observed: &Observed<'_>,
    previous: &ScaleDecision,
) -> ScaleDecision {
    let tolerance = observed.tolerance();
    let evaluated = decision.evaluations.iter().zip(observed.metrics()).enumerate();
    let metrics = evaluated.map(|(index, (evaluation, metric))| MetricDecision {
        is_chosen: decision.winner == Some(index),
        ..metric_decision(evaluation, metric, tolerance)
    });
    let stabilization = decision.stabilization;
    let mut record = ScaleDecision {
        at: observed.now,
        current: decision.current,
        metrics: metrics.collect(),
        proposed: stabilization.map(|stabilization| stabilization.recommended),
        limited: decision.limited.as_ref().map(|limited| limited.replicas),
        desired: decision.desired,
        restrictions: decision.restrictions.clone(),
        held_until: stabilization.and_then(|stabilization| stabilization.held?.until),
        unknown_since: None,
    };
    let is_unknown = decision.restrictions.contains(&Restriction::MetricUnknown);
    record.set_since(previous, is_unknown);
    record
}

fn metric_decision(
    evaluation: &Evaluation,
    metric: &Metric,
    tolerance: Tolerance,
) -> MetricDecision {
    let target = target_of(metric).ok();
    let proposal = evaluation.outcome.as_ref().ok();
    let label = match &metric.source {
        Source::Resource { resource, .. } | Source::ContainerResource { resource, .. } => resource,
        Source::Pods { metric, .. }
        | Source::Object { metric, .. }
        | Source::External { metric, .. }
        | Source::Prometheus { metric, .. } => &metric.name,
        Source::Unknown => &metric.type_name,
    };
    let percent = |percent: i32| Milli::from(percent) * 1000;
    let target = target.map(|target| match target {
        TargetType::Value(target) | TargetType::Average(target) => target,
        TargetType::Utilization(target) => percent(target),
    });
    let value = proposal.map(|proposal| proposal.utilization.map_or(proposal.value, percent));
    MetricDecision {
        label: label.clone(),
        name: evaluation.name.clone(),
        value: value.map(|value| value as f64),
        is_ignored: false,
        bounds: target.map(|target| MetricBounds {
            low: target,
            high: target,
            tolerated_low: (target as f64 * (1.0 - tolerance.down)) as Milli,
            tolerated_high: (target as f64 * (1.0 + tolerance.up)) as Milli,
        }),
        position: proposal.map(|proposal| match proposal.ratio {
            ratio if tolerance.contains(ratio) => Position::Inside,
            ratio if ratio > 1.0 => Position::Above,
            _ => Position::Below,
        }),
        since: None,
        proposal: proposal.map(|proposal| proposal.replicas),
        is_chosen: false,
        unknown: evaluation.outcome.as_ref().err().map(|failed| UnknownMetric {
            reason: failed.reason,
            message: failed.error.to_string(),
        }),
    }
}
