//! Modelled replicas: how many virtual pods there are, whose usage each of them has, and which part of it.
//!
//! Each virtual pod has the usage of a recorded pod, times a factor that is the same for all of them: together they use
//! what all recorded pods used. With as many virtual pods as recorded ones the factor is 1.

use super::{
    facts::Facts,
    pods::VirtualPod,
    usage::{self, MINUTES_PER_WINDOW},
};
use crate::{
    backtest::{
        recording::WorkloadRecording,
        replica_model::{PodSums, ReplicaModel, ScalingTarget, UtilizationScaling},
    },
    rightsizing::survey::Resource,
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

/// The autoscaler of a workload under a policy.
pub(super) struct Scaling<'a> {
    recording: &'a WorkloadRecording,
    facts: &'a Facts,
    model: ReplicaModel<'a>,
    scales_by_memory: bool,
    /// The indices of the recorded pods that exist, ascending.
    living: Vec<usize>,
    /// How many virtual pods have the usage of each of them.
    counts: Vec<u32>,
    /// How many virtual pods there should be; `None` until the policy decides, and while there is no recorded pod.
    wanted: Option<u32>,
    copies: u32,
    /// The factors of each container: of CPU in the last minute, and of memory in the last window.
    cpu_factors: Vec<f64>,
    memory_factors: Vec<f64>,
}

impl<'a> Scaling<'a> {
    pub fn new(
        recording: &'a WorkloadRecording,
        facts: &'a Facts,
        scaling: &'a UtilizationScaling,
    ) -> Self {
        let containers = recording.containers.len();
        let is_memory = |target: &ScalingTarget| target.resource == Resource::Memory;
        Self {
            recording,
            facts,
            model: ReplicaModel::new(scaling),
            scales_by_memory: scaling.targets.iter().any(is_memory),
            living: Vec::new(),
            counts: Vec::new(),
            wanted: None,
            copies: 0,
            cpu_factors: vec![1.0; containers],
            memory_factors: vec![1.0; containers],
        }
    }

    pub fn cpu_factor(&self, container: usize) -> f64 {
        self.cpu_factors[container]
    }

    pub fn memory_factor(&self, container: usize) -> f64 {
        self.memory_factors[container]
    }

    pub fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// A number for the name of another pod with the same usage.
    pub fn next_copy(&mut self) -> u32 {
        self.copies += 1;
        self.copies
    }

    /// Adds a recorded pod.
    pub fn add_living(&mut self, recorded: usize) {
        self.living.push(recorded);
    }

    /// Removes recorded pods. Without any, the workload starts again as recorded.
    pub fn retain_living(&mut self, is_gone: impl Fn(usize) -> bool) {
        self.living.retain(|recorded| !is_gone(*recorded));
        if self.living.is_empty() {
            self.wanted = None;
            self.cpu_factors.fill(1.0);
            self.memory_factors.fill(1.0);
        }
    }

    /// The recorded pod whose usage fewest virtual pods have.
    pub fn least_used(&mut self, pods: &[VirtualPod]) -> Option<usize> {
        self.count(pods);
        let counted = self.living.iter().zip(&self.counts);
        counted.min_by_key(|(_, count)| **count).map(|(recorded, _)| *recorded)
    }

    /// The recorded pod for a virtual pod whose recorded one is gone. `None` if there is one that no virtual pod has: that is
    /// its successor.
    pub fn moves_to(&mut self, pods: &[VirtualPod]) -> Option<usize> {
        let recorded = self.least_used(pods)?;
        let is_unused = pods.iter().all(|pod| pod.recorded != recorded);
        (!is_unused).then_some(recorded)
    }

    /// The pod that is removed first: of those that share their usage with most others, the youngest.
    pub fn surplus(&mut self, pods: &[VirtualPod]) -> Option<usize> {
        self.count(pods);
        let shared = |pod: &VirtualPod| {
            let position = self.living.binary_search(&pod.recorded).ok();
            position.map_or(u32::MAX, |position| self.counts[position])
        };
        let candidates = pods.iter().enumerate();
        candidates.max_by_key(|(index, pod)| (shared(pod), pod.created, *index)).map(|(at, _)| at)
    }

    fn count(&mut self, pods: &[VirtualPod]) {
        self.counts.clear();
        self.counts.resize(self.living.len(), 0);
        for pod in pods {
            if let Ok(position) = self.living.binary_search(&pod.recorded) {
                self.counts[position] += 1;
            }
        }
    }

    /// Runs a pass of the autoscaler with what is known of the minute before. Returns how many pods there should be.
    pub fn pass(&mut self, pods: &[VirtualPod], minute: u32, now: Time) -> Option<u32> {
        if self.living.is_empty() {
            return None;
        }
        let current = self.wanted.unwrap_or(pods.len() as u32);
        let targets = &self.model.scaling().targets;
        let measured: Vec<Option<PodSums>> = targets
            .iter()
            .map(|target| match target.resource {
                Resource::Cpu => self.cpu_sums(target, pods, minute.checked_sub(1)?),
                Resource::Memory => self.memory_sums(target, pods, minute),
            })
            .collect();
        self.wanted = Some(self.model.pass(current, &measured, now));
        self.wanted
    }

    fn counts_container(&self, target: &ScalingTarget, container: usize) -> bool {
        let name = &self.recording.containers[container].name;
        target.container.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// What pods with samples used in a minute, up to their limits, and what these pods request.
    fn cpu_sums(
        &self,
        target: &ScalingTarget,
        pods: &[VirtualPod],
        minute: u32,
    ) -> Option<PodSums> {
        let (mut used, mut requested, mut is_known) = (0.0, 0, false);
        'pods: for pod in pods {
            let (mut of_pod, mut request) = (0.0, 0);
            for (container, state) in pod.containers.iter().enumerate() {
                if !state.is_present || !self.counts_container(target, container) {
                    continue;
                }
                let usage = &self.recording.pods[pod.recorded].containers[container];
                let Some(cores) = usage::cpu_at(usage, minute) else { continue 'pods };
                let limit = state.held.cpu_limit.map_or(f64::INFINITY, MilliCpu::as_cores);
                of_pod += (f64::from(cores) * self.cpu_factors[container]).min(limit);
                // As in a cluster, the utilization of a pod is unknown if one of its containers has no request.
                request += state.held.cpu?.0;
            }
            used += of_pod;
            requested += request;
            is_known = true;
        }
        let used = (used * 1_000.0).round() as i64;
        is_known.then_some(PodSums { used, requested })
    }

    /// What all pods needed in the last window that is known, and what they request.
    fn memory_sums(
        &self,
        target: &ScalingTarget,
        pods: &[VirtualPod],
        minute: u32,
    ) -> Option<PodSums> {
        let window = (minute.checked_sub(1)? / MINUTES_PER_WINDOW).checked_sub(1)?;
        let (mut used, mut known) = (0.0, 0_u32);
        for recorded in &self.living {
            let containers = self.recording.pods[*recorded].containers.iter().enumerate();
            let counted =
                containers.filter(|(container, _)| self.counts_container(target, *container));
            let demands = counted.filter_map(|(container, usage)| {
                self.facts.containers[container].demand(usage, *recorded, window)
            });
            let (sum, count) =
                demands.fold((0.0, 0), |(sum, count), demand| (sum + demand.bytes, count + 1));
            used += sum;
            known += u32::from(count > 0);
        }
        let mut requested = 0_i64;
        for pod in pods {
            for (container, state) in pod.containers.iter().enumerate() {
                if state.is_present && self.counts_container(target, container) {
                    requested = requested.saturating_add(state.held.memory?.0);
                }
            }
        }
        // Pods without samples are assumed to need what the others do.
        let used = used * self.living.len() as f64 / f64::from(known.max(1));
        (known > 0).then_some(PodSums { used: Bytes::from_f64(used).0, requested })
    }

    /// Spreads what all recorded pods used over the virtual ones.
    pub fn spread(&mut self, pods: &[VirtualPod], minute: u32) {
        if self.wanted.is_none() {
            return;
        }
        self.count(pods);
        for container in 0..self.cpu_factors.len() {
            self.cpu_factors[container] =
                self.factor(container, |usage, _| usage::cpu_at(usage, minute).map(f64::from));
            if self.scales_by_memory && minute.is_multiple_of(MINUTES_PER_WINDOW) {
                let window = minute / MINUTES_PER_WINDOW;
                let facts = &self.facts.containers[container];
                self.memory_factors[container] = self.factor(container, |usage, recorded| {
                    facts.demand(usage, recorded, window).map(|demand| demand.bytes)
                });
            }
        }
    }

    /// What all recorded pods used, by what they would have used once for each of their virtual pods.
    fn factor(
        &self,
        container: usize,
        value: impl Fn(&crate::backtest::recording::PodContainer, usize) -> Option<f64>,
    ) -> f64 {
        let (mut total, mut carried) = (0.0, 0.0);
        for (recorded, count) in self.living.iter().zip(&self.counts) {
            let usage = self.recording.pods[*recorded].containers.get(container);
            if let Some(used) = usage.and_then(|usage| value(usage, *recorded)) {
                total += used;
                carried += used * f64::from(*count);
            }
        }
        if carried > 0.0 { total / carried } else { 1.0 }
    }
}
