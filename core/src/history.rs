//! The history of a container as data: samples, stored snapshots, and the checkpoint format.

pub mod checkpoint;
mod record;
mod sample;
pub mod snapshot;

pub use record::{Record, Sink, SkippedRecord};
pub use sample::{Measurement, Sample, SampleBatch, UsageMetric};
pub use snapshot::{
    BucketScheme, HalfLives, HistogramWeights, OomBump, ReplicaState, SampleStats, Snapshot,
    Throttling,
};
