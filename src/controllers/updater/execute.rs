//! One step of a pass: at its pace, booked, made, and told.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::ResourceExt as _;

use super::{ShutdownToken, Updater, matching::Workload, persisted_state::UpdaterState};
use crate::{
    cluster::{
        cache::updater_pod::UpdaterPod,
        write::{
            AnnotateResult, EvictionResult, PodRef, ResizeResult, annotate_pod, evict,
            pod_annotations::PodWriteError, resize, resize::ContainerResize, scale_deployment,
        },
    },
    telemetry::UpdatedVpa,
};
use plimsoll_core::{
    api::{ResourceList, vpa::UpdateMode},
    sizing::{ContainerRef, SizedContainer, boost, pod_annotations},
    types::compat::Compat,
    updater::{Action, PersistedState, StepResult, UpdateStep},
};

/// Whether a pass goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassControl {
    /// It does.
    Continue,
    /// With the next VPA: what was decided about this one does not hold any more.
    NextVpa,
    /// Not now: there is no time left, or this process may not write.
    EndPass,
}

/// To look a pod up once more.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long steps may go on.
#[derive(Clone, Copy)]
pub(super) struct PassDeadline<'a> {
    /// Until then.
    pub deadline: Instant,
    /// And until it is told to end.
    pub shutdown: &'a ShutdownToken,
}

impl PassDeadline<'_> {
    /// Whether no step may begin any more.
    pub fn has_passed(&self) -> bool {
        self.shutdown.is_cancelled() || Instant::now() >= self.deadline
    }
}

impl Updater {
    /// Makes a step.
    pub(super) async fn execute_step(
        &self,
        recollection: &mut UpdaterState,
        workload: &Workload,
        step: &UpdateStep,
        recall: &PersistedState,
        pace: PassDeadline<'_>,
    ) -> (StepResult, PassControl) {
        let of = workload.metric_labels();
        let pod = &workload.pods[step.pod];
        if self.config.dry_run.is_some() {
            Self::log_step(workload, pod, step, "would");
            self.metrics.count_action(step.action.as_str(), "dry_run");
            self.emit_action_events(workload, pod, &step.action);
            return (StepResult::Done, PassControl::Continue);
        }
        // A pass over thousands takes long, and is no sign that nothing moves.
        self.loop_watchdog.tick();
        if pace.has_passed() {
            return (StepResult::PersistFailed, PassControl::EndPass);
        }
        if !self.acquire_rate_limit(&step.action, pace).await {
            match step.action {
                Action::Evict { .. } => {
                    self.metrics.count_failed_eviction(of, "EvictionRateLimiterWaitFailed");
                }
                _ => self.metrics.count_failed_resize(of, "InPlaceUpdateRateLimiterWaitFailed"),
            }
            return (StepResult::PersistFailed, PassControl::EndPass);
        }
        if step.needs_persisting
            && let Err(why) = self.persist_intent(recollection, workload, recall).await
        {
            let VpaKeyParts { namespace, name } = workload.key_parts();
            tracing::warn!(namespace, name, ?why, "a change was not booked, and is not made");
            self.metrics.count_action(step.action.as_str(), "not_booked");
            let fenced = !self.permit.fence().is_granted();
            return (
                StepResult::PersistFailed,
                if fenced { PassControl::EndPass } else { PassControl::NextVpa },
            );
        }
        let outcome = match self.execute_action(workload, pod, &step.action).await {
            // Upstream gives back whatever was not answered with a yes.
            StepResult::Indeterminate if self.config.settings.compat == Compat::Upstream => {
                StepResult::Failed
            }
            outcome => outcome,
        };
        let word = match outcome {
            StepResult::Done => "done",
            StepResult::BlockedByBudget => "disallowed",
            StepResult::InsufficientCapacity => "no_capacity",
            StepResult::PodChanged => "changed",
            StepResult::Failed => "failed",
            StepResult::Indeterminate => "unsure",
            StepResult::PersistFailed => "not_booked",
        };
        self.metrics.count_action(step.action.as_str(), word);
        match (&step.action, outcome) {
            (Action::Evict { .. }, StepResult::Done) => self.metrics.count_evicted(of),
            (Action::Evict { .. }, _) => self.metrics.count_failed_eviction(of, "EvictionError"),
            (Action::Resize { .. } | Action::RemoveBoost { .. }, StepResult::Done) => {
                self.metrics.count_resized(of);
            }
            // Upstream's word for it in the one mode that has nothing else to try.
            (Action::Resize { .. }, StepResult::InsufficientCapacity)
                if workload.vpa.spec.update_mode() == UpdateMode::InPlace =>
            {
                self.metrics.count_failed_resize(of, "InPlaceUpdateInfeasible");
            }
            (Action::Resize { .. }, _) => {
                self.metrics.count_failed_resize(of, "InPlaceUpdateError");
            }
            (Action::RemoveBoost { .. }, _) => self.metrics.count_failed_resize(of, "UnboostError"),
            _ => {}
        }
        if outcome == StepResult::Done {
            Self::log_step(workload, pod, step, "did");
            self.emit_action_events(workload, pod, &step.action);
        }
        (outcome, PassControl::Continue)
    }

    /// Waits for its turn; `false` when that would take longer than the pass may.
    async fn acquire_rate_limit(&self, action: &Action, pace: PassDeadline<'_>) -> bool {
        let limiter = match action {
            Action::Evict { .. } => &self.eviction_limiter,
            Action::Resize { .. } | Action::RemoveBoost { .. } => &self.resize_limiter,
            Action::Surge | Action::EndSurge => return true,
        };
        let Some(limiter) = limiter else { return false };
        tokio::select! {
            () = pace.shutdown.cancelled() => false,
            turn = tokio::time::timeout_at(pace.deadline.into(), limiter.acquire()) => turn.is_ok(),
        }
    }

    pub(super) async fn execute_action(
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

    async fn evict(&self, pod: &UpdaterPod) -> StepResult {
        let place = pod_ref(pod);
        match evict(&self.client, &self.permit, &self.write_stats, &place).await {
            EvictionResult::Evicted => StepResult::Done,
            EvictionResult::PdbBlocked { why, .. } => {
                tracing::info!(pod = %place, why, "a disruption budget keeps a pod");
                StepResult::BlockedByBudget
            }
            EvictionResult::Failed(why) => failure_outcome(&place, "evicted", &why),
        }
    }

    /// New sizes for a pod, and what its annotations say of that. What is cut off in between is made up for: a boost that
    /// still stands in the annotations is taken back once more, to the same sizes.
    async fn resize(
        &self,
        pod: &UpdaterPod,
        sizes: &[SizedContainer],
        unboosted: &[String],
    ) -> StepResult {
        let mut place = pod_ref(pod);
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
        let (client, permit, stats) = (&self.client, &self.permit, &self.write_stats);
        match resize(client, permit, stats, &place, &containers, &sidecars).await {
            ResizeResult::Accepted { resource_version } => {
                place.resource_version = resource_version;
            }
            ResizeResult::Infeasible { why } => {
                tracing::info!(pod = %place, why, "a node can never give so much");
                return StepResult::InsufficientCapacity;
            }
            ResizeResult::Rejected { why } => {
                tracing::warn!(pod = %place, why, "a resize was refused");
                return StepResult::Failed;
            }
            ResizeResult::Failed(why) => return failure_outcome(&place, "resized", &why),
        }
        let mut said: BTreeMap<String, Option<String>> = BTreeMap::new();
        said.insert(pod_annotations::IN_PLACE.to_owned(), Some("true".to_owned()));
        said.extend(unboosted.iter().map(|key| (key.clone(), None)));
        let is_news =
            !unboosted.is_empty() || pod.sizing.annotation(pod_annotations::IN_PLACE).is_none();
        // Upstream says it anew each time.
        if is_news || self.config.settings.compat == Compat::Upstream {
            self.annotate(place, &said).await;
        }
        StepResult::Done
    }

    /// The kubelet writes a pod that was just resized, so its version may be another one: then it is asked for.
    async fn annotate(&self, mut place: PodRef, said: &BTreeMap<String, Option<String>>) {
        let (client, permit, stats) = (&self.client, &self.permit, &self.write_stats);
        for _ in 0..3 {
            match annotate_pod(client, permit, stats, &place, said).await {
                AnnotateResult::Written { .. }
                | AnnotateResult::Failed(PodWriteError::NotFound | PodWriteError::NotLeader) => {
                    return;
                }
                AnnotateResult::Failed(PodWriteError::Conflict) => {
                    let api = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
                        client.clone(),
                        &place.namespace,
                    );
                    let asked = api.get_metadata(&place.name);
                    let read = tokio::time::timeout(REQUEST_TIMEOUT, asked).await;
                    let Ok(Ok(now)) = read else { continue };
                    if now.uid().as_deref() != Some(&*place.uid) {
                        return;
                    }
                    place.resource_version = now.resource_version().unwrap_or_default().into();
                }
                AnnotateResult::Failed(
                    PodWriteError::Failed { why, .. } | PodWriteError::NoResponse { why },
                ) => {
                    tracing::warn!(pod = %place, why, "a resize is not noted on its pod");
                    return;
                }
            }
        }
        tracing::warn!(pod = %place, "a resize is not noted on its pod, which changes all the time");
    }

    pub(super) async fn set_replicas(&self, workload: &Workload, change: (i32, i32)) -> StepResult {
        let (kind, name) = &workload.target;
        if &**kind != "Deployment" {
            return StepResult::Failed;
        }
        self.scale_deployment(&workload.key.namespace, name, change).await
    }

    pub(super) async fn scale_deployment(
        &self,
        namespace: &str,
        name: &str,
        change: (i32, i32),
    ) -> StepResult {
        let of = (namespace, name);
        match scale_deployment(&self.client, &self.permit, &self.write_stats, of, change).await {
            Ok(true) => StepResult::Done,
            Ok(false) => {
                tracing::info!(namespace = of.0, name = of.1, "somebody else set other replicas");
                // There is nothing left to be undone.
                if change.1 < change.0 { StepResult::Done } else { StepResult::Failed }
            }
            Err(why) => {
                tracing::warn!(why, "replicas were not changed");
                StepResult::Failed
            }
        }
    }

    fn log_step(workload: &Workload, pod: &UpdaterPod, step: &UpdateStep, verb: &str) {
        let VpaKeyParts { namespace, name } = workload.key_parts();
        let (action, pod) = (step.action.as_str(), pod.name_any());
        match &step.action {
            Action::Evict { reason: need } | Action::Resize { reason: need, .. } => {
                tracing::info!(namespace, vpa = name, pod, action, ?need, "{verb}");
            }
            _ => tracing::info!(namespace, vpa = name, pod, action, "{verb}"),
        }
    }
}

/// Namespace and name, for logs.
pub(super) struct VpaKeyParts<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Workload {
    /// As metrics count it.
    pub fn metric_labels(&self) -> UpdatedVpa<'_> {
        let mode = self.vpa.spec.update_mode().as_str();
        UpdatedVpa { vpa: &self.key, mode, pods: self.pods.len() }
    }

    /// As logs name it.
    pub fn key_parts(&self) -> VpaKeyParts<'_> {
        VpaKeyParts { namespace: &self.key.namespace, name: &self.key.name }
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

/// What is gone is down, and what was not answered may be done: both cost what they would have cost.
fn failure_outcome(place: &PodRef, done: &str, why: &PodWriteError) -> StepResult {
    match why {
        PodWriteError::NotFound => {
            tracing::info!(pod = %place, "a pod that was to be {done} is gone");
            return StepResult::Indeterminate;
        }
        PodWriteError::NoResponse { why } => {
            tracing::warn!(why, "it may be that a pod was {done}");
            return StepResult::Indeterminate;
        }
        PodWriteError::Conflict => {
            tracing::info!(pod = %place, "a pod that was to be {done} has changed");
            return StepResult::PodChanged;
        }
        PodWriteError::NotLeader => {
            tracing::info!(pod = %place, "a pod is not {done}: another process leads");
        }
        PodWriteError::Failed { why, .. } => tracing::warn!(why, "a pod was not {done}"),
    }
    StepResult::Failed
}
