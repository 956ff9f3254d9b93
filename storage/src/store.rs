//! The contract between the recommender and whatever keeps its history.
//!
//! Rules that every backend obeys, and that the conformance suite checks:
//! - what was saved is loaded again, exactly as far as the format can say it;
//! - a save that dies half-way leaves every record either as it was or as it was to be;
//! - a record that cannot be read is skipped, counted and named, and never stops a load;
//! - a richer record is never replaced by a poorer one, unless the record says so ([`Record::supersede`]);
//! - garbage collection removes orphans only, and nothing that the backend cannot read;
//! - nothing is written without asking the permit first, write by write.

use std::collections::HashMap;

use async_trait::async_trait;

use plimsoll_core::{
    history::{Record, Sink, SkippedRecord},
    types::{ContainerKey, ObjectKey},
};

/// A place that remembers history. Object-safe: the recommender holds a `Box<dyn Storage>`.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Short name for logs and metrics (`local`, `memory`, `checkpoint`).
    fn name(&self) -> &'static str;

    /// Streams everything remembered about the wanted keys into the sink, one key at a time. Never holds
    /// more than a bounded handful of them in memory, however many there are. A load that fails may have
    /// filled the sink in part: who tries again begins with an empty one, or takes each key once only.
    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error>;

    /// The writing half, for backends that have one. `None` means read-only, by type: there is no
    /// `save` to call that would have to fail.
    fn writer(&self) -> Option<&dyn Writer>;

    /// Whether what is remembered lies in the cluster as objects, beside what it is about. Whoever may read
    /// those can work every number out anew, also while the recommender runs; otherwise it has to say itself
    /// why its numbers are what they are.
    fn is_in_cluster(&self) -> bool {
        false
    }
}

/// The writing half of a [`Storage`].
#[async_trait]
pub trait Writer: Send + Sync {
    /// Writes a batch. Each record is either written whole or left as it was; a backend may promise more
    /// (all or nothing). The permit is asked before each write, which is a record or a whole batch as
    /// the backend writes them, and not at all when nothing would change. A record that cannot be kept, or
    /// not now, is named in the report and does not stop the others.
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error>;

    /// Removes the records that the caller calls orphans, and answers how many there were. The caller
    /// judges each key, so that a recommender for one namespace or shard leaves all others alone.
    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error>;
}

/// Says of a key whether nobody owns it any more.
pub type OrphanPredicate<'a> = &'a (dyn Fn(&ContainerKey) -> bool + Sync);

/// The right to write: carries the lease's fence and the rate limit, so that this crate needs to know
/// neither.
#[async_trait]
pub trait WritePermit: Send + Sync {
    /// Waits until one more write may go out. An error means that the right is lost and that nothing
    /// more may be written.
    async fn acquire(&self) -> Result<(), NotLeader>;
}

/// The right to write was lost (another process leads now, or this one is shutting down).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("writing was refused: {0}")]
pub struct NotLeader(pub String);

/// Which keys a load is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadRequest {
    /// Everything the backend has.
    All,
    /// The containers of these VPAs. With each goes the topmost scalable owner of its pods, as in
    /// [`Snapshot::owner`], where it is known: a backend of raw series finds the pods by it, and a VPA
    /// that was made anew inherits by it.
    Vpas(HashMap<ObjectKey, Option<Box<str>>>),
}

impl LoadRequest {
    /// Whether a record under this key was asked for.
    pub fn includes(&self, key: &ContainerKey) -> bool {
        match self {
            Self::All => true,
            Self::Vpas(vpas) => vpas.contains_key(&key.vpa),
        }
    }
}

/// How a record to be written stands to the one that is stored under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveDecision {
    /// It is to be written.
    Write,
    /// It is stored exactly so.
    Unchanged,
    /// The stored one saw more and is kept.
    StoredIsRicher,
}

impl SaveDecision {
    /// Judges a record that saw `richness` by how much the stored one saw (`None`: there is none) and by
    /// whether the two are the same. The one place where this is decided, for all backends.
    pub fn decide(richness: u64, supersede: bool, stored: Option<u64>, same: bool) -> Self {
        match stored {
            Some(_) if same => Self::Unchanged,
            Some(stored) if stored > richness && !supersede => Self::StoredIsRicher,
            _ => Self::Write,
        }
    }
}

/// What a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Snapshots handed to the sink.
    pub snapshots: usize,
    /// Samples handed to the sink.
    pub samples: usize,
    /// Records that could not be used, each with its reason.
    pub skipped: Vec<SkippedRecord>,
}

/// What a save did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveReport {
    /// Records written.
    pub written: usize,
    /// Records that were already stored exactly so.
    pub unchanged: usize,
    /// Keys whose stored record is richer and was kept.
    pub stored_richer: Vec<ContainerKey>,
    /// Records that this backend can never keep, each with its reason.
    pub refused: Vec<SkippedRecord>,
    /// Records that could not be written this time, each with its reason. They are as they were, or as they
    /// were to be; the next save tries again.
    pub failed: Vec<SkippedRecord>,
}

/// Why a backend could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place cannot be used at all; says what to do.
    #[error("{place}: {why}")]
    Unusable {
        /// Directory, address or object.
        place: String,
        /// Cause and remedy in one line.
        why: String,
    },
    /// Another process has it to itself.
    #[error(
        "{place}: another process uses it, and local storage is for one alone: stop the other, or give \
         each its own directory"
    )]
    InUse {
        /// The directory.
        place: String,
    },
    /// It failed now and may work later.
    #[error("{place}: {why} (will be tried again)")]
    Unavailable {
        /// Directory, address or object.
        place: String,
        /// Cause in one line.
        why: String,
    },
    /// The right to write was lost.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_record_is_kept_only_where_it_saw_more() {
        for (richness, supersede, stored, same, expected) in [
            (0, false, None, false, SaveDecision::Write),
            (7, false, Some(7), true, SaveDecision::Unchanged),
            (7, false, Some(7), false, SaveDecision::Write),
            (7, false, Some(6), false, SaveDecision::Write),
            (7, false, Some(8), false, SaveDecision::StoredIsRicher),
            (7, true, Some(8), false, SaveDecision::Write),
            (7, true, Some(8), true, SaveDecision::Unchanged),
        ] {
            let found = SaveDecision::decide(richness, supersede, stored, same);
            assert_eq!(found, expected, "{richness} {supersede} {stored:?} {same}");
        }
    }
}
