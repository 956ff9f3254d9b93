//! Takes back what pods were given to start with, as soon as that is over: not in passes, which may be a minute apart.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use plimsoll_core::types::Time;
use tokio::sync::Notify;

use super::{ShutdownToken, Updater, execute::PassDeadline, matching::Workload};
use plimsoll_core::{
    sizing::{SizingSpec, boost},
    updater::{
        self, Action, DesiredReplicas, PassContext, PersistedState, SkipReason, StepResult,
        UpdatePass,
        guard::{RecommenderHeartbeat, disruption_budget::PodCounts},
    },
};

/// Pods that change together are looked at together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// What failed is tried again after this.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// At least so often all are looked at.
const MAX_INTERVAL: Duration = Duration::from_mins(10);

/// Wakes whoever takes boosts back.
#[derive(Debug, Default)]
pub(super) struct UnboostTrigger {
    changed: Notify,
    /// What a dry run has said, by the uid of the pod: it changes nothing, and would say so all the time.
    dry_run_logged: Mutex<HashMap<String, Action>>,
}

impl UnboostTrigger {
    /// A pod with a boost has changed.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether a dry run has not said that yet.
    fn is_new_dry_run_action(&self, uid: String, action: &Action) -> bool {
        let mut said = self.dry_run_logged.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(uid, action.clone()).as_ref() != Some(action)
    }

    fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.dry_run_logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|uid, _| is_there(uid));
    }
}

impl Updater {
    /// Takes boosts back until told to stop.
    pub(super) async fn run_unboost_loop(self: Arc<Self>, stop: ShutdownToken) {
        if !self.config.settings.startup_boost {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.watches.wait_for_sync() => {}
        }
        loop {
            let wait = if self.may_act() { self.unboost_all(&stop).await } else { RETRY_DELAY };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.unboost_trigger.changed.notified() => tokio::time::sleep(DEBOUNCE).await,
                () = self.clock.sleep_until(self.clock.now().later(wait)) => {}
            }
        }
    }

    /// Looks at all pods with a boost, and says how long until the next one is over.
    async fn unboost_all(&self, stop: &ShutdownToken) -> Duration {
        let mut wait = MAX_INTERVAL;
        let mut boosted: HashSet<String> = HashSet::new();
        for namespace in self.stores.namespaces() {
            let is_boosted = self.stores.pods(&namespace).iter().any(|pod| pod.is_boosted());
            if !is_boosted || !self.config.scope.includes(&namespace) {
                continue;
            }
            let workloads = self.boosted_workloads(&namespace).await;
            let pods = workloads.iter().flat_map(|one| &one.pods);
            boosted.extend(pods.filter_map(|pod| pod.uid()));
            let workers = self.config.boost_workers;
            let all: Vec<_> = workloads.iter().map(|one| self.unboost(one, stop)).collect();
            let waits: Vec<Duration> = stream::iter(all).buffer_unordered(workers).collect().await;
            wait = waits.into_iter().fold(wait, Duration::min);
        }
        self.unboost_trigger.retain(|uid| boosted.contains(uid));
        wait
    }

    async fn unboost(&self, workload: &Workload, stop: &ShutdownToken) -> Duration {
        let now = self.clock.now();
        let mut wait = time_to_next_boost_end(workload, now);
        let ground = self.decision_inputs(workload, now);
        let wanted = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let world = PassContext {
            desired_replicas: &wanted,
            pod_counts: PodCounts::default(),
            heartbeat: RecommenderHeartbeat::Absent,
            is_admission_ready: true,
            can_resize: self.supports_resize().await.unwrap_or(false),
            now,
        };
        let subject = self.vpa_with_pods(workload, &ground);
        let settings = &self.config.settings;
        let mut pass = UpdatePass::new(subject, world, settings, PersistedState::default())
            .only_boost_removal();
        let pace = PassDeadline { deadline: Instant::now() + MAX_INTERVAL, shutdown: stop };
        while let Some(step) = pass.next() {
            let uid = workload.pods[step.pod].uid().unwrap_or_default();
            if self.config.dry_run.is_some()
                && !self.unboost_trigger.is_new_dry_run_action(uid, &step.action)
            {
                pass.record_result(StepResult::Done);
                continue;
            }
            let recall = PersistedState::default();
            let mut none = super::persisted_state::UpdaterState::default();
            let (outcome, _) = self.execute_step(&mut none, workload, &step, &recall, pace).await;
            if outcome != StepResult::Done {
                wait = wait.min(RETRY_DELAY);
            }
            pass.record_result(outcome);
        }
        let left = pass.finish().pod_outcomes;
        let waits = |verdict: &updater::PodOutcome| {
            matches!(verdict, updater::PodOutcome::Skipped(SkipReason::Budget { .. }))
        };
        if left.iter().any(waits) { wait.min(RETRY_DELAY) } else { wait }
    }
}

/// How long until the next boost of a workload is over.
fn time_to_next_boost_end(workload: &Workload, now: Time) -> Duration {
    let plan = SizingSpec::from_vpa(&workload.vpa);
    let ends = workload.pods.iter().map(|pod| boost::status(&pod.sizing, &plan, now));
    let next = ends.filter_map(|standing| standing.next_expiry).min();
    // It is over only after that time.
    next.map_or(MAX_INTERVAL, |next| {
        next.saturating_add(Duration::from_millis(10)).min(MAX_INTERVAL)
    })
}
