//! The backend that stores history in a local directory: one file, one process, no server.
//!
//! ```text
//!   save ──▶ encode ──▶ append + sync ──▶ commit marker + sync        a whole batch or nothing
//!   open ──▶ verify every byte ──▶ recover, keep a copy of the damaged file, report what is lost
//! ```
//!
//! File operations run on tokio's blocking threads, so a slow disk does not stall the runtime. docs/storage-choice.md
//! explains why this is not an existing database.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    Error, LoadReport, LoadRequest, OrphanPredicate, SaveReport, Storage, WritePermit, Writer,
};
use frame::EncodedRecord;
use history_file::HistoryFile;
use plimsoll_core::history::{Record, Sink};

mod commit_marker;
mod damage_report;
mod directory;
mod frame;
mod history_file;
mod record_reader;
mod scan;

pub use damage_report::DamageReport;

/// Number of records in memory during a load.
const LOAD_BATCH_SIZE: usize = 64;

#[derive(Debug)]
pub struct LocalStorage {
    location: String,
    is_read_only: bool,
    history: Arc<Mutex<HistoryFile>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    pub records: usize,
    /// The damage, if any. It prints as one line.
    pub damage: Option<DamageReport>,
}

impl LocalStorage {
    /// Opens the history in this directory, or creates one. Creates the directory if its parent exists. Blocks while
    /// reading, so call it at startup.
    ///
    /// Recovers the intact records of a damaged file, and keeps a copy of the damaged file.
    pub fn open(directory: impl AsRef<Path>) -> Result<(Self, OpenReport), Error> {
        HistoryFile::open(directory.as_ref()).map(Self::from_history)
    }

    /// Opens the history in this directory read-only. Other readers may use it at the same time, but no writer. Changes
    /// nothing; of a damaged file only intact records are read. Blocks like [`LocalStorage::open`].
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<(Self, OpenReport), Error> {
        HistoryFile::open_read_only(directory.as_ref()).map(Self::from_history)
    }

    fn from_history((history, damage): (HistoryFile, Option<DamageReport>)) -> (Self, OpenReport) {
        let report = OpenReport { records: history.entries.len(), damage };
        let (location, is_read_only) = (history.location(), history.directory.is_read_only);
        (Self { location, is_read_only, history: Arc::new(Mutex::new(history)) }, report)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HistoryFile) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let history = Arc::clone(&self.history);
        let task = tokio::task::spawn_blocking(move || {
            // A save that panicked has not changed the state in memory: it is updated last.
            work(&mut history.lock())
        });
        task.await.map_err(|_| self.stopped())
    }

    fn stopped(&self) -> Error {
        Error::Unavailable {
            place: self.location.clone(),
            why: "the process is shutting down".into(),
        }
    }
}

#[async_trait]
impl Storage for LocalStorage {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let wanted = wanted.clone();
        let mut reader = self.blocking(move |history| history.listing(&wanted)).await?;
        let mut report =
            LoadReport { skipped: std::mem::take(&mut reader.lost), ..LoadReport::default() };
        loop {
            let task = tokio::task::spawn_blocking(move || {
                let batch = reader.next(LOAD_BATCH_SIZE);
                (reader, batch)
            });
            let (rest, batch) = task.await.map_err(|_| self.stopped())?;
            if batch.is_empty() {
                return Ok(report);
            }
            reader = rest;
            for found in batch {
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
        (!self.is_read_only).then_some(self)
    }
}

#[async_trait]
impl Writer for LocalStorage {
    /// One write: the batch is saved completely or not at all.
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let (mut encoded, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        for record in batch {
            match EncodedRecord::new(record) {
                Ok(record) => encoded.push(record),
                Err(skipped) => refused.push(skipped),
            }
            if encoded.len().is_multiple_of(LOAD_BATCH_SIZE) {
                tokio::task::yield_now().await;
            }
        }
        let (encoded, report) = self
            .blocking(move |history| {
                let (report, _) = history.compare(&encoded);
                (encoded, report)
            })
            .await?;
        if report.written == 0 {
            return Ok(SaveReport { refused, ..report });
        }
        permit.acquire().await?;
        let report = self.blocking(move |history| history.save(&encoded)).await??;
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
