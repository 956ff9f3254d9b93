//! The interface between the recommender and the backends that store its history.
//!
//! Every backend guarantees the following, which the conformance suite checks:
//! - a load returns what was saved, as exactly as the format allows;
//! - an interrupted save leaves every record either in the old or in the new state;
//! - a record that cannot be read is skipped, counted and reported, and never fails a load;
//! - a richer record is never replaced by a poorer one, unless the record requests it ([`Record::supersede`]);
//! - garbage collection removes only orphans, and nothing that the backend cannot read;
//! - every write acquires the permit first.

use std::collections::HashMap;

use async_trait::async_trait;

use plimsoll_core::{
    history::{Record, Sink, SkippedRecord},
    types::{ContainerKey, ObjectKey},
};

/// A backend that stores history. Object-safe: the recommender holds a `Box<dyn Storage>`.
#[async_trait]
pub trait Storage: Send + Sync {
    /// A short name for logs and metrics (`local`, `checkpoint`).
    fn name(&self) -> &'static str;

    /// Streams the history of the requested keys into the sink, one key at a time, with bounded memory. A load that fails
    /// may have filled the sink in part: retry with an empty sink, or accept each key only once.
    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error>;

    /// Returns the writer of the backend; `None` if it is read-only.
    fn writer(&self) -> Option<&dyn Writer>;

    /// Whether the history is stored in objects of the cluster. Then a client can recompute every recommendation from them;
    /// otherwise the recommender has to publish the explanation itself.
    fn is_in_cluster(&self) -> bool {
        false
    }
}

#[async_trait]
pub trait Writer: Send + Sync {
    /// Writes a batch. Each record is written completely or not at all; a backend may guarantee that for the whole batch.
    /// The permit is acquired before each write, which is a record or a batch depending on the backend, and not if nothing
    /// would change. A record that cannot be written is part of the report and does not stop the others.
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error>;

    /// Removes orphaned records, and returns how many. The caller decides for each key, so that a recommender for one
    /// namespace or shard keeps the records of others.
    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error>;
}

/// Returns whether the owner of a key no longer exists.
pub type OrphanPredicate<'a> = &'a (dyn Fn(&ContainerKey) -> bool + Sync);

/// Permission to write. It combines the fencing of the leader lease and the rate limit, so that this crate depends on
/// neither.
#[async_trait]
pub trait WritePermit: Send + Sync {
    /// Waits until one more write is allowed. An error means that the lease is lost and that nothing more may be written.
    async fn acquire(&self) -> Result<(), NotLeader>;
}

/// Writing is not permitted: another process is the leader now, or this one is shutting down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write not permitted: {0}")]
pub struct NotLeader(pub String);

/// The keys to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadRequest {
    All,
    /// The containers of these VPAs, each with the topmost scalable owner of its pods if known, as in the owner of a
    /// snapshot. A backend of raw series finds pods by it, and a recreated VPA inherits history by it.
    Vpas(HashMap<ObjectKey, Option<Box<str>>>),
}

impl LoadRequest {
    pub fn includes(&self, key: &ContainerKey) -> bool {
        match self {
            Self::All => true,
            Self::Vpas(vpas) => vpas.contains_key(&key.vpa),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveDecision {
    Write,
    Unchanged,
    /// The stored record has seen more samples and is kept.
    StoredIsRicher,
}

impl SaveDecision {
    /// Decides by the richness of the record and of the stored one (`None` if there is none), and by whether both are
    /// identical. All backends use this function.
    pub fn decide(richness: u64, supersede: bool, stored: Option<u64>, same: bool) -> Self {
        match stored {
            Some(_) if same => Self::Unchanged,
            Some(stored) if stored > richness && !supersede => Self::StoredIsRicher,
            _ => Self::Write,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    pub snapshots: usize,
    pub samples: usize,
    pub skipped: Vec<SkippedRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveReport {
    pub written: usize,
    /// Records that were already stored.
    pub unchanged: usize,
    /// Keys whose stored record is richer and was kept.
    pub stored_richer: Vec<ContainerKey>,
    /// Records that this backend can never store, with their reasons.
    pub refused: Vec<SkippedRecord>,
    /// Records that failed this time, with their reasons. They are in the old or the new state, and the next save retries.
    pub failed: Vec<SkippedRecord>,
}

/// Why a storage operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backend cannot be used; the message includes the remedy.
    #[error("{place}: {why}")]
    Unusable {
        /// Directory, address or object.
        place: String,
        why: String,
    },
    #[error(
        "{place}: another process is using it, and local storage supports only one: stop the other, or give \
         each its own directory"
    )]
    InUse { place: String },
    #[error("{place}: {why} (will be retried)")]
    Unavailable { place: String, why: String },
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}
