//! A VPA as the index stores it.

use std::{collections::BTreeSet, sync::Arc};

use plimsoll_core::types::Time;

use crate::cluster::cache::{selector::Selector, startup_boost::BoostDurations};
use plimsoll_core::{
    api::vpa::{TargetRef, UpdateMode, VerticalPodAutoscaler},
    recommender::{explanation_annotation, published_status::PublishedStatus},
};

#[derive(Debug, Default)]
pub struct IndexedVpa {
    /// The UID: unique over all objects that ever had this name.
    pub uid: Box<str>,
    /// The resource version that was last read or written.
    pub resource_version: Box<str>,
    pub generation: Option<i64>,
    pub created: Time,
    pub target_ref: TargetRef,
    pub mode: Option<UpdateMode>,
    /// How long its startup boosts last; `None` if it has none.
    pub boost_durations: Option<Box<BoostDurations>>,
    pub published_status: PublishedStatus,
    /// The hash of the recommendation that the explanation annotation belongs to, if it has one.
    pub explained_hash: Option<u64>,
    pub last_written: Option<Time>,
    pub target: TargetState,
    pub selector: Selector,
    /// The label that it is found by in the index.
    pub(super) indexed_label: Option<u64>,
    pub pods: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetState {
    #[default]
    Unknown,
    Found,
    /// Has no pods that can be sized; with the message of the condition.
    Unsupported(Box<str>),
    /// Cannot be resolved at the moment; the last selector is still used.
    Unavailable(Box<str>),
}

impl IndexedVpa {
    pub(super) fn is_newer_than(&self, object: &VerticalPodAutoscaler) -> bool {
        object.metadata.uid.as_deref() == Some(&*self.uid)
            && object
                .metadata
                .resource_version
                .as_deref()
                .is_some_and(|other| self.is_newer_than_version(other))
    }

    /// Whether the stored version is newer. Resource versions are increasing numbers.
    pub fn is_newer_than_version(&self, resource_version: &str) -> bool {
        let version = |text: &str| text.parse::<u64>().ok();
        let versions = version(&self.resource_version).zip(version(resource_version));
        versions.is_some_and(|(stored, other)| other < stored)
    }

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
            .and_then(|annotations| annotations.get(explanation_annotation::ANNOTATION));
        self.explained_hash =
            explanation.and_then(|text| explanation_annotation::stored_recommendation_hash(text));
    }
}
