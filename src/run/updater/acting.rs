//! One step of a pass: at its pace, booked, made, and told.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::ResourceExt as _;

use super::{Role, Stop, matching::Workload, recollection::Recollection};
use crate::{
    act::{
        Annotated, Evicted, PodRef, Resized, annotate, evict, pod::Unwritten, resize,
        resize::ContainerResources, scale,
    },
    metrics::UpdatedVpa,
    observe::running::RunningPod,
};
use plimsoll_core::{
    api::{ResourceList, vpa::UpdateMode},
    sizing::{Place, Size, annotations, boost},
    types::compat::Compat,
    updater::{Action, Outcome, Recall, Step},
};

/// Whether a pass goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It does.
    Go,
    /// With the next VPA: what was decided about this one does not hold any more.
    Leave,
    /// Not now: there is no time left, or this process may not write.
    Stop,
}

/// To look a pod up once more.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// How long steps may go on.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    /// Until then.
    pub deadline: Instant,
    /// And until it is told to end.
    pub stop: &'a Stop,
}

impl Pace<'_> {
    /// Whether no step may begin any more.
    pub fn is_over(&self) -> bool {
        self.stop.is_told() || Instant::now() >= self.deadline
    }
}

impl Role {
    /// Makes a step.
    pub(super) async fn make(
        &self,
        recollection: &mut Recollection,
        workload: &Workload,
        step: &Step,
        recall: &Recall,
        pace: Pace<'_>,
    ) -> (Outcome, Then) {
        let of = workload.counted();
        let pod = &workload.pods[step.pod];
        if self.config.dry_run.is_some() {
            Self::say(workload, pod, step, "would");
            self.metrics.count_action(step.action.word(), "dry_run");
            self.tell_done(workload, pod, &step.action);
            return (Outcome::Done, Then::Go);
        }
        // A pass over thousands takes long, and is no sign that nothing moves.
        self.pulse.beat();
        if pace.is_over() {
            return (Outcome::NotBooked, Then::Stop);
        }
        if !self.in_turn(&step.action, pace).await {
            match step.action {
                Action::Evict { .. } => {
                    self.metrics.count_failed_eviction(of, "EvictionRateLimiterWaitFailed");
                }
                _ => self.metrics.count_failed_resize(of, "InPlaceUpdateRateLimiterWaitFailed"),
            }
            return (Outcome::NotBooked, Then::Stop);
        }
        if step.is_booked
            && let Err(why) = self.book(recollection, workload, recall).await
        {
            let VpaKeyParts { namespace, name } = workload.parts();
            tracing::warn!(namespace, name, ?why, "a change was not booked, and is not made");
            self.metrics.count_action(step.action.word(), "not_booked");
            let fenced = !self.permit.fence().is_held();
            return (Outcome::NotBooked, if fenced { Then::Stop } else { Then::Leave });
        }
        let outcome = match self.act(workload, pod, &step.action).await {
            // Upstream gives back whatever was not answered with a yes.
            Outcome::Unsure if self.config.settings.compat == Compat::Upstream => Outcome::Failed,
            outcome => outcome,
        };
        let word = match outcome {
            Outcome::Done => "done",
            Outcome::Disallowed => "disallowed",
            Outcome::NoCapacity => "no_capacity",
            Outcome::Changed => "changed",
            Outcome::Failed => "failed",
            Outcome::Unsure => "unsure",
            Outcome::NotBooked => "not_booked",
        };
        self.metrics.count_action(step.action.word(), word);
        match (&step.action, outcome) {
            (Action::Evict { .. }, Outcome::Done) => self.metrics.count_evicted(of),
            (Action::Evict { .. }, _) => self.metrics.count_failed_eviction(of, "EvictionError"),
            (Action::Resize { .. } | Action::Unboost { .. }, Outcome::Done) => {
                self.metrics.count_resized(of);
            }
            // Upstream's word for it in the one mode that has nothing else to try.
            (Action::Resize { .. }, Outcome::NoCapacity)
                if workload.vpa.spec.update_mode() == UpdateMode::InPlace =>
            {
                self.metrics.count_failed_resize(of, "InPlaceUpdateInfeasible");
            }
            (Action::Resize { .. }, _) => {
                self.metrics.count_failed_resize(of, "InPlaceUpdateError");
            }
            (Action::Unboost { .. }, _) => self.metrics.count_failed_resize(of, "UnboostError"),
            _ => {}
        }
        if outcome == Outcome::Done {
            Self::say(workload, pod, step, "did");
            self.tell_done(workload, pod, &step.action);
        }
        (outcome, Then::Go)
    }

    /// Waits for its turn; `false` when that would take longer than the pass may.
    async fn in_turn(&self, action: &Action, pace: Pace<'_>) -> bool {
        let limiter = match action {
            Action::Evict { .. } => &self.evictions,
            Action::Resize { .. } | Action::Unboost { .. } => &self.resizes,
            Action::Surge | Action::EndSurge => return true,
        };
        let Some(limiter) = limiter else { return false };
        tokio::select! {
            () = pace.stop.stopped() => false,
            turn = tokio::time::timeout_at(pace.deadline.into(), limiter.acquire()) => turn.is_ok(),
        }
    }

    pub(super) async fn act(
        &self,
        workload: &Workload,
        pod: &RunningPod,
        action: &Action,
    ) -> Outcome {
        match action {
            Action::Evict { .. } => self.evict(pod).await,
            Action::Resize { sizes, unboosted: containers, .. }
            | Action::Unboost { containers, sizes } => {
                let keys: Vec<String> = containers.iter().map(|name| boost::key(name)).collect();
                self.resize(pod, sizes, &keys).await
            }
            Action::Surge => self.set_replicas(workload, (1, 2)).await,
            Action::EndSurge => self.set_replicas(workload, (2, 1)).await,
        }
    }

    async fn evict(&self, pod: &RunningPod) -> Outcome {
        let place = place(pod);
        match evict(&self.client, &self.permit, &self.stats, &place).await {
            Evicted::Done => Outcome::Done,
            Evicted::Blocked { why, .. } => {
                tracing::info!(pod = %place, why, "a disruption budget keeps a pod");
                Outcome::Disallowed
            }
            Evicted::Unwritten(why) => failed(&place, "evicted", &why),
        }
    }

    /// New sizes for a pod, and what its annotations say of that. What is cut off in between is made up for: a boost that
    /// still stands in the annotations is taken back once more, to the same sizes.
    async fn resize(&self, pod: &RunningPod, sizes: &[Size], unboosted: &[String]) -> Outcome {
        let mut place = place(pod);
        let (mut containers, mut sidecars) = (Vec::new(), Vec::new());
        for size in sizes {
            let Some(container) = pod.sizes.at(size.place) else { continue };
            let list = match size.place {
                Place::Main(_) => &mut containers,
                Place::Init(_) => &mut sidecars,
            };
            let resources =
                ContainerResources { requests: texts(&size.requests), limits: texts(&size.limits) };
            list.push((container.name.to_string(), resources));
        }
        let (client, permit, stats) = (&self.client, &self.permit, &self.stats);
        match resize(client, permit, stats, &place, &containers, &sidecars).await {
            Resized::Accepted { resource_version } => place.resource_version = resource_version,
            Resized::BeyondNode { why } => {
                tracing::info!(pod = %place, why, "a node can never give so much");
                return Outcome::NoCapacity;
            }
            Resized::Refused { why } => {
                tracing::warn!(pod = %place, why, "a resize was refused");
                return Outcome::Failed;
            }
            Resized::Unwritten(why) => return failed(&place, "resized", &why),
        }
        let mut said: BTreeMap<String, Option<String>> = BTreeMap::new();
        said.insert(annotations::IN_PLACE.to_owned(), Some("true".to_owned()));
        said.extend(unboosted.iter().map(|key| (key.clone(), None)));
        let is_news =
            !unboosted.is_empty() || pod.sizes.annotation(annotations::IN_PLACE).is_none();
        // Upstream says it anew each time.
        if is_news || self.config.settings.compat == Compat::Upstream {
            self.annotate(place, &said).await;
        }
        Outcome::Done
    }

    /// The kubelet writes a pod that was just resized, so its version may be another one: then it is asked for.
    async fn annotate(&self, mut place: PodRef, said: &BTreeMap<String, Option<String>>) {
        let (client, permit, stats) = (&self.client, &self.permit, &self.stats);
        for _ in 0..3 {
            match annotate(client, permit, stats, &place, said).await {
                Annotated::Done { .. }
                | Annotated::Unwritten(Unwritten::Gone | Unwritten::Fenced) => {
                    return;
                }
                Annotated::Unwritten(Unwritten::Changed) => {
                    let api = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
                        client.clone(),
                        &place.namespace,
                    );
                    let asked = api.get_metadata(&place.name);
                    let read = tokio::time::timeout(REQUEST_LIMIT, asked).await;
                    let Ok(Ok(now)) = read else { continue };
                    if now.uid().as_deref() != Some(&*place.uid) {
                        return;
                    }
                    place.resource_version = now.resource_version().unwrap_or_default().into();
                }
                Annotated::Unwritten(
                    Unwritten::Failed { why, .. } | Unwritten::Unanswered { why },
                ) => {
                    tracing::warn!(pod = %place, why, "a resize is not noted on its pod");
                    return;
                }
            }
        }
        tracing::warn!(pod = %place, "a resize is not noted on its pod, which changes all the time");
    }

    pub(super) async fn set_replicas(&self, workload: &Workload, change: (i32, i32)) -> Outcome {
        let (kind, name) = &workload.target;
        if &**kind != "Deployment" {
            return Outcome::Failed;
        }
        self.scale_deployment(&workload.key.namespace, name, change).await
    }

    pub(super) async fn scale_deployment(
        &self,
        namespace: &str,
        name: &str,
        change: (i32, i32),
    ) -> Outcome {
        let of = (namespace, name);
        match scale(&self.client, &self.permit, &self.stats, of, change).await {
            Ok(true) => Outcome::Done,
            Ok(false) => {
                tracing::info!(namespace = of.0, name = of.1, "somebody else set other replicas");
                // There is nothing left to be undone.
                if change.1 < change.0 { Outcome::Done } else { Outcome::Failed }
            }
            Err(why) => {
                tracing::warn!(why, "replicas were not changed");
                Outcome::Failed
            }
        }
    }

    fn say(workload: &Workload, pod: &RunningPod, step: &Step, verb: &str) {
        let VpaKeyParts { namespace, name } = workload.parts();
        let (action, pod) = (step.action.word(), pod.name_any());
        match &step.action {
            Action::Evict { need } | Action::Resize { need, .. } => {
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
    pub fn counted(&self) -> UpdatedVpa<'_> {
        let mode = self.vpa.spec.update_mode().as_str();
        UpdatedVpa { vpa: &self.key, mode, pods: self.pods.len() }
    }

    /// As logs name it.
    pub fn parts(&self) -> VpaKeyParts<'_> {
        VpaKeyParts { namespace: &self.key.namespace, name: &self.key.name }
    }
}

fn place(pod: &RunningPod) -> PodRef {
    PodRef {
        namespace: pod.namespace().unwrap_or_default().into(),
        name: pod.name_any().into(),
        uid: pod.uid().unwrap_or_default().into(),
        resource_version: pod.resource_version().unwrap_or_default().into(),
    }
}

fn texts(list: &ResourceList) -> BTreeMap<String, String> {
    list.iter().map(|(name, amount)| (name.to_string(), amount.to_string())).collect()
}

/// What is gone is down, and what was not answered may be done: both cost what they would have cost.
fn failed(place: &PodRef, done: &str, why: &Unwritten) -> Outcome {
    match why {
        Unwritten::Gone => {
            tracing::info!(pod = %place, "a pod that was to be {done} is gone");
            return Outcome::Unsure;
        }
        Unwritten::Unanswered { why } => {
            tracing::warn!(why, "it may be that a pod was {done}");
            return Outcome::Unsure;
        }
        Unwritten::Changed => {
            tracing::info!(pod = %place, "a pod that was to be {done} has changed");
            return Outcome::Changed;
        }
        Unwritten::Fenced => {
            tracing::info!(pod = %place, "a pod is not {done}: another process leads");
        }
        Unwritten::Failed { why, .. } => tracing::warn!(why, "a pod was not {done}"),
    }
    Outcome::Failed
}
