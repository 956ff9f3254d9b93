//! The history of a container as data: what was observed, what is remembered of it, and its form in a checkpoint.

pub mod checkpoint;
mod record;
mod sample;
pub mod snapshot;

pub use record::{Record, Sink, Skipped};
pub use sample::{Gauge, Measurement, Run, Sample};
pub use snapshot::{Bump, HalfLives, Observed, Replica, Scheme, Snapshot, Throttling, Weights};
