//! The rule of the profiles `steady`, `balanced` and `tide`: a CPU request planned over the next hours at a price per
//! change, and a memory request from the highest usage of the last days.
//!
//! ```text
//! samples, requests ──▶ CpuPlan ─ BucketWeights (hours of the day, last half hour), daily peaks
//!                          │  └─ PlanState: one compact form for every storage
//!                          ▼
//! CpuPlanSettings ────▶ evaluation ─ cost of each level over the horizon ─▶ PlanEvaluation
//!                          ▼
//!                       CpuDecision: changed or kept, and why
//!
//! usage, OOM kills ───▶ PeakWindow ─▶ MemoryDecision
//! ```

mod bucket_weights;
mod buckets;
mod container_plan;
mod cpu_plan;
mod decision;
mod encoding;
mod evaluation;
mod merge;
mod peak_window;
mod plan_state;
mod settings;
#[cfg(test)]
mod tests;

pub use buckets::{PlanBuckets, plan_buckets};
pub use container_plan::{ContainerPlan, KnownRequests, PlanDecision, PlanRules, PlannedRequest};
pub use cpu_plan::CpuPlan;
pub use decision::{CpuDecision, CpuOutcome, HourCost, KeptBecause, PlanEvaluation};
pub use encoding::InvalidPlanState;
pub use peak_window::{MemoryDecision, MemoryOutcome, PeakWindow};
pub use plan_state::PlanState;
pub use settings::{
    CpuPlanSettings, PeakWindowSettings, PlanProfile, PlanSelection, PlanSettings, RequestProfile,
};
