//! What the object of an autoscaler shows of the replicas of its target: whether they change, or are about to.

use std::time::Duration;

use super::change_timing::Replicas;
use crate::types::Time;

/// The replicas of a target, as the object of an autoscaler shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedReplicas {
    pub min: i32,
    pub max: i32,
    /// The stabilization window for scaling down.
    pub down_window: Duration,
    /// How far above 1 a ratio may be before replicas are added; `None` if none are ever added.
    pub tolerance_up: Option<f64>,
    /// How far below 1 a ratio may be before replicas are removed; `None` if none are ever removed.
    pub tolerance_down: Option<f64>,
    /// When the replicas were last changed, if that is known.
    pub changed: Option<Time>,
    /// What its status says; `None` if it has none, or one that says that a metric is unknown.
    pub status: Option<ReplicaStatus>,
}

/// The replicas in the status of an autoscaler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaStatus {
    pub current: i32,
    /// The desired replicas of the last decision.
    pub desired: i32,
    /// The largest ratio of a metric that is not relative to requests; `None` if there are none.
    pub other_ratio: Option<f64>,
}

impl ObservedReplicas {
    /// The replicas, and whether they are at the maximum with the ratio above tolerance. `ratio` is the largest one of the
    /// metrics that are relative to requests; `None` if one of them is unknown.
    pub fn replicas(&self, ratio: Option<f64>) -> (Replicas, bool) {
        let replicas = Replicas {
            current: self.status.map_or(0, |status| status.current),
            min: self.min,
            max: self.max,
            proposed: None,
            changed: self.changed,
            down_window: self.down_window,
        };
        let (Some(status), Some(ratio)) = (self.status, ratio) else { return (replicas, false) };
        let ratio = status.other_ratio.map_or(ratio, |other| other.max(ratio));
        let proposed = if status.desired == status.current {
            self.proposal(status.current, ratio)
        } else {
            // It has decided already.
            Some(status.desired)
        };
        let is_above = self.tolerance_up.is_some_and(|tolerance| ratio > 1.0 + tolerance);
        let lacks_replicas = status.current >= self.max && is_above;
        (Replicas { proposed, ..replicas }, lacks_replicas)
    }

    /// What a ratio asks for; `None` if it is not a number, or if nothing is scaled because there are no replicas.
    fn proposal(&self, current: i32, ratio: f64) -> Option<i32> {
        if current <= 0 || !ratio.is_finite() {
            return None;
        }
        let tolerance = if ratio > 1.0 { self.tolerance_up } else { self.tolerance_down };
        let changes = tolerance.is_some_and(|tolerance| (ratio - 1.0).abs() > tolerance);
        // Saturates.
        Some(if changes { (ratio * f64::from(current)).ceil() as i32 } else { current })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(status: Option<ReplicaStatus>) -> ObservedReplicas {
        ObservedReplicas {
            min: 2,
            max: 10,
            down_window: Duration::from_mins(5),
            tolerance_up: Some(0.1),
            tolerance_down: Some(0.1),
            changed: None,
            status,
        }
    }

    #[test]
    fn the_largest_ratio_proposes_and_unknown_ones_propose_nothing() {
        let status =
            |current, desired, other_ratio| ReplicaStatus { current, desired, other_ratio };
        for (status, ratio, proposed, lacks) in [
            (Some(status(5, 5, None)), Some(1.0), Some(5), false),
            (Some(status(5, 5, None)), Some(1.05), Some(5), false),
            (Some(status(5, 5, None)), Some(1.3), Some(7), false),
            (Some(status(5, 5, None)), Some(0.5), Some(3), false),
            (Some(status(5, 5, Some(1.0))), Some(0.5), Some(5), false),
            (Some(status(5, 5, Some(2.0))), Some(0.5), Some(10), false),
            // A stabilization window holds a decision, or a limit lets a part of it pass.
            (Some(status(5, 6, None)), Some(1.0), Some(6), false),
            (Some(status(10, 10, None)), Some(1.5), Some(15), true),
            (Some(status(10, 10, None)), Some(1.05), Some(10), false),
            (Some(status(5, 5, None)), None, None, false),
            (Some(status(5, 5, None)), Some(f64::NAN), None, false),
            (Some(status(0, 0, None)), Some(1.0), None, false),
            (None, Some(1.0), None, false),
        ] {
            let (replicas, found) = observed(status).replicas(ratio);
            assert_eq!((replicas.proposed, found), (proposed, lacks), "{status:?} {ratio:?}");
            assert_eq!((replicas.min, replicas.max), (2, 10));
        }
    }

    #[test]
    fn a_direction_that_is_disabled_proposes_nothing() {
        let status = ReplicaStatus { current: 10, desired: 10, other_ratio: None };
        let down = ObservedReplicas { tolerance_down: None, ..observed(Some(status)) };
        assert_eq!(down.replicas(Some(0.2)).0.proposed, Some(10));
        let up = ObservedReplicas { tolerance_up: None, ..observed(Some(status)) };
        let (replicas, lacks_replicas) = up.replicas(Some(3.0));
        assert_eq!((replicas.proposed, lacks_replicas), (Some(10), false));
    }
}
