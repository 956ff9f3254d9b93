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
pub mod calls;
pub mod definition;
pub mod family;
pub mod health;
pub mod labels;
pub mod objects;
pub mod pace;
pub mod process;
pub mod quality;
pub mod recommender;
pub mod registry;
pub mod text;
pub mod traffic;
pub mod updater;
pub mod value;
pub mod watermark;

pub use admission::{AdmissionMetrics, ReviewTimes};
pub use calls::{ApiCalls, PrometheusCalls};
pub use definition::{Definition, Kind};
pub use family::{Family, Series};
pub use health::Health;
pub use labels::{HistoryState, LabelSet};
pub use objects::{
    Cardinality, ContainerRow, ObjectMetrics, Objects, PodRequests, UpdateRow, VpaRow,
};
pub use pace::Pace;
pub use quality::{QualitySample, RecommendationChange};
pub use recommender::{RecommenderMetrics, VpaTraits};
pub use registry::{Registry, Scrape};
pub use traffic::Traffic;
pub use updater::{PassTotals, Sized as UpdatedVpa, Tally, UpdaterMetrics};
pub use value::{Counter, Gauge, Histogram};
pub use watermark::{
    LifecycleRow, LookStep, RecommenderCall, Restrictions, Returned, SourceRow, WatermarkMetrics,
    WatermarkObjects, WatermarkRow, Watermarks, client_label,
};
