//! Metrics of single replica autoscalers of every kind, rendered from the state of their controllers, so that no series
//! outlives its object or its labels.

mod exported_state;
mod render;
mod series;

pub(super) use self::{
    exported_state::{EmitSample, bool_value},
    series::{ReplicaSeries, UpstreamFamily},
};
pub use self::{
    exported_state::{ExportedMonitor, ExportedState, ReplicaMetricsSource, ReplicaRow},
    render::{ReplicaKind, ReplicaObjectMetrics},
    series::UpstreamSeries,
};
