//! A VPA as the index keeps it.

use std::{collections::BTreeSet, sync::Arc};

use plimsoll_core::types::Time;

use crate::observe::{selector::Selector, startup::Boosts};
use plimsoll_core::{
    api::vpa::{TargetRef, UpdateMode, VerticalPodAutoscaler},
    recommender::{annotation, status::Reported},
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

    /// Whether this is the same object at an earlier time.
    pub(super) fn is_newer_than(&self, object: &VerticalPodAutoscaler) -> bool {
        object.metadata.uid.as_deref() == Some(&*self.uid)
            && object.metadata.resource_version.as_deref().is_some_and(|told| self.is_after(told))
    }

    /// Whether what is known is newer than this version. Versions are numbers that rise.
    pub fn is_after(&self, resource_version: &str) -> bool {
        let version = |text: &str| text.parse::<u64>().ok();
        let known = version(&self.resource_version).zip(version(resource_version));
        known.is_some_and(|(known, told)| told < known)
    }

    /// Takes over what an object says.
    pub(super) fn take(&mut self, object: &VerticalPodAutoscaler) {
        let (metadata, spec) = (&object.metadata, &object.spec);
        self.uid = metadata.uid.as_deref().unwrap_or_default().into();
        self.resource_version = metadata.resource_version.as_deref().unwrap_or_default().into();
        self.generation = metadata.generation;
        self.created = metadata.creation_timestamp.as_ref().map_or(Time::EPOCH, |at| at.0.into());
        if self.target_ref != spec.target_ref {
            self.target_ref = spec.target_ref.clone();
            self.target = Target::Unknown;
        }
        self.mode = spec.update_policy.as_ref().and_then(|policy| policy.update_mode);
        self.boosts = Boosts::new(object);
        self.reported = Reported::new(object.status.as_ref());
        let explanation = metadata.annotations.as_ref().and_then(|all| all.get(annotation::KEY));
        self.explained = explanation.and_then(|text| annotation::belongs_to(text));
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
