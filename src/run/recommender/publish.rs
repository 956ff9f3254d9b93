//! What is written into a VPA's status when its turn comes: decided anew, from what is known then.

use std::sync::Weak;

use plimsoll_core::types::{Time, VpaKey};

use super::{Role, state::Core};
use crate::act::status::{Outcome, RECOMMENDER, Source, StatusPatch};
use plimsoll_core::recommender::status::{self, Change, Reported};

/// Asks the role what to write.
#[derive(Debug)]
pub struct Publisher(pub Weak<Role>);

impl Source for Publisher {
    fn prepare(&self, key: &VpaKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        if !role.may_write() {
            return None;
        }
        let now = role.clock.now();
        let mut core = role.state.lock();
        let Some(verdict) = core.judge(key, now) else {
            return prepare_waiting(&mut core, key, now);
        };
        let vpa = core.index.vpa(key)?;
        let (generation, band) = (vpa.generation, role.config.bounds_dead_band);
        let change = vpa.reported.change(&verdict.conditions, &verdict.said, generation, band);
        if change != Change::Due {
            return None;
        }
        let patch = StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version.clone(),
            body: status::patch(&verdict.conditions, &verdict.said, generation),
            writer: RECOMMENDER,
        };
        if role.explanations.are_on() {
            role.explanations.prepare(key, &verdict.said, verdict.limits, vpa, now);
        }
        let sent = Reported::of(verdict.conditions, &verdict.said, generation);
        core.sent.insert(key.clone(), sent);
        Some(patch)
    }

    fn done(&self, key: &VpaKey, outcome: &Outcome) {
        let Some(role) = self.0.upgrade() else { return };
        let now = role.clock.now();
        let mut core = role.state.lock();
        let sent = core.sent.remove(key);
        if !matches!(outcome, Outcome::Written { .. }) {
            role.explanations.drop(key);
        }
        match outcome {
            Outcome::Written { resource_version } => {
                core.status_written(key, sent, resource_version, now);
            }
            // One that the watch has told to be gone meanwhile must not come back.
            Outcome::Conflict(Some(vpa)) if core.index.vpa(key).is_some() => {
                if core.put_vpa(vpa) {
                    role.news.notify_one();
                    role.found.notify_one();
                }
            }
            // What is gone will be told by the watch, and the rest is tried again.
            Outcome::Conflict(_) | Outcome::Gone | Outcome::Fenced | Outcome::Failed { .. } => {}
        }
    }

    fn prepare_annotations(&self, key: &VpaKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        let core = role.state.lock();
        role.explanations.next(key, core.index.vpa(key)?)
    }

    fn done_annotations(&self, key: &VpaKey, outcome: &Outcome) {
        let Some(role) = self.0.upgrade() else { return };
        let mut core = role.state.lock();
        match outcome {
            Outcome::Written { resource_version } => {
                let explained = role.explanations.take(key);
                core.explanation_written(key, explained, resource_version);
            }
            Outcome::Conflict(Some(vpa)) if core.index.vpa(key).is_some() => {
                if core.put_vpa(vpa) {
                    role.news.notify_one();
                    role.found.notify_one();
                }
            }
            Outcome::Conflict(_) | Outcome::Gone | Outcome::Fenced | Outcome::Failed { .. } => {
                role.explanations.drop(key);
            }
        }
    }
}

/// What is written about a VPA that waits for its history: that it does.
fn prepare_waiting(core: &mut Core, key: &VpaKey, now: Time) -> Option<StatusPatch> {
    let conditions = core.waiting_conditions(key, now)?;
    let vpa = core.index.vpa(key)?;
    if vpa.reported.conditions == conditions {
        return None;
    }
    let patch = StatusPatch {
        key: key.clone(),
        resource_version: vpa.resource_version.clone(),
        body: status::conditions_patch(&conditions),
        writer: RECOMMENDER,
    };
    let sent = Reported { conditions, ..vpa.reported.clone() };
    core.sent.insert(key.clone(), sent);
    Some(patch)
}
