//! Virtual pods: those of the recording, with the requests and limits of a policy.

use std::{fmt::Write as _, sync::Arc};

use super::tally::WindowOutcome;
use crate::{
    api::{
        ResourceList, ResourceName, VerticalPodAutoscalerSpec,
        vpa::{TargetRef, UpdateMode, UpdatePolicy},
    },
    backtest::{
        policy::{Advice, ContainerAdvice, LimitAdvice},
        recording::{PodContainer, WorkloadRecording},
    },
    rightsizing::survey::Amounts,
    sizing::{
        self, LimitPolicy, NamespaceLimitRanges, Resources, SizedContainer, SizingRules, SizingSpec,
    },
    types::{
        Time,
        compat::Compat,
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// A container that was killed in one window has just restarted in the next.
const WINDOWS_AFTER_KILL: u32 = 2;

/// Requests and limits of a container; a missing one is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub cpu: Option<MilliCpu>,
    pub memory: Option<Bytes>,
    pub cpu_limit: Option<MilliCpu>,
    pub memory_limit: Option<Bytes>,
}

/// A pod under a policy.
#[derive(Clone, Debug)]
pub(super) struct VirtualPod {
    /// The index of the pod in the recording whose usage it has.
    pub recorded: usize,
    /// Distinguishes pods that have the usage of the same recorded pod; 0 for the recorded pod itself.
    pub copy: u32,
    pub name: Arc<str>,
    /// How often it was replaced.
    pub generation: u32,
    pub created: Time,
    pub ready_at: Time,
    pub resizes: i64,
    /// Whether it was created with a recommendation.
    pub is_sized: bool,
    /// What the recorded pod has at this time, by container.
    pub recorded_amounts: Vec<Held>,
    /// When that changes next.
    pub next_step: Option<Time>,
    pub containers: Vec<VirtualContainer>,
}

/// A container of a pod under a policy.
#[derive(Clone, Debug)]
pub(super) struct VirtualContainer {
    /// Whether the recorded pod has it.
    pub is_present: bool,
    pub held: Held,
    /// The next window whose peak is compared with the limit.
    pub next_window: u32,
    /// The first window in which it can be killed.
    pub next_kill: u32,
    /// Peaks that are not known yet.
    pub pending: [Option<PendingPeak>; 2],
    pub restarts: u32,
    pub started: Time,
    /// The start and the end of the container that was killed last.
    pub last_kill: Option<(Time, Time)>,
    /// The position in the throttled minutes of the recording.
    pub throttled: usize,
    /// The sum of cores in this window, and of how many minutes.
    pub mean: (f64, u32),
}

/// The peak of a window, as a metrics server shows it once the window is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingPeak {
    pub window: u32,
    pub bytes: f64,
    pub is_cut: bool,
    /// The request of that time.
    pub request: Option<Bytes>,
    /// The limit at which the container was killed.
    pub killed_at: Option<Bytes>,
}

impl VirtualPod {
    /// Names it after the recorded pod, uniquely.
    pub fn set_name(&mut self, recorded: &str) {
        let mut name = recorded.to_owned();
        if self.copy > 0 {
            // A String is always writable.
            let _ = write!(name, "+{}", self.copy);
        }
        if self.generation > 0 {
            let _ = write!(name, ".{}", self.generation);
        }
        self.name = name.into();
    }
}

impl VirtualContainer {
    /// Whether the container was throttled in fact.
    pub fn was_throttled(&mut self, usage: &PodContainer, minute: u32) -> bool {
        let minutes = &usage.throttled_minutes;
        while minutes.get(self.throttled).is_some_and(|throttled| *throttled < minute) {
            self.throttled += 1;
        }
        minutes.get(self.throttled) == Some(&minute)
    }

    /// Compares the demand of a window with the limit, and keeps what will be seen of it.
    pub fn run_window(
        &mut self,
        was: &Held,
        window: u32,
        demand: f64,
        is_assumed: bool,
    ) -> WindowOutcome {
        let limit = self.held.memory_limit;
        let is_cut = limit.is_some_and(|limit| demand > limit.as_f64());
        let is_killed = is_cut && window >= self.next_kill;
        if is_killed {
            self.next_kill = window + WINDOWS_AFTER_KILL;
        }
        let (request, killed_at) = (self.held.memory, limit.filter(|_| is_killed));
        let bytes = limit.map_or(demand, |limit| demand.min(limit.as_f64()));
        let peak = PendingPeak { window, bytes, is_cut, request, killed_at };
        self.pending[window as usize % 2] = Some(peak);
        let is_limit_raised = match (limit, was.memory_limit) {
            (Some(limit), Some(recorded)) => limit > recorded,
            (None, _) => true,
            (Some(_), None) => false,
        };
        WindowOutcome { demand, is_assumed, is_limit_raised, is_killed }
    }
}

impl Held {
    pub fn new(requests: Amounts, limits: Amounts) -> Self {
        Self {
            cpu: requests.cpu,
            memory: requests.memory,
            cpu_limit: limits.cpu,
            memory_limit: limits.memory,
        }
    }

    fn resources(&self) -> Resources {
        let list = |cpu: Option<MilliCpu>, memory: Option<Bytes>| {
            let list =
                ResourceList::cpu_and_memory(cpu.map(Quantity::cpu), memory.map(Quantity::memory));
            (!list.is_empty()).then_some(list)
        };
        Resources {
            requests: list(self.cpu, self.memory),
            limits: list(self.cpu_limit, self.memory_limit),
        }
    }

    /// With the amounts that a sized container sets.
    #[must_use]
    pub fn with_sizes(self, sizes: &SizedContainer) -> Self {
        let cpu = |list: &ResourceList| list.get(&ResourceName::Cpu).map(Quantity::to_cpu);
        let memory = |list: &ResourceList| list.get(&ResourceName::Memory).map(Quantity::to_memory);
        Self {
            cpu: cpu(&sizes.requests).or(self.cpu),
            memory: memory(&sizes.requests).or(self.memory),
            cpu_limit: cpu(&sizes.limits).or(self.cpu_limit),
            memory_limit: memory(&sizes.limits).or(self.memory_limit),
        }
    }

    fn with_advice(self, advice: &ContainerAdvice) -> Self {
        let cpu = advice.requests.cpu.or(self.cpu);
        let memory = advice.requests.memory.or(self.memory);
        let limit = |rule: LimitAdvice, request: Option<i64>, kept: Option<i64>| match rule {
            LimitAdvice::Unset => None,
            LimitAdvice::AsRequest => request,
            LimitAdvice::Keep => kept.map(|kept| kept.max(request.unwrap_or(kept))),
            LimitAdvice::Amount(amount) => Some(amount.max(request.unwrap_or(amount))),
        };
        let milli = |amount: Option<MilliCpu>| amount.map(|amount| amount.0);
        let bytes = |amount: Option<Bytes>| amount.map(|amount| amount.0);
        Self {
            cpu,
            memory,
            cpu_limit: limit(advice.cpu_limit, milli(cpu), milli(self.cpu_limit)).map(MilliCpu),
            memory_limit: limit(advice.memory_limit, bytes(memory), bytes(self.memory_limit))
                .map(Bytes),
        }
    }
}

/// Sizes pods as admission does.
pub(super) struct Sizer {
    names: Vec<Arc<str>>,
    namespace: Arc<str>,
    vpa: Arc<str>,
    pub spec: VerticalPodAutoscalerSpec,
    pub ranges: NamespaceLimitRanges,
    pub rules: SizingRules,
}

impl Sizer {
    pub fn new(recording: &WorkloadRecording, compat: Compat, mode: UpdateMode) -> Self {
        let target_ref = TargetRef {
            api_version: None,
            kind: recording.kind.to_string(),
            name: recording.key.name.to_string(),
        };
        let spec = VerticalPodAutoscalerSpec {
            target_ref,
            update_policy: Some(UpdatePolicy {
                update_mode: Some(mode),
                ..UpdatePolicy::default()
            }),
            resource_policy: None,
            recommenders: Vec::new(),
            startup_boost: None,
        };
        let names = recording.containers.iter().map(|container| (&*container.name).into());
        Self {
            names: names.collect(),
            namespace: recording.key.namespace.clone(),
            vpa: recording.key.name.clone(),
            spec,
            ranges: NamespaceLimitRanges::default(),
            rules: SizingRules::for_compat(compat),
        }
    }

    pub fn sizing_spec<'a>(
        &'a self,
        recommendation: &'a crate::api::vpa::Recommendation,
    ) -> SizingSpec<'a> {
        SizingSpec {
            vpa: &self.vpa,
            spec: &self.spec,
            recommendation: Some(recommendation),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
            shared_requests: &[],
        }
    }

    /// What the containers of a new pod get.
    pub fn sized(&self, template: &[Held], advice: &Advice) -> Vec<Held> {
        match advice {
            Advice::Amounts(advice) => {
                let sized = |(held, advice): (&Held, &Option<ContainerAdvice>)| {
                    advice.as_ref().map_or(*held, |advice| held.with_advice(advice))
                };
                template.iter().zip(advice).map(sized).collect()
            }
            Advice::Object(recommendation) => {
                let pod = self.pod("", "", template.iter().map(|held| (true, *held)));
                let spec = self.sizing_spec(recommendation);
                let sizes = sizing::size_containers(&pod, &spec, Some(&self.ranges), self.rules);
                // Without LimitRanges every pod can be sized; one that cannot be keeps what it has.
                let sizes = sizes.unwrap_or_default();
                let mut held = template.to_vec();
                for (held, sizes) in held.iter_mut().zip(&sizes) {
                    *held = held.with_sizes(sizes);
                }
                held
            }
        }
    }

    /// A pod as sizing sees it. Containers that are not present are left out.
    pub fn pod(
        &self,
        name: &str,
        uid: &str,
        held: impl Iterator<Item = (bool, Held)>,
    ) -> sizing::Pod {
        let containers = self.names.iter().zip(held).filter(|(_, (is_present, _))| *is_present);
        let containers = containers.map(|(name, (_, held))| sizing::Container {
            name: name.clone(),
            spec: held.resources(),
            ..sizing::Container::default()
        });
        sizing::Pod {
            namespace: self.namespace.clone(),
            name: name.into(),
            uid: uid.into(),
            containers: containers.collect(),
            ..sizing::Pod::default()
        }
    }

    /// The index of a container of a workload, from that of a pod's container.
    pub fn name(&self, container: usize) -> &Arc<str> {
        &self.names[container]
    }
}
