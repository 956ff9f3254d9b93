//! Whether a change of a request is due now. Replicas follow the load within seconds, and requests follow the usage per pod
//! within hours: the slow one waits while the fast one moves.

use std::time::Duration;

use serde::Serialize;

use super::{RequestRange, decide::Recommended};
use crate::types::Time;

/// How long a workload keeps a request, unless it is too low.
pub const MIN_CHANGE_INTERVAL: Duration = Duration::from_hours(12);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestChange {
    /// The request is close enough to the recommendation.
    NotNeeded,
    /// The request should be changed now.
    Due {
        /// The new request of a pod.
        to: i64,
        reason: ChangeReason,
    },
    /// The request should be changed, but not now.
    Held {
        /// The new request of a pod.
        to: i64,
        /// Why it should be changed.
        reason: ChangeReason,
        /// Why not now.
        by: Hold,
    },
}

/// Why a request should be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeReason {
    /// It is below the lower bound of the recommendation.
    BelowBounds,
    /// It is above the upper bound of the recommendation.
    AboveBounds,
    /// It differs from the target.
    Drift,
    /// There are as many replicas as allowed, and they are not enough.
    AtMaxReplicas,
}

/// Why a change of a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Another controller changes the replicas relative to the request, and its target must not be changed with it.
    HpaSameResource,
    /// The request was changed recently, and may be changed again then.
    ChangedRecently { until: Time },
    /// The replicas were changed within the stabilization window, which ends then.
    ReplicasChanged { until: Time },
    /// The metrics ask for other replicas.
    ReplicasWillChange { proposed: i32 },
    /// It is not known how many replicas the metrics ask for.
    ProposalUnknown,
    /// There are as many replicas as allowed, and they are not enough: replacing pods would take away capacity.
    AtMaxReplicas,
}

impl Hold {
    /// Why the change waits, as part of a sentence. `hpa` names the autoscaler of replicas.
    pub fn cause(self, hpa: &str) -> String {
        // Whole seconds.
        let second_of = |time: Time| Time::from_secs(time.as_secs());
        let fixed = match self {
            Self::HpaSameResource => {
                return format!("{hpa} would change the replicas with the request");
            }
            Self::ChangedRecently { until } => {
                let until = second_of(until);
                return format!("requests were changed recently, no further change before {until}");
            }
            Self::ReplicasChanged { until } => {
                let until = second_of(until);
                return format!("replicas were changed recently, no change before {until}");
            }
            // Not how many: it changes often, and the text is the message of a condition.
            Self::ReplicasWillChange { .. } => "the metrics ask for another number of replicas",
            Self::ProposalUnknown => "it is unknown how many replicas the metrics ask for",
            Self::AtMaxReplicas => {
                "maxReplicas is reached and not enough, and replacing pods would take away capacity"
            }
        };
        fixed.to_owned()
    }
}

/// The replicas of the workload, for the timing of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    pub current: i32,
    pub min: i32,
    pub max: i32,
    /// What the metrics ask for, before stabilization windows and bounds; `None` if it is unknown.
    pub proposed: Option<i32>,
    /// When the replicas were last changed, if that is known.
    pub changed: Option<Time>,
    /// The longest stabilization window for scaling down.
    pub down_window: Duration,
}

/// What the timing of a change depends on.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub replicas: Replicas,
    /// Whether the replicas are at the maximum and the ratio is above tolerance.
    pub lacks_replicas: bool,
    /// Whether a request can be raised without a restart.
    pub can_raise_in_place: bool,
    /// When the request was last changed.
    pub changed: Option<Time>,
    pub now: Time,
}

/// The change that a recommendation asks for.
pub fn wanted_change(
    current: i64,
    recommended: Recommended,
    range: RequestRange,
    threshold: f64,
) -> Option<(i64, ChangeReason)> {
    let to = range.clamp(recommended.target);
    let difference = (to - current) as f64 / current.max(1) as f64;
    let reason = if to > current && current < range.clamp(recommended.lower) {
        ChangeReason::BelowBounds
    } else if to < current && current > range.clamp(recommended.upper) {
        ChangeReason::AboveBounds
    } else if difference.abs() >= threshold {
        ChangeReason::Drift
    } else {
        return None;
    };
    Some((to, reason))
}

impl Timing {
    /// Whether a change is due.
    pub(super) fn change(self, current: i64, to: i64, reason: ChangeReason) -> RequestChange {
        match self.hold(to > current, reason) {
            None => RequestChange::Due { to, reason },
            Some(by) => RequestChange::Held { to, reason, by },
        }
    }

    /// Why a change has to wait, if it has to.
    pub fn hold(self, is_raise: bool, reason: ChangeReason) -> Option<Hold> {
        let Self { replicas, now, lacks_replicas, .. } = self;
        if lacks_replicas && (!is_raise || !self.can_raise_in_place) {
            return Some(Hold::AtMaxReplicas);
        }
        let is_urgent = matches!(reason, ChangeReason::BelowBounds | ChangeReason::AtMaxReplicas);
        let until = self.changed.map(|at| at.later(MIN_CHANGE_INTERVAL));
        if let Some(until) = until.filter(|until| *until > now && !is_urgent) {
            return Some(Hold::ChangedRecently { until });
        }
        if lacks_replicas {
            // More replicas are wanted, and there will be none.
            return None;
        }
        let until = replicas.changed.map(|at| at.later(replicas.down_window));
        if let Some(until) = until.filter(|until| *until > now) {
            return Some(Hold::ReplicasChanged { until });
        }
        match replicas.proposed {
            None if !is_urgent => Some(Hold::ProposalUnknown),
            Some(proposed) => {
                // A proposal beyond a bound that is reached changes nothing.
                let reachable = proposed.clamp(replicas.min, replicas.max.max(replicas.min));
                (reachable != replicas.current).then_some(Hold::ReplicasWillChange { proposed })
            }
            None => None,
        }
    }
}
