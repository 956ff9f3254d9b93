//! The virtual cluster: workloads live minute by minute on a virtual clock, the same for the same seed.

use std::{sync::Arc, time::Duration};

use crate::types::Time;

use super::{
    noise::Noise,
    pod::{Outcome, Pod, Surroundings},
    rollout::{self, Rollout},
    step::Sink,
    workload::{Advice, Amount, Kind, Part, Workload},
};

/// The length of a step.
pub const MINUTE: Duration = Duration::from_mins(1);

/// What happens to recommendations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
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
    updates: Updates,
    running: Vec<Running>,
}

/// A workload and its pods.
#[derive(Clone, Debug)]
struct Running {
    spec: Workload,
    noise: Noise,
    advice: Vec<Option<Advice>>,
    pods: Vec<Pod>,
    made: u64,
    failed: u64,
    replaced: u64,
    rollout: Rollout,
}

/// A workload that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Two of one name.
    #[error("workload {0} is there twice: give each its own name")]
    Twice(String),
    /// Nothing that would ever run or end.
    #[error("workload {0} has no main container: add one")]
    NoMain(String),
    /// Nothing to do.
    #[error("workload {0} never runs: give it a replica, or work and a period of a minute or more")]
    Idle(String),
}

impl Cluster {
    /// A cluster of these workloads that begins to live at `start`.
    pub fn new(
        workloads: Vec<Workload>,
        seed: u64,
        start: Time,
        updates: Updates,
    ) -> Result<Self, Invalid> {
        let mut running: Vec<Running> = Vec::with_capacity(workloads.len());
        for spec in workloads {
            let name = format!("{}/{}", spec.namespace, spec.name);
            if running
                .iter()
                .any(|r| r.spec.name == spec.name && r.spec.namespace == spec.namespace)
            {
                return Err(Invalid::Twice(name));
            }
            if !spec.containers.iter().any(|container| container.part == Part::Main) {
                return Err(Invalid::NoMain(name));
            }
            if let Kind::Deployment { replicas: 0 }
            | Kind::CronJob { every: 0, .. }
            | Kind::CronJob { work: ..=0, .. } = spec.kind
            {
                return Err(Invalid::Idle(name));
            }
            running.push(Running {
                noise: Noise::new(seed).named(&name),
                advice: vec![None; spec.containers.len()],
                pods: Vec::new(),
                made: 0,
                failed: 0,
                replaced: 0,
                rollout: Rollout::default(),
                spec,
            });
        }
        Ok(Self { start, minute: 0, updates, running })
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.start.later(Duration::from_mins(self.minute))
    }

    /// The workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.running.iter().map(|running| &running.spec)
    }

    /// The names of the pods that are there.
    pub fn pod_names(&self) -> impl Iterator<Item = &str> {
        self.running.iter().flat_map(|running| &running.pods).map(|pod| &*pod.name)
    }

    /// Runs of jobs that were given up, so far.
    pub fn failed_runs(&self) -> u64 {
        self.running.iter().map(|running| running.failed).sum()
    }

    /// Workloads, each with how many of its pods were replaced so far to give them other requests.
    pub fn replaced_pods(&self) -> impl Iterator<Item = (&Workload, u64)> {
        self.running.iter().map(|running| (&running.spec, running.replaced))
    }

    /// Takes what the recommender says about a container, from the next minute on. Advice about anything
    /// that does not run here is ignored, as an updater would.
    pub fn advise(&mut self, namespace: &str, workload: &str, container: &str, advice: Advice) {
        let slots = self
            .running
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
    pub fn step(&mut self, sink: &mut dyn Sink) {
        let minute = self.minute;
        self.minute += 1;
        let end = self.now();
        for running in &mut self.running {
            running.start_pods(minute, self.updates);
            running.live(minute, end, sink);
            if self.updates == Updates::Recreate {
                running.roll(minute + 1);
            }
        }
    }
}

impl Running {
    /// Makes the pods that should be there and are not.
    fn start_pods(&mut self, minute: u64, updates: Updates) {
        match self.spec.kind {
            Kind::Deployment { replicas } => {
                for slot in self.pods.len() as u64..u64::from(replicas) {
                    let pod = self.make_pod(minute, self.noise.numbered(slot), updates, None);
                    self.pods.push(pod);
                }
            }
            Kind::CronJob { every, first, .. } => {
                let Some(since) = minute.checked_sub(first) else { return };
                if since % every == 0 && self.pods.is_empty() {
                    // Numbered by the schedule, not by how many ran: two lives meet the same runs.
                    let noise = self.noise.numbered(since / every);
                    let pod = self.make_pod(minute, noise, updates, None);
                    self.pods.push(pod);
                }
            }
        }
    }

    /// A new pod, in the place of an old one or of none.
    fn make_pod(&mut self, minute: u64, noise: Noise, updates: Updates, old: Option<&Pod>) -> Pod {
        self.made += 1;
        let mut kept = old.into_iter().flat_map(|old| rollout::kept(old, minute));
        let mut shares = Vec::with_capacity(self.spec.containers.len());
        for (spec, advice) in self.spec.containers.iter().zip(&self.advice) {
            let least = kept.next().unwrap_or_default();
            shares.push(match (updates, advice) {
                (Updates::Recreate, Some(advice)) => {
                    spec.share.scaled_to(Amount::max(advice.target.or(spec.share.request), least))
                }
                _ => spec.share,
            });
        }
        let (name, work) = (self.pod_name(), self.work());
        Pod::new(name, minute, noise, &self.spec.containers, shares, work)
    }

    /// A name no other pod of the workload ever had, and that looks like one.
    fn pod_name(&self) -> Arc<str> {
        // The alphabet of Kubernetes' generated names: no vowels, nothing that looks alike.
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.noise.named("pod").bits(self.made);
        let mut suffix = String::with_capacity(5);
        for _ in 0..5 {
            suffix.push(char::from(LETTERS[(bits % 27) as usize]));
            bits /= 27;
        }
        format!("{}-{}-{suffix}", self.spec.name, self.made).into()
    }

    fn work(&self) -> Option<i64> {
        match self.spec.kind {
            Kind::Deployment { .. } => None,
            Kind::CronJob { work, .. } => Some(work),
        }
    }

    fn live(&mut self, minute: u64, end: Time, sink: &mut dyn Sink) {
        let around = Surroundings {
            minute,
            end,
            namespace: &self.spec.namespace,
            workload: &self.spec.name,
            specs: &self.spec.containers,
            work: self.work().unwrap_or_default(),
            advice: &self.advice,
        };
        let mut failed = 0;
        self.pods.retain_mut(|pod| {
            let outcome = pod.live(&around, |step| sink.take(step));
            failed += u64::from(outcome == Outcome::Failed);
            outcome == Outcome::Running
        });
        self.failed += failed;
    }

    /// Replaces at most one pod; the new one starts in the coming minute.
    fn roll(&mut self, minute: u64) {
        let Kind::Deployment { .. } = self.spec.kind else { return };
        if let Some(index) = self.rollout.next(minute, &self.pods, &self.advice) {
            let noise = self.noise.numbered(index as u64);
            let old = self.pods[index].clone();
            self.pods[index] = self.make_pod(minute, noise, Updates::Recreate, Some(&old));
            self.replaced += 1;
        }
    }
}
