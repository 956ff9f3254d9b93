//! The interface of storage backends: records to save, and the sink for loaded history.

use serde::{Deserialize, Serialize};

use super::{Sample, SampleBatch, Snapshot};
use crate::types::{ContainerKey, ObjectKey};

/// Receives loaded history. A backend calls `snapshot` or `sample` for each thing it finds, and may mix them.
pub trait Sink: Send {
    /// A complete state.
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot);
    /// One observation. For each replica the CPU samples come in order of time, and so do its memory samples and
    /// OOM kills together: an OOM bump depends on the usage before it.
    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let _ = (key, sample);
    }
    /// Many observations of one container of a pod. Equivalent to calling `sample` for each, in this order; an
    /// implementation that receives millions of samples can look up the history once per batch.
    fn batch(&mut self, key: &ContainerKey, run: SampleBatch<'_>) {
        run.samples().for_each(|sample| self.sample(key, sample));
    }
    /// The history of this VPA has been passed on completely. Only backends that load single samples call it, once
    /// per VPA: without it, a history may be partial until the load has ended.
    fn complete(&mut self, vpa: &ObjectKey) {
        let _ = vpa;
    }
    /// Whether another VPA for the same workload may inherit the history of this VPA. Not while the VPA belongs to
    /// another recommender: both observe the same pods, so samples would count twice.
    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        let _ = vpa;
        true
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub key: ContainerKey,
    pub snapshot: Snapshot,
    /// Replaces even a richer stored record. Only for a state that was reset on purpose.
    pub supersede: bool,
}

impl Record {
    /// A record that does not replace a richer one.
    pub fn new(key: ContainerKey, snapshot: Snapshot) -> Self {
        Self { key, snapshot, supersede: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRecord {
    /// The record, as far as it could be identified.
    #[serde(rename = "what")]
    pub record: String,
    /// The reason, in one line.
    #[serde(rename = "why")]
    pub reason: String,
}
