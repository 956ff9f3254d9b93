//! Estimates bounds and target of one resource from histogram percentiles: margin, throttling, confidence, floor,
//! rounding, policy. Every stage is recorded in the explanation.

use super::{
    explanation::{
        ConfidenceFactor, EstimateStep, Evidence, Floor, RecommendationReason, ResourceExplanation,
        Rounding,
    },
    go_math::powi,
    plan::PlannedRequest,
    policy::{Cap, CapResult},
    throttling::Throttled,
};
use crate::history::{OomBump, SampleStats};
use crate::types::Quantity;
use std::time::Duration;

pub use crate::types::Resource;

/// The lower bound narrows quickly: after half an hour of samples it is at nine tenths.
pub const LOWER_BOUND_FACTOR: ConfidenceFactor = ConfidenceFactor { weight: 0.001, exponent: -2 };
/// The upper bound is twice the estimate after one day.
pub const UPPER_BOUND_FACTOR: ConfidenceFactor = ConfidenceFactor { weight: 1.0, exponent: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEstimate {
    /// Pods with a lower request should get more.
    pub lower_bound: Quantity,
    pub target: Quantity,
    /// Pods with a higher request need less.
    pub upper_bound: Quantity,
    /// The target before the policy is applied.
    pub uncapped: Quantity,
}

/// The inputs of the estimation except the percentiles.
pub struct EstimatorChain {
    pub resource: Resource,
    /// The samples that the estimate is based on.
    pub evidence: Evidence,
    /// Fraction that is added to each percentile.
    pub margin: f64,
    pub floor: Floor,
    pub rounding: Rounding,
    /// The policy's minimum and maximum.
    pub cap: Cap,
    /// The maximum of the upper bound as a multiple of the target.
    pub upper_bound_factor: Option<f64>,
    /// The measured CPU throttling and the resulting factor.
    pub throttled: Option<Throttled>,
    /// The latest OOM bump that is still in the history, and the upper edge of its bucket.
    pub bump: Option<(OomBump, f64)>,
    /// The planned request, if the readings are those of a plan.
    pub plan: Option<Box<PlannedRequest>>,
}

/// A percentile of the histograms, for one of the three estimates.
#[derive(Clone, Copy)]
pub struct PercentileReading {
    /// The percentile, 0 to 1.
    pub percentile: f64,
    /// Its value in the histogram of all samples.
    pub value: f64,
    /// Its value in the histogram of the largest replicas.
    pub largest_replica: Option<f64>,
}

impl EstimatorChain {
    /// Estimates lower bound, target and upper bound.
    pub fn run(
        &self,
        [lower, target, upper]: [PercentileReading; 3],
    ) -> (ResourceEstimate, ResourceExplanation) {
        // Bounds of a plan are its own.
        let stretch = |factor| self.plan.is_none().then_some(factor);
        let (lower_amount, mut lower) = self.estimate(lower, stretch(LOWER_BOUND_FACTOR));
        let (target_amount, mut target) = self.estimate(target, None);
        let (mut upper_amount, mut upper) = self.estimate(upper, stretch(UPPER_BOUND_FACTOR));
        if let Some(factor) = self.upper_bound_factor {
            let max = self.resource.scale(target_amount, factor.max(1.0));
            if upper_amount > max {
                upper_amount = max;
                upper.decided_by = RecommendationReason::UpperBoundFactor;
            }
        }
        let uncapped = self.rounding.quantity(self.resource, target_amount);
        let estimate = ResourceEstimate {
            lower_bound: self
                .apply_cap(self.rounding.quantity(self.resource, lower_amount), &mut lower),
            target: self.apply_cap(uncapped, &mut target),
            upper_bound: self
                .apply_cap(self.rounding.quantity(self.resource, upper_amount), &mut upper),
            uncapped,
        };
        let explanation = ResourceExplanation {
            evidence: self.evidence,
            margin: self.margin,
            floor: self.floor,
            rounding: self.rounding,
            cap: self.cap,
            upper_bound_factor: self.upper_bound_factor,
            throttled: self.throttled,
            bump: self.bump.map(|(bump, _)| bump),
            plan: self.plan.clone(),
            lower,
            target,
            upper,
        };
        (estimate, explanation)
    }

    fn estimate(
        &self,
        reading: PercentileReading,
        stretch: Option<ConfidenceFactor>,
    ) -> (i64, EstimateStep) {
        let PercentileReading { percentile, value, largest_replica } = reading;
        let largest_replica = largest_replica.filter(|largest| *largest > value);
        let base = self.resource.amount(largest_replica.unwrap_or(value));
        let with_margin = base.saturating_add(self.resource.scale(base, self.margin));
        let raise = self.throttled.map(|throttled| throttled.factor).filter(|factor| *factor > 1.0);
        let raised = raise.map_or(with_margin, |factor| self.resource.scale(with_margin, factor));
        let stretched = match stretch {
            Some(stretch) => self
                .resource
                .scale(raised, confidence_multiplier(stretch, self.evidence.confidence)),
            None => raised,
        };
        let of_bump = self.bump.is_some_and(|(_, edge)| edge.to_bits() == value.to_bits());
        let decided_by = if self.evidence.samples == 0 && base == 0 {
            RecommendationReason::NoData
        } else if stretched < self.floor.amount {
            RecommendationReason::Floor
        } else if self.plan.is_some() {
            RecommendationReason::Plan
        } else if largest_replica.is_some() {
            RecommendationReason::LargestReplica
        } else if of_bump {
            RecommendationReason::OomBump
        } else if raise.is_some() {
            RecommendationReason::Throttling
        } else {
            RecommendationReason::Usage
        };
        let step = EstimateStep { percentile, read: value, largest_replica, stretch, decided_by };
        (stretched.max(self.floor.amount), step)
    }

    fn apply_cap(&self, value: Quantity, step: &mut EstimateStep) -> Quantity {
        let (value, capped) = self.cap.apply(value);
        step.decided_by = match capped {
            CapResult::Unchanged => step.decided_by,
            CapResult::Min => RecommendationReason::MinAllowed,
            CapResult::Max if self.cap.max_is_global => RecommendationReason::GlobalMaxAllowed,
            CapResult::Max => RecommendationReason::MaxAllowed,
        };
        value
    }
}

/// Returns the factor of a bound. Without any confidence the upper bound becomes the maximum amount and the lower
/// bound 0.
pub fn confidence_multiplier(stretch: ConfidenceFactor, confidence: f64) -> f64 {
    let factor = powi(1.0 + stretch.weight / confidence, stretch.exponent.unsigned_abs());
    if stretch.exponent < 0 { 1.0 / factor } else { factor }
}

/// Computes the confidence of samples: the smaller of the time that they cover, in units of `interval`, and of
/// their number, where one sample per minute fills an `interval`.
pub fn confidence_evidence(of: Resource, stats: SampleStats, interval: Duration) -> Evidence {
    let lifespan = match (stats.first, stats.last) {
        (Some(first), Some(last)) => last.nanos_since(first) as f64 / interval.as_nanos() as f64,
        _ => 0.0,
    };
    let minutes = interval.as_nanos() as f64 / 60e9;
    let confidence = lifespan.min(stats.count as f64 / minutes);
    // Only an interval of zero makes this undefined. Flags reject it; 0 is the conservative result.
    let confidence = if confidence.is_finite() { confidence.max(0.0) } else { 0.0 };
    let (samples, interval) = (stats.count, interval.as_secs_f64());
    Evidence { of, samples, first: stats.first, last: stats.last, interval, confidence }
}
