//! Live and restored history, merged. Upstream keeps the two apart and merges them for every recommendation, each
//! with its own reference time. The last digit of a weight, and what decays to nothing, depend on it.

use std::borrow::Cow;

use super::{container::ContainerHistory, histogram::Histogram, model_settings::ModelRules};

/// The histograms of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
}

impl Aggregate {
    /// Merges other histograms into these.
    pub(super) fn merge(&mut self, cpu: &Histogram, memory: &Histogram, rules: &ModelRules) {
        self.cpu.merge(rules.cpu_histogram_config(), cpu);
        self.memory.merge(rules.memory_histogram_config(), memory);
    }
}

impl ContainerHistory {
    /// Returns the CPU usage and the memory peaks of the container, merged with the restored ones if necessary.
    pub fn aggregate(&self, rules: &ModelRules) -> (Cow<'_, Histogram>, Cow<'_, Histogram>) {
        let Some(restored) = &self.restored_aggregate else {
            return (Cow::Borrowed(&self.cpu), Cow::Borrowed(&self.memory));
        };
        let mut aggregate = Aggregate {
            cpu: Histogram::new(rules.cpu_histogram_config().buckets),
            memory: Histogram::new(rules.memory_histogram_config().buckets),
        };
        aggregate.merge(&self.cpu, &self.memory, rules);
        aggregate.merge(&restored.cpu, &restored.memory, rules);
        (Cow::Owned(aggregate.cpu), Cow::Owned(aggregate.memory))
    }
}
