//! The sharper rule: a plan of CPU with a price per change, and the peak window of memory.

use super::{
    Advice, Policy, RuleContext,
    model::Estimates,
    rule_state::{Seen, cpu_request, memory_request},
};
use crate::{
    api::{ResourceList, vpa},
    recommender::plan::{CpuPlan, CpuPlanSettings, PeakWindow, PeakWindowSettings, PlanProfile},
    types::{
        Time,
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// Seconds between two decisions.
const CLOCK_SECONDS: i64 = 600;

/// The plans of one workload.
pub(crate) struct Plan<'a> {
    names: Vec<&'a str>,
    cpu: CpuPlanSettings,
    memory: PeakWindowSettings,
    containers: Vec<ContainerPlan>,
    next: Time,
}

#[derive(Default)]
struct ContainerPlan {
    cpu: Option<CpuPlan>,
    memory: Option<PeakWindow>,
    /// The last requests of a pod that was seen.
    seen_cpu: Option<MilliCpu>,
    seen_memory: Option<Bytes>,
    /// What is recommended; `None` before the first decision.
    cores: Option<f64>,
    bytes: Option<f64>,
}

impl<'a> Plan<'a> {
    pub fn new(policy: &Policy, profile: PlanProfile, context: RuleContext<'a>) -> Self {
        let containers = &context.recording.containers;
        let mut cpu = CpuPlanSettings::of(profile);
        if let Some(floor) = policy.tuning.cpu_floor {
            cpu.floor_cores = floor.as_cores();
        }
        Self {
            names: containers.iter().map(|container| &*container.name).collect(),
            cpu,
            memory: PeakWindowSettings::default(),
            containers: containers.iter().map(|_| ContainerPlan::default()).collect(),
            next: Time::from_nanos(i64::MIN),
        }
    }

    pub fn take_cpu(&mut self, seen: Seen<'_>, cores: f64) {
        let container = &mut self.containers[seen.container];
        container.seen_cpu = seen.cpu_request;
        let plan = container.cpu.get_or_insert_with(|| CpuPlan::new(seen.at));
        plan.add(&self.cpu, seen.at, cores, seen.cpu_request.map(MilliCpu::as_cores));
    }

    pub fn take_memory(&mut self, seen: Seen<'_>, bytes: f64) {
        let container = &mut self.containers[seen.container];
        container.seen_memory = seen.memory_request;
        let window = container.memory.get_or_insert_with(|| PeakWindow::new(seen.at));
        window.add(&self.memory, seen.at, bytes);
    }

    pub fn take_kill(&mut self, seen: Seen<'_>, limit: Bytes) {
        let container = &mut self.containers[seen.container];
        let window = container.memory.get_or_insert_with(|| PeakWindow::new(seen.at));
        let raised = window.add_oom(&self.memory, seen.at, limit.as_f64());
        container.bytes = Some(container.bytes.unwrap_or_default().max(raised));
    }

    /// Decides again if the clock is due.
    fn decide(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        let after = now.as_secs().div_euclid(CLOCK_SECONDS) + 1;
        self.next = Time::from_secs(after * CLOCK_SECONDS);
        for container in &mut self.containers {
            if let Some(plan) = &mut container.cpu {
                let before = container.cores;
                let request = before.or(container.seen_cpu.map(MilliCpu::as_cores));
                container.cores =
                    Some(plan.decide(&self.cpu, now, request.unwrap_or_default()).target);
            }
            if let Some(window) = &mut container.memory {
                let request = container.bytes.or(container.seen_memory.map(Bytes::as_f64));
                let decision = window.decide(&self.memory, now, request.unwrap_or_default());
                container.bytes = decision.map(|decision| decision.target).or(container.bytes);
            }
        }
    }

    fn amounts(container: &ContainerPlan) -> (Option<MilliCpu>, Option<Bytes>) {
        let cpu = container.cores.map(|cores| cpu_request(cores, 1));
        (cpu, container.bytes.map(|bytes| memory_request(bytes, 1)))
    }

    /// The target is both bounds too: whether a change is worth its price has been decided.
    pub fn advise(&mut self, now: Time) -> Option<Advice> {
        self.decide(now);
        let containers = self.names.iter().zip(&self.containers).filter_map(|(name, container)| {
            let (cpu, memory) = Self::amounts(container);
            let target =
                ResourceList::cpu_and_memory(cpu.map(Quantity::cpu), memory.map(Quantity::memory));
            (!target.is_empty()).then(|| vpa::ContainerRecommendation {
                container_name: (*name).to_owned(),
                lower_bound: target.clone(),
                upper_bound: target.clone(),
                uncapped_target: target.clone(),
                target,
            })
        });
        let containers: Vec<vpa::ContainerRecommendation> = containers.collect();
        (!containers.is_empty()).then_some(Advice::Object(vpa::Recommendation {
            container_recommendations: containers,
        }))
    }

    /// The numbers of [`Self::advise`]; containers without both are left out, so that passes are not.
    pub fn estimates(&mut self, now: Time, into: &mut Vec<Option<Estimates>>) {
        self.decide(now);
        into.clear();
        into.extend(self.containers.iter().map(|container| {
            let (cpu, memory) = Self::amounts(container);
            let cpu = [cpu?.0; 3];
            Some(Estimates { cpu, memory: [memory?.0; 3] })
        }));
    }

    /// Whether [`Self::estimates`] has the numbers of all containers.
    pub fn has_estimates(&self) -> bool {
        self.containers
            .iter()
            .all(|container| container.cpu.is_some() && container.memory.is_some())
    }
}
