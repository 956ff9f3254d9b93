//! The suite that every backend must pass. Whoever writes a backend implements [`Maker`] and [`Subject`]
//! in the tests and runs [`check`]; of one that only reads what others have seen, [`Source`] and [`check_reading`].
//!
//! A case ends in one of three ways: it passes, it fails with one line that says what was expected, or it
//! does not apply because the backend says so by type (read-only, gone with the process, nothing to tamper
//! with). The last is reported like the others, so that nobody takes it for a pass. The suite runs inside a
//! tokio runtime of either kind.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::Storage;
use plimsoll_core::{
    history::{Record, Snapshot},
    types::ContainerKey,
};

mod cases;
mod crash;
mod fixtures;
mod read_only;

pub use self::read_only::{ContainerLifetime, ReadOnlyFixture, run_read_only_suite};

/// Makes subjects, each on an empty place of its own.
#[async_trait]
pub trait BackendFactory: Send + Sync {
    /// A backend on an empty place. An error ends the case as failed.
    async fn create(&self) -> Result<Arc<dyn TestBackend>, String>;
}

/// A backend under test, and what the suite may do to it.
#[async_trait]
pub trait TestBackend: Send + Sync {
    /// The backend.
    fn storage(&self) -> &dyn Storage;

    /// What one permit pays for.
    fn write_unit(&self) -> WriteUnit;

    /// What the format can say of this record: what a load is expected to bring back.
    fn expected_snapshot(&self, record: &Record) -> Snapshot {
        record.snapshot.clone()
    }

    /// Whether the format has room for this record at all. One for which it has none is expected to be
    /// refused by name.
    fn has_room(&self, record: &Record) -> bool {
        let _ = record;
        true
    }

    /// Lets go of the backend as a killed process does, tampers with what it left behind, and opens the
    /// same place again.
    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Reopened, String>;
}

/// What one write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteUnit {
    /// Each record by itself.
    Record,
    /// A batch: all of it or nothing.
    Batch,
}

/// What became of a subject that was to be opened again.
pub enum Reopened {
    /// It was.
    Opened(Arc<dyn TestBackend>),
    /// The backend cannot be treated so; it is handed back as it was.
    Unsupported(Arc<dyn TestBackend>),
}

/// What happens to the place while the backend is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// Nothing.
    None,
    /// The stored record of this key becomes unreadable.
    Corrupt(ContainerKey),
    /// Something that another program or another version wrote appears under this key.
    Foreign(ContainerKey),
}

/// A case of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// What was saved is loaded again.
    RoundTrip,
    /// So are extreme numbers, empty histograms and names in any script.
    Extremes,
    /// Only what was asked for is loaded.
    WantedFilter,
    /// Loading changes nothing.
    LoadTwice,
    /// What was saved is there after the process ended.
    SurvivesReopen,
    /// What is stored exactly so is neither written nor paid for.
    UnchangedIsNotWritten,
    /// A richer record is never replaced by a poorer one.
    RicherIsKept,
    /// Unless the record says so.
    SupersedeIsObeyed,
    /// Garbage collection removes the records of vanished VPAs, and no others.
    OnlyOrphansAreCollected,
    /// Nothing is written without a permit.
    NoWriteWithoutPermit,
    /// Nothing more is written once the permit is lost, in the middle of a batch too.
    PermitLostHalfWay,
    /// Writers at the same time lose nothing and mix nothing.
    ConcurrentWriters,
    /// A save that dies at any point leaves each record as it was or as it was to be.
    CrashMidSave,
    /// A record that cannot be read is passed over, counted and named; the others are loaded.
    MalformedIsSkipped,
    /// What others wrote is passed over, counted, named and left alone.
    ForeignIsLeftAlone,
    /// All that was seen of what is wanted comes: as it was seen, in order, each part once.
    SamplesAreWhole,
    /// What was seen of anything else does not, and what cannot be told is named.
    OthersStayOut,
    /// Reading changes nothing.
    SamplesComeAgain,
}

impl Case {
    /// Those of backends that can be written to, simplest first.
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

    /// Those of backends that only read.
    pub const READ_ONLY: [Self; 3] =
        [Self::SamplesAreWhole, Self::OthersStayOut, Self::SamplesComeAgain];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Extremes => "extremes",
            Self::WantedFilter => "wanted-filter",
            Self::LoadTwice => "load-twice",
            Self::SurvivesReopen => "survives-reopen",
            Self::UnchangedIsNotWritten => "unchanged-is-not-written",
            Self::RicherIsKept => "richer-is-kept",
            Self::SupersedeIsObeyed => "supersede-is-obeyed",
            Self::OnlyOrphansAreCollected => "only-orphans-are-collected",
            Self::NoWriteWithoutPermit => "no-write-without-permit",
            Self::PermitLostHalfWay => "permit-lost-half-way",
            Self::ConcurrentWriters => "concurrent-writers",
            Self::CrashMidSave => "crash-mid-save",
            Self::MalformedIsSkipped => "malformed-is-skipped",
            Self::ForeignIsLeftAlone => "foreign-is-left-alone",
            Self::SamplesAreWhole => "samples-are-whole",
            Self::OthersStayOut => "others-stay-out",
            Self::SamplesComeAgain => "samples-come-again",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseVerdict {
    /// As it must.
    Passed,
    /// Not as it must; what was expected and what came, in one line.
    Failed(String),
    /// The backend has no such ability.
    NotApplicable(&'static str),
}

/// A case and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseOutcome {
    /// The case.
    pub case: Case,
    /// How it ended.
    pub verdict: CaseVerdict,
}

impl fmt::Display for CaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            CaseVerdict::Passed => write!(f, "passed          {}", self.case),
            CaseVerdict::Failed(why) => write!(f, "FAILED          {}: {why}", self.case),
            CaseVerdict::NotApplicable(why) => write!(f, "not applicable  {}: {why}", self.case),
        }
    }
}

/// Runs every case of backends that can be written to, each on a subject of its own.
pub async fn run_suite(maker: &dyn BackendFactory) -> Vec<CaseOutcome> {
    let mut outcomes = Vec::with_capacity(Case::ALL.len());
    for case in Case::ALL {
        outcomes.push(outcome(case, cases::run(case, maker).await));
    }
    outcomes
}

fn outcome(case: Case, ended: Result<(), CaseError>) -> CaseOutcome {
    let verdict = match ended {
        Ok(()) => CaseVerdict::Passed,
        Err(CaseError::Failed(why)) => CaseVerdict::Failed(why),
        Err(CaseError::NotApplicable(why)) => CaseVerdict::NotApplicable(why),
    };
    CaseOutcome { case, verdict }
}

/// The cases that failed.
pub fn failed_cases(outcomes: &[CaseOutcome]) -> Vec<Case> {
    let failed = |outcome: &&CaseOutcome| matches!(outcome.verdict, CaseVerdict::Failed(_));
    outcomes.iter().filter(failed).map(|outcome| outcome.case).collect()
}

/// The cases that do not apply.
pub fn not_applicable_cases(outcomes: &[CaseOutcome]) -> Vec<Case> {
    let skipped = |outcome: &&CaseOutcome| matches!(outcome.verdict, CaseVerdict::NotApplicable(_));
    outcomes.iter().filter(skipped).map(|outcome| outcome.case).collect()
}

/// The outcomes as a table, one line each.
pub fn format_table(outcomes: &[CaseOutcome]) -> String {
    let lines: Vec<String> = outcomes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Why a case ended before its end.
enum CaseError {
    Failed(String),
    NotApplicable(&'static str),
}

impl From<String> for CaseError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<crate::Error> for CaseError {
    fn from(error: crate::Error) -> Self {
        Self::Failed(format!("an error came where none was expected: {error}"))
    }
}
