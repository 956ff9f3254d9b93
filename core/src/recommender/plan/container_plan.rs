//! The planned requests of one container while it runs: its state, the requests of its pods, and the last decisions.

use crate::types::{PerResource, Time};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    cpu_plan::CpuPlan,
    decision::CpuDecision,
    peak_window::MemoryDecision,
    plan_state::PlanState,
    settings::{CpuPlanSettings, PeakWindowSettings, PlanProfile, PlanSelection, PlanSettings},
};

/// A request that differs from the target by no more than this is the target: amounts are rounded.
const ROUNDING_SHARE: f64 = 0.01;
const ROUNDING_CORES: f64 = 0.001;

/// The rules of a container whose requests are planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanRules {
    pub selection: PlanSelection,
    pub cpu: CpuPlanSettings,
    pub memory: PeakWindowSettings,
}

impl PlanRules {
    pub fn new(settings: &PlanSettings, selection: PlanSelection) -> Self {
        Self { selection, cpu: settings.cpu(selection.profile), memory: settings.memory }
    }
}

/// CPU in cores and memory in bytes, where they are known.
pub type KnownRequests = PerResource<f64>;

#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRequest {
    pub profile: PlanProfile,
    /// The selected profile, if `steady` replaces it because the update mode evicts pods.
    pub replaced: Option<PlanProfile>,
    pub decision: PlanDecision,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlanDecision {
    Cpu(CpuDecision),
    Memory(MemoryDecision),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ContainerPlan {
    pub state: PlanState,
    /// The last requests of its pods.
    requests: KnownRequests,
    /// The largest requests of its pods since the last decision.
    largest: KnownRequests,
    cpu: Option<CpuDecision>,
    memory: Option<MemoryDecision>,
}

impl PlannedRequest {
    pub fn new(rules: &PlanRules, decision: PlanDecision) -> Self {
        let PlanSelection { profile, replaced } = rules.selection;
        Self { profile, replaced, decision }
    }
}

impl ContainerPlan {
    pub fn new(state: PlanState) -> Self {
        let none = KnownRequests::default();
        Self { state, requests: none, largest: none, cpu: None, memory: None }
    }

    /// Adds the samples of another plan of the same container.
    pub fn merge(&mut self, other: Self, rules: &PlanRules) {
        self.state.merge(other.state, &rules.cpu, &rules.memory);
    }

    pub fn observe_requests(&mut self, requests: KnownRequests) {
        let valid = |amount: Option<f64>| amount.filter(|it| it.is_finite() && *it > 0.0);
        self.requests = KnownRequests { cpu: valid(requests.cpu), memory: valid(requests.memory) };
        let max = |known: Option<f64>, new| known.into_iter().chain(new).reduce(f64::max);
        self.largest = KnownRequests {
            cpu: max(self.largest.cpu, self.requests.cpu),
            memory: max(self.largest.memory, self.requests.memory),
        };
    }

    /// Adds a CPU sample in cores. A live sample was taken at the last request of its pod.
    pub fn add_cpu(&mut self, rules: &PlanRules, at: Time, cores: f64, is_live: bool) {
        let request = self.requests.cpu.filter(|_| is_live);
        self.state.cpu.add(&rules.cpu, at, cores, request);
    }

    /// Adds a memory sample in bytes.
    pub fn add_memory(&mut self, rules: &PlanRules, at: Time, bytes: f64) {
        self.state.memory.add(&rules.memory, at, bytes);
    }

    /// Adds an OOM kill at this amount of memory.
    pub fn add_oom(&mut self, rules: &PlanRules, at: Time, bytes: f64) {
        self.state.memory.add_oom(&rules.memory, at, bytes);
        // The raised request counts before the next decision is due.
        self.memory = None;
    }

    /// Decides on both requests. Does nothing for a resource with less than a day of samples. `fallback` has the requests
    /// to continue from if no pod has any.
    pub fn decide(&mut self, rules: &PlanRules, now: Time, fallback: KnownRequests) {
        let largest = std::mem::take(&mut self.largest);
        if let Some(request) = self.cpu_request(largest.cpu, fallback.cpu) {
            let before = self.cpu.is_none().then(|| self.state.cpu.clone());
            let decision = self.state.cpu.decide(&rules.cpu, now, request);
            if decision.plan.is_some() {
                self.cpu = Some(decision);
            } else if let Some(mut before) = before {
                self.cpu = explain_cpu(&mut before, rules, now, request);
            }
        }
        if let Some(request) = self.memory_request(largest.memory, fallback.memory) {
            self.memory = self.state.memory.decide(&rules.memory, now, request).or(self.memory);
        }
    }

    /// The last decision on CPU, or what it would be now. `None` while there is less than a day of samples.
    pub fn planned_cpu(
        &self,
        rules: &PlanRules,
        now: Time,
        fallback: Option<f64>,
    ) -> Option<CpuDecision> {
        self.cpu.or_else(|| {
            let request = self.cpu_request(self.largest.cpu, fallback)?;
            explain_cpu(&mut self.state.cpu.clone(), rules, now, request)
        })
    }

    /// The last decision on memory, or what it would be now. `None` while there is less than a day of samples.
    pub fn planned_memory(
        &self,
        rules: &PlanRules,
        now: Time,
        fallback: Option<f64>,
    ) -> Option<MemoryDecision> {
        self.memory.or_else(|| {
            let request = self.memory_request(self.largest.memory, fallback)?;
            self.state.memory.clone().decide(&rules.memory, now, request)
        })
    }

    fn cpu_request(&self, observed: Option<f64>, fallback: Option<f64>) -> Option<f64> {
        if !self.state.cpu.covers_a_day() {
            return None;
        }
        in_force(observed, self.state.cpu.target, fallback, ROUNDING_CORES)
    }

    fn memory_request(&self, observed: Option<f64>, fallback: Option<f64>) -> Option<f64> {
        if !self.state.memory.covers_a_day() {
            return None;
        }
        // Pods follow late, and a lowered target would be withdrawn until they have.
        self.state.memory.target.or(observed).or(fallback)
    }
}

/// The plan as of now, whether one is due or not.
fn explain_cpu(
    state: &mut CpuPlan,
    rules: &PlanRules,
    now: Time,
    request: f64,
) -> Option<CpuDecision> {
    state.next_plan = None;
    let decision = state.decide(&rules.cpu, now, request);
    decision.plan.is_some().then_some(decision)
}

/// The request that a decision starts from: that of the pods, exactly the target if it was rounded to theirs, or what
/// was last recommended if no pod has any.
fn in_force(
    observed: Option<f64>,
    target: Option<f64>,
    fallback: Option<f64>,
    rounding: f64,
) -> Option<f64> {
    match (observed, target) {
        (Some(observed), Some(target))
            if (observed - target).abs() <= rounding.max(target * ROUNDING_SHARE) =>
        {
            Some(target)
        }
        (Some(observed), _) => Some(observed),
        (None, target) => target.or(fallback),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounded_request_of_a_pod_is_the_target() {
        assert_eq!(in_force(Some(0.413), Some(0.412_47), None, ROUNDING_CORES), Some(0.412_47));
        assert_eq!(in_force(Some(0.6), Some(0.412_47), None, ROUNDING_CORES), Some(0.6));
        assert_eq!(in_force(None, Some(0.412_47), Some(1.0), ROUNDING_CORES), Some(0.412_47));
        assert_eq!(in_force(None, None, Some(1.0), ROUNDING_CORES), Some(1.0));
        assert_eq!(in_force(None, None, None, ROUNDING_CORES), None);
    }
}
