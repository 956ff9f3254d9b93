//! How many replicas one metric asks for.

use super::{
    band::{Band, Position},
    converge::{Convergence, Direction},
    whole::{divide_down, divide_up, from_float, up_to_multiple},
};
use crate::{
    scaling::Milli,
    types::compat::{Fix, Fixes},
};

/// What a proposal hangs on beside the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Replicas that are asked for now.
    pub wanted: i32,
    /// Pods that count as ready.
    pub ready: u32,
    /// The metric is shared among the ready pods before it is compared.
    pub is_shared: bool,
    /// Proposals are rounded up to a multiple of this.
    pub modulo: i32,
    /// Where to go between the marks.
    pub converge: Option<Direction>,
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
    pub utilisation: Milli,
    /// What came of going towards a mark.
    pub convergence: Convergence,
}

impl Question {
    /// What a metric of this sum asks for. There has to be a ready pod where it is shared among them.
    pub fn propose(&self, sum: Milli, band: &Band) -> Proposal {
        let shared_by = if self.is_shared { self.ready.max(1) } else { 1 };
        let value = if shared_by == 1 { sum as f64 } else { sum as f64 / f64::from(shared_by) };
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let position = if exact { band.position(sum, shared_by) } else { band.position_of(value) };
        let (replicas, convergence) = match position {
            Position::Above => {
                let needed = if exact {
                    // A mark of nothing says nothing about how many are needed.
                    divide_up(self.product(sum), band.high.into()).unwrap_or(self.wanted)
                } else {
                    from_float((f64::from(self.ready) * value / band.high as f64).ceil())
                };
                (self.no_fewer(needed), Convergence::Outside(Position::Above))
            }
            Position::Below => {
                let needed = if exact {
                    divide_down(self.product(sum), band.low.into()).unwrap_or(self.wanted)
                } else {
                    from_float((f64::from(self.ready) * value / band.low as f64).floor())
                };
                (self.no_more(needed.max(1)), Convergence::Outside(Position::Below))
            }
            Position::Inside => self.converge(sum, value, band),
        };
        Proposal { replicas, position, value, utilisation: value as Milli, convergence }
    }

    /// Ready pods times what each of them has: the sum itself where it is shared among them, so that nothing is lost by
    /// dividing it first.
    pub(super) fn product(&self, sum: Milli) -> i128 {
        let times = if self.is_shared { 1 } else { self.ready };
        i128::from(sum) * i128::from(times)
    }

    /// Above the band nothing is taken away.
    pub(super) fn no_fewer(&self, replicas: i32) -> i32 {
        up_to_multiple(replicas, self.modulo).max(self.wanted)
    }

    /// Below the band nothing is added.
    pub(super) fn no_more(&self, replicas: i32) -> i32 {
        up_to_multiple(replicas, self.modulo).min(self.wanted)
    }
}
