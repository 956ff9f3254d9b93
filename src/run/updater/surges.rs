//! Second replicas that no pass takes back, because their VPA leaves running pods alone now, or is gone.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::VpaKey;

use super::{
    Role,
    matching::{Workload, vpa_key},
    recollection::Recollection,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{Outcome, Recall, guard::memory},
};

/// How many workloads one pass takes them back from, and for how long it begins to: it is there for others, too.
const MOST_OF_A_PASS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is tried to take back a second replica that no VPA remembers.
const MOST_TRIES: u32 = 60;

impl Role {
    /// Takes back second replicas of workloads that no pass looks at.
    pub(super) async fn end_left_surges(&self, recollection: &mut Recollection) {
        if self.config.dry_run.is_some() || !self.may_scale() {
            return;
        }
        let (until, mut tries) = (Instant::now() + PATIENCE, 0);
        let mut goes_on = || {
            tries += 1;
            self.pulse.beat();
            tries <= MOST_OF_A_PASS && Instant::now() < until
        };
        for mut left in recollection.take_left() {
            if !goes_on() {
                recollection.put_back(left);
                continue;
            }
            let outcome = self.scale_deployment(&left.namespace, &left.deployment, (2, 1)).await;
            self.tell_end(&left.namespace, &left.deployment, outcome);
            left.failed += 1;
            if outcome != Outcome::Done && left.failed < MOST_TRIES {
                recollection.put_back(left);
            }
        }
        for namespace in self.seen.namespaces() {
            if !self.config.scope.includes(&namespace) {
                continue;
            }
            for vpa in self.seen.vpas(&namespace) {
                let key = vpa_key(&vpa);
                let has_surge = says_surge(&vpa) || recollection.has_surge(&key);
                if has_surge && !self.is_counted(&vpa) {
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
        recollection: &mut Recollection,
        vpa: Arc<VerticalPodAutoscaler>,
        key: VpaKey,
    ) {
        let target = &vpa.spec.target_ref;
        let target = (target.kind.as_str().into(), target.name.as_str().into());
        let (pods, wanted) = (Vec::new(), HashMap::new());
        let workload = Workload { vpa, key, target, pods, wanted };
        let (before, _) = recollection.of(&workload);
        if before.memory.surge.is_none() {
            return;
        }
        let mut after: Recall = before.clone();
        after.memory.surge = None;
        if self.book(recollection, &workload, &after).await.is_err() {
            return;
        }
        let outcome = self.set_replicas(&workload, (2, 1)).await;
        self.tell_end(&workload.key.namespace, &workload.target.1, outcome);
        if outcome == Outcome::Done {
            recollection.keep(&workload, after);
            return;
        }
        if let Err(why) = self.book(recollection, &workload, &before).await {
            tracing::warn!(
                ?why,
                "the VPA does not say that its workload still has a second replica"
            );
        }
        recollection.keep(&workload, before);
    }

    fn tell_end(&self, namespace: &str, deployment: &str, outcome: Outcome) {
        let is_done = outcome == Outcome::Done;
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
fn says_surge(vpa: &VerticalPodAutoscaler) -> bool {
    let annotations = vpa.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(memory::KEY));
    text.is_some_and(|text| text.contains("\"surge\":"))
}
