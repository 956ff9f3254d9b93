//! Computes the status patch of a VPA at the time when it is written, from the current state.

use std::sync::Weak;

use plimsoll_core::types::{ObjectKey, Time};

use super::{Recommender, state::RecommenderState};
use crate::cluster::write::{
    UpdateError,
    vpa_status::{RECOMMENDER_FIELD_MANAGER, StatusPatch, StatusSource, VpaWriteResult},
};
use plimsoll_core::recommender::published_status::{self, PublishedStatus, StatusChange};

#[derive(Debug)]
pub struct RecommendationStatusSource(pub Weak<Recommender>);

impl StatusSource for RecommendationStatusSource {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        if !role.may_write() {
            return None;
        }
        let now = role.clock.now();
        let mut state = role.state.lock();
        let Some(desired) = state.desired_status(key, now) else {
            return history_pending_patch(&mut state, key, now);
        };
        let vpa = state.index.vpa(key)?;
        let (generation, dead_band) = (vpa.generation, role.config.bounds_dead_band);
        let change = vpa.published_status.change(
            &desired.conditions,
            &desired.recommendation,
            generation,
            dead_band,
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
        if role.explanations.are_enabled() {
            role.explanations.prepare(key, &desired.recommendation, desired.pod_limits, vpa, now);
        }
        let sent =
            PublishedStatus::after_write(desired.conditions, &desired.recommendation, generation);
        state.unconfirmed.insert(key.clone(), sent);
        Some(patch)
    }

    fn on_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        let Some(role) = self.0.upgrade() else { return };
        let now = role.clock.now();
        let mut state = role.state.lock();
        let sent = state.unconfirmed.remove(key);
        if result.is_err() {
            role.explanations.discard(key);
        }
        match result {
            Ok(resource_version) => {
                state.record_status_write(key, sent, resource_version, now);
            }
            // Do not re-add a VPA that was deleted in the meantime according to the watch.
            Err(UpdateError::Conflict(vpa)) if state.index.vpa(key).is_some() => {
                if state.upsert_vpa(vpa) {
                    role.history_wanted.notify_one();
                    role.target_wanted.notify_one();
                }
            }
            // The watch removes deleted VPAs, and other failures are retried.
            Err(_) => {}
        }
    }

    fn next_annotation_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        let state = role.state.lock();
        role.explanations.next_patch(key, state.index.vpa(key)?)
    }

    fn on_annotation_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        let Some(role) = self.0.upgrade() else { return };
        let mut state = role.state.lock();
        match result {
            Ok(resource_version) => {
                let explained_hash = role.explanations.complete(key);
                state.record_explanation_write(key, explained_hash, resource_version);
            }
            Err(UpdateError::Conflict(vpa)) if state.index.vpa(key).is_some() => {
                if state.upsert_vpa(vpa) {
                    role.history_wanted.notify_one();
                    role.target_wanted.notify_one();
                }
            }
            Err(_) => role.explanations.discard(key),
        }
    }
}

/// The patch for a VPA that has been waiting for its history for long.
fn history_pending_patch(
    state: &mut RecommenderState,
    key: &ObjectKey,
    now: Time,
) -> Option<StatusPatch> {
    let conditions = state.history_pending_conditions(key, now)?;
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
