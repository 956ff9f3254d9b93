//! How many replicas one metric asks for.

use super::{
    band::{Band, Position},
    converge::{ConvergeTowards, Convergence},
    rounding::{
        divide_rounding_down, divide_rounding_up, replicas_from_float, round_up_to_multiple,
    },
};
use crate::{
    scaling::Milli,
    types::compat::{Fix, Fixes},
};

/// What a proposal hangs on beside the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalInput {
    /// Replicas that are asked for now.
    pub spec_replicas: i32,
    /// Pods that count as ready.
    pub ready_pods: u32,
    /// The metric is shared among the ready pods before it is compared.
    pub is_average: bool,
    /// Proposals are rounded up to a multiple of this.
    pub modulo: i32,
    /// Where to go between the marks.
    pub converge: Option<ConvergeTowards>,
    /// The fewest replicas.
    pub min: i32,
    /// The most replicas.
    pub max: i32,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

/// What one metric asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// So many replicas, before any limit.
    pub replicas: i32,
    /// Where the value lies.
    pub position: Position,
    /// What was compared with the marks.
    pub value: f64,
    /// The same, cut off to thousandths.
    pub utilization: Milli,
    /// What came of going towards a mark.
    pub convergence: Convergence,
}

impl ProposalInput {
    /// What a metric of this sum asks for. There has to be a ready pod where it is shared among them.
    pub fn propose(&self, sum: Milli, band: &Band) -> Proposal {
        let shared_by = if self.is_average { self.ready_pods.max(1) } else { 1 };
        let value = if shared_by == 1 { sum as f64 } else { sum as f64 / f64::from(shared_by) };
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let position = if exact { band.position(sum, shared_by) } else { band.position_of(value) };
        let (replicas, convergence) = match position {
            Position::Above => {
                let needed = if exact {
                    // A mark of nothing says nothing about how many are needed.
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

    /// Ready pods times what each of them has: the sum itself where it is shared among them, so that nothing is lost by
    /// dividing it first.
    pub(super) fn ready_times_utilization(&self, sum: Milli) -> i128 {
        let times = if self.is_average { 1 } else { self.ready_pods };
        i128::from(sum) * i128::from(times)
    }

    /// Above the band nothing is taken away.
    pub(super) fn at_least_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.modulo).max(self.spec_replicas)
    }

    /// Below the band nothing is added.
    pub(super) fn at_most_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.modulo).min(self.spec_replicas)
    }
}
