//! Guards: nothing is changed on stale recommendations, too often, outside maintenance windows, everywhere at once, or
//! again after a regression.
//!
//! ```text
//! freshness ─ MaintenanceWindows ─ WorkloadState ─ DisruptionBudget ─▶ allowed? ─▶ persist ─▶ execute
//! ```
//!
//! The state is persisted before the action that is charged to it, so that it survives a crash of the updater.

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
pub use freshness::{HeartbeatPolicy, RecommenderHeartbeat, is_admission_ready};
pub use infeasible::{InfeasibleResizes, RejectedBy};
pub use maintenance_window::{MaintenanceWindows, WindowState};
pub use regression::{Health, Regression};
pub use rollout::Rollout;
pub use settings::{Allowance, BreakerSettings, CanarySettings, CoolDown, GuardSettings};
pub use trials::Trials;
pub use workload_state::{ChangeKind, PodChange, WorkloadState};
