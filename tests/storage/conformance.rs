//! The conformance suite that every backend must pass. The tests of a backend implement [`BackendFactory`] and
//! [`TestBackend`] and call [`run_suite`]; those of a read-only backend implement [`ReadOnlyFixture`] and call
//! [`run_read_only_suite`].
//!
//! A case passes, fails with a one-line message, or does not apply to the backend (because it is read-only, not
//! persistent, or cannot be tampered with). Cases that do not apply are reported too, so that they are not mistaken for
//! passed ones. The suite runs on a current-thread or multi-thread tokio runtime.

use std::sync::Arc;

use async_trait::async_trait;
use plimsoll_core::{
    history::{Record, Snapshot},
    types::ContainerKey,
};
use plimsoll_storage::Storage;

mod cases;
mod crash;
mod fixtures;
mod read_only;

pub use self::read_only::{ContainerLifetime, ReadOnlyFixture, run_read_only_suite};

/// Creates backends, each with its own empty storage.
#[async_trait]
pub trait BackendFactory: Send + Sync {
    /// Creates a backend with an empty storage. An error fails the case.
    async fn create(&self) -> Result<Arc<dyn TestBackend>, String>;
}

/// A backend under test.
#[async_trait]
pub trait TestBackend: Send + Sync {
    /// The backend.
    fn storage(&self) -> &dyn Storage;

    /// What one permit covers.
    fn write_unit(&self) -> WriteUnit;

    /// The snapshot that a load is expected to return for this record, as far as the format can represent it.
    fn expected_snapshot(&self, record: &Record) -> Snapshot {
        record.snapshot.clone()
    }

    /// Whether the format can represent this record at all. Otherwise a save is expected to refuse it.
    fn has_room(&self, record: &Record) -> bool {
        let _ = record;
        true
    }

    /// Drops the backend as if the process were killed, tampers with its storage, and opens the same storage again.
    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Arc<dyn TestBackend>, String>;
}

/// The unit of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteUnit {
    /// A single record.
    Record,
    /// A batch, atomically.
    Batch,
}

/// What happens to the storage while the backend is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// Nothing.
    None,
    /// The stored record of this key is corrupted.
    Corrupt(ContainerKey),
    /// Another program or another version writes a record with this key.
    Foreign(ContainerKey),
}

/// A case of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// A load returns what was saved.
    RoundTrip,
    /// That includes extreme numbers, empty histograms and names in any script.
    Extremes,
    /// A load returns only requested keys.
    WantedFilter,
    /// A load changes nothing.
    LoadTwice,
    /// Saved records survive the end of the process.
    SurvivesReopen,
    /// An unchanged record is not written and needs no permit.
    UnchangedIsNotWritten,
    /// A richer record is never replaced by a poorer one.
    RicherIsKept,
    /// Unless the record requests it.
    SupersedeIsObeyed,
    /// Garbage collection removes only the records of deleted VPAs.
    OnlyOrphansAreCollected,
    /// Nothing is written without a permit.
    NoWriteWithoutPermit,
    /// Nothing is written after the permit is lost, even within a batch.
    PermitLostHalfWay,
    /// Concurrent writers neither lose nor mix up records.
    ConcurrentWriters,
    /// A save that is interrupted at any point leaves each record in the old or in the new state.
    CrashMidSave,
    /// A malformed record is skipped and reported; the others are loaded.
    MalformedIsSkipped,
    /// A foreign record is skipped, reported and not changed.
    ForeignIsLeftAlone,
    /// A load returns all samples of the requested VPAs, in order, each once.
    SamplesAreWhole,
    /// It returns no other samples, and reports VPAs that it cannot load.
    OthersStayOut,
    /// A second load returns the same samples.
    SamplesComeAgain,
}

impl Case {
    /// The cases for writable backends, simplest first.
    pub const ALL: [Self; 15] = [
        Self::RoundTrip,
        Self::Extremes,
        Self::WantedFilter,
        Self::LoadTwice,
        Self::SurvivesReopen,
        Self::UnchangedIsNotWritten,
        Self::RicherIsKept,
        Self::SupersedeIsObeyed,
        Self::OnlyOrphansAreCollected,
        Self::NoWriteWithoutPermit,
        Self::PermitLostHalfWay,
        Self::ConcurrentWriters,
        Self::CrashMidSave,
        Self::MalformedIsSkipped,
        Self::ForeignIsLeftAlone,
    ];

    /// The cases for read-only backends.
    pub const READ_ONLY: [Self; 3] =
        [Self::SamplesAreWhole, Self::OthersStayOut, Self::SamplesComeAgain];
}

/// A case and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseOutcome {
    pub case: Case,
    pub result: Result<(), CaseError>,
}

/// Why a case ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseError {
    /// The case failed, with the expectation and the actual result in one line.
    Failed(String),
    /// The case does not apply to the backend.
    NotApplicable(&'static str),
}

/// Runs every case for writable backends, each with its own backend.
pub async fn run_suite(factory: &dyn BackendFactory) -> Vec<CaseOutcome> {
    let mut outcomes = Vec::with_capacity(Case::ALL.len());
    for case in Case::ALL {
        outcomes.push(CaseOutcome { case, result: cases::run(case, factory).await });
    }
    outcomes
}

/// Returns the cases that failed.
pub fn failed_cases(outcomes: &[CaseOutcome]) -> Vec<Case> {
    let failed = |outcome: &&CaseOutcome| matches!(outcome.result, Err(CaseError::Failed(_)));
    outcomes.iter().filter(failed).map(|outcome| outcome.case).collect()
}

/// Returns the cases that do not apply.
pub fn not_applicable_cases(outcomes: &[CaseOutcome]) -> Vec<Case> {
    let skipped =
        |outcome: &&CaseOutcome| matches!(outcome.result, Err(CaseError::NotApplicable(_)));
    outcomes.iter().filter(skipped).map(|outcome| outcome.case).collect()
}

/// Formats the outcomes as a table, one line each.
pub fn format_table(outcomes: &[CaseOutcome]) -> String {
    let line = |outcome: &CaseOutcome| format!("{:?}: {:?}", outcome.case, outcome.result);
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl From<String> for CaseError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<plimsoll_storage::Error> for CaseError {
    fn from(error: plimsoll_storage::Error) -> Self {
        Self::Failed(format!("unexpected error: {error}"))
    }
}
