//! Removes startup boosts as soon as they expire. This has a loop of its own because passes may be a minute apart.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    decision_inputs::DecisionInputs,
    execute::{PassDeadline, StepExecutor},
    matching::{Workload, WorkloadMatcher},
    owner_lookups::OwnerLookups,
    persisted_state::UpdaterState,
};
use crate::cluster::target::TargetResolver;
use plimsoll_core::{
    sizing::{SizingSpec, boost},
    types::Time,
    updater::{
        Action, PassContext, PersistedState, PodOutcome, SkipReason, StepResult, UpdatePass,
        guard::{RecommenderHeartbeat, disruption_budget::PodCounts},
    },
};

/// Pod changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Delay before a failed removal is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The maximum time between two checks of all boosted pods.
const MAX_INTERVAL: Duration = Duration::from_mins(10);

/// Removes expired startup boosts.
pub(super) struct BoostRemover {
    pub shared: Arc<Shared>,
    pub targets: TargetResolver,
    pub lookups: OwnerLookups,
    pub executor: Arc<StepExecutor>,
    /// Actions that a dry run has logged, by pod UID. Nothing changes in a dry run, so it would log them again each time.
    pub dry_run_logged: Mutex<HashMap<String, Action>>,
}

impl BoostRemover {
    /// Removes startup boosts until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let Shared { clock, permissions, stores, .. } = &*self.shared;
        loop {
            let wait =
                if permissions.may_act() { self.unboost_all(&stop).await } else { RETRY_DELAY };
            tokio::select! {
                () = stop.cancelled() => return,
                () = stores.boosted_pod_changed.notified() => tokio::time::sleep(DEBOUNCE).await,
                () = clock.sleep_until(clock.now().later(wait)) => {}
            }
        }
    }

    /// Checks all boosted pods. Returns the time until the next boost expires.
    async fn unboost_all(&self, stop: &CancellationToken) -> Duration {
        let mut wait = MAX_INTERVAL;
        let mut boosted: HashSet<String> = HashSet::new();
        let stores = &self.shared.stores;
        for namespace in stores.namespaces() {
            if !stores.pods(&namespace).iter().any(|pod| pod.is_boosted()) {
                continue;
            }
            // Like upstream, this considers all VPAs whatever their mode.
            let matcher = WorkloadMatcher::new(&self.targets, self.lookups.start_pass(None));
            let pods = |namespace: &str| stores.pods(namespace);
            let mut workloads = matcher.match_pods(stores.vpas(&namespace), pods).await.workloads;
            workloads.retain(|workload| workload.pods.iter().any(|pod| pod.is_boosted()));
            let pods = workloads.iter().flat_map(|workload| &workload.pods);
            boosted.extend(pods.filter_map(|pod| pod.uid()));
            let workers = self.shared.config.boost_workers;
            let removals: Vec<_> =
                workloads.iter().map(|workload| self.unboost(workload, stop)).collect();
            let delays: Vec<Duration> =
                stream::iter(removals).buffer_unordered(workers).collect().await;
            wait = delays.into_iter().fold(wait, Duration::min);
        }
        self.dry_run_logged.lock().retain(|uid, _| boosted.contains(uid));
        wait
    }

    async fn unboost(&self, workload: &Workload, stop: &CancellationToken) -> Duration {
        let now = self.shared.clock.now();
        let mut wait = time_to_next_boost_end(workload, now);
        let inputs = DecisionInputs::from_stores(&self.shared, workload, now);
        let context = PassContext {
            desired_replicas: &|owner| workload.desired_replicas_of(owner),
            pod_counts: PodCounts::default(),
            heartbeat: RecommenderHeartbeat::Absent,
            is_admission_ready: true,
            can_resize: self.shared.permissions.supports_resize().await.unwrap_or(false),
            now,
        };
        let subject = inputs.vpa_with_pods(workload);
        let settings = &self.shared.config.settings;
        let mut pass = UpdatePass::new(subject, context, settings, PersistedState::default())
            .only_boost_removal();
        let deadline = PassDeadline { deadline: Instant::now() + MAX_INTERVAL, shutdown: stop };
        while let Some(step) = pass.next() {
            let uid = workload.pods[step.pod].uid().unwrap_or_default();
            if self.shared.config.dry_run.is_some()
                && self.dry_run_logged.lock().insert(uid, step.action.clone()).as_ref()
                    == Some(&step.action)
            {
                pass.record_result(StepResult::Done);
                continue;
            }
            let (mut state, persisted) = (UpdaterState::default(), PersistedState::default());
            let executor = &self.executor;
            let (outcome, _) = executor
                .execute_step(&mut state, workload, (&step, &[]), &persisted, deadline)
                .await;
            if outcome != StepResult::Done {
                wait = wait.min(RETRY_DELAY);
            }
            pass.record_result(outcome);
        }
        let outcomes = pass.finish().pod_outcomes;
        let is_rate_limited = |outcome: &PodOutcome| {
            matches!(outcome, PodOutcome::Skipped(SkipReason::Budget { .. }))
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
