//! The rule of a policy with what it has seen of one workload.

use super::{
    Estimates, Policy, PolicyRule, autopilot::Autopilot, model::Model, oracle::Oracle, plan::Plan,
    window::Window,
};
use crate::{
    api::vpa,
    backtest::{
        recording::WorkloadRecording,
        replay::{Facts, ReplaySettings},
    },
    recommender::plan::PlanProfile,
    rightsizing::survey::Amounts,
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

/// What rules are made of.
#[derive(Clone, Copy)]
pub(crate) struct RuleContext<'a> {
    pub recording: &'a WorkloadRecording,
    pub facts: &'a Facts,
    pub settings: &'a ReplaySettings,
}

/// What a rule recommends for a workload.
#[derive(Clone, Debug)]
pub(crate) enum Advice {
    /// A recommendation as in the status of a VerticalPodAutoscaler; limits keep their ratio.
    Object(vpa::Recommendation),
    Amounts(Vec<Option<ContainerAdvice>>),
}

/// What a rule that is not ours recommends for a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ContainerAdvice {
    pub requests: Amounts,
    pub cpu_limit: LimitAdvice,
    pub memory_limit: LimitAdvice,
}

/// What a rule that is not ours recommends for a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LimitAdvice {
    /// None at all.
    Unset,
    AsRequest,
    /// What it is, but not below the request.
    Keep,
    /// This amount, in millicores or bytes.
    Amount(i64),
}

/// Usage of a container, and under which pod it was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub container: usize,
    /// The index of the pod in the recording.
    pub pod: usize,
    /// The name of the virtual pod.
    pub pod_name: &'a str,
    pub at: Time,
    /// The requests in force.
    pub cpu_request: Option<MilliCpu>,
    pub memory_request: Option<Bytes>,
}

pub(crate) enum RuleState<'a> {
    /// Nothing is recommended.
    Recorded,
    Model(Box<Model<'a>>),
    Plan(Box<Plan<'a>>),
    Window(Window<'a>),
    Autopilot(Autopilot),
    Oracle(Oracle<'a>),
}

impl<'a> RuleState<'a> {
    pub fn new(policy: &Policy, context: RuleContext<'a>) -> Self {
        match policy.rule {
            PolicyRule::Current => Self::Recorded,
            PolicyRule::Plimsoll
            | PolicyRule::Latency
            | PolicyRule::Batch
            | PolicyRule::Cost
            | PolicyRule::Vpa => Self::Model(Box::new(Model::new(policy, context))),
            PolicyRule::Steady | PolicyRule::Balanced | PolicyRule::Tide => {
                let profile = match policy.rule {
                    PolicyRule::Balanced => PlanProfile::Balanced,
                    PolicyRule::Tide => PlanProfile::Tide,
                    _ => PlanProfile::Steady,
                };
                Self::Plan(Box::new(Plan::new(policy, profile, context)))
            }
            PolicyRule::KrrSimple
            | PolicyRule::KrrSimpleLimit
            | PolicyRule::Kubecost
            | PolicyRule::KruizeCost
            | PolicyRule::KruizePerformance => Self::Window(Window::new(policy.rule, context)),
            PolicyRule::AutopilotServing | PolicyRule::AutopilotBatch => {
                let is_serving = policy.rule == PolicyRule::AutopilotServing;
                Self::Autopilot(Autopilot::new(is_serving, context.recording.containers.len()))
            }
            PolicyRule::Oracle => Self::Oracle(Oracle::new(context)),
        }
    }

    /// Takes the CPU of a minute.
    pub fn take_cpu(&mut self, seen: Seen<'_>, cores: f64) {
        match self {
            Self::Model(model) => model.take_cpu(seen, cores),
            Self::Plan(plan) => plan.take_cpu(seen, cores),
            Self::Autopilot(autopilot) => autopilot.take_cpu(seen, cores),
            Self::Recorded | Self::Window(_) | Self::Oracle(_) => {}
        }
    }

    /// Rules that read the recording itself: each pod used this part of the CPU that was recorded in a minute.
    pub fn scale_cpu(&mut self, container: usize, minute: u32, factor: f64) {
        if let Self::Window(state) = self {
            state.scale_cpu(container, minute, factor);
        }
    }

    /// The same for memory in a window.
    pub fn scale_memory(&mut self, container: usize, window: u32, factor: f64) {
        if let Self::Window(state) = self {
            state.scale_memory(container, window, factor);
        }
    }

    /// Takes the peak of memory of the window of this index. `is_cut`: more was needed than the limit allowed.
    pub fn take_memory(&mut self, seen: Seen<'_>, window: u32, bytes: f64, is_cut: bool) {
        match self {
            Self::Model(model) => model.take_memory(seen, bytes),
            Self::Plan(plan) => plan.take_memory(seen, bytes),
            Self::Autopilot(autopilot) => autopilot.take_memory(seen, bytes),
            Self::Window(state) if is_cut => state.cut_memory(seen, window, bytes),
            Self::Recorded | Self::Window(_) | Self::Oracle(_) => {}
        }
    }

    /// Takes an OOM kill at a limit.
    pub fn take_kill(&mut self, seen: Seen<'_>, limit: Bytes) {
        match self {
            Self::Model(model) => model.take_kill(seen, limit),
            Self::Plan(plan) => plan.take_kill(seen, limit),
            Self::Autopilot(autopilot) => autopilot.take_kill(seen, limit),
            Self::Recorded | Self::Window(_) | Self::Oracle(_) => {}
        }
    }

    /// Forgets pods that are gone; what they used stays.
    pub fn retain_pods(&mut self, is_alive: impl Fn(&str) -> bool) {
        if let Self::Model(model) = self {
            model.retain_pods(is_alive);
        }
    }

    /// What it recommends at a time, from what is known by then; `None` if it recommends nothing yet.
    pub fn advise(&mut self, now: Time) -> Option<Advice> {
        match self {
            Self::Recorded => None,
            Self::Model(model) => model.advise(now),
            Self::Plan(plan) => plan.advise(now),
            Self::Window(state) => state.advise(now),
            Self::Autopilot(autopilot) => autopilot.advise(),
            Self::Oracle(oracle) => Some(oracle.advise(now)),
        }
    }

    /// The numbers of [`Self::advise`]; returns `false` if they are only in an advice.
    pub fn estimates(&mut self, now: Time, into: &mut Vec<Option<Estimates>>) -> bool {
        match self {
            Self::Model(model) if model.has_estimates() => model.estimates(into),
            Self::Plan(plan) if plan.has_estimates() => plan.estimates(now, into),
            _ => return false,
        }
        true
    }

    /// How many minutes of samples of a container it needs before it recommends anything for it.
    pub fn needed_samples(&self) -> u64 {
        match self {
            Self::Window(state) => state.needed_samples(),
            _ => 1,
        }
    }

    /// Seconds between two recommendations when they are applied at once.
    pub fn instant_seconds(&self) -> i64 {
        if matches!(self, Self::Window(_)) { 3_600 } else { 600 }
    }
}

/// Recorded cores in millicores, rounded up as a metrics API does. Recordings have values of 32 bits: the error of 0.1 must
/// not make it 101m.
pub(super) fn measured(cores: f64) -> MilliCpu {
    MilliCpu::from_measured(cores * (1.0 - f64::from(f32::EPSILON) / 2.0))
}

/// Cores as a request: rounded up to a millicore, at least `floor`.
pub(super) fn cpu_request(cores: f64, floor: i64) -> MilliCpu {
    MilliCpu(measured(cores).0.max(floor))
}

/// Bytes as a request: rounded up, at least `floor`.
pub(super) fn memory_request(bytes: f64, floor: i64) -> Bytes {
    Bytes(Bytes::from_f64(bytes.ceil()).0.max(floor))
}
