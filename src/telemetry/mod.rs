//! The metrics that the program exposes about itself and about the objects it manages.
//!
//! ```text
//!   RecommenderMetrics, UpdaterMetrics, ... ──▶ Family ─ Counter | Gauge | Histogram ──┐
//!   ObjectMetrics, WpaObjectMetrics: the state of the component, read page by page ────┼─▶ Registry ─▶ Scrape: chunks
//!   /proc/self ────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Only the text format 0.0.4 is supported: some of upstream's counters have no suffix `_total`, and OpenMetrics would add
//! it. A scrape is not built in memory: it holds one chunk at a time, and objects are rendered from the state of the
//! component, so the series of an object end when it is deleted.

pub mod admission;
pub mod api_traffic;
pub mod client_calls;
pub mod definition;
pub mod exposition;
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
pub use quality::{Quality, QualitySample, RecommendationChange};
pub use recommender::{RecommenderMetrics, VpaTraits};
pub use recommender_health::RecommenderHealthMetrics;
pub use registry::{Registry, Scrape};
pub use updater::{PassTotals, UpdatedVpa, UpdaterMetrics, VpaTotals};
pub use watermark::{
    ExportedMonitor, ExportedSource, ExportedState, RecommenderCall, RecommenderCallMetrics,
    WatermarkMetrics, WatermarkRow, WpaMetricsSource, WpaObjectMetrics, client_label,
};
