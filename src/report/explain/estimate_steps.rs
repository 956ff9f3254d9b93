//! The way from what a histogram reads to a number, once more and step by step, from an explanation alone.

use plimsoll_core::{
    recommender::{
        ResourceExplanation,
        estimate::{Resource, confidence_multiplier},
        explanation::EstimateStep,
    },
    types::quantity::Quantity,
};

/// Which of the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateKind {
    /// Below this the pod should be given more.
    Lower,
    /// What to request.
    Target,
    /// Above this the pod could do with less.
    Upper,
}

/// Every station of one number, in millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimateSteps {
    /// What was read.
    pub percentile: i64,
    /// With the margin on top.
    pub with_margin: i64,
    /// Raised for throttling.
    pub raised_for_throttling: i64,
    /// By what confidence moves it.
    pub confidence_factor: Option<f64>,
    /// After that.
    pub scaled_by_confidence: i64,
    /// Held to the floor, and the upper bound to its largest multiple of the target.
    pub clamped: i64,
    /// Rounded.
    pub rounded: Quantity,
    /// Within the policy's limits: the number, unless the pod has no room for it.
    pub capped: Quantity,
}

impl EstimateSteps {
    /// Goes the way of one number.
    pub fn compute(resource: Resource, chain: &ResourceExplanation, which: EstimateKind) -> Self {
        let step = step(chain, which);
        let read = resource.amount(step.largest_replica.unwrap_or(step.read));
        let with_margin = read.saturating_add(resource.scale(read, chain.margin));
        let factor =
            step.stretch.map(|stretch| confidence_multiplier(stretch, chain.evidence.confidence));
        let raise =
            chain.throttled.map(|throttled| throttled.factor).filter(|factor| *factor > 1.0);
        let raised = raise.map_or(with_margin, |factor| resource.scale(with_margin, factor));
        let stretched = factor.map_or(raised, |factor| resource.scale(raised, factor));
        let mut held = stretched.max(chain.floor.amount);
        if let (EstimateKind::Upper, Some(most)) = (which, chain.upper_bound_factor) {
            let target = Self::compute(resource, chain, EstimateKind::Target).clamped;
            held = held.min(resource.scale(target, most.max(1.0)));
        }
        let rounded = resource.quantity(held, &chain.rounding);
        let limited = chain.cap.apply(rounded).0;
        Self {
            percentile: read,
            with_margin,
            raised_for_throttling: raised,
            confidence_factor: factor,
            scaled_by_confidence: stretched,
            clamped: held,
            rounded,
            capped: limited,
        }
    }
}

/// What an explanation says of one number.
pub const fn step(chain: &ResourceExplanation, which: EstimateKind) -> &EstimateStep {
    match which {
        EstimateKind::Lower => &chain.lower,
        EstimateKind::Target => &chain.target,
        EstimateKind::Upper => &chain.upper,
    }
}
