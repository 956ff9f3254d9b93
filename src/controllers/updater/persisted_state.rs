//! What is remembered from pass to pass: on VPAs and in the Lease where that is allowed, and in this process in any case.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use plimsoll_core::types::ObjectKey;

use super::{
    Updater,
    matching::{Target, Workload},
};
use crate::cluster::{
    leader::LeaseWriteResult,
    watch::ObjectChange,
    write::{AnnotationUpdate, AnnotationWriteResult, write_vpa_annotation},
};
use plimsoll_core::updater::{
    DisruptionBudget, PersistedState, RefusalBackoff, WorkloadState,
    guard::{disruption_budget, workload_state},
    in_place::ResizesFirstSeen,
};

/// How many texts that were replaced are known again: a watch is seldom as far behind.
const MAX_REPLACED_TEXTS: usize = 64;

/// What is remembered of all workloads, and of the cluster.
#[derive(Debug, Default)]
pub(super) struct UpdaterState {
    workloads: HashMap<ObjectKey, WorkloadEntry>,
    ledger: DisruptionBudget,
    /// As it stands in the Lease.
    ledger_text: Option<String>,
    /// Whether that was taken over since a pass over a workload began, which knows an older one.
    ledger_was_replaced: bool,
    /// Second replicas whose VPA is gone, or is for another workload now.
    orphaned_surges: Vec<OrphanedSurge>,
}

/// A Deployment that was given a second replica, and that no VPA remembers any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrphanedSurge {
    pub namespace: Box<str>,
    pub deployment: Box<str>,
    /// How often it was tried in vain to take it back.
    pub failed_attempts: u32,
}

/// What is remembered of one workload.
#[derive(Debug, Default)]
struct WorkloadEntry {
    /// Which workload it is.
    target: Option<Target>,
    state: WorkloadState,
    first_seen: ResizesFirstSeen,
    refusal_backoff: RefusalBackoff,
    /// Whether the VPA or the Lease says something that is not so: what was booked was not done, or what was found out is
    /// not written yet.
    needs_write: bool,
    /// As it stands on the VPA, as far as this process knows.
    stored_text: Option<Arc<str>>,
    /// What stood there before: a watch may still show it.
    replaced_hashes: VecDeque<u64>,
    /// The version of the VPA since this process wrote it last.
    resource_version: Option<Box<str>>,
}

/// Why something was not booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PersistError {
    /// Somebody else remembers something else by now: it is looked at anew in the next pass.
    Conflict,
    /// It could not be written.
    Failed(String),
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl WorkloadEntry {
    /// Takes over what stands on the VPA, unless this process wrote it, or something later.
    fn load_from_vpa(&mut self, workload: &Workload) -> Result<(), workload_state::StateReadError> {
        let annotations = workload.vpa.metadata.annotations.as_ref();
        let text =
            annotations.and_then(|all| all.get(workload_state::ANNOTATION)).map(String::as_str);
        if text == self.stored_text.as_deref() {
            self.resource_version = None;
            return Ok(());
        }
        let known = match text {
            Some(text) => self.replaced_hashes.contains(&hash(text)),
            // What was never there is no news; what this process wrote may not be told yet.
            None => self.resource_version.is_some(),
        };
        if known {
            return Ok(());
        }
        self.stored_text = text.map(Into::into);
        self.resource_version = None;
        self.state = WorkloadState::default();
        if let Some(text) = text {
            self.state = WorkloadState::read(text, &workload.vpa.spec.target_ref)?;
        }
        Ok(())
    }

    /// Forgets what was done to another workload, and says whether that has a second replica still.
    fn set_target(&mut self, workload: &Workload) -> Option<OrphanedSurge> {
        let is_known = self.target.as_ref().is_none_or(|known| *known == workload.target);
        let left = if is_known { None } else { self.orphaned_surge(&workload.key) };
        if !is_known {
            *self = Self::default();
        }
        self.target = Some(workload.target.clone());
        left
    }

    fn orphaned_surge(&self, key: &ObjectKey) -> Option<OrphanedSurge> {
        let (kind, name) = self.target.as_ref()?;
        let owes = self.state.surge.is_some() && &**kind == "Deployment";
        let (namespace, deployment) = ((*key.namespace).into(), name.clone());
        owes.then_some(OrphanedSurge { namespace, deployment, failed_attempts: 0 })
    }

    fn record_write(&mut self, text: &str, version: Box<str>) {
        if let Some(before) = self.stored_text.replace(text.into()) {
            self.replaced_hashes.push_back(hash(&before));
            if self.replaced_hashes.len() > MAX_REPLACED_TEXTS {
                self.replaced_hashes.pop_front();
            }
        }
        self.resource_version = Some(version);
    }
}

impl UpdaterState {
    /// What is remembered of a workload, and of the cluster. `Err` says why what stands on its VPA does not count, with
    /// what counts instead.
    pub fn recall(
        &mut self,
        workload: &Workload,
    ) -> (PersistedState, Option<workload_state::StateReadError>) {
        self.ledger_was_replaced = false;
        let entry = self.workloads.entry(workload.key.clone()).or_default();
        self.orphaned_surges.extend(entry.set_target(workload));
        let ignored = entry.load_from_vpa(workload).err();
        let recall = PersistedState {
            workload: entry.state.clone(),
            budget: self.ledger.clone(),
            resizes_first_seen: entry.first_seen.clone(),
            backoff: entry.refusal_backoff.clone(),
        };
        (recall, ignored)
    }

    /// Remembers what came of a pass.
    pub fn store(&mut self, workload: &Workload, recall: PersistedState) {
        let entry = self.workloads.entry(workload.key.clone()).or_default();
        entry.state = recall.workload;
        entry.first_seen = recall.resizes_first_seen;
        entry.refusal_backoff = recall.backoff;
        if !self.ledger_was_replaced {
            self.ledger = recall.budget;
        }
    }

    /// Whether somebody else wrote what was changed in the cluster since the pass over this workload began: then what that
    /// pass remembers of it is old, and must not be written.
    pub const fn ledger_was_replaced(&self) -> bool {
        self.ledger_was_replaced
    }

    /// Whether something is still to be written of a workload.
    pub fn needs_write(&self, key: &ObjectKey) -> bool {
        self.workloads.get(key).is_some_and(|entry| entry.needs_write)
    }

    /// Notes whether something is still to be written of a workload.
    pub fn set_needs_write(&mut self, key: &ObjectKey, is_owed: bool) {
        if let Some(entry) = self.workloads.get_mut(key) {
            entry.needs_write = is_owed;
        }
    }

    /// What was changed in the cluster.
    pub const fn ledger(&self) -> &DisruptionBudget {
        &self.ledger
    }

    /// Forgets VPAs that are gone, but for second replicas that have to be taken back.
    pub fn retain(&mut self, is_there: impl Fn(&ObjectKey) -> bool) {
        let left = &mut self.orphaned_surges;
        self.workloads.retain(|key, entry| {
            let stays = is_there(key);
            if !stays {
                left.extend(entry.orphaned_surge(key));
            }
            stays
        });
    }

    /// Second replicas that no VPA remembers.
    pub fn take_orphaned_surges(&mut self) -> Vec<OrphanedSurge> {
        std::mem::take(&mut self.orphaned_surges)
    }

    /// One that could not be taken back yet.
    pub fn requeue_orphaned_surge(&mut self, left: OrphanedSurge) {
        self.orphaned_surges.push(left);
    }

    /// Whether a workload is known to have a second replica.
    pub fn has_surge(&self, key: &ObjectKey) -> bool {
        self.workloads.get(key).is_some_and(|entry| entry.state.surge.is_some())
    }

    /// What others did while this process did not lead is read anew.
    pub fn invalidate_stored(&mut self) {
        self.orphaned_surges.clear();
        for entry in self.workloads.values_mut() {
            entry.resource_version = None;
            entry.replaced_hashes.clear();
        }
    }

    fn adopt_ledger(
        &mut self,
        text: Option<String>,
    ) -> Result<(), disruption_budget::BudgetReadError> {
        let read = text.as_deref().map(DisruptionBudget::read);
        self.ledger_text = text;
        self.ledger_was_replaced = true;
        match read {
            Some(Ok(ledger)) => self.ledger = ledger,
            Some(Err(why)) => return Err(why),
            None => {}
        }
        Ok(())
    }
}

impl Updater {
    /// Reads what was changed in the cluster, if somebody else wrote it meanwhile: another process may have led.
    pub(super) async fn read_ledger(&self, recollection: &mut UpdaterState) -> Result<(), String> {
        if !self.persists_ledger() {
            return Ok(());
        }
        let text = self.ledger.read().await?;
        if text == recollection.ledger_text {
            return Ok(());
        }
        if let Err(why) = recollection.adopt_ledger(text) {
            self.metrics.count_unreadable_state();
            tracing::warn!(%why, "what was changed of late, as the Lease tells it, does not count");
        }
        Ok(())
    }

    /// Writes down what a step costs, before it is made.
    pub(super) async fn persist_intent(
        &self,
        recollection: &mut UpdaterState,
        workload: &Workload,
        recall: &PersistedState,
    ) -> Result<(), PersistError> {
        let is_blank =
            recall.budget == DisruptionBudget::default() && recollection.ledger_text.is_none();
        if self.persists_ledger() && !is_blank {
            let text =
                recall.budget.write().map_err(|why| PersistError::Failed(why.to_string()))?;
            let before = recollection.ledger_text.as_deref();
            if before != Some(text.as_str()) {
                match self.ledger.write(&self.permit, before, &text).await {
                    LeaseWriteResult::Written => recollection.ledger_text = Some(text),
                    LeaseWriteResult::Conflict(stands) => {
                        if let Err(why) = recollection.adopt_ledger(stands) {
                            self.metrics.count_unreadable_state();
                            tracing::warn!(%why, "what was changed of late, as the Lease tells it, does not count");
                        }
                        return Err(PersistError::Conflict);
                    }
                    LeaseWriteResult::Failed(why) => return Err(PersistError::Failed(why)),
                }
            }
        }
        if !self.persists_workload_state() {
            return Ok(());
        }
        let text = recall.workload.write(&workload.vpa.spec.target_ref);
        let text = text.ok_or_else(|| PersistError::Failed("it does not fit".to_owned()))?;
        let entry = recollection.workloads.entry(workload.key.clone()).or_default();
        let nothing = recall.workload.is_empty() && entry.stored_text.is_none();
        if nothing || entry.stored_text.as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        let version =
            entry.resource_version.as_deref().or(workload.vpa.metadata.resource_version.as_deref());
        let stored = entry.stored_text.clone();
        let written = AnnotationUpdate {
            key: workload_state::ANNOTATION,
            before: stored.as_deref(),
            after: &text,
        };
        let of = (&workload.key, version.unwrap_or_default());
        match write_vpa_annotation(&self.client, &self.permit, &self.write_stats, of, written).await
        {
            AnnotationWriteResult::Written { resource_version } => {
                entry.record_write(&text, resource_version);
                Ok(())
            }
            AnnotationWriteResult::Conflict(now) => {
                entry.resource_version = None;
                entry.replaced_hashes.clear();
                self.stores.apply_vpa_change(ObjectChange::Applied(*now));
                Err(PersistError::Conflict)
            }
            AnnotationWriteResult::Failed(why) => Err(PersistError::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::Time;
    use serde_json::json;

    use super::*;
    use plimsoll_core::updater::guard::workload_state::Surge;

    fn workload(vpa: &str, deployment: &str) -> Workload {
        let object = json!({
            "metadata": {"name": vpa, "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": deployment}},
        });
        Workload {
            vpa: Arc::new(serde_json::from_value(object).expect("a VPA")),
            key: ObjectKey { namespace: "shop".into(), name: vpa.into() },
            target: ("Deployment".into(), deployment.into()),
            pods: Vec::new(),
            desired_replicas: HashMap::new(),
        }
    }

    fn surged(recollection: &mut UpdaterState, workload: &Workload) {
        let (mut recall, _) = recollection.recall(workload);
        recall.workload.surge = Some(Surge { at: Time::EPOCH, evicted: false });
        recollection.store(workload, recall);
    }

    fn left(recollection: &mut UpdaterState) -> Vec<String> {
        recollection.take_orphaned_surges().into_iter().map(|left| left.deployment.into()).collect()
    }

    #[test]
    fn a_second_replica_is_not_forgotten_with_its_vpa() {
        let mut recollection = UpdaterState::default();
        for name in ["gone", "stays"] {
            surged(&mut recollection, &workload(name, name));
        }
        recollection.recall(&workload("plain", "plain"));
        recollection.retain(|key| *key.name == *"stays");
        assert_eq!(left(&mut recollection), ["gone"]);
        assert!(recollection.has_surge(&workload("stays", "stays").key));
        // The VPA is for another workload now, whose replicas are nobody's debt.
        let (recall, _) = recollection.recall(&workload("stays", "another"));
        assert_eq!(recall.workload, WorkloadState::default());
        assert_eq!(left(&mut recollection), ["stays"]);
        assert!(left(&mut recollection).is_empty(), "each is taken back once");
    }
}
