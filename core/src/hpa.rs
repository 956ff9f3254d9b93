//! The HorizontalPodAutoscaler: decides how many replicas a target gets, with the reasons.
//!
//! ```text
//!   Observed (HPA, scale, pods, memory, config, now)
//!        │ metric_requests ──▶ the requests to send, one entry per metric
//!        ▼
//!   decide(observed, answers) ──▶ Decision: evaluations, window, limits, conditions, events, status, memory
//!        │ the caller updates /scale if the decision says so
//!        ▼
//!   Decision::record_write(outcome, now)
//! ```
//!
//! With [`Fixes::UPSTREAM`] every field is exactly what kube-controller-manager 1.36.3 produces; each [`Fix`] changes one
//! behavior of upstream.

pub mod assist;
pub mod bounds;
pub mod combine;
pub mod comparison;
pub mod conditions;
pub mod config;
pub mod decide;
pub mod decision;
pub mod defaults;
pub mod error;
pub mod evaluation;
pub mod fixes;
mod follower_replicas;
pub mod hpa_state;
pub mod labels;
pub mod lint;
pub mod numbers;
pub mod observed;
pub mod options;
pub mod pause;
pub mod pod;
pub mod pod_groups;
pub mod pod_usage;
pub mod proposal;
pub mod record;
pub mod reported_replicas;
pub mod request_follower;
pub mod requests;
pub mod retarget;
pub mod samples;
pub mod scale_decision;
pub mod scale_point;
pub mod scale_rate;
pub mod schedule;
pub mod selector;
pub mod sentinel;
pub mod shared_states;
pub mod spec;
pub mod stabilization;
pub mod status;
pub mod status_values;
pub mod takeover;
pub mod tolerance_option;
pub mod validation;
pub mod vpa_rules;

pub use assist::assist;
pub use config::{Config, Tolerance};
pub use decide::{decide, metric_requests};
pub use decision::{Decision, Event, EventStage, EventType, Zone};
pub use fixes::{Fix, Fixes};
pub use hpa_state::HpaState;
pub use observed::{Observed, ScaleError, ScaleValues};
pub use options::{HpaOptions, NO_OPTIONS};
pub use pause::{Pause, PausedDirection};
pub use pod::Pod;
pub use record::HpaRecord;
pub use request_follower::request_follower;
pub use samples::{Answer, Fetched, MetricRequest};
pub use scale_decision::{RESTRICTIONS, scale_decision};
pub use selector::Selector;
pub use shared_states::{SharedMemory, SharedStates};
pub use spec::Spec;

#[cfg(test)]
mod tests;
