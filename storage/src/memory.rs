//! The in-memory backend, for dry runs, simulations and tests.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    Error, LoadReport, LoadRequest, OrphanPredicate, SaveReport, Storage, WritePermit, Writer,
    store::SaveDecision,
};
use plimsoll_core::{
    history::{Record, Sink, Snapshot},
    types::ContainerKey,
};

/// Stores history in memory. A write is one record.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    records: Mutex<BTreeMap<ContainerKey, Snapshot>>,
}

impl MemoryStorage {
    /// Creates an empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<ContainerKey, Snapshot>> {
        // A panic elsewhere cannot leave the map half changed: each change is one insert or remove.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(records: &BTreeMap<ContainerKey, Snapshot>, record: &Record) -> SaveDecision {
        let stored = records.get(&record.key);
        SaveDecision::decide(
            record.snapshot.sample_rank(),
            record.supersede,
            stored.map(Snapshot::sample_rank),
            stored == Some(&record.snapshot),
        )
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let keys: Vec<ContainerKey> =
            self.records().keys().filter(|key| wanted.includes(key)).cloned().collect();
        let mut report = LoadReport::default();
        for key in keys {
            let Some(snapshot) = self.records().get(&key).cloned() else { continue };
            sink.snapshot(key, snapshot);
            report.snapshots += 1;
        }
        Ok(report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

#[async_trait]
impl Writer for MemoryStorage {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let mut report = SaveReport::default();
        for record in batch {
            let needs_permit = Self::decide(&self.records(), record) == SaveDecision::Write;
            if needs_permit {
                permit.acquire().await?;
            }
            // Decide again: another writer may have changed the record while this one waited for the permit.
            let mut records = self.records();
            match Self::decide(&records, record) {
                // There is no permit for this write, so leave it to the next save.
                SaveDecision::Write if !needs_permit => {}
                SaveDecision::Write => {
                    records.insert(record.key.clone(), record.snapshot.clone());
                    report.written += 1;
                }
                SaveDecision::Unchanged => report.unchanged += 1,
                SaveDecision::StoredIsRicher => report.stored_richer.push(record.key.clone()),
            }
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let orphans: Vec<ContainerKey> =
            self.records().keys().filter(|key| orphaned(key)).cloned().collect();
        let mut removed = 0;
        for key in orphans {
            permit.acquire().await?;
            removed += usize::from(self.records().remove(&key).is_some());
        }
        Ok(removed)
    }
}
