//! Scales down surges that no pass ends, because their VPA no longer updates running pods or was deleted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Shared,
    matching::{Workload, vpa_key},
    persisted_state::{StateStore, UpdaterState},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{PersistedState, StepResult, guard::workload_state},
    vpa_match,
};

/// How many surges one pass ends at most, and for how long it starts to end more: the pass has other work to do.
const MAX_PER_PASS: usize = 16;
const PASS_TIMEOUT: Duration = Duration::from_secs(20);

/// Attempts to end a surge that is no longer recorded on any VPA.
const MAX_ATTEMPTS: u32 = 60;

/// Ends surges of workloads that are in no pass.
pub(super) struct SurgeCleanup {
    pub shared: Arc<Shared>,
    pub store: Arc<StateStore>,
}

impl SurgeCleanup {
    pub async fn run(&self, state: &mut UpdaterState) {
        if self.shared.config.dry_run.is_some() || !self.shared.permissions.allowed_writes().scale {
            return;
        }
        let (until, mut tries) = (Instant::now() + PASS_TIMEOUT, 0);
        let mut has_capacity = || {
            tries += 1;
            self.shared.watchdog.tick();
            tries <= MAX_PER_PASS && Instant::now() < until
        };
        state.queue_unrecorded_surges(|key| {
            let vpas = self.shared.stores.vpas(&key.namespace);
            vpas.iter().any(|vpa| *vpa_key(vpa).name == *key.name && has_recorded_surge(vpa))
        });
        let mut is_ledger_changed = false;
        for mut surge in std::mem::take(&mut state.orphaned_surges) {
            if !has_capacity() {
                state.orphaned_surges.push(surge);
                continue;
            }
            let namespace = &*surge.vpa.namespace;
            let outcome =
                self.store.writer.scale_deployment(namespace, &surge.deployment, (2, 1)).await;
            self.log_surge_end(namespace, &surge.deployment, outcome);
            surge.failed_attempts += 1;
            if outcome != StepResult::Done && surge.failed_attempts < MAX_ATTEMPTS {
                state.orphaned_surges.push(surge);
            } else {
                is_ledger_changed |= state.remove_surge_from_ledger(&surge);
            }
        }
        if is_ledger_changed {
            let ledger = state.ledger.clone();
            if let Err(why) = self.store.persist_ledger(state, &ledger).await {
                tracing::warn!(%why, "failed to record the end of a surge in the disruption ledger");
            }
        }
        for vpa in self.shared.stores.all_vpas() {
            let key = vpa_key(&vpa);
            let has_surge = has_recorded_surge(&vpa) || state.has_surge(&key);
            if has_surge
                && !vpa_match::changes_running_pods(&vpa, self.shared.config.settings.compat)
            {
                if !has_capacity() {
                    return;
                }
                self.end_surge_of(state, Workload::new(vpa)).await;
            }
        }
    }

    /// Ends a surge as a pass does: persists the intent first, and restores the old state if the write fails.
    async fn end_surge_of(&self, state: &mut UpdaterState, workload: Workload) {
        let (before, _) = state.recall(&workload);
        if before.workload.surge.is_none() {
            return;
        }
        let mut after: PersistedState = before.clone();
        after.workload.surge = None;
        after.budget.remove_surge(&workload.key);
        if self.store.persist_intent(state, &workload, &after).await.is_err() {
            return;
        }
        let outcome = self.store.writer.set_replicas(&workload, (2, 1)).await;
        self.log_surge_end(&workload.key.namespace, &workload.target.1, outcome);
        if outcome == StepResult::Done {
            state.store(&workload, after);
            return;
        }
        if let Err(why) = self.store.persist_intent(state, &workload, &before).await {
            tracing::warn!(
                %why,
                "failed to record on the VPA that its workload still has a surge replica"
            );
        }
        state.store(&workload, before);
    }

    fn log_surge_end(&self, namespace: &str, deployment: &str, outcome: StepResult) {
        let is_done = outcome == StepResult::Done;
        let label = if is_done { "done" } else { "failed" };
        self.shared.metrics.actions.with_labels(["end_surge", label]).increment();
        if is_done {
            tracing::info!(
                namespace,
                deployment,
                "scaled Deployment back to one replica: no more pods to evict"
            );
        }
    }
}

fn has_recorded_surge(vpa: &VerticalPodAutoscaler) -> bool {
    let annotations = vpa.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(workload_state::ANNOTATION));
    text.is_some_and(|text| text.contains("\"surge\":"))
}
