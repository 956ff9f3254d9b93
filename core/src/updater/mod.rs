//! Decides which pods are updated, how, and in which order; and why the others are not. Pure: plain data and `now` in, a
//! decision with its reasons out.
//!
//! ```text
//! Pod (spec, status) ─ priority ─ update_reason ─ requirement ─▶ candidates, in order
//!                                                                    │
//! ReplicaGroups (budgets) ─ in_place (resize conditions) ─ guard ────┤
//!                                                                    ▼
//!                             UpdatePass: one step after another ─▶ Action or SkipReason
//! ```

pub mod action;
pub mod guard;
pub mod in_place;
pub mod observed_containers;
pub mod pass;
pub mod pod_sizing;
pub mod pod_status;
pub mod priority;
pub mod refusal_backoff;
pub mod replica_group;
pub mod requirement;
pub mod resize;
pub mod settings;
pub mod skip_reason;
pub mod update_reason;
pub mod workload_order;

pub use action::{Action, PodOutcome, StepResult, UpdateStep};
pub use guard::{DisruptionBudget, GuardSettings, WorkloadState};
pub use in_place::InPlaceDecision;
pub use observed_containers::ObservedContainers;
pub use pass::{
    Decision, NextStep, PassContext, PersistedState, Pod, PodExplanation, UpdatePass, VpaWithPods,
    decide,
};
pub use pod_sizing::PodSizing;
pub use pod_status::{Phase, PodOwner, PodStatus, Readiness};
pub use priority::Priority;
pub use refusal_backoff::RefusalBackoff;
pub use replica_group::{DesiredReplicas, GroupBudget, GroupRules, ReplicaGroup, ReplicaGroups};
pub use resize::{ResizePhase, ResizeStatus};
pub use settings::Settings;
pub use skip_reason::SkipReason;
pub use update_reason::UpdateReason;
