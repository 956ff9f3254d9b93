//! The recommender's model: samples in, recommendations with explanations out. Pure: no client, no clock, no async.
//!
//! ```text
//! stored samples ─ HistoryBootstrap ─ HistoryBuilder
//!                           ▼
//! samples, OOM kills ──▶ History ─ ContainerHistory ─ Histogram ─ Sparse
//!                           │            │ window: one memory peak per pod and day
//!                           │            ├─ plan: planned requests, where a profile selects them
//!                           │            └─ snapshot_conv: to and from a storage's Snapshot
//!                           ▼
//! VpaSettings, Settings ──▶ recommend ─ EstimatorChain (percentile, margin, throttling, confidence, floor, rounding,
//!                           │                           cap)
//!                           ▼
//!                        Recommendation, each number with its Explanation
//! ```

pub mod aggregate;
pub mod bootstrap;
pub mod buckets;
pub mod conditions;
pub mod container;
pub mod decay_cache;
mod early_samples;
pub mod estimate;
pub mod eviction_notice;
pub mod explanation;
pub mod explanation_annotation;
pub mod go_math;
pub mod histogram;
pub mod history;
pub mod history_builder;
pub mod memory_window;
mod merging;
pub mod model_settings;
pub mod namespace_scope;
pub mod node_capacity;
pub mod oom;
pub mod plan;
pub mod pod_cap;
pub mod policy;
pub mod published_status;
pub mod recommendation;
pub mod recommendation_summary;
pub mod registry;
pub mod sample_span;
pub mod snapshot_conv;
mod sparse;
pub mod system_clock_check;
pub mod throttling;
pub mod tuning_annotations;
pub mod vpa_settings;
pub mod weighting;

pub use bootstrap::HistoryBootstrap;
pub use container::ContainerHistory;
pub use explanation::{Explanation, RecommendationReason, ResourceExplanation};
pub use history::{History, RestoreResult};
pub use history_builder::{HistoryBuilder, SampleResult};
pub use model_settings::{ModelRules, Percentiles, Settings};
pub use namespace_scope::{NamespaceScope, Shard};
pub use oom::OomKill;
pub use policy::{Overrides, ResourceAmounts};
pub use recommendation::{ContainerRecommendation, Recommendation, recommend};
pub use recommendation_summary::{RecommendationSummary, ResourceSummary};
pub use registry::{HistoryState, VpaRegistry};
pub use vpa_settings::VpaSettings;
pub use weighting::HistoryWeighting;
