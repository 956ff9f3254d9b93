//! The backend that keeps history in a directory of its own: one file, one process, no server.
//!
//! ```text
//!   save ──▶ encode ──▶ append + sync ──▶ mark + sync        all of a batch or nothing
//!   open ──▶ check every byte ──▶ salvage, keep the damaged file aside, say what is lost
//! ```
//!
//! The file work is blocking; it runs on tokio's blocking threads, so a slow disk never stalls the
//! runtime. Why this is not a database from the shelf: see docs/storage-choice.md.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    Error, LoadReport, LoadRequest, OrphanPredicate, SaveReport, Storage, WritePermit, Writer,
};
use encoded_record::EncodedRecord;
use history_file::HistoryFile;
use plimsoll_core::history::{Record, Sink};

mod commit_marker;
#[cfg(feature = "conformance")]
pub mod corruption;
mod damage_report;
mod directory;
mod encoded_record;
mod frame;
mod history_file;
mod record_reader;
mod scan;

pub use damage_report::DamageReport;

/// How many records a load holds at once.
const LOAD_BATCH_SIZE: usize = 64;

/// History in a directory.
#[derive(Debug)]
pub struct LocalStorage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    location: String,
    is_read_only: bool,
    history: Mutex<HistoryFile>,
}

/// What was found when history was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Records there.
    pub records: usize,
    /// What was damaged, if anything. Printed, it is one line.
    pub damage: Option<DamageReport>,
}

impl LocalStorage {
    /// Opens the history in this directory, or begins one; the directory itself is made when only its
    /// last part is missing. Blocks while it reads: meant for start-up.
    ///
    /// A damaged file is repaired as far as its records are whole, and kept beside the new one.
    pub fn open(directory: impl AsRef<Path>) -> Result<(Self, OpenReport), Error> {
        HistoryFile::open(directory.as_ref()).map(Self::from_history)
    }

    /// Opens the history in this directory to read it, beside others who do, but not beside one who writes. Nothing is
    /// created, repaired or cut off; of a damaged file what is whole is read. Blocks like [`Local::open`].
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<(Self, OpenReport), Error> {
        HistoryFile::open_read_only(directory.as_ref()).map(Self::from_history)
    }

    fn from_history((history, damage): (HistoryFile, Option<DamageReport>)) -> (Self, OpenReport) {
        let report = OpenReport { records: history.records(), damage };
        let (place, is_read_only) = (history.location(), history.is_read_only());
        let shared = Shared { location: place, is_read_only, history: Mutex::new(history) };
        (Self { shared: Arc::new(shared) }, report)
    }

    /// Runs this on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HistoryFile) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || work(&mut shared.history())).await;
        done.map_err(|_| self.stopped())
    }

    fn stopped(&self) -> Error {
        Error::Unavailable {
            place: self.shared.location.clone(),
            why: "the process is ending".into(),
        }
    }
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, HistoryFile> {
        // A save that panicked has not changed what is remembered: that comes last.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Storage for LocalStorage {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let wanted = wanted.clone();
        let mut listing = self.blocking(move |history| history.listing(&wanted)).await?;
        let mut report =
            LoadReport { skipped: std::mem::take(&mut listing.lost), ..LoadReport::default() };
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let handful = listing.next(LOAD_BATCH_SIZE);
                (listing, handful)
            });
            let (rest, handful) = read.await.map_err(|_| self.stopped())?;
            if handful.is_empty() {
                return Ok(report);
            }
            listing = rest;
            for found in handful {
                match found {
                    Ok((key, snapshot)) => {
                        sink.snapshot(key, snapshot);
                        report.snapshots += 1;
                    }
                    Err(skipped) => report.skipped.push(skipped),
                }
            }
        }
    }

    fn writer(&self) -> Option<&dyn Writer> {
        (!self.shared.is_read_only).then_some(self)
    }
}

#[async_trait]
impl Writer for LocalStorage {
    /// One write: the batch is saved as a whole or not at all.
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let (mut prepared, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        for record in batch {
            match EncodedRecord::new(record) {
                Ok(ready) => prepared.push(ready),
                Err(skipped) => refused.push(skipped),
            }
            if prepared.len().is_multiple_of(LOAD_BATCH_SIZE) {
                tokio::task::yield_now().await;
            }
        }
        let (prepared, report, changes) = self
            .blocking(move |history| {
                let (report, changes) = history.compare(&prepared);
                (prepared, report, !changes.is_empty())
            })
            .await?;
        if !changes {
            return Ok(SaveReport { refused, ..report });
        }
        permit.acquire().await?;
        let report = self.blocking(move |history| history.save(&prepared)).await??;
        Ok(SaveReport { refused, ..report })
    }

    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let keys = self.blocking(|history| history.keys()).await?;
        let orphans: Vec<_> =
            keys.into_iter().filter(|(key, _)| orphaned(key)).map(|(_, bytes)| bytes).collect();
        if orphans.is_empty() {
            return Ok(0);
        }
        permit.acquire().await?;
        self.blocking(move |history| history.remove(orphans)).await?
    }
}
