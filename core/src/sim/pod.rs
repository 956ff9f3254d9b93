//! One virtual pod: its containers start, are throttled, are OOM killed, and finish.

use std::sync::Arc;

use super::{
    demand::DemandContext,
    noise::Noise,
    step::ContainerMinute,
    workload::{
        ContainerResources, ContainerSpec, ContainerType, ResourceAmounts, ResourceRecommendation,
    },
};
use crate::types::units::{Bytes, MilliCpu};

/// The kubelet's restart back-off by number of consecutive early exits: 10, 20, 40, 80, 160 and 300 seconds, in
/// whole minutes.
const BACK_OFF_MINUTES: [u64; 6] = [0, 0, 1, 1, 3, 5];

/// The back-off is reset after a container ran for this many minutes.
const BACK_OFF_RESET_MINUTES: u64 = 10;

/// The number of restarts after which a job's pod fails (the default `backoffLimit`).
const BACK_OFF_LIMIT: u32 = 6;

#[derive(Clone, Debug)]
pub struct Pod {
    pub name: Arc<str>,
    /// The minute of its creation.
    pub created: u64,
    noise: Noise,
    containers: Vec<Container>,
}

/// The state of a pod after a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    Running,
    /// All work is done.
    Succeeded,
    /// The pod was restarted too often.
    Failed,
}

#[derive(Clone, Debug)]
struct Container {
    resources: ContainerResources,
    starts_at: u64,
    restarts: u32,
    consecutive_early_exits: usize,
    work_left: Option<i64>,
}

impl Pod {
    /// Creates a pod with these resources, one entry per container of the template. `work` is the work of each
    /// main container of a job.
    pub fn new(
        name: Arc<str>,
        created: u64,
        noise: Noise,
        specs: &[ContainerSpec],
        shares: impl IntoIterator<Item = ContainerResources>,
        work: Option<i64>,
    ) -> Self {
        // Main containers start after the native sidecars.
        let delay =
            u64::from(specs.iter().any(|spec| spec.container_type == ContainerType::Sidecar));
        let containers = specs
            .iter()
            .zip(shares)
            .map(|(spec, share)| Container {
                resources: share,
                starts_at: created
                    + if spec.container_type == ContainerType::Main { delay } else { 0 },
                restarts: 0,
                consecutive_early_exits: 0,
                work_left: work.filter(|_| spec.container_type == ContainerType::Main),
            })
            .collect();
        Self { name, created, noise, containers }
    }

    /// The resources of its containers, in the order of the template.
    pub fn resources(&self) -> impl Iterator<Item = ContainerResources> {
        self.containers.iter().map(|container| container.resources)
    }

    /// Resizes its containers in place: from their index in the template and what they have to what they get.
    pub fn resize(&mut self, size: impl Fn(usize, ContainerResources) -> ContainerResources) {
        for (index, container) in self.containers.iter_mut().enumerate() {
            container.resources = size(index, container.resources);
        }
    }

    /// The number of OOM kills of each container, in the order of the template.
    pub fn restarts(&self) -> impl Iterator<Item = u32> {
        self.containers.iter().map(|container| container.restarts)
    }

    /// Simulates one minute. `emit` receives a step for each container.
    pub fn run_minute(
        &mut self,
        context: &MinuteContext<'_>,
        mut emit: impl FnMut(&ContainerMinute),
    ) -> PodState {
        for (index, (container, spec)) in self.containers.iter_mut().zip(context.specs).enumerate()
        {
            let noise = self.noise.for_number(index as u64);
            let minute = container.run_minute(spec, context, noise);
            emit(&ContainerMinute {
                at: context.end,
                namespace: context.namespace.clone(),
                workload: context.workload.clone(),
                pod: self.name.clone(),
                container: spec.name.clone(),
                demand: minute.demand,
                usage: minute.usage,
                share: container.resources,
                advice: context.advice.get(index).copied().flatten(),
                running: minute.running,
                throttled: minute.usage.cpu < minute.demand.cpu,
                oom_killed: minute.oom_killed,
                restarts: minute.restarts,
            });
        }
        self.outcome()
    }

    fn outcome(&self) -> PodState {
        let mut jobs =
            self.containers.iter().filter_map(|container| container.work_left).peekable();
        if jobs.peek().is_none() {
            PodState::Running
        } else if jobs.all(|left| left <= 0) {
            PodState::Succeeded
        } else if self.containers.iter().any(|container| container.restarts > BACK_OFF_LIMIT) {
            PodState::Failed
        } else {
            PodState::Running
        }
    }
}

pub struct MinuteContext<'a> {
    /// The minute, counted from the start of the cluster.
    pub minute: u64,
    pub end: crate::types::Time,
    pub namespace: &'a Arc<str>,
    pub workload: &'a Arc<str>,
    /// The pod template.
    pub specs: &'a [ContainerSpec],
    /// The work of each main container in one run of a job; 0 for containers that never end.
    pub work: i64,
    /// The recommendation of each container.
    pub advice: &'a [Option<ResourceRecommendation>],
}

/// The result of a container's minute.
#[derive(Default)]
struct MinuteResult {
    demand: ResourceAmounts,
    usage: ResourceAmounts,
    running: bool,
    oom_killed: bool,
    restarts: u32,
}

impl Container {
    fn run_minute(
        &mut self,
        spec: &ContainerSpec,
        context: &MinuteContext<'_>,
        noise: Noise,
    ) -> MinuteResult {
        let restarts = self.restarts;
        let Some(age) = context
            .minute
            .checked_sub(self.starts_at)
            .filter(|_| self.work_left.is_none_or(|left| left > 0))
        else {
            return MinuteResult { restarts, ..MinuteResult::default() };
        };
        let progress =
            self.work_left.map_or(0.0, |left| 1.0 - left as f64 / context.work.max(1) as f64);
        let moment =
            DemandContext { now: context.end, minute: context.minute, age, progress, noise };
        let demand = ResourceAmounts { cpu: spec.cpu.at(&moment), memory: spec.memory.at(&moment) };
        let ContainerResources { limit, .. } = self.resources;
        let usage = ResourceAmounts {
            cpu: MilliCpu(demand.cpu.0.min(limit.cpu.map_or(i64::MAX, |limit| limit.0))),
            memory: Bytes(demand.memory.0.min(limit.memory.map_or(i64::MAX, |limit| limit.0))),
        };
        let oom_killed = usage.memory < demand.memory;
        if oom_killed {
            self.restart(context, age);
        } else if let Some(left) = &mut self.work_left {
            *left -= usage.cpu.0;
        }
        MinuteResult { demand, usage, running: true, oom_killed, restarts }
    }

    /// Restarts the container in place: with the same resources, and its work is lost.
    fn restart(&mut self, context: &MinuteContext<'_>, age: u64) {
        self.restarts += 1;
        self.consecutive_early_exits = if age < BACK_OFF_RESET_MINUTES {
            (self.consecutive_early_exits + 1).min(BACK_OFF_MINUTES.len() - 1)
        } else {
            0
        };
        self.starts_at = context.minute + 1 + BACK_OFF_MINUTES[self.consecutive_early_exits];
        if let Some(left) = &mut self.work_left {
            *left = context.work;
        }
    }
}
