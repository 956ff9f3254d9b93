//! What is handed to a storage backend, and what a backend hands back.

use super::{Sample, SampleBatch, Snapshot};
use crate::types::{ContainerKey, ObjectKey};

/// Takes what a backend remembers. A backend calls one of the two for each thing it finds, and may mix them.
pub trait Sink: Send {
    /// A whole state.
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot);
    /// One observation. Of one replica the CPU samples come in order of time, and so do its memory samples
    /// and kills together: a kill is told from what it used by what came before it.
    fn sample(&mut self, key: &ContainerKey, sample: Sample);
    /// Many observations of one container of a pod: nothing else than each of them as a sample, in this order. Whoever
    /// takes millions finds a run's histories once.
    fn batch(&mut self, key: &ContainerKey, run: SampleBatch<'_>) {
        run.samples().for_each(|sample| self.sample(key, sample));
    }
    /// Not all that is remembered of this VPA can be had now: what came of it does not count, and neither does what
    /// is still to come in this load. Half a history would pass for a whole one.
    fn abandon(&mut self, vpa: &ObjectKey) {
        let _ = vpa;
    }
    /// All that is remembered of this VPA has been handed on. Only backends that hand on single samples say so, and of
    /// each VPA once: what they have handed on of the others may be half a history until the load has ended.
    fn complete(&mut self, vpa: &ObjectKey) {
        let _ = vpa;
    }
    /// Whether what is remembered of this VPA may be handed to another one for the same workload. Not while it is
    /// another program's: then both see the same pods, and what it saw would count twice.
    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        let _ = vpa;
        true
    }
}

/// One record to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What the history belongs to.
    pub key: ContainerKey,
    /// The history.
    pub snapshot: Snapshot,
    /// Replace even a richer stored record: only for a state that was reset on purpose.
    pub supersede: bool,
}

impl Record {
    /// A record that gives way to a richer one.
    pub fn new(key: ContainerKey, snapshot: Snapshot) -> Self {
        Self { key, snapshot, supersede: false }
    }
}

/// A record that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRecord {
    /// Which one, as far as it could be told.
    pub record: String,
    /// Why, in one line.
    pub reason: String,
}
