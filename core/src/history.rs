//! The history of a container as data: samples, stored snapshots, and the checkpoint format.

pub mod checkpoint;
mod encoded_plan;
mod record;
mod sample;
pub mod snapshot;

pub use encoded_plan::EncodedPlan;
pub use record::{Record, Sink, SkippedRecord};
pub use sample::{Measurement, Sample, SampleBatch};
pub use snapshot::{
    BucketScheme, HalfLives, HistogramWeights, OomBump, ReplicaState, SampleStats, Snapshot,
    Throttling,
};

pub use crate::types::Resource;
