//! Second replicas that no pass takes back, because their VPA leaves running pods alone now, or is gone.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::ObjectKey;

use super::{
    Updater,
    matching::{Workload, vpa_key},
    persisted_state::UpdaterState,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{PersistedState, StepResult, guard::workload_state},
};

/// How many workloads one pass takes them back from, and for how long it begins to: it is there for others, too.
const MAX_PER_PASS: usize = 16;
const PASS_TIMEOUT: Duration = Duration::from_secs(20);

/// How often it is tried to take back a second replica that no VPA remembers.
const MAX_ATTEMPTS: u32 = 60;

impl Updater {
    /// Takes back second replicas of workloads that no pass looks at.
    pub(super) async fn end_orphaned_surges(&self, recollection: &mut UpdaterState) {
        if self.config.dry_run.is_some() || !self.may_scale() {
            return;
        }
        let (until, mut tries) = (Instant::now() + PASS_TIMEOUT, 0);
        let mut goes_on = || {
            tries += 1;
            self.loop_watchdog.tick();
            tries <= MAX_PER_PASS && Instant::now() < until
        };
        for mut left in recollection.take_orphaned_surges() {
            if !goes_on() {
                recollection.requeue_orphaned_surge(left);
                continue;
            }
            let outcome = self.scale_deployment(&left.namespace, &left.deployment, (2, 1)).await;
            self.log_surge_end(&left.namespace, &left.deployment, outcome);
            left.failed_attempts += 1;
            if outcome != StepResult::Done && left.failed_attempts < MAX_ATTEMPTS {
                recollection.requeue_orphaned_surge(left);
            }
        }
        for namespace in self.stores.namespaces() {
            if !self.config.scope.includes(&namespace) {
                continue;
            }
            for vpa in self.stores.vpas(&namespace) {
                let key = vpa_key(&vpa);
                let has_surge = has_recorded_surge(&vpa) || recollection.has_surge(&key);
                if has_surge && !self.is_active(&vpa) {
                    if !goes_on() {
                        return;
                    }
                    self.end_surge_of(recollection, vpa, key).await;
                }
            }
        }
    }

    /// As in a pass: written down before it is done, and once more if it could not be done.
    async fn end_surge_of(
        &self,
        recollection: &mut UpdaterState,
        vpa: Arc<VerticalPodAutoscaler>,
        key: ObjectKey,
    ) {
        let target = &vpa.spec.target_ref;
        let target = (target.kind.as_str().into(), target.name.as_str().into());
        let (pods, wanted) = (Vec::new(), HashMap::new());
        let workload = Workload { vpa, key, target, pods, desired_replicas: wanted };
        let (before, _) = recollection.recall(&workload);
        if before.workload.surge.is_none() {
            return;
        }
        let mut after: PersistedState = before.clone();
        after.workload.surge = None;
        if self.persist_intent(recollection, &workload, &after).await.is_err() {
            return;
        }
        let outcome = self.set_replicas(&workload, (2, 1)).await;
        self.log_surge_end(&workload.key.namespace, &workload.target.1, outcome);
        if outcome == StepResult::Done {
            recollection.store(&workload, after);
            return;
        }
        if let Err(why) = self.persist_intent(recollection, &workload, &before).await {
            tracing::warn!(
                ?why,
                "the VPA does not say that its workload still has a second replica"
            );
        }
        recollection.store(&workload, before);
    }

    fn log_surge_end(&self, namespace: &str, deployment: &str, outcome: StepResult) {
        let is_done = outcome == StepResult::Done;
        self.metrics.count_action("end_surge", if is_done { "done" } else { "failed" });
        if is_done {
            tracing::info!(
                namespace,
                deployment,
                "scaled Deployment back to one replica: nothing is evicted any more"
            );
        }
    }
}

/// Whether a VPA says that its workload has a second replica.
fn has_recorded_surge(vpa: &VerticalPodAutoscaler) -> bool {
    let annotations = vpa.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(workload_state::ANNOTATION));
    text.is_some_and(|text| text.contains("\"surge\":"))
}
