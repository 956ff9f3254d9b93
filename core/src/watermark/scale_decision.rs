//! Renders a decision for the status of its object.

use crate::types::Time;

use super::{
    combine::MetricEvaluation, conditions::to_timestamp, cooldown::HoldReason, decide::Decision,
    spec::EffectiveSpec,
};
use crate::{
    api::scale_decision::{MetricDecision, ScaleDecision},
    types::quantity::{Format, Quantity},
};

/// The decision with its intermediate results, for the status.
pub fn scale_decision(decision: &Decision, rules: &EffectiveSpec, now: Time) -> ScaleDecision {
    let held_until = match decision.cooldown.and_then(|result| result.hold_reason) {
        Some(HoldReason::ForbiddenWindow { until }) => Some(until),
        Some(HoldReason::Delay { until }) => until,
        Some(HoldReason::NoChange) | None => None,
    };
    let mut trace = ScaleDecision {
        at: Some(to_timestamp(now)),
        sources: decision.metrics.iter().map(metric_decision).collect(),
        from: decision.scale.spec_replicas,
        proposal: decision.proposal.as_ref().ok().map(|combined| combined.replicas.max(0)),
        limited: decision.limited.map(|limited| limited.replicas),
        held_until: held_until.map(to_timestamp),
        to: decision.desired,
        restrictions: decision
            .restrictions(rules)
            .into_iter()
            .map(|restriction| restriction.as_str().to_owned())
            .collect(),
        unknown_since: None,
    };
    decision.history.write_to(&mut trace);
    trace
}

fn metric_decision(row: &MetricEvaluation) -> MetricDecision {
    let quantity = |milli| Quantity::from_milli(milli, Format::DecimalSi);
    let mut traced = MetricDecision {
        name: row.name.clone(),
        low: row.band.map(|band| quantity(band.adjusted_low())),
        high: row.band.map(|band| quantity(band.adjusted_high())),
        chosen: row.is_chosen,
        ..MetricDecision::default()
    };
    match &row.result {
        Ok(metric) => {
            traced.value = Some(quantity(metric.proposal.utilization));
            metric.proposal.position.as_str().clone_into(&mut traced.position);
            traced.proposal = Some(metric.proposal.replicas);
        }
        Err(why) => {
            why.as_str().clone_into(&mut traced.unknown);
            traced.message = why.to_string();
        }
    }
    traced
}
