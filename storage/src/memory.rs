//! The backend that forgets when the process ends: for dry runs, simulations and tests.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    Error, LoadReport, Orphaned, SaveReport, Storage, Wanted, WritePermit, Writer,
    storage::Standing,
};
use plimsoll_core::{
    history::{Record, Sink, Snapshot},
    types::Key,
};

/// History in memory. A write is one record.
#[derive(Debug, Default)]
pub struct Memory {
    records: Mutex<BTreeMap<Key, Snapshot>>,
}

impl Memory {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<Key, Snapshot>> {
        // A panic elsewhere cannot leave the map half changed: each change is one insert or remove.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(records: &BTreeMap<Key, Snapshot>, record: &Record) -> Standing {
        let stored = records.get(&record.key);
        Standing::of(
            record.snapshot.richness(),
            record.supersede,
            stored.map(Snapshot::richness),
            stored == Some(&record.snapshot),
        )
    }
}

#[async_trait]
impl Storage for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn load(&self, wanted: &Wanted, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let keys: Vec<Key> =
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
impl Writer for Memory {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let mut report = SaveReport::default();
        for record in batch {
            let asks = Self::standing(&self.records(), record) == Standing::Changes;
            if asks {
                permit.acquire().await?;
            }
            // Looked at again: another writer may have come by while the permit was waited for.
            let mut records = self.records();
            match Self::standing(&records, record) {
                // Without a permit nothing is written: the next save will.
                Standing::Changes if !asks => {}
                Standing::Changes => {
                    records.insert(record.key.clone(), record.snapshot.clone());
                    report.written += 1;
                }
                Standing::Unchanged => report.unchanged += 1,
                Standing::Poorer => report.kept_richer.push(record.key.clone()),
            }
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: Orphaned<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let orphans: Vec<Key> =
            self.records().keys().filter(|key| orphaned(key)).cloned().collect();
        let mut removed = 0;
        for key in orphans {
            permit.acquire().await?;
            removed += usize::from(self.records().remove(&key).is_some());
        }
        Ok(removed)
    }
}
