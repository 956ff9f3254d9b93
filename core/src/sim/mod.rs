//! A virtual cluster on a virtual clock, for the demo and for backtests.
//!
//! ```text
//!   demand (seeded curves)
//!      │ minute by minute
//!      ▼
//!   cluster ── pods: throttled, OOM killed, restarted ──▶ ContainerMinute ──▶ any MinuteSink
//!      ▲                                                        │
//!      └── rollout, or the real updater ◀── the real recommender ◀┘
//! ```
//!
//! Pure: no clock, no client, no async; the same seed gives the same steps on every machine. The simplifications
//! are part of the contract: nodes have unlimited capacity, so CPU is only restricted by limits; a container
//! without a memory limit is never OOM killed; usage is what a metrics server would report once per minute.

pub mod autoscaling;
pub mod cluster;
pub mod demand;
pub mod noise;
pub mod pod;
pub mod recommender;
pub mod rollout;
pub mod series;
mod series_line;
pub mod step;
pub mod updater;
pub mod workload;

pub use cluster::{Cluster, InvalidWorkload, MINUTE, UpdatePolicy};
pub use demand::{CpuDemand, MIB, MemoryDemand};
pub use recommender::{Recommender, WorkloadRecommendation};
pub use series::{SeriesError, read_series};
pub use step::{ContainerMinute, MinuteSink};
pub use updater::{PassChanges, Updater};
pub use workload::{
    ContainerResources, ContainerSpec, ContainerType, OptionalAmounts, ResourceAmounts,
    ResourceLimits, ResourceRecommendation, Workload, WorkloadKind,
};
