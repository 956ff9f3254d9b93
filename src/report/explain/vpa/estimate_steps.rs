//! Recomputes the steps from a percentile to the final number, from an explanation alone.

use plimsoll_core::{
    recommender::{
        ResourceExplanation,
        estimate::{Resource, confidence_multiplier},
        explanation::EstimateStep,
    },
    types::quantity::Quantity,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateKind {
    /// The lower bound: below it the request should grow.
    Lower,
    Target,
    /// The upper bound: above it the request can shrink.
    Upper,
}

/// The intermediate results of one estimate, in millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimateSteps {
    pub percentile: i64,
    pub with_margin: i64,
    pub raised_for_throttling: i64,
    pub confidence_factor: Option<f64>,
    pub scaled_by_confidence: i64,
    /// Clamped to the floor, and the upper bound to its maximum multiple of the target.
    pub clamped: i64,
    pub rounded: Quantity,
    /// Within minAllowed and maxAllowed. This is the final number, unless the pod's capacity caps it further.
    pub capped: Quantity,
}

impl EstimateSteps {
    pub fn compute(resource: Resource, chain: &ResourceExplanation, kind: EstimateKind) -> Self {
        let step = step(chain, kind);
        let percentile = resource.amount(step.largest_replica.unwrap_or(step.read));
        let with_margin = percentile.saturating_add(resource.scale(percentile, chain.margin));
        let factor =
            step.stretch.map(|stretch| confidence_multiplier(stretch, chain.evidence.confidence));
        let raise =
            chain.throttled.map(|throttled| throttled.factor).filter(|factor| *factor > 1.0);
        let raised = raise.map_or(with_margin, |factor| resource.scale(with_margin, factor));
        let scaled = factor.map_or(raised, |factor| resource.scale(raised, factor));
        let mut clamped = scaled.max(chain.floor.amount);
        if let (EstimateKind::Upper, Some(most)) = (kind, chain.upper_bound_factor) {
            let target = Self::compute(resource, chain, EstimateKind::Target).clamped;
            clamped = clamped.min(resource.scale(target, most.max(1.0)));
        }
        let rounded = chain.rounding.quantity(resource, clamped);
        let capped = chain.cap.apply(rounded).0;
        Self {
            percentile,
            with_margin,
            raised_for_throttling: raised,
            confidence_factor: factor,
            scaled_by_confidence: scaled,
            clamped,
            rounded,
            capped,
        }
    }
}

/// Returns an explanation's data of one estimate.
pub const fn step(chain: &ResourceExplanation, kind: EstimateKind) -> &EstimateStep {
    match kind {
        EstimateKind::Lower => &chain.lower,
        EstimateKind::Target => &chain.target,
        EstimateKind::Upper => &chain.upper,
    }
}
