//! Going step by step towards one of the marks, while a metric is between them.

use std::str::FromStr;

use super::{
    band::{Band, Position},
    propose::Question,
    whole::{divide_down, divide_up, from_float},
};
use crate::{scaling::Milli, types::compat::Fix};

/// Which mark to go towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Fewer replicas, until the metric is near the high mark.
    High,
    /// More replicas, until the metric is near the low mark.
    Low,
}

impl FromStr for Direction {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "highwatermark" => Ok(Self::High),
            "lowwatermark" => Ok(Self::Low),
            _ => Err(()),
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convergence {
    /// Nobody asked for it.
    Off,
    /// The metric is not between the marks.
    Outside(Position),
    /// One more step would go past the mark.
    Refused(Direction),
    /// One step is proposed.
    Step(Direction),
}

impl Question {
    /// What is proposed between the marks.
    pub(super) fn converge(&self, sum: Milli, value: f64, band: &Band) -> (i32, Convergence) {
        let Some(direction) = self.converge else { return (self.wanted, Convergence::Off) };
        let ready = f64::from(self.ready);
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let end = match direction {
            // Upstream divides first, and by a mark of nothing not at all.
            Direction::High if exact => divide_up(self.product(sum), band.high.into()),
            Direction::Low if exact => divide_down(self.product(sum), band.low.into()),
            Direction::High if band.high != 0 => {
                Some(from_float((ready / band.high as f64 * value).ceil()))
            }
            Direction::Low if band.low != 0 => {
                Some(from_float((ready / band.low as f64 * value).floor()))
            }
            Direction::High | Direction::Low => None,
        };
        let end = end.map_or(self.wanted, |end| self.bounded(end));
        self.step_towards(direction, end)
    }

    /// One step, if it does not go past the end.
    pub(super) fn step_towards(&self, direction: Direction, end: i32) -> (i32, Convergence) {
        let modulo = self.modulo.max(1);
        let (replicas, is_past) = match direction {
            Direction::High => {
                let fewer = self.wanted.saturating_sub(modulo).max(1);
                (fewer, fewer < end)
            }
            Direction::Low => {
                let more = self.wanted.saturating_add(modulo);
                (more, more > end)
            }
        };
        if is_past {
            (self.wanted, Convergence::Refused(direction))
        } else {
            (replicas, Convergence::Step(direction))
        }
    }

    /// Between the fewest and the most. Where those cross, the fewest wins.
    fn bounded(&self, replicas: i32) -> i32 {
        replicas.min(self.max).max(self.min.max(1))
    }
}
