//! Proof that the suite has teeth: a backend with one defect fails exactly the case that is about it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use plimsoll_core::{
    history::{Record, Sink, Skipped, Snapshot, Weights},
    types::Key,
};
use plimsoll_storage::{
    Error, LoadReport, Orphaned, SaveReport, Standing, Storage, Wanted, WritePermit, Writer,
    conformance::{
        Case, Maker, Reopened, Subject, Tampering, WriteUnit, check, failed, not_applicable, table,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Keeps weights in single precision.
    RoundsWeights,
    /// Writes whatever it is given.
    PoorerWins,
    /// Takes any VPA of the same name for the owner.
    CollectsByNameAlone,
    /// Asks for the right to write once for a whole batch.
    AsksOncePerBatch,
    /// Writes the halves of a record one after the other.
    TearsRecords,
    /// Reads all, changes, writes all.
    LosesUpdates,
    /// Passes over what it cannot read without a word.
    SkipsInSilence,
    /// Removes what it did not write.
    CollectsForeign,
}

#[derive(Clone)]
enum Stored {
    Own(Box<Snapshot>),
    Unreadable,
    Foreign,
}

type Records = BTreeMap<Key, Stored>;

/// A backend that does everything right but for its defect. What it keeps outlives it.
struct Shelf {
    defect: Defect,
    records: Arc<Mutex<Records>>,
}

impl Shelf {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("nobody panics with the lock held")
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn standing(&self, records: &Records, record: &Record) -> Standing {
        let stored = match records.get(&record.key) {
            Some(Stored::Own(snapshot)) => Some(&**snapshot),
            _ => None,
        };
        let supersede = record.supersede || self.has(Defect::PoorerWins);
        Standing::of(
            record.snapshot.richness(),
            supersede,
            stored.map(Snapshot::richness),
            stored == Some(&record.snapshot),
        )
    }

    fn kept(&self, snapshot: &Snapshot) -> Snapshot {
        let mut kept = snapshot.clone();
        if self.has(Defect::RoundsWeights) {
            let round = |weights: &mut Weights| {
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
impl Storage for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn load(&self, wanted: &Wanted, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let mut report = LoadReport::default();
        for (key, stored) in self.records().clone() {
            if !wanted.includes(&key) {
                continue;
            }
            let why = match stored {
                Stored::Own(snapshot) => {
                    sink.snapshot(key, *snapshot);
                    report.snapshots += 1;
                    continue;
                }
                Stored::Unreadable if self.has(Defect::SkipsInSilence) => continue,
                Stored::Unreadable => "it cannot be read",
                Stored::Foreign => "somebody else wrote it",
            };
            report.skipped.push(Skipped { what: key.to_string(), why: why.into() });
        }
        Ok(report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

#[async_trait]
impl Writer for Shelf {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let mut report = SaveReport::default();
        let mut asked = false;
        for record in batch {
            let standing = self.standing(&self.records(), record);
            match standing {
                Standing::Unchanged => report.unchanged += 1,
                Standing::Poorer => report.kept_richer.push(record.key.clone()),
                Standing::Changes => {
                    if !(asked && self.has(Defect::AsksOncePerBatch)) {
                        permit.acquire().await?;
                        asked = true;
                    }
                    let kept = self.kept(&record.snapshot);
                    if self.has(Defect::TearsRecords) {
                        let half = match self.records().get(&record.key) {
                            Some(Stored::Own(old)) => {
                                Snapshot { cpu: kept.cpu.clone(), ..Snapshot::clone(old) }
                            }
                            _ => kept.clone(),
                        };
                        self.records().insert(record.key.clone(), Stored::Own(half.into()));
                        tokio::task::yield_now().await;
                    }
                    if self.has(Defect::LosesUpdates) {
                        let mut all = self.records().clone();
                        tokio::task::yield_now().await;
                        all.insert(record.key.clone(), Stored::Own(kept.into()));
                        *self.records() = all;
                    } else {
                        self.records().insert(record.key.clone(), Stored::Own(kept.into()));
                    }
                    report.written += 1;
                }
            }
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: Orphaned<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let all = self.records().clone();
        let lives = |key: &Key| {
            let alike = all.keys().filter(|other| other.vpa.name == key.vpa.name);
            !orphaned(key)
                || self.has(Defect::CollectsByNameAlone)
                    && alike.into_iter().any(|other| !orphaned(other))
        };
        let orphans = all.iter().filter(|(key, stored)| {
            let own = !matches!(stored, Stored::Foreign) || self.has(Defect::CollectsForeign);
            own && !lives(key)
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
impl Subject for Shelf {
    fn storage(&self) -> &dyn Storage {
        self
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Record
    }

    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Reopened, String> {
        match tampering {
            Tampering::None => {}
            Tampering::Corrupt(key) => _ = self.records().insert(key, Stored::Unreadable),
            Tampering::Foreign(key) => _ = self.records().insert(key, Stored::Foreign),
        }
        let records = Arc::clone(&self.records);
        Ok(Reopened::Opened(Arc::new(Self { defect: self.defect, records })))
    }
}

struct ShelfMaker(Defect);

#[async_trait]
impl Maker for ShelfMaker {
    async fn subject(&self) -> Result<Arc<dyn Subject>, String> {
        Ok(Arc::new(Shelf { defect: self.0, records: Arc::default() }))
    }
}

/// Runs the suite on one thread, so that tasks take turns in the same order every time.
async fn expect_failure(defect: Defect, expected: &[Case]) {
    let outcomes = check(&ShelfMaker(defect)).await;
    assert_eq!(failed(&outcomes), expected, "{defect:?}:\n{}", table(&outcomes));
    assert_eq!(not_applicable(&outcomes), [], "{defect:?}:\n{}", table(&outcomes));
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
async fn a_backend_that_asks_once_per_batch_fails_permit_lost_half_way() {
    expect_failure(Defect::AsksOncePerBatch, &[Case::PermitLostHalfWay]).await;
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
async fn a_backend_that_skips_in_silence_fails_malformed_is_skipped() {
    expect_failure(Defect::SkipsInSilence, &[Case::MalformedIsSkipped]).await;
}

#[tokio::test]
async fn a_backend_that_collects_what_others_wrote_fails_foreign_is_left_alone() {
    expect_failure(Defect::CollectsForeign, &[Case::ForeignIsLeftAlone]).await;
}
