//! Simulates a small cluster: pods that start, are evicted and replaced, webhooks that fail, and updaters that come and go.
//! Time advances by the minute.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    sizing::Resources,
    types::compat::Compat,
    updater::{
        Action, DesiredReplicas, PersistedState, Pod, Readiness, StepResult, UpdatePass,
        pod_status::ResizeCondition,
    },
};

use super::{PassCase, pod, recommended};
use crate::sizing::list;

/// Whether the updater survives a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdaterCrash {
    /// The step is made.
    Survives,
    /// The updater crashes after persisting the step, before making it.
    DiesBefore,
    /// The updater crashes after making the step.
    DiesAfter,
}

/// A simulated workload.
#[derive(Clone, Debug)]
pub struct SimulatedWorkload {
    pub case: PassCase,
    /// Requests of the pod template, and the recommendation.
    pub template: &'static str,
    pub target: &'static str,
    /// Whether the webhook sizes new pods.
    pub is_webhook_up: bool,
    /// Minutes until a new pod is ready.
    pub starts_within: u64,
    pub evictions: usize,
    /// Set when updaters made more pods unavailable at once than allowed.
    pub broken_budget: Option<String>,
    next: usize,
    /// State persisted in the VPA and the Lease, and its version.
    written: PersistedState,
    version: usize,
}

impl SimulatedWorkload {
    pub fn new(compat: Compat, mode: &str, pods: usize) -> Self {
        let mut case = PassCase::new(compat, mode, pods);
        case.wanted = DesiredReplicas::Known(pods as u32);
        Self {
            case,
            template: "cpu 1, memory 100M",
            target: "cpu 2, memory 200M",
            is_webhook_up: true,
            starts_within: 1,
            evictions: 0,
            broken_budget: None,
            next: pods,
            written: PersistedState::default(),
            version: 0,
        }
    }

    /// Returns the target without its bounds.
    fn recommendation(&self) -> &'static str {
        self.target.split(';').next().unwrap_or_default()
    }

    pub fn now(&self) -> Time {
        self.case.now
    }

    fn make_pod(&mut self) {
        let text = if self.is_webhook_up { self.recommendation() } else { self.template };
        let mut new = pod(self.next, &[text]);
        self.next += 1;
        if self.is_webhook_up {
            new.spec.annotations = Some([("vpaUpdates".into(), "sized".into())].into());
        }
        let now = self.now();
        new.status.created = Time::from_secs(now.as_secs());
        new.status.started = Some(now);
        new.status.readiness = Readiness::Unready(now);
        self.case.pods.push(new);
    }

    /// Ends a pod.
    pub fn kill(&mut self, pod: usize) {
        if !self.case.pods.is_empty() {
            let pod = pod % self.case.pods.len();
            self.case.pods.remove(pod);
            self.make_pod();
        }
    }

    pub fn ready(&self) -> usize {
        self.case.pods.iter().filter(|pod| pod.status.is_ready()).count()
    }

    /// Advances the time by a minute.
    pub fn step(&mut self) {
        self.case.now = self.case.now.later(Duration::from_mins(1));
        let now = self.case.now;
        let within = Duration::from_mins(self.starts_within);
        for pod in &mut self.case.pods {
            if let Readiness::Unready(since) = pod.status.readiness
                && since.later(within) <= now
            {
                pod.status.readiness = Readiness::Ready(now);
            }
            if pod.status.is_ready() {
                pod.status.resize_in_progress = None;
            }
        }
    }

    /// Returns what an updater reads: the state and its version.
    pub fn read(&self) -> (PersistedState, usize) {
        (self.written.clone(), self.version)
    }

    /// Runs a pass of an updater that read this state and sees these pods. Its n-th step ends like this.
    pub fn pass(
        &mut self,
        read: (PersistedState, usize),
        stale_pods: Option<Vec<Pod>>,
        fate: (usize, UpdaterCrash),
    ) {
        let mut case = self.case.clone();
        case.recommendation = Some(recommended(&[self.target]));
        if let Some(stale_pods) = stale_pods {
            case.pods = stale_pods;
        }
        let (recall, mut version) = read;
        let settings = case.settings.clone();
        case.with_subject(|subject, world| {
            let mut pass = UpdatePass::new(subject, world, &settings, recall);
            let mut count = 0;
            if *pass.state() != self.written && version == self.version {
                self.version += 1;
                version = self.version;
                self.written = pass.state().clone();
            }
            while let Some(step) = pass.next() {
                if step.needs_persisting && version != self.version {
                    pass.record_result(StepResult::PersistFailed);
                    continue;
                }
                let is_upstream = settings.compat == Compat::Upstream;
                if step.needs_persisting && !is_upstream {
                    self.version += 1;
                    version = self.version;
                    self.written = pass.state().clone();
                }
                count += 1;
                let fate = if count == fate.0 { fate.1 } else { UpdaterCrash::Survives };
                if fate == UpdaterCrash::DiesBefore {
                    return;
                }
                let uid = &subject.pods[step.pod].spec.uid;
                let outcome = self.act(uid, &step.action);
                if fate == UpdaterCrash::DiesAfter {
                    return;
                }
                pass.record_result(outcome);
            }
            // Refunds are persisted too, and upstream's in-memory state is kept.
            if version == self.version {
                self.written = pass.finish().state;
            }
        });
    }

    /// Runs a pass of an updater with a current view.
    pub fn plain_pass(&mut self) {
        let read = self.read();
        self.pass(read, None, (0, UpdaterCrash::Survives));
    }

    fn act(&mut self, uid: &str, action: &Action) -> StepResult {
        let Some(place) = self.case.pods.iter().position(|pod| *pod.spec.uid == *uid) else {
            return StepResult::Failed;
        };
        match action {
            Action::Evict { .. } => {
                let was_ready = self.case.pods[place].status.is_ready();
                self.case.pods.remove(place);
                self.evictions += 1;
                self.check(was_ready);
                self.make_pod();
            }
            Action::Resize { sized_containers: sizes, restarts_containers: restarts, .. } => {
                let now = self.now();
                let was_ready = self.case.pods[place].status.is_ready();
                if *restarts {
                    let status = &mut self.case.pods[place].status;
                    status.readiness = Readiness::Unready(now);
                    let since = Some(now);
                    let condition = ResizeCondition { since, ..ResizeCondition::default() };
                    status.resize_in_progress = Some(condition);
                    self.check(was_ready);
                }
                let pod = &mut self.case.pods[place];
                pod.status.generation = pod.status.generation.map(|generation| generation + 1);
                for (container, size) in pod.spec.containers.iter_mut().zip(sizes) {
                    container.spec = size.apply_to(&container.spec);
                }
            }
            Action::RemoveBoost { .. } | Action::Surge | Action::EndSurge => {}
        }
        StepResult::Done
    }

    /// Checks the number of unavailable pods after a pod, ready or not, was taken down.
    fn check(&mut self, was_ready: bool) {
        let (ready, wanted) = (self.ready(), self.wanted());
        let tolerance = (wanted as f64 * self.case.settings.eviction_tolerance) as usize;
        let least = wanted - tolerance.max(1).min(wanted);
        if was_ready && ready < least {
            let now = self.now();
            self.broken_budget =
                Some(format!("{ready} of {wanted} are up at {now}, fewer than {least}"));
        }
    }

    /// Restarts the containers for which a resize needs it.
    pub fn restart_for_resizes(&mut self) {
        for pod in &mut self.case.pods {
            for container in &mut pod.spec.containers {
                container.resize_restarts.on_cpu = true;
            }
        }
    }

    fn wanted(&self) -> usize {
        match self.case.wanted {
            DesiredReplicas::Known(pods) => pods as usize,
            _ => 0,
        }
    }

    /// Counts the pods with the recommended requests.
    pub fn updated(&self) -> usize {
        let wanted = Resources { requests: Some(list(self.recommendation())), limits: None };
        let is_updated = |pod: &&Pod| pod.spec.containers[0].spec.requests == wanted.requests;
        self.case.pods.iter().filter(is_updated).count()
    }
}

/// Simulates many workloads with a common disruption ledger for this long. Each has its own namespace.
pub fn run(
    workloads: &mut [SimulatedWorkload],
    minutes: u64,
    mut each_minute: impl FnMut(u64, &mut [SimulatedWorkload]),
) {
    let pods: usize = workloads.iter().map(|workload| workload.case.pods.len()).sum();
    for (number, workload) in workloads.iter_mut().enumerate() {
        // In a real cluster each VPA has a unique name; here the namespace makes it unique.
        workload.case.namespace = format!("team-{number}");
        workload.case.cluster = Some(pods as u32);
    }
    let mut ledger = workloads[0].written.budget.clone();
    for minute in 0..minutes {
        each_minute(minute, workloads);
        for workload in workloads.iter_mut() {
            workload.step();
            workload.written.budget = std::mem::take(&mut ledger);
            workload.plain_pass();
            ledger = workload.written.budget.clone();
        }
    }
}
