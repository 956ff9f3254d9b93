//! The recommender's model: samples in, recommendations with their reasons out. Pure: no client, no
//! clock, nothing asynchronous.
//!
//! ```text
//! samples, OOM kills ──▶ History ─ ContainerHistory ─ Histogram ─ Sparse
//!                           │            │ window: one memory peak per pod and day
//!                           │            └─ remembered: to and from a storage's Snapshot
//!                           ▼
//! Directives, Settings ──▶ recommend ─ Chain (percentile, margin, confidence, floor, rounding, cap)
//!                           ▼
//!                        Recommendation, each number with its Explanation
//! ```

pub mod advice;
pub mod annotation;
pub mod buckets;
pub mod conditions;
pub mod container;
pub mod directives;
pub mod estimate;
pub mod eviction_notice;
pub mod explanation;
pub mod fleet;
pub mod histogram;
pub mod history;
pub mod policy;
pub mod pool;
pub mod recommendation;
pub mod remembered;
pub mod room;
pub mod scope;
pub mod settings;
pub mod shapes;
mod sparse;
pub mod status;
pub mod tuning;
pub mod window;

pub use advice::{Advice, Figures};
pub use container::{ContainerHistory, OomKill};
pub use directives::Directives;
pub use explanation::{Explanation, Reason, ResourceExplanation};
pub use fleet::{Fleet, HistoryState};
pub use history::{History, Restored};
pub use policy::{Amounts, ContainerPolicy, Controlled, Overrides};
pub use recommendation::{ContainerRecommendation, Recommendation, recommend};
pub use scope::{Scope, Shard};
pub use settings::{Percentiles, Rules, Settings};
