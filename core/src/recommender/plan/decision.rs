//! What a CPU plan decided, and every number of it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The decision on a CPU request, in cores.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuDecision {
    pub outcome: CpuOutcome,
    pub request: f64,
    /// The request from now on.
    pub target: f64,
    /// The share of the recent usage that is above the request in force.
    pub alarm: f64,
    /// The plan, if one was made.
    pub plan: Option<PlanEvaluation>,
}

/// Whether a CPU request is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CpuOutcome {
    #[serde(rename_all = "camelCase")]
    Changed {
        /// Whether recent usage above the request caused a plan before the next one was due.
        out_of_turn: bool,
    },
    Kept(KeptBecause),
}

impl CpuOutcome {
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

/// Why a CPU request stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeptBecause {
    NoSamples,
    NotDue,
    /// A change saves less than its price.
    GainBelowPrice,
    StepTooSmall,
    /// The request would be lowered, but there are no recent samples.
    NoRecentSamples,
    /// The plan itself would undo the change within the hour.
    UndoneWithinTheHour,
}

/// One plan. Levels are in cores; gain and price are shares of a day's usage.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanEvaluation {
    /// The level with the least cost over the horizon, at least the floor.
    pub best: f64,
    /// What changing to it saves over the horizon.
    pub gain: f64,
    /// What a change has to save.
    pub price: f64,
    pub horizon_hours: u32,
    /// The lowest and the highest level that a change from would not pay.
    pub lower: f64,
    /// See `lower`.
    pub upper: f64,
    /// The level that the plan has in the next hour if the request changes now.
    pub next_hour: f64,
    /// What the present hour costs at the best level.
    pub best_cost: HourCost,
    /// What the present hour costs at the request in force.
    pub present_cost: HourCost,
    /// Cores requested for each core used, between 1.2 and 3.
    pub fill: f64,
    /// The first hour of the day that the hourly numbers are of, in UTC.
    pub hour: u8,
    /// The share of the usage in the present hour's slot up to the best level.
    pub share_below_best: f64,
    /// The upper end of the bucket of the highest usage that counts.
    pub highest: f64,
    /// Number of days, today included, whose highest usage counts.
    pub days: u32,
    /// The upper end of the bucket of the highest usage that no longer counts, if it is higher.
    pub forgotten: Option<f64>,
}

impl PlanEvaluation {
    /// Whether the plan has the present request, or one beyond it, again in the next hour. `present_cost` has that
    /// request.
    pub fn is_undone_within_the_hour(&self, min_step: f64) -> bool {
        let request = self.present_cost.request;
        if self.best > request {
            self.next_hour <= request * (1.0 + min_step)
        } else {
            self.next_hour >= request * (1.0 - min_step)
        }
    }
}

/// What one hour at a request costs, as shares of an hour's usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HourCost {
    pub request: f64,
    /// Requested and idle cores.
    pub idle: f64,
    /// Used cores above the request.
    pub short: f64,
    /// Time above the request.
    pub above: f64,
}

impl HourCost {
    pub fn total(&self) -> f64 {
        self.idle + self.short + self.above
    }
}
