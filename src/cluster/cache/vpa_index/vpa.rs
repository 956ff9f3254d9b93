//! A VPA as the index keeps it.

use std::{collections::BTreeSet, sync::Arc};

use plimsoll_core::types::Time;

use crate::cluster::cache::{selector::Selector, startup_boost::BoostDurations};
use plimsoll_core::{
    api::vpa::{TargetRef, UpdateMode, VerticalPodAutoscaler},
    recommender::{explanation_annotation, status::PublishedStatus},
};

/// A VPA of this recommender.
#[derive(Debug)]
pub struct IndexedVpa {
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
    pub boost_durations: Option<Box<BoostDurations>>,
    /// Its status as it was last read.
    pub published_status: PublishedStatus,
    /// The hash of the recommendation that the annotation beside it explains, if there is one.
    pub explained_hash: Option<u64>,
    /// When this process last wrote it.
    pub last_written: Option<Time>,
    pub(super) target: TargetState,
    pub(super) selector: Selector,
    /// The pair by which it is found in the index.
    pub(super) indexed_label: Option<u64>,
    pub(super) pods: BTreeSet<Arc<str>>,
    pub(super) list: u32,
}

/// What became of the search for a VPA's workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetState {
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

impl IndexedVpa {
    /// Where the search for its workload has come to.
    pub fn target(&self) -> &TargetState {
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
            && object
                .metadata
                .resource_version
                .as_deref()
                .is_some_and(|told| self.is_newer_than_version(told))
    }

    /// Whether what is known is newer than this version. Versions are numbers that rise.
    pub fn is_newer_than_version(&self, resource_version: &str) -> bool {
        let version = |text: &str| text.parse::<u64>().ok();
        let known = version(&self.resource_version).zip(version(resource_version));
        known.is_some_and(|(known, told)| told < known)
    }

    /// Takes over what an object says.
    pub(super) fn update_from(&mut self, object: &VerticalPodAutoscaler) {
        let (metadata, spec) = (&object.metadata, &object.spec);
        self.uid = metadata.uid.as_deref().unwrap_or_default().into();
        self.resource_version = metadata.resource_version.as_deref().unwrap_or_default().into();
        self.generation = metadata.generation;
        self.created = metadata.creation_timestamp.as_ref().map_or(Time::EPOCH, |at| at.0.into());
        if self.target_ref != spec.target_ref {
            self.target_ref = spec.target_ref.clone();
            self.target = TargetState::Unknown;
        }
        self.mode = spec.update_policy.as_ref().and_then(|policy| policy.update_mode);
        self.boost_durations = BoostDurations::new(object);
        self.published_status = PublishedStatus::new(object.status.as_ref());
        let explanation = metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(explanation_annotation::ANNOTATION));
        self.explained_hash =
            explanation.and_then(|text| explanation_annotation::stored_recommendation_hash(text));
    }
}

impl Default for IndexedVpa {
    fn default() -> Self {
        Self {
            uid: Box::default(),
            resource_version: Box::default(),
            generation: None,
            created: Time::EPOCH,
            target_ref: TargetRef::default(),
            mode: None,
            boost_durations: None,
            published_status: PublishedStatus::default(),
            explained_hash: None,
            last_written: None,
            target: TargetState::Unknown,
            selector: Selector::nothing(),
            indexed_label: None,
            pods: BTreeSet::new(),
            list: 0,
        }
    }
}
