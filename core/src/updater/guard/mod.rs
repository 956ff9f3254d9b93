//! What keeps surprises away: nothing is changed on stale numbers, too often, at the wrong time, everywhere at once,
//! or again after it went wrong.
//!
//! ```text
//! Freshness ─ Windows ─ Memory of the workload ─ Ledger of the cluster ─▶ may it be changed? ─▶ book ─▶ act
//! ```
//!
//! What has to be remembered is booked before the action that it pays for, so that it survives whoever acts.

pub mod disruption_budget;
pub mod freshness;
mod hourly_changes;
pub mod infeasible;
pub mod maintenance_window;
pub mod regression;
pub mod rollout;
pub mod settings;
mod trials;
pub mod workload_state;

pub use disruption_budget::{BudgetKind, DisruptionBudget};
pub use freshness::{AdmissionLeaseStatus, HeartbeatPolicy, RecommenderHeartbeat};
pub use infeasible::{InfeasibleResizes, RejectedBy};
pub use maintenance_window::{MaintenanceWindows, WindowState};
pub use regression::{Health, Regression};
pub use rollout::Rollout;
pub use settings::{Allowance, BreakerSettings, CanarySettings, CoolDown, GuardSettings};
pub use trials::Trials;
pub use workload_state::{ChangeKind, PodChange, WorkloadState};
