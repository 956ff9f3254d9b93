//! The virtual cluster: runs workloads minute by minute on a virtual clock, deterministically for a seed.

use std::{sync::Arc, time::Duration};

use crate::types::{ObjectKey, Time};

use super::{
    noise::Noise,
    pod::{MinuteContext, Pod, PodState},
    rollout::{self, Rollout},
    step::MinuteSink,
    workload::{
        ContainerResources, ContainerType, ResourceAmounts, ResourceRecommendation, Workload,
        WorkloadKind,
    },
};

/// The length of a simulation step.
pub const MINUTE: Duration = Duration::from_mins(1);

/// What the cluster does with recommendations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// They are recorded in the steps and otherwise ignored.
    Off,
    /// New pods start with them, and due pods are replaced (see [`super::rollout`]).
    Recreate,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    start: Time,
    minute: u64,
    updates: UpdatePolicy,
    workloads: Vec<RunningWorkload>,
}

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

/// Why a workload cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWorkload {
    /// Two workloads have the same name.
    #[error("duplicate workload {0}: names must be unique")]
    DuplicateName(String),
    /// Without a main container it neither runs nor ends.
    #[error("workload {0} has no main container: add one")]
    NoMainContainer(String),
    /// It has no replicas, no work or no period.
    #[error(
        "workload {0} never runs: set at least one replica, or work and a period of at least one minute"
    )]
    NoWork(String),
}

impl Cluster {
    /// Creates a cluster of these workloads that starts at `start`.
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

    /// The current virtual time.
    pub fn now(&self) -> Time {
        self.start.later(Duration::from_mins(self.minute))
    }

    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().map(|running| &running.spec)
    }

    pub fn pod_names(&self) -> impl Iterator<Item = &str> {
        self.workloads.iter().flat_map(|running| &running.pods).map(|pod| &*pod.name)
    }

    /// Number of job runs that failed so far.
    pub fn failed_runs(&self) -> u64 {
        self.workloads.iter().map(|running| running.failed_runs).sum()
    }

    /// The workloads, each with the number of its pods that were replaced so far to change their requests.
    pub fn replaced_pods(&self) -> impl Iterator<Item = (&Workload, u64)> {
        self.workloads.iter().map(|running| (&running.spec, running.replaced_pods))
    }

    /// Sets the recommendation of a container, from the next minute on. Ignores unknown containers, as an updater
    /// does.
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

    /// The pods of a workload, in order of replicas, and when each was created.
    pub fn pods(&self, workload: &ObjectKey) -> impl Iterator<Item = (Time, &Pod)> {
        let start = self.start;
        let running = self.workloads.iter().filter(|running| running.is(workload));
        let pods = running.flat_map(|running| &running.pods);
        pods.map(move |pod| (start.later(Duration::from_mins(pod.created)), pod))
    }

    /// Evicts a pod, whose successor with these resources starts in the next minute. Returns the name of the successor.
    pub fn replace_pod(
        &mut self,
        workload: &ObjectKey,
        index: usize,
        resources: &[ContainerResources],
    ) -> Option<Arc<str>> {
        let minute = self.minute;
        let running = self.workloads.iter_mut().find(|running| running.is(workload))?;
        running.pods.get(index)?;
        let noise = running.noise.for_number(index as u64);
        let mut successor = running.make_pod(minute, noise, UpdatePolicy::Off, None);
        successor.resize(|container, own| resources.get(container).copied().unwrap_or(own));
        let name = successor.name.clone();
        running.pods[index] = successor;
        running.replaced_pods += 1;
        Some(name)
    }

    /// Resizes the containers of a pod in place, from the next minute on.
    pub fn resize_pod(
        &mut self,
        workload: &ObjectKey,
        index: usize,
        size: impl Fn(usize, ContainerResources) -> ContainerResources,
    ) {
        let running = self.workloads.iter_mut().find(|running| running.is(workload));
        if let Some(pod) = running.and_then(|running| running.pods.get_mut(index)) {
            pod.resize(size);
        }
    }

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
    fn is(&self, workload: &ObjectKey) -> bool {
        self.spec.name == workload.name && self.spec.namespace == workload.namespace
    }

    /// Creates the missing pods.
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
                    // Numbered by the schedule, not by the runs so far: two simulations of one seed get the same runs.
                    let noise = self.noise.for_number(since / every);
                    let pod = self.make_pod(minute, noise, updates, None);
                    self.pods.push(pod);
                }
            }
        }
    }

    /// Creates a pod that replaces `old`, if there is one.
    fn make_pod(
        &mut self,
        minute: u64,
        noise: Noise,
        updates: UpdatePolicy,
        old: Option<&Pod>,
    ) -> Pod {
        self.pods_created += 1;
        let mut lower_bounds =
            old.into_iter().flat_map(|old| rollout::lower_bounds_for_successor(old, minute));
        let mut shares = Vec::with_capacity(self.spec.containers.len());
        for (spec, advice) in self.spec.containers.iter().zip(&self.advice) {
            let least = lower_bounds.next().unwrap_or_default();
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

    /// A unique name in the style of Kubernetes.
    fn pod_name(&self) -> Arc<str> {
        // The alphabet of generated names in Kubernetes: no vowels and no characters that look alike.
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
        let context = MinuteContext {
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
            let outcome = pod.run_minute(&context, |step| sink.record(step));
            failed += u64::from(outcome == PodState::Failed);
            outcome == PodState::Running
        });
        self.failed_runs += failed;
    }

    /// Replaces at most one pod; the new one starts in the next minute.
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
