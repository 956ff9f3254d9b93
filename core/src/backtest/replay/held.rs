//! Requests and limits of a container.

use crate::{
    api::{ResourceList, ResourceName},
    backtest::policy::{ContainerAdvice, LimitAdvice},
    rightsizing::survey::Amounts,
    sizing::{Resources, SizedContainer},
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// Requests and limits of a container; a missing one is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub cpu: Option<MilliCpu>,
    pub memory: Option<Bytes>,
    pub cpu_limit: Option<MilliCpu>,
    pub memory_limit: Option<Bytes>,
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

    pub fn resources(&self) -> Resources {
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

    pub fn with_advice(self, advice: &ContainerAdvice) -> Self {
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
