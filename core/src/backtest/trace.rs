//! Replays of rules on single series of CPU from files, by the definitions of the published comparison: ten-minute clock, the
//! first day is not judged, the request begins at that day's p90.
//!
//! These figures compare rules alone: there are no pods, no limits and no updater. [`super::replay`](mod@super::replay)
//! compares what would have happened in a cluster.

mod figures;
mod krr;
mod plan;
mod rule;
mod vpa;

use serde::{Deserialize, Serialize};

pub use figures::{TraceDifference, TraceReport, TraceRow, compare};
pub(in crate::backtest) use krr::quantile;
pub use rule::TraceRule;

/// A series of CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSeries {
    /// Its name: the file.
    pub name: String,
    /// The values in order of time.
    pub points: Vec<TracePoint>,
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracePoint {
    /// Seconds since the Unix epoch.
    pub at: f64,
    /// CPU in cores.
    pub cores: f64,
}

/// The figures of a rule on one series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceFigures {
    /// The share of what was requested that was not used.
    pub slack: f64,
    /// The share of what was used that was above the request.
    pub shortfall: f64,
    /// The share of time above the request.
    pub time_above: f64,
    /// Changes of the request a day.
    pub changes_per_day: f64,
    /// What was requested, as a multiple of what was used.
    pub requested_by_used: f64,
}
