//! Live and restored history, merged. Upstream keeps the two apart and merges them for every recommendation, each
//! with its own reference time. The last digit of a weight, and what decays to nothing, depend on it.

use std::borrow::Cow;

use super::{container::ContainerHistory, histogram::Histogram, model_settings::ModelRules};

#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
}

impl Aggregate {
    pub(super) fn merge(&mut self, cpu: &Histogram, memory: &Histogram, rules: &ModelRules) {
        self.cpu.merge(rules.cpu_histogram_config(), cpu);
        self.memory.merge(rules.memory_histogram_config(), memory);
    }
}

/// Returns the CPU usage and the memory peaks of a container, merged with the restored ones if necessary.
pub(super) fn merged<'a>(
    history: &'a ContainerHistory,
    rules: &ModelRules,
) -> (Cow<'a, Histogram>, Cow<'a, Histogram>) {
    let Some(restored) = &history.restored_aggregate else {
        return (Cow::Borrowed(&history.cpu), Cow::Borrowed(&history.memory));
    };
    let mut merged = Aggregate {
        cpu: Histogram::new(rules.cpu_histogram_config().buckets),
        memory: Histogram::new(rules.memory_histogram_config().buckets),
    };
    merged.merge(&history.cpu, &history.memory, rules);
    merged.merge(&restored.cpu, &restored.memory, rules);
    (Cow::Owned(merged.cpu), Cow::Owned(merged.memory))
}
