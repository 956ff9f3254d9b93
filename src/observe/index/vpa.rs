//! A VPA as the index keeps it.

use std::{collections::BTreeSet, sync::Arc};

use plimsoll_storage::Time;

use crate::{
    api::vpa::{TargetRef, UpdateMode},
    observe::{selector::Selector, startup::Boosts},
    recommend::status::Reported,
};

/// A VPA of this recommender.
#[derive(Debug)]
pub struct Vpa {
    /// Unique over all objects that ever had this name.
    pub uid: Box<str>,
    /// The version of the object that was last read or written.
    pub resource_version: Box<str>,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// When it was created.
    pub created: Time,
    /// The workload that it is for.
    pub target_ref: TargetRef,
    /// When pods get what is recommended, as far as it says.
    pub mode: Option<UpdateMode>,
    /// How long its startup boosts last, if it has any.
    pub boosts: Option<Box<Boosts>>,
    /// Its status as it was last read.
    pub reported: Reported,
    /// The hash of the recommendation that the annotation beside it explains, if there is one.
    pub explained: Option<u64>,
    /// When this process last wrote it.
    pub last_written: Option<Time>,
    pub(super) target: Target,
    pub(super) selector: Selector,
    /// The pair by which it is found in the index.
    pub(super) anchor: Option<u64>,
    pub(super) pods: BTreeSet<Arc<str>>,
    pub(super) list: u32,
}

/// What became of the search for a VPA's workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// It is known.
    Found,
    /// There is none that could be sized; why, as the condition says it.
    Unsupported(Box<str>),
    /// It cannot be looked up just now; the selector that was found last is still used.
    Unavailable(Box<str>),
}

impl Vpa {
    /// Where the search for its workload has come to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What its pods match.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Number of pods that match.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }
}

impl Default for Vpa {
    fn default() -> Self {
        Self {
            uid: Box::default(),
            resource_version: Box::default(),
            generation: None,
            created: Time::EPOCH,
            target_ref: TargetRef::default(),
            mode: None,
            boosts: None,
            reported: Reported::default(),
            explained: None,
            last_written: None,
            target: Target::Unknown,
            selector: Selector::nothing(),
            anchor: None,
            pods: BTreeSet::new(),
            list: 0,
        }
    }
}
