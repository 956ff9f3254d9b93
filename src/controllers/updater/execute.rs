//! Executes one step of a pass: waits for the rate limit, persists the intent, writes, and reports the result.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{Client, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::{
    Shared, events::EventReporter, matching::Workload, persisted_state::StateStore,
    persisted_state::UpdaterState,
};
use crate::cluster::{
    cache::updater_pod::UpdaterPod,
    write::{
        ContainerResize, Permit, PodRef, RateLimiter, WriteContext, WriteError, WriteStats,
        annotate_pod, evict, patch_hpa_target, read_hpa, resize,
        workload_state::UPDATER_FIELD_MANAGER,
    },
};
use plimsoll_core::{
    api::{ResourceList, vpa::UpdateMode},
    coordination::TargetChange,
    hpa::retarget::target_change_patch,
    sizing::{ContainerRef, SizedContainer, boost, pod_annotations},
    types::{ObjectKey, Time, compat::Compat},
    updater::{Action, PersistedState, StepResult, UpdateStep},
};

/// Timeout of reading a pod again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How a pass continues after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassControl {
    Continue,
    /// Continue with the next VPA: the decision about this one is outdated.
    NextVpa,
    /// End the pass: there is no time left, or this process no longer leads.
    EndPass,
}

/// How long a pass may execute steps.
#[derive(Clone, Copy)]
pub(super) struct PassDeadline<'a> {
    /// No step starts after this time.
    pub deadline: Instant,
    /// No step starts after shutdown is requested.
    pub shutdown: &'a CancellationToken,
}

impl PassDeadline<'_> {
    /// Whether no more steps may start.
    pub fn has_passed(&self) -> bool {
        self.shutdown.is_cancelled() || Instant::now() >= self.deadline
    }
}

pub(super) struct StepExecutor {
    pub shared: Arc<Shared>,
    pub store: Arc<StateStore>,
    pub events: Arc<EventReporter>,
}

impl StepExecutor {
    /// Executes a step after the targets of autoscalers that it requires are written.
    pub async fn execute_step(
        &self,
        state: &mut UpdaterState,
        workload: &Workload,
        (step, targets): (&UpdateStep, &[TargetChange]),
        persisted: &PersistedState,
        deadline: PassDeadline<'_>,
    ) -> (StepResult, PassControl) {
        let Shared { config, metrics, watchdog, .. } = &*self.shared;
        let (labels, pod) = (workload.metric_labels(), &workload.pods[step.pod]);
        let count = |outcome: &str| {
            metrics.actions.with_labels([step.action.into_str(), outcome]).increment();
        };
        let failed_eviction = |reason| metrics.count_failed_eviction(labels, reason);
        let failed_resize = |reason| metrics.count_failed_resize(labels, reason);
        if config.dry_run.is_some() {
            Self::log_step(workload, pod, step, true);
            count("dry_run");
            self.events.emit_action_events(workload, pod, &step.action);
            return (StepResult::Done, PassControl::Continue);
        }
        // A pass over thousands of pods takes long without being stuck.
        watchdog.tick();
        if deadline.has_passed() {
            return (StepResult::PersistFailed, PassControl::EndPass);
        }
        if !self.store.writer.acquire_rate_limit(&step.action, deadline).await {
            match step.action {
                Action::Evict { .. } => failed_eviction("EvictionRateLimiterWaitFailed"),
                _ => failed_resize("InPlaceUpdateRateLimiterWaitFailed"),
            }
            return (StepResult::PersistFailed, PassControl::EndPass);
        }
        if !self.write_targets(workload, targets).await {
            count("not_booked");
            return (StepResult::PersistFailed, self.control_after_failure());
        }
        if step.needs_persisting
            && let Err(why) = self.store.persist_intent(state, workload, persisted).await
        {
            tracing::warn!(
                namespace = &*workload.key.namespace,
                name = &*workload.key.name,
                %why,
                "failed to persist the intent of a change; skipping the change"
            );
            count("not_booked");
            return (StepResult::PersistFailed, self.control_after_failure());
        }
        let outcome = match self.store.writer.execute(workload, pod, &step.action).await {
            // Upstream treats every request without a success response as failed.
            StepResult::Indeterminate if config.settings.compat == Compat::Upstream => {
                StepResult::Failed
            }
            outcome => outcome,
        };
        let label = match outcome {
            StepResult::Done => "done",
            StepResult::BlockedByBudget => "disallowed",
            StepResult::InsufficientCapacity => "no_capacity",
            StepResult::PodChanged => "changed",
            StepResult::Failed => "failed",
            StepResult::Indeterminate => "unsure",
            StepResult::PersistFailed => "not_booked",
        };
        count(label);
        match (&step.action, outcome) {
            (Action::Evict { .. }, StepResult::Done) => metrics.count_evicted(labels, 1),
            (Action::Evict { .. }, _) => failed_eviction("EvictionError"),
            (Action::Resize { .. } | Action::RemoveBoost { .. }, StepResult::Done) => {
                metrics.count_resized(labels, 1);
            }
            // Upstream has its own reason for the one mode that has no fallback.
            (Action::Resize { .. }, StepResult::InsufficientCapacity)
                if workload.vpa.spec.update_mode() == UpdateMode::InPlace =>
            {
                failed_resize("InPlaceUpdateInfeasible");
            }
            (Action::Resize { .. }, _) => failed_resize("InPlaceUpdateError"),
            (Action::RemoveBoost { .. }, _) => failed_resize("UnboostError"),
            _ => {}
        }
        if outcome == StepResult::Done {
            Self::log_step(workload, pod, step, false);
            self.events.emit_action_events(workload, pod, &step.action);
        }
        (outcome, PassControl::Continue)
    }

    fn control_after_failure(&self) -> PassControl {
        let is_leader = self.store.writer.permit.fence.is_granted();
        if is_leader { PassControl::NextVpa } else { PassControl::EndPass }
    }

    /// Writes targets of autoscalers, unless they have them already. Returns `false` if that failed; the next pass tries again.
    pub async fn write_targets(&self, workload: &Workload, targets: &[TargetChange]) -> bool {
        if self.shared.config.dry_run.is_some() {
            return true;
        }
        for change in targets {
            let written =
                self.store.writer.write_target(workload, change, self.shared.clock.now()).await;
            let (namespace, vpa) = (&*workload.key.namespace, &*workload.key.name);
            let (hpa, percent, resource) = (&*change.hpa, change.percent, change.target.resource);
            match written {
                Ok(false) => {}
                Ok(true) => tracing::info!(
                    namespace, vpa, hpa, %resource, percent,
                    "changed averageUtilization of the HorizontalPodAutoscaler together with the requests"
                ),
                Err(why) => {
                    tracing::warn!(
                        namespace, vpa, hpa, %resource, percent, %why,
                        "failed to change averageUtilization of the HorizontalPodAutoscaler; requests are not changed"
                    );
                    return false;
                }
            }
        }
        true
    }

    fn log_step(workload: &Workload, pod: &UpdaterPod, step: &UpdateStep, is_dry_run: bool) {
        let ObjectKey { namespace, name } = &workload.key;
        let (namespace, name): (&str, &str) = (namespace, name);
        let (action, pod) = (step.action.into_str(), pod.name_any());
        let message = match (&step.action, is_dry_run) {
            (Action::Evict { .. }, false) => "evicted pod",
            (Action::Evict { .. }, true) => "dry run: would evict pod",
            (Action::Resize { .. }, false) => "resized pod in place",
            (Action::Resize { .. }, true) => "dry run: would resize pod in place",
            (Action::RemoveBoost { .. }, false) => "removed startup boost",
            (Action::RemoveBoost { .. }, true) => "dry run: would remove startup boost",
            (Action::Surge, false) => "scaled Deployment up to two replicas",
            (Action::Surge, true) => "dry run: would scale Deployment up to two replicas",
            (Action::EndSurge, false) => "scaled Deployment back to one replica",
            (Action::EndSurge, true) => "dry run: would scale Deployment back to one replica",
        };
        match &step.action {
            Action::Evict { reason: need } | Action::Resize { reason: need, .. } => {
                tracing::info!(namespace, vpa = name, pod, action, ?need, "{message}");
            }
            _ => tracing::info!(namespace, vpa = name, pod, action, "{message}"),
        }
    }
}

/// Makes the writes of actions, within their rate limits.
pub(super) struct ActionWriter {
    pub compat: Compat,
    pub client: Client,
    pub permit: Permit,
    pub stats: Arc<WriteStats>,
    /// `None` if the configured burst of 0 blocks all evictions.
    pub eviction_limiter: Option<RateLimiter>,
    pub resize_limiter: Option<RateLimiter>,
}

impl ActionWriter {
    /// Waits for the rate limiter. Returns `false` if the pass ends first.
    pub async fn acquire_rate_limit(&self, action: &Action, deadline: PassDeadline<'_>) -> bool {
        let limiter = match action {
            Action::Evict { .. } => &self.eviction_limiter,
            Action::Resize { .. } | Action::RemoveBoost { .. } => &self.resize_limiter,
            Action::Surge | Action::EndSurge => return true,
        };
        let Some(limiter) = limiter else { return false };
        tokio::select! {
            () = deadline.shutdown.cancelled() => false,
            acquired = tokio::time::timeout_at(deadline.deadline.into(), limiter.acquire()) => acquired.is_ok(),
        }
    }

    pub async fn execute(
        &self,
        workload: &Workload,
        pod: &UpdaterPod,
        action: &Action,
    ) -> StepResult {
        match action {
            Action::Evict { .. } => self.evict(pod).await,
            Action::Resize { sized_containers: sizes, boosts_ended: containers, .. }
            | Action::RemoveBoost { containers, sized_containers: sizes } => {
                let keys: Vec<String> =
                    containers.iter().map(|name| boost::annotation_key(name)).collect();
                self.resize(pod, sizes, &keys).await
            }
            Action::Surge => self.set_replicas(workload, (1, 2)).await,
            Action::EndSurge => self.set_replicas(workload, (2, 1)).await,
        }
    }

    /// The context of all writes but those of conditions.
    pub fn context(&self) -> WriteContext<'_> {
        WriteContext {
            client: &self.client,
            permit: &self.permit,
            stats: &self.stats,
            field_manager: UPDATER_FIELD_MANAGER,
        }
    }

    /// Writes a target, with its record. Returns `false` if the object has it already.
    async fn write_target(
        &self,
        workload: &Workload,
        change: &TargetChange,
        now: Time,
    ) -> Result<bool, String> {
        let place = (&*workload.key.namespace, &*change.hpa);
        let read = read_hpa(self.context(), place).await.map_err(|error| error.to_string())?;
        let patch = target_change_patch(&read, change, now).map_err(|error| error.to_string())?;
        let Some(patch) = patch else { return Ok(false) };
        let written = patch_hpa_target(self.context(), place, patch).await;
        written.map(|()| true).map_err(|error| error.to_string())
    }

    async fn evict(&self, pod: &UpdaterPod) -> StepResult {
        let target = pod_ref(pod);
        match evict(self.context(), &target).await {
            Ok(()) => StepResult::Done,
            Err(error) if error.is_blocked_by_budget() => {
                let why = error.message();
                tracing::info!(pod = %target, why, "eviction blocked by PodDisruptionBudget");
                StepResult::BlockedByBudget
            }
            Err(error) => failure_outcome(&target, "eviction", &error),
        }
    }

    /// Resizes a pod and updates its annotations. If the process stops in between, a boost that is still annotated is
    /// removed once more, with the same sizes.
    async fn resize(
        &self,
        pod: &UpdaterPod,
        sizes: &[SizedContainer],
        unboosted: &[String],
    ) -> StepResult {
        let mut target = pod_ref(pod);
        let (mut containers, mut sidecars) = (Vec::new(), Vec::new());
        for size in sizes {
            let Some(container) = pod.sizing.container(size.container) else { continue };
            let list = match size.container {
                ContainerRef::Main(_) => &mut containers,
                ContainerRef::Init(_) => &mut sidecars,
            };
            let resources = ContainerResize {
                requests: quantity_strings(&size.requests),
                limits: quantity_strings(&size.limits),
            };
            list.push((container.name.to_string(), resources));
        }
        match resize(self.context(), &target, &containers, &sidecars).await {
            Ok(resource_version) => target.resource_version = resource_version,
            Err(error) if error.is_beyond_node_capacity() => {
                let why = error.message();
                tracing::info!(pod = %target, why, "resize infeasible: insufficient node capacity");
                return StepResult::InsufficientCapacity;
            }
            Err(error) => return failure_outcome(&target, "resize", &error),
        }
        let mut annotations: BTreeMap<String, Option<String>> = BTreeMap::new();
        annotations.insert(pod_annotations::IN_PLACE.to_owned(), Some("true".to_owned()));
        annotations.extend(unboosted.iter().map(|key| (key.clone(), None)));
        let needs_annotation =
            !unboosted.is_empty() || pod.sizing.annotation(pod_annotations::IN_PLACE).is_none();
        // Upstream writes the annotation after every resize.
        if needs_annotation || self.compat == Compat::Upstream {
            self.annotate(target, &annotations).await;
        }
        StepResult::Done
    }

    /// Writes annotations of a pod. The kubelet updates a pod that was just resized, so on a conflict this reads its
    /// resourceVersion again.
    async fn annotate(&self, mut target: PodRef, annotations: &BTreeMap<String, Option<String>>) {
        for _ in 0..3 {
            match annotate_pod(self.context(), &target, annotations).await {
                Ok(_) | Err(WriteError::NotFound | WriteError::NotLeader) => return,
                Err(WriteError::Conflict(_)) => {
                    let api = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
                        self.client.clone(),
                        &target.namespace,
                    );
                    let request = api.get_metadata(&target.name);
                    let response = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
                    let Ok(Ok(now)) = response else { continue };
                    if now.uid().as_deref() != Some(&*target.uid) {
                        return;
                    }
                    target.resource_version = now.resource_version().unwrap_or_default().into();
                }
                Err(error) => {
                    tracing::warn!(pod = %target, %error, "failed to annotate the resized pod");
                    return;
                }
            }
        }
        tracing::warn!(pod = %target, "failed to annotate the resized pod: too many conflicts");
    }

    pub async fn set_replicas(&self, workload: &Workload, change: (i32, i32)) -> StepResult {
        let (kind, name) = &workload.target;
        if &**kind != "Deployment" {
            return StepResult::Failed;
        }
        self.scale_deployment(&workload.key.namespace, name, change).await
    }

    pub async fn scale_deployment(
        &self,
        namespace: &str,
        name: &str,
        change: (i32, i32),
    ) -> StepResult {
        match self.context().scale_deployment((namespace, name), change).await {
            Ok(true) => StepResult::Done,
            Ok(false) => {
                tracing::info!(
                    namespace,
                    name,
                    "replicas were changed by another client; not scaling"
                );
                // Scaling down again is no longer needed then.
                if change.1 < change.0 { StepResult::Done } else { StepResult::Failed }
            }
            Err(error) => {
                tracing::warn!(namespace, name, %error, "failed to update replicas");
                StepResult::Failed
            }
        }
    }
}

fn pod_ref(pod: &UpdaterPod) -> PodRef {
    PodRef {
        namespace: pod.namespace().unwrap_or_default().into(),
        name: pod.name_any().into(),
        uid: pod.uid().unwrap_or_default().into(),
        resource_version: pod.resource_version().unwrap_or_default().into(),
    }
}

fn quantity_strings(list: &ResourceList) -> BTreeMap<String, String> {
    list.iter().map(|(name, amount)| (name.to_string(), amount.to_string())).collect()
}

/// The result of a failed write. A deleted pod is down and a request without a response may have succeeded, so both are
/// charged as if they had succeeded.
fn failure_outcome(target: &PodRef, operation: &str, error: &WriteError) -> StepResult {
    match error {
        WriteError::NotFound => {
            tracing::info!(pod = %target, "{operation} skipped: pod not found");
            return StepResult::Indeterminate;
        }
        error if matches!(error, WriteError::NoResponse(_)) || error.code() == Some(504) => {
            tracing::warn!(pod = %target, %error, "{operation} result unknown: no response from the API server");
            return StepResult::Indeterminate;
        }
        WriteError::Conflict(_) => {
            tracing::info!(pod = %target, "{operation} skipped: pod has changed");
            return StepResult::PodChanged;
        }
        WriteError::NotLeader => {
            tracing::info!(pod = %target, "{operation} skipped: no longer the leader");
        }
        error => tracing::warn!(pod = %target, %error, "{operation} failed"),
    }
    StepResult::Failed
}
