//! Removes startup boosts as soon as they expire. This has a loop of its own because passes may be a minute apart.

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

/// Pod changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Delay before a failed removal is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The maximum time between two checks of all boosted pods.
const MAX_INTERVAL: Duration = Duration::from_mins(10);

/// Wakes the loop that removes startup boosts.
#[derive(Debug, Default)]
pub(super) struct UnboostTrigger {
    changed: Notify,
    /// Actions that a dry run has logged, by pod UID. Nothing changes in a dry run, so it would log them again each time.
    dry_run_logged: Mutex<HashMap<String, Action>>,
}

impl UnboostTrigger {
    /// Wakes the loop because a boosted pod has changed.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether a dry run has not logged this action yet.
    fn is_new_dry_run_action(&self, uid: String, action: &Action) -> bool {
        let mut logged = self.dry_run_logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.insert(uid, action.clone()).as_ref() != Some(action)
    }

    fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.dry_run_logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|uid, _| is_there(uid));
    }
}

impl Updater {
    /// Removes startup boosts until `stop` is cancelled.
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

    /// Checks all boosted pods. Returns the time until the next boost expires.
    async fn unboost_all(&self, stop: &ShutdownToken) -> Duration {
        let mut wait = MAX_INTERVAL;
        let mut boosted: HashSet<String> = HashSet::new();
        for namespace in self.stores.namespaces() {
            let is_boosted = self.stores.pods(&namespace).iter().any(|pod| pod.is_boosted());
            if !is_boosted || !self.config.scope.includes(&namespace) {
                continue;
            }
            let workloads = self.boosted_workloads(&namespace).await;
            let pods = workloads.iter().flat_map(|workload| &workload.pods);
            boosted.extend(pods.filter_map(|pod| pod.uid()));
            let workers = self.config.boost_workers;
            let removals: Vec<_> =
                workloads.iter().map(|workload| self.unboost(workload, stop)).collect();
            let delays: Vec<Duration> =
                stream::iter(removals).buffer_unordered(workers).collect().await;
            wait = delays.into_iter().fold(wait, Duration::min);
        }
        self.unboost_trigger.retain(|uid| boosted.contains(uid));
        wait
    }

    async fn unboost(&self, workload: &Workload, stop: &ShutdownToken) -> Duration {
        let now = self.clock.now();
        let mut wait = time_to_next_boost_end(workload, now);
        let inputs = self.decision_inputs(workload, now);
        let desired_replicas = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let context = PassContext {
            desired_replicas: &desired_replicas,
            pod_counts: PodCounts::default(),
            heartbeat: RecommenderHeartbeat::Absent,
            is_admission_ready: true,
            can_resize: self.supports_resize().await.unwrap_or(false),
            now,
        };
        let subject = inputs.vpa_with_pods(workload);
        let settings = &self.config.settings;
        let mut pass = UpdatePass::new(subject, context, settings, PersistedState::default())
            .only_boost_removal();
        let deadline = PassDeadline { deadline: Instant::now() + MAX_INTERVAL, shutdown: stop };
        while let Some(step) = pass.next() {
            let uid = workload.pods[step.pod].uid().unwrap_or_default();
            if self.config.dry_run.is_some()
                && !self.unboost_trigger.is_new_dry_run_action(uid, &step.action)
            {
                pass.record_result(StepResult::Done);
                continue;
            }
            let persisted = PersistedState::default();
            let mut state = super::persisted_state::UpdaterState::default();
            let (outcome, _) =
                self.execute_step(&mut state, workload, &step, &persisted, deadline).await;
            if outcome != StepResult::Done {
                wait = wait.min(RETRY_DELAY);
            }
            pass.record_result(outcome);
        }
        let outcomes = pass.finish().pod_outcomes;
        let is_rate_limited = |outcome: &updater::PodOutcome| {
            matches!(outcome, updater::PodOutcome::Skipped(SkipReason::Budget { .. }))
        };
        if outcomes.iter().any(is_rate_limited) { wait.min(RETRY_DELAY) } else { wait }
    }
}

/// The time until the next boost of a workload expires.
fn time_to_next_boost_end(workload: &Workload, now: Time) -> Duration {
    let sizing_spec = SizingSpec::from_vpa(&workload.vpa);
    let statuses = workload.pods.iter().map(|pod| boost::status(&pod.sizing, &sizing_spec, now));
    let next = statuses.filter_map(|status| status.next_expiry).min();
    // Wake up slightly later: a boost expires only after that time.
    next.map_or(MAX_INTERVAL, |next| {
        next.saturating_add(Duration::from_millis(10)).min(MAX_INTERVAL)
    })
}
