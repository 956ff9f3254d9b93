//! Shared by all horizontal autoscalers: the scale and pods of a workload, metric values, and the record of a decision.
//! Pure: takes plain data and `now`, and returns plain data.
//!
//! ```text
//!   Pod ──▶ ReadinessPolicy ───────────────────────────────────────┐
//!   MetricRequest ──▶ MetricsClient ──▶ MetricValue or MetricError ┴─▶ controller's rules ──▶ ScaleDecision
//!                                             status, metrics, explain, the next reconcile ◀──┘
//! ```

pub mod alert;
pub mod external_recommender;
pub mod fallback;
pub mod metric_request;
pub mod metric_source;
pub mod pod_readiness;
pub mod pod_usage;
pub mod restriction;
pub mod scale_decision;
pub mod scale_outcome;

pub use alert::Alert;
pub use external_recommender::RecommendResponse;
pub use fallback::Fallback;
pub use metric_request::MetricRequest;
pub use metric_source::{MetricError, MetricSourceType, MetricValue, Milli};
pub use pod_readiness::{Pod, PodsNotReady, ReadinessPolicy};
pub use restriction::Restriction;
pub use scale_decision::{MetricBounds, MetricDecision, Position, ScaleDecision, UnknownMetric};
pub use scale_outcome::{Event, STATUS_UPDATE_FAILED, ScaleOutcome};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas` of the scale subresource.
    pub spec_replicas: i32,
    /// `status.replicas` of the scale subresource, including surge pods of a rolling update.
    pub status_replicas: i32,
}
