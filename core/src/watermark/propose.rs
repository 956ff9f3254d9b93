//! The replica proposal of one metric, or of the response of an external recommender.

use super::{
    band::Band,
    rounding::{
        divide_rounding_down, divide_rounding_up, replicas_from_float, round_up_to_multiple,
    },
    spec::EffectiveSpec,
};
use crate::{
    scaling::{Milli, Position, RecommendResponse},
    types::compat::{Fix, Fixes},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString)]
pub enum ConvergeTowards {
    /// Remove replicas until the metric is near the high watermark.
    #[strum(serialize = "highwatermark")]
    High,
    /// Add replicas until the metric is near the low watermark.
    #[strum(serialize = "lowwatermark")]
    Low,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convergence {
    Off,
    /// The metric is not between the watermarks.
    Outside(Position),
    /// A step would go past the watermark.
    WouldOvershoot(ConvergeTowards),
    Step(ConvergeTowards),
}

#[derive(Clone, Copy, Debug)]
pub struct ProposalInput<'a> {
    pub rules: &'a EffectiveSpec,
    /// The current `spec.replicas` of the target.
    pub spec_replicas: i32,
    pub ready_pods: u32,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

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
    /// Number of pods that counted as ready.
    pub ready_pods: u32,
    /// Whether the value is zero and was ignored (`tolerateZero` is off).
    pub is_ignored_zero: bool,
}

impl ProposalInput<'_> {
    /// Computes the proposal for a metric with this sum. An average metric needs at least one ready pod.
    pub fn propose(&self, sum: Milli, band: &Band) -> Proposal {
        let shared_by = if self.rules.is_average { self.ready_pods.max(1) } else { 1 };
        let value = if shared_by == 1 { sum as f64 } else { sum as f64 / f64::from(shared_by) };
        let exact = self.fixes.has(Fix::ReplicasAreCountedExactly);
        let ready = f64::from(self.ready_pods);
        let position = if exact { band.position(sum, shared_by) } else { band.position_of(value) };
        let (replicas, convergence) = match position {
            Position::Above => {
                let needed = if exact {
                    // With a watermark of zero the needed replicas are undefined.
                    divide_rounding_up(self.ready_times_utilization(sum), band.high.into())
                        .unwrap_or(self.spec_replicas)
                } else {
                    replicas_from_float((ready * value / band.high as f64).ceil())
                };
                (self.at_least_current(needed), Convergence::Outside(Position::Above))
            }
            Position::Below => {
                let needed = if exact {
                    divide_rounding_down(self.ready_times_utilization(sum), band.low.into())
                        .unwrap_or(self.spec_replicas)
                } else {
                    replicas_from_float((ready * value / band.low as f64).floor())
                };
                (self.at_most_current(needed.max(1)), Convergence::Outside(Position::Below))
            }
            Position::Inside => self.converge(sum, value, band),
        };
        self.proposal((replicas, convergence), position, value, value as Milli)
    }

    /// Ready pods times the utilization of each. For an average metric this is the sum itself, which avoids the rounding of
    /// dividing first.
    fn ready_times_utilization(&self, sum: Milli) -> i128 {
        let times = if self.rules.is_average { 1 } else { self.ready_pods };
        i128::from(sum) * i128::from(times)
    }

    /// Rounds to the modulo without removing replicas.
    fn at_least_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.rules.modulo).max(self.spec_replicas)
    }

    /// Rounds to the modulo without adding replicas.
    fn at_most_current(&self, replicas: i32) -> i32 {
        round_up_to_multiple(replicas, self.rules.modulo).min(self.spec_replicas)
    }

    /// Computes the proposal for a recommendation. The recommendation gives the direction, its bounds give the position: a
    /// recommendation is followed without delay if the current replicas are within its bounds.
    pub fn propose_recommendation(&self, response: &RecommendResponse) -> Proposal {
        let current = self.spec_replicas;
        let (replicas, convergence) = match response.replicas.cmp(&current) {
            std::cmp::Ordering::Greater => {
                (self.at_least_current(response.replicas), Convergence::Outside(Position::Above))
            }
            std::cmp::Ordering::Less => {
                (self.at_most_current(response.replicas), Convergence::Outside(Position::Below))
            }
            std::cmp::Ordering::Equal => match self.rules.converge_towards {
                Some(ConvergeTowards::High) => {
                    self.step_towards(ConvergeTowards::High, response.lower_bound)
                }
                Some(ConvergeTowards::Low) => {
                    self.step_towards(ConvergeTowards::Low, response.upper_bound)
                }
                None => (current, Convergence::Off),
            },
        };
        let position = match response.replicas != current {
            true if current > response.upper_bound => Position::Below,
            true if current < response.lower_bound => Position::Above,
            _ => Position::Inside,
        };
        let utilization = (response.observed_target * 1000.0) as Milli;
        self.proposal((replicas, convergence), position, utilization as f64, utilization)
    }

    pub(super) fn proposal(
        &self,
        (replicas, convergence): (i32, Convergence),
        position: Position,
        value: f64,
        utilization: Milli,
    ) -> Proposal {
        let ready_pods = self.ready_pods;
        Proposal {
            replicas,
            position,
            value,
            utilization,
            convergence,
            ready_pods,
            is_ignored_zero: false,
        }
    }

    /// The proposal while the metric is between the watermarks.
    fn converge(&self, sum: Milli, value: f64, band: &Band) -> (i32, Convergence) {
        let Some(direction) = self.rules.converge_towards else {
            return (self.spec_replicas, Convergence::Off);
        };
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
        // If the bounds cross, the minimum wins.
        let end = end.map_or(self.spec_replicas, |end| {
            end.min(self.rules.limits.max).max(self.rules.limits.min.max(1))
        });
        self.step_towards(direction, end)
    }

    /// One step towards `end`, unless it would go past it.
    fn step_towards(&self, direction: ConvergeTowards, end: i32) -> (i32, Convergence) {
        let modulo = self.rules.modulo.max(1);
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
}
