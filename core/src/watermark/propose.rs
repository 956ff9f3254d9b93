//! The replica proposal of one metric.

use super::{
    band::Band,
    converge::{ConvergeTowards, Convergence},
    rounding::{
        divide_rounding_down, divide_rounding_up, replicas_from_float, round_up_to_multiple,
    },
};
use crate::{
    scaling::{Milli, Position},
    types::compat::{Fix, Fixes},
};

/// Inputs of a proposal other than the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalInput {
    /// The current `spec.replicas` of the target.
    pub spec_replicas: i32,
    /// Number of pods that count as ready.
    pub ready_pods: u32,
    /// Whether the metric is divided by the ready pods before it is compared.
    pub is_average: bool,
    /// Proposals are rounded up to a multiple of this number.
    pub modulo: i32,
    /// The watermark to converge to while the metric is between the watermarks.
    pub converge: Option<ConvergeTowards>,
    /// The minimum replicas.
    pub min: i32,
    /// The maximum replicas.
    pub max: i32,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

/// The proposal of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The proposed replicas, before limits are applied.
    pub replicas: i32,
    /// Where the value lies relative to the band.
    pub position: Position,
    /// The value that was compared with the watermarks.
    pub value: f64,
    /// The value in thousandths, truncated.
    pub utilization: Milli,
    /// The result of converging towards a watermark.
    pub convergence: Convergence,
}

impl ProposalInput {
    /// Computes the proposal for a metric with this sum. An average metric needs at least one ready pod.
    pub fn propose(&self, sum: Milli, band: &Band) -> Proposal {
        let shared_by = if self.is_average { self.ready_pods.max(1) } else { 1 };
        let value = if shared_by == 1 { sum as f64 } else { sum as f64 / f64::from(shared_by) };
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let position = if exact { band.position(sum, shared_by) } else { band.position_of(value) };
        let (replicas, convergence) = match position {
            Position::Above => {
                let needed = if exact {
                    // With a watermark of zero the needed replicas are undefined.
                    divide_rounding_up(self.ready_times_utilization(sum), band.high.into())
                        .unwrap_or(self.spec_replicas)
                } else {
                    replicas_from_float(
                        (f64::from(self.ready_pods) * value / band.high as f64).ceil(),
                    )
                };
                (self.at_least_current(needed), Convergence::Outside(Position::Above))
            }
            Position::Below => {
                let needed = if exact {
                    divide_rounding_down(self.ready_times_utilization(sum), band.low.into())
                        .unwrap_or(self.spec_replicas)
                } else {
                    replicas_from_float(
                        (f64::from(self.ready_pods) * value / band.low as f64).floor(),
                    )
                };
                (self.at_most_current(needed.max(1)), Convergence::Outside(Position::Below))
            }
            Position::Inside => self.converge(sum, value, band),
        };
        Proposal { replicas, position, value, utilization: value as Milli, convergence }
    }

    /// Ready pods times the utilization of each. For an average metric this is the sum itself, which avoids the rounding of
    /// dividing first.
    pub(super) fn ready_times_utilization(&self, sum: Milli) -> i128 {
        let times = if self.is_average { 1 } else { self.ready_pods };
        i128::from(sum) * i128::from(times)
    }

    /// Rounds to the modulo without removing replicas.
    pub(super) fn at_least_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.modulo).max(self.spec_replicas)
    }

    /// Rounds to the modulo without adding replicas.
    pub(super) fn at_most_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.modulo).min(self.spec_replicas)
    }
}
