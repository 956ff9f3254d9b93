//! The recommender's model: samples in, recommendations with their reasons out. Pure: no client, no
//! clock, nothing asynchronous.
//!
//! ```text
//! stored samples ─ Bootstrap ─ Folding
//!                           ▼
//! samples, OOM kills ──▶ History ─ ContainerHistory ─ Histogram ─ Sparse
//!                           │            │ window: one memory peak per pod and day
//!                           │            └─ remembered: to and from a storage's Snapshot
//!                           ▼
//! Directives, Settings ──▶ recommend ─ Chain (percentile, margin, throttling, confidence, floor, rounding, cap)
//!                           ▼
//!                        Recommendation, each number with its Explanation
//! ```

pub mod advice;
pub mod annotation;
pub mod bootstrap;
pub mod buckets;
pub mod clock_doubt;
pub mod conditions;
pub mod container;
pub mod directives;
mod early;
pub mod estimate;
pub mod eviction_notice;
pub mod explanation;
pub mod fading;
pub mod fleet;
pub mod folding;
pub mod histogram;
pub mod history;
pub mod kill;
mod merging;
pub mod policy;
pub mod pool;
pub mod power;
pub mod recommendation;
pub mod remembered;
pub mod room;
pub mod scope;
pub mod settings;
pub mod shapes;
pub mod span;
mod sparse;
pub mod status;
pub mod throttling;
pub mod tuning;
pub mod weighting;
pub mod window;

pub use advice::{Advice, Figures};
pub use bootstrap::Bootstrap;
pub use container::ContainerHistory;
pub use directives::Directives;
pub use explanation::{Explanation, Reason, ResourceExplanation};
pub use fleet::{Fleet, HistoryState};
pub use folding::{Folded, Folding};
pub use history::{History, Restored};
pub use kill::OomKill;
pub use policy::{Amounts, ContainerPolicy, Controlled, Overrides};
pub use recommendation::{ContainerRecommendation, Recommendation, recommend};
pub use scope::{Scope, Shard};
pub use settings::{Percentiles, Rules, Settings};
pub use weighting::HistoryWeighting;
