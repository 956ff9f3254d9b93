//! Computes the status patch of a VPA at the time when it is written, from the current state.

use std::sync::Arc;

use plimsoll_core::{
    recommender::published_status::{self, PublishedStatus, StatusChange},
    types::{ObjectKey, Time},
};

use super::{
    Shared,
    desired_status::{DesiredStatus, history_pending_conditions},
    explanations::Explanations,
    leadership::Leadership,
    state::RecommenderState,
};
use crate::cluster::write::{
    UpdateError,
    vpa_status::{RECOMMENDER_FIELD_MANAGER, StatusPatch, StatusSource, VpaWriteResult},
};

pub(super) struct RecommendationStatusSource {
    pub shared: Arc<Shared>,
    pub leadership: Arc<Leadership>,
    pub explanations: Arc<Explanations>,
}

impl StatusSource for RecommendationStatusSource {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        if !self.leadership.may_write() {
            return None;
        }
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let Some(desired) = DesiredStatus::new(&state, key, now) else {
            return history_pending_patch(&mut state, key, now);
        };
        let vpa = state.index.vpa(key)?;
        let generation = vpa.generation;
        let change = vpa.published_status.change(
            &desired.conditions,
            &desired.recommendation,
            generation,
            self.shared.config.bounds_dead_band,
        );
        if change != StatusChange::Write {
            return None;
        }
        let patch = StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: published_status::patch(&desired.conditions, &desired.recommendation, generation),
            field_manager: RECOMMENDER_FIELD_MANAGER,
        };
        if self.explanations.are_enabled() {
            self.explanations.prepare(key, &desired.recommendation, desired.pod_limits, vpa, now);
        }
        let sent =
            PublishedStatus::after_write(desired.conditions, &desired.recommendation, generation);
        state.unconfirmed.insert(key.clone(), sent);
        Some(patch)
    }

    fn on_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let sent = state.unconfirmed.remove(key);
        if result.is_err() {
            self.explanations.discard(key);
        }
        match result {
            Ok(resource_version) => {
                state.record_status_write(key, sent, resource_version, now);
            }
            // Do not re-add a VPA that was deleted in the meantime according to the watch.
            Err(UpdateError::Conflict(vpa)) if state.index.vpa(key).is_some() => {
                state.upsert_vpa(vpa);
            }
            // The watch removes deleted VPAs, and other failures are retried.
            Err(_) => {}
        }
    }

    fn next_annotation_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let state = self.shared.state.lock();
        self.explanations.next_patch(key, state.index.vpa(key)?)
    }

    fn on_annotation_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        let mut state = self.shared.state.lock();
        match result {
            Ok(resource_version) => {
                let explained_hash = self.explanations.complete(key);
                state.record_explanation_write(key, explained_hash, resource_version);
            }
            Err(UpdateError::Conflict(vpa)) if state.index.vpa(key).is_some() => {
                state.upsert_vpa(vpa);
            }
            Err(_) => self.explanations.discard(key),
        }
    }
}

/// The patch for a VPA that has been waiting for its history for long.
fn history_pending_patch(
    state: &mut RecommenderState,
    key: &ObjectKey,
    now: Time,
) -> Option<StatusPatch> {
    let conditions = history_pending_conditions(state, key, now)?;
    let vpa = state.index.vpa(key)?;
    if vpa.published_status.conditions == conditions {
        return None;
    }
    let patch = StatusPatch {
        key: key.clone(),
        resource_version: vpa.resource_version.clone(),
        body: published_status::conditions_patch(&conditions),
        field_manager: RECOMMENDER_FIELD_MANAGER,
    };
    let sent = PublishedStatus { conditions, ..vpa.published_status.clone() };
    state.unconfirmed.insert(key.clone(), sent);
    Some(patch)
}
