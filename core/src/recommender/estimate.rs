//! From a histogram to three numbers of one resource: percentile, margin, throttling, confidence, floor,
//! rounding, limits. Every stage leaves what it did in the explanation.

use super::{
    explanation::{
        Basis, ConfidenceFactor, EstimateStep, Evidence, Floor, RecommendationReason,
        ResourceExplanation, Rounding,
    },
    go_math::powi,
    policy::{Cap, CapResult},
    throttling::Throttled,
};
use crate::history::{OomBump, SampleStats};
use crate::types::{
    quantity::Quantity,
    units::{Bytes, MilliCpu, round_up_to_multiple},
};
use std::time::Duration;

/// The lower bound narrows quickly: half an hour of samples brings it to nine tenths.
pub const LOWER_BOUND_FACTOR: ConfidenceFactor = ConfidenceFactor { weight: 0.001, exponent: -2 };
/// The upper bound is twice the estimate after one day.
pub const UPPER_BOUND_FACTOR: ConfidenceFactor = ConfidenceFactor { weight: 1.0, exponent: 1 };

/// A resource: what its amounts are counted in, and how they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Amounts in millicores, read in cores.
    Cpu,
    /// Amounts in bytes.
    Memory,
}

impl Resource {
    /// The amount of what a histogram reads.
    pub fn amount(self, read: f64) -> i64 {
        match self {
            Self::Cpu => MilliCpu::from_cores(read).0,
            Self::Memory => Bytes::from_f64(read).0,
        }
    }

    /// An amount multiplied and cut.
    pub fn scale(self, amount: i64, factor: f64) -> i64 {
        match self {
            Self::Cpu => MilliCpu(amount).scale(factor).0,
            Self::Memory => Bytes(amount).scale(factor).0,
        }
    }

    /// An amount rounded and turned into a quantity.
    pub fn quantity(self, amount: i64, rounding: &Rounding) -> Quantity {
        // A multiple that makes no sense leaves the amount as it is; flags refuse it.
        let up = |amount, multiple| round_up_to_multiple(amount, multiple).unwrap_or(amount);
        let amount = up(amount, rounding.multiple);
        match self {
            Self::Cpu if rounding.whole_cores => Quantity::cpu(MilliCpu(up(amount, 1000))),
            Self::Cpu => Quantity::cpu(MilliCpu(amount)),
            Self::Memory if rounding.humanized && amount != 0 => Quantity::humanized(Bytes(amount)),
            Self::Memory => Quantity::memory(Bytes(amount)),
        }
    }
}

/// The three numbers of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEstimate {
    /// Below this the pod should be given more.
    pub lower_bound: Quantity,
    /// What to request.
    pub target: Quantity,
    /// Above this the pod could do with less.
    pub upper_bound: Quantity,
    /// The target before the policy's limits.
    pub uncapped: Quantity,
}

/// What the chain needs to know apart from the percentiles themselves.
pub struct EstimatorChain {
    /// Which resource.
    pub resource: Resource,
    /// What the numbers rest on.
    pub evidence: Evidence,
    /// Share added to each percentile.
    pub margin: f64,
    /// The least that any of the numbers may be.
    pub floor: Floor,
    /// How results are rounded.
    pub rounding: Rounding,
    /// The policy's limits.
    pub cap: Cap,
    /// Most that the upper bound may be, as a multiple of the target.
    pub upper_bound_factor: Option<f64>,
    /// How much it was throttled, and what follows.
    pub throttled: Option<Throttled>,
    /// The latest out-of-memory bump that is still part of the history, and the edge of its bucket.
    pub bump: Option<(OomBump, f64)>,
}

/// What the histograms read for one of the three numbers.
#[derive(Clone, Copy)]
pub struct PercentileReading {
    /// Share of the samples.
    pub percentile: f64,
    /// What the histogram of all samples reads there.
    pub value: f64,
    /// What the histogram of the largest replicas reads there.
    pub largest_replica: Option<f64>,
}

impl EstimatorChain {
    /// Runs the chain for lower bound, target and upper bound.
    pub fn run(
        &self,
        [lower, target, upper]: [PercentileReading; 3],
    ) -> (ResourceEstimate, ResourceExplanation) {
        let (lower_amount, mut lower) = self.estimate(lower, Some(LOWER_BOUND_FACTOR));
        let (target_amount, mut target) = self.estimate(target, None);
        let (mut upper_amount, mut upper) = self.estimate(upper, Some(UPPER_BOUND_FACTOR));
        if let Some(factor) = self.upper_bound_factor {
            let most = self.resource.scale(target_amount, factor.max(1.0));
            if upper_amount > most {
                upper_amount = most;
                upper.decided_by = RecommendationReason::UpperBoundFactor;
            }
        }
        let uncapped = self.resource.quantity(target_amount, &self.rounding);
        let numbers = ResourceEstimate {
            lower_bound: self
                .apply_cap(self.resource.quantity(lower_amount, &self.rounding), &mut lower),
            target: self.apply_cap(uncapped, &mut target),
            upper_bound: self
                .apply_cap(self.resource.quantity(upper_amount, &self.rounding), &mut upper),
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
            lower,
            target,
            upper,
        };
        (numbers, explanation)
    }

    fn estimate(
        &self,
        reading: PercentileReading,
        stretch: Option<ConfidenceFactor>,
    ) -> (i64, EstimateStep) {
        let PercentileReading { percentile, value: read, largest_replica } = reading;
        let largest_replica = largest_replica.filter(|largest| *largest > read);
        let base = self.resource.amount(largest_replica.unwrap_or(read));
        let with_margin = base.saturating_add(self.resource.scale(base, self.margin));
        let raise = self.throttled.map(|throttled| throttled.factor).filter(|factor| *factor > 1.0);
        let raised = raise.map_or(with_margin, |factor| self.resource.scale(with_margin, factor));
        let stretched = match stretch {
            Some(stretch) => self
                .resource
                .scale(raised, confidence_multiplier(stretch, self.evidence.confidence)),
            None => raised,
        };
        let of_bump = self.bump.is_some_and(|(_, edge)| edge.to_bits() == read.to_bits());
        let decided_by = if self.evidence.samples == 0 && base == 0 {
            RecommendationReason::NoData
        } else if stretched < self.floor.amount {
            RecommendationReason::Floor
        } else if largest_replica.is_some() {
            RecommendationReason::LargestReplica
        } else if of_bump {
            RecommendationReason::OomBump
        } else if raise.is_some() {
            RecommendationReason::Throttling
        } else {
            RecommendationReason::Usage
        };
        let step = EstimateStep { percentile, read, largest_replica, stretch, decided_by };
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

/// By how much a bound is moved. Without any confidence the upper bound goes to the largest amount and
/// the lower one to 0.
pub fn confidence_multiplier(stretch: ConfidenceFactor, confidence: f64) -> f64 {
    let factor = powi(1.0 + stretch.weight / confidence, stretch.exponent.unsigned_abs());
    if stretch.exponent < 0 { 1.0 / factor } else { factor }
}

/// What the samples seen amount to. Confidence is the smaller of the time they cover and of their
/// number, where one sample a minute makes up a whole `interval`.
pub fn confidence_evidence(of: Basis, seen: SampleStats, interval: Duration) -> Evidence {
    let lifespan = match (seen.first, seen.last) {
        (Some(first), Some(last)) => last.nanos_since(first) as f64 / interval.as_nanos() as f64,
        _ => 0.0,
    };
    let minutes = interval.as_nanos() as f64 / 60e9;
    let confidence = lifespan.min(seen.count as f64 / minutes);
    // Only an interval of zero makes this undefined; flags refuse it, and 0 is the careful answer.
    let confidence = if confidence.is_finite() { confidence.max(0.0) } else { 0.0 };
    let (samples, interval) = (seen.count, interval.as_secs_f64());
    Evidence { of, samples, first: seen.first, last: seen.last, interval, confidence }
}
