//! What whoever sets replicas stands on, whatever kind of object asks for it: a workload's scale and pods, what its
//! sources say, and since when they say so. Pure: plain data and `now` in, plain data out.
//!
//! ```text
//!   Pod ──▶ Readiness ───────────────────┐
//!   Answer, or why there is none ────────┼─▶ a role's own rules ──▶ Memory, for the next look
//!   Wish ──▶ request … reply ──▶ Advice ─┘
//! ```

pub mod metric_history;
pub mod metric_value;
pub mod pod_readiness;
pub mod recommender_protocol;

pub use metric_history::MetricHistory;
pub use metric_value::{MetricError, MetricSourceType, MetricValue, Milli};
pub use pod_readiness::{Pod, PodsNotReady, ReadinessPolicy};
pub use recommender_protocol::RecommendResponse;

/// What a workload has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Replicas that are asked for.
    pub spec_replicas: i32,
    /// Pods that there are, those of a rolling update included.
    pub status_replicas: i32,
}
