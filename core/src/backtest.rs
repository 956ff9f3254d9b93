//! Replays of policies on recorded usage: what each would have requested, saved and broken.
//!
//! ```text
//! WorkloadRecording ──▶ for each policy: sees samples up to t - 1 min ──▶ decides ──▶ apply mode ──▶ request, limit at t
//!                                                                                                      │
//!      BacktestReport ◀── merge of all workloads ◀── WorkloadAccount: sums of container-days ◀─────────┘
//! ```
//!
//! Pure: no clock, no client; the same input gives the same bytes.

pub mod account;
pub mod bootstrap;
pub mod fail_on;
pub mod frontier;
pub mod policy;
pub mod recording;
pub mod replay;
pub mod replica_model;
pub mod report;
pub mod simulated_life;
#[cfg(test)]
mod testing;
pub mod trace;

pub use account::{ContainerDay, PolicyAccount, WorkloadAccount};
pub use fail_on::FailOn;
pub use policy::{ApplyMode, InvalidPolicy, Policy, PolicyLabel, PolicyRule};
pub use recording::{
    ContainerRecording, Evaluation, PodContainer, PodRecording, RecordedStep, WorkloadRecording,
};
pub use replay::{ReplaySettings, replay, replay_scaled};
pub use replica_model::{ReplicaRule, ReplicaSource, WorkloadScaling};
pub use report::{BacktestReport, ReportInputs};
pub use simulated_life::LifeRecorder;
