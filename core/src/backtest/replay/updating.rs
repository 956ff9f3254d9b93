//! Drives the passes of the updater on virtual pods, and leaves out those that cannot change anything.

use std::{collections::BTreeMap, time::Duration};

use super::{ReplaySettings, pods::VirtualPod, sizer::Sizer};
use crate::{
    api::vpa,
    backtest::{policy::Estimates, recording::WorkloadRecording},
    sizing::pod_annotations,
    types::{ObjectKey, Time, compat::Compat},
    updater::{
        self, Action, DesiredReplicas, PassContext, PersistedState, PodOutcome, PodOwner,
        PodSizing, PodStatus, Readiness, SkipReason, StepResult, UpdatePass, VpaWithPods,
        guard::{RecommenderHeartbeat, WindowState, disruption_budget::PodCounts},
        pod_status::{ContainerStatus, Phase, Termination},
    },
};

/// How long changed pods are observed after the last change, and more: until then every pod that is far from its target is
/// considered.
const WATCH_SECONDS: i64 = 2 * 3_600;

/// How long the updater remembers the change of a pod.
const CHANGE_RETENTION: Duration = Duration::from_hours(24);

/// The updater of one workload.
pub(super) struct Updating {
    settings: updater::Settings,
    key: ObjectKey,
    owner: PodOwner,
    /// Whether the requests are planned.
    is_planned: bool,
    state: PersistedState,
    /// Counts changes of the set of pods, of their readiness, and kills.
    version: u64,
    decided: Option<Decided>,
}

/// The last pass, as far as it determines when the next one is due.
struct Decided {
    version: u64,
    /// Whether each pod needed an update.
    needs: Vec<Need>,
    /// Until when nothing can change while the same pods need one; `None` if that is not known.
    until: Option<Time>,
    /// When the updater forgets the change of a pod.
    forgets_at: Option<Time>,
}

/// Whether a pod needs an update, by the rules of the updater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    None,
    /// It is far from its target, but too young.
    Later,
    /// It is far from its target, and old enough unless it was resized since.
    Aged,
    /// A request is outside of the bounds, or not set.
    Outside,
    /// A container was killed soon after its start.
    Urgent,
}

/// A change of a pod.
pub(super) struct Change {
    pub pod: usize,
    pub action: Action,
}

impl Updating {
    pub fn new(
        recording: &WorkloadRecording,
        compat: Compat,
        settings: &ReplaySettings,
        is_planned: bool,
    ) -> Self {
        let settings = match compat {
            Compat::Upstream => updater::Settings::for_compat(Compat::Upstream),
            Compat::Plimsoll => settings.updater.clone(),
        };
        let kind = match &*recording.kind {
            "StatefulSet" => "StatefulSet",
            "DaemonSet" => "DaemonSet",
            "Job" | "CronJob" => "Job",
            _ => "ReplicaSet",
        };
        Self {
            settings,
            key: recording.key.clone(),
            owner: PodOwner { kind: kind.into(), name: recording.key.name.clone() },
            is_planned,
            state: PersistedState::default(),
            version: 0,
            decided: None,
        }
    }

    /// Notes that pods came or went, became ready, or were killed.
    pub fn note_change(&mut self) {
        self.version += 1;
    }

    /// Whether a pass may change something. The estimates are those of the recommendation of the pass.
    pub fn is_due(&self, pods: &[VirtualPod], estimates: &[Option<Estimates>], now: Time) -> bool {
        let last = self.state.workload.rollout.as_ref().map(|rollout| rollout.last);
        let is_watched = last.is_some_and(|last| now.as_secs() - last.as_secs() < WATCH_SECONDS);
        let Some(decided) = &self.decided else { return true };
        if decided.version != self.version {
            return true;
        }
        if decided.forgets_at.is_some_and(|at| at <= now) {
            return true;
        }
        let mut most = Need::None;
        let is_same = decided.needs.len() == pods.len()
            && pods.iter().zip(&decided.needs).all(|(pod, before)| {
                let need = self.need(pod, estimates, is_watched, now);
                most = most.max(need);
                need == *before
            });
        let is_held = || decided.until.is_some_and(|until| now < until);
        !is_same || most == Need::Urgent || most > Need::None && !is_held()
    }

    /// Whether a pod needs an update. One that is too young is distinguished from others only while changed pods are observed.
    fn need(
        &self,
        pod: &VirtualPod,
        estimates: &[Option<Estimates>],
        is_watched: bool,
        now: Time,
    ) -> Need {
        let (mut requested, mut wanted) = ([0_i64; 2], [0_i64; 2]);
        let mut is_outside = false;
        for (container, estimate) in pod.containers.iter().zip(estimates) {
            let Some(estimate) = estimate.filter(|_| container.is_present) else { continue };
            let held = &container.held;
            let amounts = [
                (held.cpu.map(|cpu| cpu.0), estimate.cpu),
                (held.memory.map(|memory| memory.0), estimate.memory),
            ];
            for (resource, (request, [lower, target, upper])) in amounts.into_iter().enumerate() {
                wanted[resource] += target;
                match request {
                    Some(request) => {
                        requested[resource] += request;
                        is_outside |= request < lower || request > upper;
                    }
                    None => is_outside = true,
                }
            }
            let is_recent = |(started, finished): (Time, Time)| {
                finished < started.later(self.settings.oom_threshold)
                    && now < finished.later(self.settings.oom_threshold)
            };
            if container.last_kill.is_some_and(is_recent) {
                return Need::Urgent;
            }
        }
        if is_outside {
            return Need::Outside;
        }
        if self.is_planned {
            return Need::None;
        }
        let difference: f64 = requested
            .iter()
            .zip(wanted)
            .map(|(requested, wanted)| {
                (*requested as f64 - wanted as f64).abs() / (*requested as f64).max(1.0)
            })
            .sum();
        // Slightly less than the threshold, as the updater adds up thousandths.
        if difference < self.settings.update_threshold * (1.0 - 1e-6) {
            return Need::None;
        }
        if pod.created.later(self.settings.lifetime_threshold) <= now {
            return Need::Aged;
        }
        if is_watched { Need::Later } else { Need::None }
    }

    /// Runs a pass, and returns the changes that it makes.
    pub fn pass(
        &mut self,
        pods: &[VirtualPod],
        sizer: &Sizer,
        recommendation: &vpa::Recommendation,
        estimates: &[Option<Estimates>],
        now: Time,
    ) -> Vec<Change> {
        let objects: Vec<updater::Pod> =
            pods.iter().map(|pod| self.object(pod, sizer, now)).collect();
        let count = pods.len() as u32;
        let desired = |_: &PodOwner| DesiredReplicas::Known(count);
        let context = PassContext {
            desired_replicas: &desired,
            pod_counts: PodCounts { cluster: count, namespace: count },
            heartbeat: RecommenderHeartbeat::Fresh { history_loaded: true },
            is_admission_ready: true,
            can_resize: true,
            now,
        };
        let sizing = PodSizing {
            spec: sizer.sizing_spec(recommendation),
            limit_ranges: Some(&sizer.ranges),
            quotas: &[],
            rules: sizer.rules,
        };
        let subject = VpaWithPods {
            vpa: &self.key,
            generation: None,
            sizing,
            maintenance_window: WindowState::Open,
            is_planned: self.is_planned,
            surges: false,
            pods: &objects,
        };
        let state = std::mem::take(&mut self.state);
        let mut pass = UpdatePass::new(subject, context, &self.settings, state);
        let mut changes = Vec::new();
        while let Some(step) = pass.next() {
            pass.record_result(StepResult::Done);
            changes.push(Change { pod: step.pod, action: step.action });
        }
        let decision = pass.finish();
        self.state = decision.state;
        let last = self.state.workload.rollout.as_ref().map(|rollout| rollout.last);
        let is_watched = last.is_some_and(|last| now.as_secs() - last.as_secs() < WATCH_SECONDS);
        let needs: Vec<Need> =
            pods.iter().map(|pod| self.need(pod, estimates, is_watched, now)).collect();
        let outcomes = needs.iter().zip(&decision.pod_outcomes);
        let until = outcomes
            .filter(|(need, _)| **need > Need::None)
            .map(|(_, outcome)| held_until(outcome))
            .min()
            .flatten();
        let times = self.state.workload.touches.iter().map(|change| change.at);
        let forgets_at = times.min().map(|at| at.later(CHANGE_RETENTION));
        self.decided = Some(Decided { version: self.version, needs, until, forgets_at });
        if !changes.is_empty() {
            self.version += 1;
        }
        changes
    }

    fn object(&self, pod: &VirtualPod, sizer: &Sizer, now: Time) -> updater::Pod {
        let uid = format!("{}-{}", pod.name, pod.generation);
        let held = pod.containers.iter().map(|container| (container.is_present, container.held));
        let mut spec = sizer.pod(&pod.name, &uid, held);
        if pod.is_sized {
            let mark = (pod_annotations::UPDATES.to_owned(), "sized".to_owned());
            spec.annotations = Some(BTreeMap::from([mark]));
        }
        let is_ready = pod.ready_at <= now;
        let status =
            |(index, container): (usize, &super::pods::VirtualContainer)| ContainerStatus {
                name: sizer.name(index).clone(),
                restarts: container.restarts,
                backing_off: false,
                last_termination: container.last_kill.map(|(started, finished)| Termination {
                    out_of_memory: true,
                    started,
                    finished,
                }),
            };
        let present =
            pod.containers.iter().enumerate().filter(|(_, container)| container.is_present);
        spec.ready_since = is_ready.then_some(pod.ready_at);
        let status = PodStatus {
            owner: Some(self.owner.clone()),
            phase: Phase::Running,
            created: pod.created,
            started: Some(pod.created),
            readiness: if is_ready {
                Readiness::Ready(pod.ready_at)
            } else {
                Readiness::Unready(pod.created)
            },
            generation: Some(1 + pod.resizes),
            resize_pending: None,
            resize_in_progress: None,
            containers: present.map(status).collect(),
        };
        updater::Pod { spec, status }
    }
}

/// Until when a pod is held back while nothing else happens; `None` if that is not known.
fn held_until(outcome: &PodOutcome) -> Option<Time> {
    let PodOutcome::Skipped(reason) = outcome else { return None };
    match reason {
        SkipReason::CoolDown { until }
        | SkipReason::BreakerOpen { until }
        | SkipReason::ClusterBreakerOpen { until }
        | SkipReason::TooYoung { until } => Some(*until),
        // Nothing but a change of the set of pods ends this.
        SkipReason::BelowMinReplicas { .. } => Some(Time::from_nanos(i64::MAX)),
        _ => None,
    }
}
