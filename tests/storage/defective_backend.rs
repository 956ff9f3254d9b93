//! Tests the conformance suite: a backend with one defect fails exactly the cases about it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use plimsoll_core::{
    history::{HistogramWeights, Record, Sink, SkippedRecord, Snapshot},
    types::ContainerKey,
};
use plimsoll_storage::{
    Error, LoadReport, LoadRequest, OrphanPredicate, SaveDecision, SaveReport, Storage,
    WritePermit, Writer,
};

use super::conformance::{
    BackendFactory, Case, Tampering, TestBackend, WriteUnit, failed_cases, format_table,
    not_applicable_cases, run_suite,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Stores weights in single precision.
    RoundsWeights,
    /// Overwrites richer records with poorer ones.
    PoorerWins,
    /// Takes any VPA of the same name for the owner.
    CollectsByNameAlone,
    /// Acquires the permit once for a whole batch.
    AcquiresOncePerBatch,
    /// Writes the halves of a record one after the other.
    TearsRecords,
    /// Reads all, changes, writes all.
    LosesUpdates,
    /// Skips unreadable records silently.
    SkipsSilently,
    /// Removes objects that it did not write.
    CollectsForeign,
}

#[derive(Clone)]
enum StoredRecord {
    Own(Box<Snapshot>),
    Unreadable,
    Foreign,
}

type Records = BTreeMap<ContainerKey, StoredRecord>;

/// A backend that is correct except for its defect. Its data outlives it.
struct DefectiveBackend {
    defect: Defect,
    records: Arc<Mutex<Records>>,
}

impl DefectiveBackend {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("no panic")
    }

    fn has_defect(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn save_result(&self, records: &Records, record: &Record) -> SaveDecision {
        let stored = match records.get(&record.key) {
            Some(StoredRecord::Own(snapshot)) => Some(&**snapshot),
            _ => None,
        };
        let supersede = record.supersede || self.has_defect(Defect::PoorerWins);
        SaveDecision::decide(
            record.snapshot.sample_rank(),
            supersede,
            stored.map(Snapshot::sample_rank),
            stored == Some(&record.snapshot),
        )
    }

    fn kept(&self, snapshot: &Snapshot) -> Snapshot {
        let mut kept = snapshot.clone();
        if self.has_defect(Defect::RoundsWeights) {
            let round = |weights: &mut HistogramWeights| {
                for (_, weight) in &mut weights.buckets {
                    *weight = f64::from(*weight as f32);
                }
            };
            round(&mut kept.cpu);
            round(&mut kept.memory);
        }
        kept
    }
}

#[async_trait]
impl Storage for DefectiveBackend {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let mut report = LoadReport::default();
        for (key, stored) in self.records().clone() {
            if !wanted.includes(&key) {
                continue;
            }
            let reason = match stored {
                StoredRecord::Own(snapshot) => {
                    sink.snapshot(key, *snapshot);
                    report.snapshots += 1;
                    continue;
                }
                StoredRecord::Unreadable if self.has_defect(Defect::SkipsSilently) => continue,
                StoredRecord::Unreadable => "it cannot be read",
                StoredRecord::Foreign => "written by another program",
            };
            report.skipped.push(SkippedRecord { record: key.to_string(), reason: reason.into() });
        }
        Ok(report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

#[async_trait]
impl Writer for DefectiveBackend {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let mut report = SaveReport::default();
        let mut is_acquired = false;
        for record in batch {
            let standing = self.save_result(&self.records(), record);
            match standing {
                SaveDecision::Unchanged => report.unchanged += 1,
                SaveDecision::StoredIsRicher => report.stored_richer.push(record.key.clone()),
                SaveDecision::Write => {
                    if !(is_acquired && self.has_defect(Defect::AcquiresOncePerBatch)) {
                        permit.acquire().await?;
                        is_acquired = true;
                    }
                    let kept = self.kept(&record.snapshot);
                    if self.has_defect(Defect::TearsRecords) {
                        let half = match self.records().get(&record.key) {
                            Some(StoredRecord::Own(old)) => {
                                Snapshot { cpu: kept.cpu.clone(), ..Snapshot::clone(old) }
                            }
                            _ => kept.clone(),
                        };
                        self.records().insert(record.key.clone(), StoredRecord::Own(half.into()));
                        tokio::task::yield_now().await;
                    }
                    if self.has_defect(Defect::LosesUpdates) {
                        let mut all = self.records().clone();
                        tokio::task::yield_now().await;
                        all.insert(record.key.clone(), StoredRecord::Own(kept.into()));
                        *self.records() = all;
                    } else {
                        self.records().insert(record.key.clone(), StoredRecord::Own(kept.into()));
                    }
                    report.written += 1;
                }
            }
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let all = self.records().clone();
        let is_alive = |key: &ContainerKey| {
            let alike = all.keys().filter(|other| other.vpa.name == key.vpa.name);
            !orphaned(key)
                || self.has_defect(Defect::CollectsByNameAlone)
                    && alike.into_iter().any(|other| !orphaned(other))
        };
        let orphans = all.iter().filter(|(key, stored)| {
            let own = !matches!(stored, StoredRecord::Foreign)
                || self.has_defect(Defect::CollectsForeign);
            own && !is_alive(key)
        });
        let mut removed = 0;
        for (key, _) in orphans {
            permit.acquire().await?;
            removed += usize::from(self.records().remove(key).is_some());
        }
        Ok(removed)
    }
}

#[async_trait]
impl TestBackend for DefectiveBackend {
    fn storage(&self) -> &dyn Storage {
        self
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Record
    }

    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Arc<dyn TestBackend>, String> {
        match tampering {
            Tampering::None => {}
            Tampering::Corrupt(key) => _ = self.records().insert(key, StoredRecord::Unreadable),
            Tampering::Foreign(key) => _ = self.records().insert(key, StoredRecord::Foreign),
        }
        let records = Arc::clone(&self.records);
        Ok(Arc::new(Self { defect: self.defect, records }))
    }
}

struct DefectiveBackendMaker(Defect);

#[async_trait]
impl BackendFactory for DefectiveBackendMaker {
    async fn create(&self) -> Result<Arc<dyn TestBackend>, String> {
        Ok(Arc::new(DefectiveBackend { defect: self.0, records: Arc::default() }))
    }
}

/// Runs the suite on one thread, so that tasks are scheduled in the same order every time.
async fn expect_failure(defect: Defect, expected: &[Case]) {
    let outcomes = run_suite(&DefectiveBackendMaker(defect)).await;
    assert_eq!(failed_cases(&outcomes), expected, "{defect:?}:\n{}", format_table(&outcomes));
    assert_eq!(not_applicable_cases(&outcomes), [], "{defect:?}:\n{}", format_table(&outcomes));
}

#[tokio::test]
async fn a_backend_without_a_defect_passes_every_case() {
    expect_failure(Defect::None, &[]).await;
}

#[tokio::test]
async fn a_backend_that_rounds_weights_fails_extremes() {
    expect_failure(Defect::RoundsWeights, &[Case::Extremes]).await;
}

#[tokio::test]
async fn a_backend_where_the_poorer_record_wins_fails_richer_is_kept() {
    expect_failure(Defect::PoorerWins, &[Case::RicherIsKept]).await;
}

#[tokio::test]
async fn a_backend_that_collects_by_name_alone_fails_only_orphans_are_collected() {
    expect_failure(Defect::CollectsByNameAlone, &[Case::OnlyOrphansAreCollected]).await;
}

#[tokio::test]
async fn a_backend_with_one_permit_per_batch_fails_permit_lost_half_way() {
    expect_failure(Defect::AcquiresOncePerBatch, &[Case::PermitLostHalfWay]).await;
}

#[tokio::test]
async fn a_backend_that_tears_records_fails_crash_mid_save() {
    expect_failure(Defect::TearsRecords, &[Case::CrashMidSave]).await;
}

#[tokio::test]
async fn a_backend_that_loses_updates_fails_concurrent_writers() {
    expect_failure(Defect::LosesUpdates, &[Case::ConcurrentWriters]).await;
}

#[tokio::test]
async fn a_backend_that_skips_records_silently_fails_malformed_is_skipped() {
    expect_failure(Defect::SkipsSilently, &[Case::MalformedIsSkipped]).await;
}

#[tokio::test]
async fn a_backend_that_deletes_foreign_records_fails_foreign_is_left_alone() {
    expect_failure(Defect::CollectsForeign, &[Case::ForeignIsLeftAlone]).await;
}
