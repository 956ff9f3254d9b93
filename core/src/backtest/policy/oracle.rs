//! What a day needs, known when it begins.

use super::{
    Advice, ContainerAdvice, RuleContext,
    rule_state::{LimitAdvice, cpu_request, memory_request},
};
use crate::{
    backtest::replay::{ContainerFacts, Facts},
    rightsizing::survey::Amounts,
    types::Time,
};

pub(crate) struct Oracle<'a> {
    facts: &'a Facts,
}

impl<'a> Oracle<'a> {
    pub fn new(context: RuleContext<'a>) -> Self {
        Self { facts: context.facts }
    }

    pub fn advise(&self, now: Time) -> Advice {
        let container = |facts: &ContainerFacts| {
            let day = facts.day(self.facts.day_index(now))?;
            Some(ContainerAdvice {
                requests: Amounts {
                    cpu: day.p95.map(|cores| cpu_request(cores, 1)),
                    memory: day.peak.map(|bytes| memory_request(bytes, 1)),
                },
                cpu_limit: LimitAdvice::Unset,
                memory_limit: LimitAdvice::AsRequest,
            })
        };
        Advice::Amounts(self.facts.containers.iter().map(container).collect())
    }
}
