//! What is written into a VPA's status when its turn comes: decided anew, from what is known then.

use std::sync::Weak;

use plimsoll_core::types::{ObjectKey, Time};

use super::{Recommender, state::RecommenderState};
use crate::cluster::write::vpa_status::{
    RECOMMENDER_FIELD_MANAGER, StatusPatch, StatusSource, StatusWriteResult,
};
use plimsoll_core::recommender::status::{self, PublishedStatus, StatusChange};

/// Asks the role what to write.
#[derive(Debug)]
pub struct RecommendationStatusSource(pub Weak<Recommender>);

impl StatusSource for RecommendationStatusSource {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        if !role.may_write() {
            return None;
        }
        let now = role.clock.now();
        let mut core = role.state.lock();
        let Some(verdict) = core.desired_status(key, now) else {
            return history_pending_patch(&mut core, key, now);
        };
        let vpa = core.index.vpa(key)?;
        let (generation, band) = (vpa.generation, role.config.bounds_dead_band);
        let change = vpa.published_status.change(
            &verdict.conditions,
            &verdict.recommendation,
            generation,
            band,
        );
        if change != StatusChange::Write {
            return None;
        }
        let patch = StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: status::patch(&verdict.conditions, &verdict.recommendation, generation),
            field_manager: RECOMMENDER_FIELD_MANAGER,
        };
        if role.explanations.are_enabled() {
            role.explanations.prepare(key, &verdict.recommendation, verdict.pod_limits, vpa, now);
        }
        let sent =
            PublishedStatus::after_write(verdict.conditions, &verdict.recommendation, generation);
        core.unconfirmed.insert(key.clone(), sent);
        Some(patch)
    }

    fn on_result(&self, key: &ObjectKey, outcome: &StatusWriteResult) {
        let Some(role) = self.0.upgrade() else { return };
        let now = role.clock.now();
        let mut core = role.state.lock();
        let sent = core.unconfirmed.remove(key);
        if !matches!(outcome, StatusWriteResult::Written { .. }) {
            role.explanations.discard(key);
        }
        match outcome {
            StatusWriteResult::Written { resource_version } => {
                core.record_status_write(key, sent, resource_version, now);
            }
            // One that the watch has told to be gone meanwhile must not come back.
            StatusWriteResult::Conflict(Some(vpa)) if core.index.vpa(key).is_some() => {
                if core.upsert_vpa(vpa) {
                    role.history_wanted.notify_one();
                    role.target_wanted.notify_one();
                }
            }
            // What is gone will be told by the watch, and the rest is tried again.
            StatusWriteResult::Conflict(_)
            | StatusWriteResult::NotFound
            | StatusWriteResult::NotLeader
            | StatusWriteResult::Failed { .. } => {}
        }
    }

    fn next_annotation_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        let core = role.state.lock();
        role.explanations.next_patch(key, core.index.vpa(key)?)
    }

    fn on_annotation_result(&self, key: &ObjectKey, outcome: &StatusWriteResult) {
        let Some(role) = self.0.upgrade() else { return };
        let mut core = role.state.lock();
        match outcome {
            StatusWriteResult::Written { resource_version } => {
                let explained = role.explanations.complete(key);
                core.record_explanation_write(key, explained, resource_version);
            }
            StatusWriteResult::Conflict(Some(vpa)) if core.index.vpa(key).is_some() => {
                if core.upsert_vpa(vpa) {
                    role.history_wanted.notify_one();
                    role.target_wanted.notify_one();
                }
            }
            StatusWriteResult::Conflict(_)
            | StatusWriteResult::NotFound
            | StatusWriteResult::NotLeader
            | StatusWriteResult::Failed { .. } => {
                role.explanations.discard(key);
            }
        }
    }
}

/// What is written about a VPA that waits for its history: that it does.
fn history_pending_patch(
    core: &mut RecommenderState,
    key: &ObjectKey,
    now: Time,
) -> Option<StatusPatch> {
    let conditions = core.history_pending_conditions(key, now)?;
    let vpa = core.index.vpa(key)?;
    if vpa.published_status.conditions == conditions {
        return None;
    }
    let patch = StatusPatch {
        key: key.clone(),
        resource_version: vpa.resource_version.clone(),
        body: status::conditions_patch(&conditions),
        field_manager: RECOMMENDER_FIELD_MANAGER,
    };
    let sent = PublishedStatus { conditions, ..vpa.published_status.clone() };
    core.unconfirmed.insert(key.clone(), sent);
    Some(patch)
}
