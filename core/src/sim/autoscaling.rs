//! A closed loop of one workload with a HorizontalPodAutoscaler and a VerticalPodAutoscaler on CPU, on a virtual clock.
//!
//! ```text
//!   load curve ──▶ replicas share it ──▶ samples ──▶ HPA pass (every 15 s) ──▶ replicas are added and removed
//!                     ▲                     │
//!                     └── requests ◀── wave of updates ◀── VPA (every minute): recommender, coordination
//! ```
//!
//! The HPA is upstream's: its windows and bounds are the functions of [`crate::hpa`], and its proposal is computed from sums
//! instead of pods, which a test compares with [`crate::hpa::decide`] pass by pass. The recommender is the real one, with
//! upstream's settings. Simplified: one container per pod, unlimited nodes, no CPU limits, pods that are removed disappear at
//! once, and metrics are never missing.

pub mod hpa_pass;
pub mod load;
pub mod replica;
pub mod run;
pub mod scenario;
pub mod vertical;

pub use load::{Load, LoadCurve};
pub use run::{Outcome, run};
pub use scenario::{Mode, Scenario};

#[cfg(test)]
mod tests;

/// The period of the HPA, the length of a step.
pub const PERIOD: std::time::Duration = std::time::Duration::from_secs(15);
pub const STEPS_PER_MINUTE: u64 = 4;
pub const STEPS_PER_DAY: u64 = 24 * 60 * STEPS_PER_MINUTE;
