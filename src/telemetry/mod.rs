//! What the program tells Prometheus about itself and about the objects it looks after.
//!
//! ```text
//!   RecommenderMetrics, Health: what happened ──▶ Family ─ Counter | Gauge | Histogram ─┐
//!   Objects, Watermarks: the state of the role, visited a page at a time ───────────────┼─▶ Registry ─▶ Scrape: chunks
//!   /proc/self ─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The text format 0.0.4 is all there is: upstream's counters have no `_total`, and OpenMetrics would give them one.
//! Nothing is built in memory: a scrape holds one chunk, and objects are rendered from the state that they live in,
//! so their series go when they go.

pub mod admission;
pub mod api_traffic;
pub mod client_calls;
pub mod definition;
pub mod family;
pub mod instruments;
pub mod labels;
pub mod loop_metrics;
pub mod objects;
pub mod process;
pub mod quality;
pub mod recommender;
pub mod recommender_health;
pub mod registry;
pub mod text;
pub mod updater;
pub mod watermark;

pub use admission::{AdmissionMetrics, ReviewTimes};
pub use api_traffic::ApiTrafficMetrics;
pub use client_calls::{ApiRequestMetrics, PrometheusQueryMetrics};
pub use definition::{Definition, MetricType};
pub use family::{Family, Series};
pub use instruments::{Counter, Gauge, Histogram};
pub use labels::{HistoryState, LabelSet};
pub use loop_metrics::LoopMetrics;
pub use objects::{
    Cardinality, ContainerRow, ObjectMetrics, PodRequests, UpdateRow, VpaMetricsSource, VpaRow,
};
pub use quality::{QualitySample, RecommendationChange};
pub use recommender::{RecommenderMetrics, VpaTraits};
pub use recommender_health::RecommenderHealthMetrics;
pub use registry::{Registry, Scrape};
pub use updater::{PassTotals, UpdatedVpa, UpdaterMetrics, VpaTotals};
pub use watermark::{
    MonitorGateRow, RecommenderCall, ReconcileResultLabel, ReconcileStep, Restrictions, SourceRow,
    WatermarkMetrics, WatermarkRow, WpaMetricsSource, WpaObjectMetrics, client_label,
};
