//! State that is kept from pass to pass: in memory, and on VPAs and in the Lease if the RBAC rules allow it.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{Shared, execute::ActionWriter, matching::Target, matching::Workload};
use crate::cluster::{
    leader::LeaseAnnotationStore,
    watch::ObjectChange,
    write::{AnnotationUpdate, UpdateError, WriteError, write_vpa_annotation},
};
use plimsoll_core::{
    api::state::StateError,
    types::ObjectKey,
    updater::{
        Decision, DisruptionBudget, PersistedState, RefusalBackoff, StepResult, WorkloadState,
        guard::workload_state, in_place::ResizesFirstSeen,
    },
};

/// How many replaced annotation values are recognised. A watch is rarely further behind.
const MAX_REPLACED_TEXTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct UpdaterState {
    workloads: HashMap<ObjectKey, WorkloadEntry>,
    pub ledger: DisruptionBudget,
    /// The ledger in the Lease, as far as this process knows.
    ledger_text: Option<String>,
    /// Whether the ledger was replaced by that of the Lease since the current workload's pass started: the ledger of that
    /// pass is then outdated and must not be written.
    pub ledger_was_replaced: bool,
    /// Surges whose VPA was deleted or has another target now.
    pub orphaned_surges: Vec<OrphanedSurge>,
}

/// A surge of a Deployment that is no longer recorded on any VPA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrphanedSurge {
    pub vpa: ObjectKey,
    pub deployment: Box<str>,
    pub failed_attempts: u32,
}

#[derive(Debug, Default)]
struct WorkloadEntry {
    target: Option<Target>,
    state: WorkloadState,
    first_seen: ResizesFirstSeen,
    refusal_backoff: RefusalBackoff,
    /// Whether the VPA or the Lease is outdated: a recorded intent was not executed, or a finding is not written yet.
    needs_write: bool,
    /// The annotation value of the VPA, as far as this process knows.
    stored_text: Option<Arc<str>>,
    /// Hashes of previous annotation values, which the watch may still show.
    replaced_hashes: VecDeque<u64>,
    /// The resourceVersion of the VPA after the last write of this process.
    resource_version: Option<Box<str>>,
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl WorkloadEntry {
    /// Adopts the state in the annotation of the VPA, unless this process has written it or a later one.
    fn load_from_vpa(&mut self, workload: &Workload) -> Result<(), StateError> {
        let annotations = workload.vpa.metadata.annotations.as_ref();
        let text = annotations
            .and_then(|annotations| annotations.get(workload_state::ANNOTATION))
            .map(String::as_str);
        if text == self.stored_text.as_deref() {
            self.resource_version = None;
            return Ok(());
        }
        let is_outdated = match text {
            Some(text) => self.replaced_hashes.contains(&hash(text)),
            // A missing annotation is new only if this process wrote none that the watch may not show yet.
            None => self.resource_version.is_some(),
        };
        if is_outdated {
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

    /// Resets the state if the VPA has another target now. Returns the surge of the old target, if there is one.
    fn set_target(&mut self, workload: &Workload) -> Option<OrphanedSurge> {
        let is_known = self.target.as_ref().is_none_or(|known| *known == workload.target);
        let orphaned = if is_known { None } else { self.orphaned_surge(&workload.key) };
        if !is_known {
            *self = Self::default();
        }
        self.target = Some(workload.target.clone());
        orphaned
    }

    fn orphaned_surge(&self, key: &ObjectKey) -> Option<OrphanedSurge> {
        let (kind, name) = self.target.as_ref()?;
        let has_surge = self.state.surge.is_some() && &**kind == "Deployment";
        let (vpa, deployment) = (key.clone(), name.clone());
        has_surge.then_some(OrphanedSurge { vpa, deployment, failed_attempts: 0 })
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

    /// Forgets which versions this process wrote, because another one may have written since.
    fn forget_writes(&mut self) {
        self.resource_version = None;
        self.replaced_hashes.clear();
    }
}

impl UpdaterState {
    /// Returns the state of a workload and of the cluster. The error is why the annotation of the VPA was ignored.
    pub fn recall(&mut self, workload: &Workload) -> (PersistedState, Option<StateError>) {
        self.ledger_was_replaced = false;
        let entry = self.workloads.entry(workload.key.clone()).or_default();
        self.orphaned_surges.extend(entry.set_target(workload));
        let ignored = entry.load_from_vpa(workload).err();
        let persisted = PersistedState {
            workload: entry.state.clone(),
            budget: self.ledger.clone(),
            resizes_first_seen: entry.first_seen.clone(),
            backoff: entry.refusal_backoff.clone(),
        };
        (persisted, ignored)
    }

    pub fn store(&mut self, workload: &Workload, persisted: PersistedState) {
        let entry = self.entry(&workload.key);
        entry.state = persisted.workload;
        entry.first_seen = persisted.resizes_first_seen;
        entry.refusal_backoff = persisted.backoff;
        if !self.ledger_was_replaced {
            self.ledger = persisted.budget;
        }
    }

    fn entry(&mut self, key: &ObjectKey) -> &mut WorkloadEntry {
        self.workloads.entry(key.clone()).or_default()
    }

    /// Removes VPAs that no longer exist, and keeps their surges to be ended.
    pub fn retain(&mut self, is_there: impl Fn(&ObjectKey) -> bool) {
        let orphaned = &mut self.orphaned_surges;
        self.workloads.retain(|key, entry| {
            let keep = is_there(key);
            if !keep {
                orphaned.extend(entry.orphaned_surge(key));
            }
            keep
        });
    }

    /// Queues the surges in the ledger that their VPAs do not record: those were deleted while no updater led.
    pub fn queue_unrecorded_surges(&mut self, is_recorded: impl Fn(&ObjectKey) -> bool) {
        for (vpa, deployment) in self.ledger.surges() {
            let is_queued = self.orphaned_surges.iter().any(|surge| surge.vpa == vpa);
            if !is_queued && !self.has_surge(&vpa) && !is_recorded(&vpa) {
                let deployment = deployment.into();
                self.orphaned_surges.push(OrphanedSurge { vpa, deployment, failed_attempts: 0 });
            }
        }
    }

    /// Removes a surge from the ledger. Returns whether it was there.
    pub fn remove_surge_from_ledger(&mut self, ended: &OrphanedSurge) -> bool {
        let is_there = self
            .ledger
            .surges()
            .any(|(vpa, deployment)| vpa == ended.vpa && *deployment == *ended.deployment);
        if is_there {
            self.ledger.remove_surge(&ended.vpa);
        }
        is_there
    }

    pub fn has_surge(&self, key: &ObjectKey) -> bool {
        self.workloads.get(key).is_some_and(|entry| entry.state.surge.is_some())
    }

    /// Makes the next pass read the state again, because another process may have led in the meantime.
    pub fn invalidate_stored(&mut self) {
        self.orphaned_surges.clear();
        self.workloads.values_mut().for_each(WorkloadEntry::forget_writes);
    }

    /// Adopts the ledger of the Lease. The error is why it was ignored.
    fn adopt_ledger(&mut self, text: Option<String>) -> Result<(), StateError> {
        let parsed = text.as_deref().map(DisruptionBudget::read);
        self.ledger_text = text;
        self.ledger_was_replaced = true;
        if let Some(ledger) = parsed {
            self.ledger = ledger?;
        }
        Ok(())
    }
}

/// Persists state, as far as RBAC allows it.
pub(super) struct StateStore {
    pub shared: Arc<Shared>,
    pub ledger: LeaseAnnotationStore,
    pub writer: ActionWriter,
}

impl StateStore {
    /// Reads the ledger from the Lease, and adopts it if another process has written it.
    pub async fn read_ledger(&self, state: &mut UpdaterState) -> Result<(), WriteError> {
        if !self.shared.permissions.allowed_writes().ledger {
            return Ok(());
        }
        let text = self.ledger.read().await?;
        if text != state.ledger_text {
            self.adopt_ledger(state, text);
        }
        Ok(())
    }

    fn adopt_ledger(&self, state: &mut UpdaterState, text: Option<String>) {
        if let Err(why) = state.adopt_ledger(text) {
            self.shared.metrics.unreadable.increment();
            tracing::warn!(%why, "ignoring unreadable disruption ledger in the Lease");
        }
    }

    /// Writes the ledger to the Lease, unless that has it already.
    pub async fn persist_ledger(
        &self,
        state: &mut UpdaterState,
        ledger: &DisruptionBudget,
    ) -> Result<(), WriteError> {
        let is_blank = *ledger == DisruptionBudget::default() && state.ledger_text.is_none();
        if !self.shared.permissions.allowed_writes().ledger || is_blank {
            return Ok(());
        }
        let text = ledger.write().map_err(WriteError::malformed)?;
        let before = state.ledger_text.as_deref();
        if before == Some(text.as_str()) {
            return Ok(());
        }
        match self.ledger.write(&self.writer.permit, before, &text).await {
            Ok(()) => {
                state.ledger_text = Some(text);
                Ok(())
            }
            Err(UpdateError::Conflict(stored_ledger)) => {
                self.adopt_ledger(state, stored_ledger);
                Err(WriteError::Conflict("another client has changed the ledger".to_owned()))
            }
            Err(UpdateError::Failed(error)) => Err(error),
        }
    }

    /// Persists the cost of a step before the step is executed.
    pub async fn persist_intent(
        &self,
        state: &mut UpdaterState,
        workload: &Workload,
        persisted: &PersistedState,
    ) -> Result<(), WriteError> {
        self.persist_ledger(state, &persisted.budget).await?;
        if !self.shared.permissions.allowed_writes().workload_state {
            return Ok(());
        }
        let text = persisted.workload.write(&workload.vpa.spec.target_ref);
        let text = text.ok_or_else(|| {
            WriteError::malformed("the state exceeds the size limit of the annotation")
        })?;
        let entry = state.entry(&workload.key);
        let is_nothing_to_write = persisted.workload.is_empty() && entry.stored_text.is_none();
        if is_nothing_to_write || entry.stored_text.as_deref() == Some(text.as_str()) {
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
        let target = (&workload.key, version.unwrap_or_default());
        match write_vpa_annotation(self.writer.context(), target, written).await {
            Ok(resource_version) => {
                entry.record_write(&text, resource_version);
                Ok(())
            }
            Err(UpdateError::Conflict(now)) => {
                entry.forget_writes();
                self.shared.stores.apply_vpa_change(ObjectChange::Applied(*now));
                Err(WriteError::Conflict("another client has changed the state".to_owned()))
            }
            Err(UpdateError::Failed(error)) => Err(error),
        }
    }

    /// Stores the findings of a pass. Those that stop updates are persisted at once, so that a new leader sees them.
    pub async fn persist_decision(
        &self,
        state: &mut UpdaterState,
        workload: &Workload,
        decision: &Decision,
    ) {
        let was_not_executed =
            |outcome: &StepResult| !matches!(outcome, StepResult::Done | StepResult::Indeterminate);
        let was_undone = decision
            .steps
            .iter()
            .any(|(step, outcome)| step.needs_persisting && was_not_executed(outcome));
        let has_findings = decision.regression.is_some() || decision.externally_overwritten;
        let needs_write = has_findings || was_undone || state.entry(&workload.key).needs_write;
        state.entry(&workload.key).needs_write = needs_write;
        if needs_write && !state.ledger_was_replaced {
            let written = self.persist_intent(state, workload, &decision.state).await;
            state.entry(&workload.key).needs_write = written.is_err();
            if let Err(why) = written {
                tracing::warn!(
                    namespace = &*workload.key.namespace,
                    name = &*workload.key.name,
                    %why,
                    "failed to persist the state of a workload; retrying in the next pass"
                );
            }
        }
        state.store(workload, decision.state.clone());
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
        Workload::new(Arc::new(serde_json::from_value(object).expect("a VPA")))
    }

    fn surged(state: &mut UpdaterState, workload: &Workload) {
        let (mut persisted, _) = state.recall(workload);
        persisted.workload.surge = Some(Surge { at: Time::EPOCH, evicted: false });
        state.store(workload, persisted);
    }

    fn left(state: &mut UpdaterState) -> Vec<String> {
        std::mem::take(&mut state.orphaned_surges)
            .into_iter()
            .map(|left| left.deployment.into())
            .collect()
    }

    #[test]
    fn the_second_replica_of_a_deleted_vpa_is_remembered() {
        let mut state = UpdaterState::default();
        for name in ["gone", "stays"] {
            surged(&mut state, &workload(name, name));
        }
        state.recall(&workload("plain", "plain"));
        state.retain(|key| *key.name == *"stays");
        assert_eq!(left(&mut state), ["gone"]);
        assert!(state.has_surge(&workload("stays", "stays").key));
        // The VPA has another target now, which has no surge to end.
        let (persisted, _) = state.recall(&workload("stays", "another"));
        assert_eq!(persisted.workload, WorkloadState::default());
        assert_eq!(left(&mut state), ["stays"]);
        assert!(left(&mut state).is_empty(), "each is removed once");
    }

    #[test]
    fn a_second_replica_whose_vpa_was_deleted_without_a_leader_is_in_the_ledger() {
        let mut ledger = DisruptionBudget::default();
        for name in ["gone", "stays", "recreated"] {
            ledger.record_surge(&workload(name, name).key, name);
        }
        let stored = ledger.write().expect("fits");
        // Another process leads now.
        let mut state = UpdaterState::default();
        state.adopt_ledger(Some(stored)).expect("readable");
        let recorded = |key: &ObjectKey| *key.name == *"stays";
        for _ in 0..2 {
            state.queue_unrecorded_surges(recorded);
        }
        let orphaned = std::mem::take(&mut state.orphaned_surges);
        let names: Vec<_> = orphaned.iter().map(|surge| &*surge.deployment).collect();
        assert_eq!(names, ["gone", "recreated"], "each once");
        assert!(state.remove_surge_from_ledger(&orphaned[0]));
        assert!(!state.remove_surge_from_ledger(&orphaned[0]), "it is removed");
        state.queue_unrecorded_surges(recorded);
        assert_eq!(left(&mut state), ["recreated"]);
        // A pass that ends the surge removes it as well.
        let mut ledger = state.ledger.clone();
        ledger.remove_surge(&workload("recreated", "recreated").key);
        assert_eq!(ledger.surges().map(|(_, name)| name.to_owned()).collect::<Vec<_>>(), ["stays"]);
    }
}
