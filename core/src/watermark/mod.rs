//! Decides how many replicas a workload gets so that its metrics stay between two watermarks. Pure: takes plain data and
//! `now`, and returns a decision with its reasons.
//!
//! ```text
//! MetricInput (value or error) ─ ready pods ─ band ─ propose | recommender | converge ─▶ combine
//!                                                                                          │
//!                  scale_rate (steps, bounds) ─ cooldown (windows, delays) ────────────────┤
//!                                                                                          ▼
//!                                               Decision: a change, or why not (Restriction)
//! ```

pub mod band;
pub mod combine;
pub mod conditions;
pub mod cooldown;
pub mod decide;
pub mod log_attributes;
pub mod metric_requests;
pub mod monitor_gate;
pub mod options;
pub mod pending_scale;
pub mod propose;
pub mod rounding;
pub mod scale_decision;
pub mod scale_rate;
pub mod spec;
pub mod status_update;
pub mod validation;
pub mod vpa_wave;
pub mod warnings;

pub use band::Band;
pub use combine::{
    CombinedProposal, EvaluationContext, MetricEvaluation, MetricInput, ProposalError,
};
pub use cooldown::{Cooldown, HoldReason, ScaleDirection};
pub use decide::{Decision, DecisionInput, ForcedReason, ReplicaChange};
pub use metric_requests::MetricRequestBuilder;
pub use options::WpaOptions;
pub use propose::{ConvergeTowards, Convergence};
pub use scale_decision::RESTRICTIONS;
pub use scale_rate::{LimitHit, ReplicaLimits};
pub use spec::EffectiveSpec;
