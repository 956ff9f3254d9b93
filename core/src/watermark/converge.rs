//! Convergence: stepping towards one of the watermarks while a metric is between them.

use std::str::FromStr;

use super::{
    band::Band,
    propose::ProposalInput,
    rounding::{divide_rounding_down, divide_rounding_up, replicas_from_float},
};
use crate::{
    scaling::{Milli, Position},
    types::compat::Fix,
};

/// The watermark to converge to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvergeTowards {
    /// Remove replicas until the metric is near the high watermark.
    High,
    /// Add replicas until the metric is near the low watermark.
    Low,
}

impl FromStr for ConvergeTowards {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "highwatermark" => Ok(Self::High),
            "lowwatermark" => Ok(Self::Low),
            _ => Err(()),
        }
    }
}

/// The result of converging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convergence {
    /// Not enabled.
    Off,
    /// The metric is not between the watermarks.
    Outside(Position),
    /// A step would go past the watermark.
    WouldOvershoot(ConvergeTowards),
    /// A step is proposed.
    Step(ConvergeTowards),
}

impl ProposalInput {
    /// The proposal while the metric is between the watermarks.
    pub(super) fn converge(&self, sum: Milli, value: f64, band: &Band) -> (i32, Convergence) {
        let Some(direction) = self.converge else { return (self.spec_replicas, Convergence::Off) };
        let ready = f64::from(self.ready_pods);
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let end = match direction {
            // Upstream divides first, and does not converge to a watermark of zero.
            ConvergeTowards::High if exact => {
                divide_rounding_up(self.ready_times_utilization(sum), band.high.into())
            }
            ConvergeTowards::Low if exact => {
                divide_rounding_down(self.ready_times_utilization(sum), band.low.into())
            }
            ConvergeTowards::High if band.high != 0 => {
                Some(replicas_from_float((ready / band.high as f64 * value).ceil()))
            }
            ConvergeTowards::Low if band.low != 0 => {
                Some(replicas_from_float((ready / band.low as f64 * value).floor()))
            }
            ConvergeTowards::High | ConvergeTowards::Low => None,
        };
        let end = end.map_or(self.spec_replicas, |end| self.clamp_to_bounds(end));
        self.step_towards(direction, end)
    }

    /// One step towards `end`, unless it would go past it.
    pub(super) fn step_towards(&self, direction: ConvergeTowards, end: i32) -> (i32, Convergence) {
        let modulo = self.modulo.max(1);
        let (replicas, is_past) = match direction {
            ConvergeTowards::High => {
                let fewer = self.spec_replicas.saturating_sub(modulo).max(1);
                (fewer, fewer < end)
            }
            ConvergeTowards::Low => {
                let more = self.spec_replicas.saturating_add(modulo);
                (more, more > end)
            }
        };
        if is_past {
            (self.spec_replicas, Convergence::WouldOvershoot(direction))
        } else {
            (replicas, Convergence::Step(direction))
        }
    }

    /// Clamps to the bounds. If they cross, the minimum wins.
    fn clamp_to_bounds(&self, replicas: i32) -> i32 {
        replicas.min(self.max).max(self.min.max(1))
    }
}
