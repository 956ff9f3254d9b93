//! The virtual cluster: workloads live minute by minute on a virtual clock, the same for the same seed.

use std::{sync::Arc, time::Duration};

use crate::types::Time;

use super::{
    noise::Noise,
    pod::{MinuteContext, Pod, PodState},
    rollout::{self, Rollout},
    step::MinuteSink,
    workload::{ContainerType, ResourceAmounts, ResourceRecommendation, Workload, WorkloadKind},
};

/// The length of a step.
pub const MINUTE: Duration = Duration::from_mins(1);

/// What happens to recommendations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// They are written into the steps and otherwise ignored.
    Off,
    /// New pods start with them, and pods that are due are replaced (see [`super::rollout`]).
    Recreate,
}

/// A cluster that lives in memory.
#[derive(Clone, Debug)]
pub struct Cluster {
    start: Time,
    minute: u64,
    updates: UpdatePolicy,
    workloads: Vec<RunningWorkload>,
}

/// A workload and its pods.
#[derive(Clone, Debug)]
struct RunningWorkload {
    spec: Workload,
    noise: Noise,
    advice: Vec<Option<ResourceRecommendation>>,
    pods: Vec<Pod>,
    pods_created: u64,
    failed_runs: u64,
    replaced_pods: u64,
    rollout: Rollout,
}

/// A workload that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWorkload {
    /// Two of one name.
    #[error("workload {0} is there twice: give each its own name")]
    DuplicateName(String),
    /// Nothing that would ever run or end.
    #[error("workload {0} has no main container: add one")]
    NoMainContainer(String),
    /// Nothing to do.
    #[error("workload {0} never runs: give it a replica, or work and a period of a minute or more")]
    NoWork(String),
}

impl Cluster {
    /// A cluster of these workloads that begins to live at `start`.
    pub fn new(
        workloads: Vec<Workload>,
        seed: u64,
        start: Time,
        updates: UpdatePolicy,
    ) -> Result<Self, InvalidWorkload> {
        let mut running: Vec<RunningWorkload> = Vec::with_capacity(workloads.len());
        for spec in workloads {
            let name = format!("{}/{}", spec.namespace, spec.name);
            if running
                .iter()
                .any(|r| r.spec.name == spec.name && r.spec.namespace == spec.namespace)
            {
                return Err(InvalidWorkload::DuplicateName(name));
            }
            if !spec
                .containers
                .iter()
                .any(|container| container.container_type == ContainerType::Main)
            {
                return Err(InvalidWorkload::NoMainContainer(name));
            }
            if let WorkloadKind::Deployment { replicas: 0 }
            | WorkloadKind::CronJob { every: 0, .. }
            | WorkloadKind::CronJob { work: ..=0, .. } = spec.workload_kind
            {
                return Err(InvalidWorkload::NoWork(name));
            }
            running.push(RunningWorkload {
                noise: Noise::new(seed).for_name(&name),
                advice: vec![None; spec.containers.len()],
                pods: Vec::new(),
                pods_created: 0,
                failed_runs: 0,
                replaced_pods: 0,
                rollout: Rollout::default(),
                spec,
            });
        }
        Ok(Self { start, minute: 0, updates, workloads: running })
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.start.later(Duration::from_mins(self.minute))
    }

    /// The workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().map(|running| &running.spec)
    }

    /// The names of the pods that are there.
    pub fn pod_names(&self) -> impl Iterator<Item = &str> {
        self.workloads.iter().flat_map(|running| &running.pods).map(|pod| &*pod.name)
    }

    /// Runs of jobs that were given up, so far.
    pub fn failed_runs(&self) -> u64 {
        self.workloads.iter().map(|running| running.failed_runs).sum()
    }

    /// Workloads, each with how many of its pods were replaced so far to give them other requests.
    pub fn replaced_pods(&self) -> impl Iterator<Item = (&Workload, u64)> {
        self.workloads.iter().map(|running| (&running.spec, running.replaced_pods))
    }

    /// Takes what the recommender says about a container, from the next minute on. Advice about anything
    /// that does not run here is ignored, as an updater would.
    pub fn set_recommendation(
        &mut self,
        namespace: &str,
        workload: &str,
        container: &str,
        advice: ResourceRecommendation,
    ) {
        let slots = self
            .workloads
            .iter_mut()
            .filter(|running| {
                &*running.spec.namespace == namespace && &*running.spec.name == workload
            })
            .flat_map(|running| running.spec.containers.iter().zip(&mut running.advice));
        for (_, slot) in slots.filter(|(spec, _)| &*spec.name == container) {
            *slot = Some(advice);
        }
    }

    /// Lives one minute.
    pub fn step(&mut self, sink: &mut dyn MinuteSink) {
        let minute = self.minute;
        self.minute += 1;
        let end = self.now();
        for running in &mut self.workloads {
            running.start_pods(minute, self.updates);
            running.run_minute(minute, end, sink);
            if self.updates == UpdatePolicy::Recreate {
                running.replace_one_pod(minute + 1);
            }
        }
    }
}

impl RunningWorkload {
    /// Makes the pods that should be there and are not.
    fn start_pods(&mut self, minute: u64, updates: UpdatePolicy) {
        match self.spec.workload_kind {
            WorkloadKind::Deployment { replicas } => {
                for slot in self.pods.len() as u64..u64::from(replicas) {
                    let pod = self.make_pod(minute, self.noise.for_number(slot), updates, None);
                    self.pods.push(pod);
                }
            }
            WorkloadKind::CronJob { every, first, .. } => {
                let Some(since) = minute.checked_sub(first) else { return };
                if since % every == 0 && self.pods.is_empty() {
                    // Numbered by the schedule, not by how many ran: two lives meet the same runs.
                    let noise = self.noise.for_number(since / every);
                    let pod = self.make_pod(minute, noise, updates, None);
                    self.pods.push(pod);
                }
            }
        }
    }

    /// A new pod, in the place of an old one or of none.
    fn make_pod(
        &mut self,
        minute: u64,
        noise: Noise,
        updates: UpdatePolicy,
        old: Option<&Pod>,
    ) -> Pod {
        self.pods_created += 1;
        let mut kept =
            old.into_iter().flat_map(|old| rollout::lower_bounds_for_successor(old, minute));
        let mut shares = Vec::with_capacity(self.spec.containers.len());
        for (spec, advice) in self.spec.containers.iter().zip(&self.advice) {
            let least = kept.next().unwrap_or_default();
            shares.push(match (updates, advice) {
                (UpdatePolicy::Recreate, Some(advice)) => spec.resources.scaled_to(
                    ResourceAmounts::max(advice.target.or(spec.resources.request), least),
                ),
                _ => spec.resources,
            });
        }
        let (name, work) = (self.pod_name(), self.work_per_run());
        Pod::new(name, minute, noise, &self.spec.containers, shares, work)
    }

    /// A name no other pod of the workload ever had, and that looks like one.
    fn pod_name(&self) -> Arc<str> {
        // The alphabet of Kubernetes' generated names: no vowels, nothing that looks alike.
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.noise.for_name("pod").bits(self.pods_created);
        let mut suffix = String::with_capacity(5);
        for _ in 0..5 {
            suffix.push(char::from(LETTERS[(bits % 27) as usize]));
            bits /= 27;
        }
        format!("{}-{}-{suffix}", self.spec.name, self.pods_created).into()
    }

    fn work_per_run(&self) -> Option<i64> {
        match self.spec.workload_kind {
            WorkloadKind::Deployment { .. } => None,
            WorkloadKind::CronJob { work, .. } => Some(work),
        }
    }

    fn run_minute(&mut self, minute: u64, end: Time, sink: &mut dyn MinuteSink) {
        let around = MinuteContext {
            minute,
            end,
            namespace: &self.spec.namespace,
            workload: &self.spec.name,
            specs: &self.spec.containers,
            work: self.work_per_run().unwrap_or_default(),
            advice: &self.advice,
        };
        let mut failed = 0;
        self.pods.retain_mut(|pod| {
            let outcome = pod.run_minute(&around, |step| sink.record(step));
            failed += u64::from(outcome == PodState::Failed);
            outcome == PodState::Running
        });
        self.failed_runs += failed;
    }

    /// Replaces at most one pod; the new one starts in the coming minute.
    fn replace_one_pod(&mut self, minute: u64) {
        let WorkloadKind::Deployment { .. } = self.spec.workload_kind else { return };
        if let Some(index) = self.rollout.next(minute, &self.pods, &self.advice) {
            let noise = self.noise.for_number(index as u64);
            let old = self.pods[index].clone();
            self.pods[index] = self.make_pod(minute, noise, UpdatePolicy::Recreate, Some(&old));
            self.replaced_pods += 1;
        }
    }
}
