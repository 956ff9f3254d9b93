//! The metrics that the program exposes about itself and about the objects it manages.
//!
//! ```text
//!   RecommenderMetrics, UpdaterMetrics, ... ──▶ Family ─ Counter | Gauge | Histogram ──┐
//!   ObjectMetrics, ReplicaObjectMetrics: the state of the component, read page by page ────┼─▶ Registry ─▶ Scrape: chunks
//!   /proc/self ────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Only the text format 0.0.4 is supported: some of upstream's counters have no suffix `_total`, and OpenMetrics would add
//! it. A scrape is not built in memory: it holds one chunk at a time, and objects are rendered from the state of the
//! component, so the series of an object end when it is deleted.

pub(crate) mod admission;
pub(crate) mod api_traffic;
pub(crate) mod client_calls;
pub(crate) mod definition;
pub(crate) mod exposition;
pub(crate) mod family;
pub(crate) mod horizontal;
pub(crate) mod instruments;
pub(crate) mod labels;
pub(crate) mod loop_metrics;
pub mod objects;
pub(crate) mod process;
pub(crate) mod quality;
pub(crate) mod recommender;
pub(crate) mod recommender_health;
pub(crate) mod registry;
pub(crate) mod replaced_controller;
pub(crate) mod replicas;
pub(crate) mod updater;
pub(crate) mod watermark;

pub use admission::AdmissionMetrics;
pub use api_traffic::ApiTrafficMetrics;
pub use client_calls::ApiRequestMetrics;
pub(crate) use client_calls::PrometheusQueryMetrics;
pub use definition::{Definition, MetricType};
pub use horizontal::HorizontalMetrics;
pub use labels::{HistoryState, LabelSet};
pub(crate) use loop_metrics::LoopMetrics;
pub use objects::{
    Cardinality, ContainerRow, ObjectMetrics, PodRequests, UpdateRow, VpaMetricsSource, VpaRow,
};
pub use recommender::{RecommenderMetrics, VpaTraits};
pub use recommender_health::RecommenderHealthMetrics;
pub use registry::Registry;
pub use replaced_controller::ReplacedControllerMetrics;
pub use replicas::{
    ExportedMonitor, ExportedState, ReplicaKind, ReplicaMetricsSource, ReplicaObjectMetrics,
    ReplicaRow, UpstreamSeries,
};
pub use updater::{PassTotals, UpdatedVpa, UpdaterMetrics, VpaTotals};
pub(crate) use watermark::{RecommenderCall, client_label};
pub use watermark::{WatermarkMetrics, upstream_series};
