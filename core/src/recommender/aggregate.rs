//! Live and restored history, merged. Upstream keeps the two apart and merges them for every recommendation, each
//! with its own reference time. The last digit of a weight, and what decays to nothing, depend on it.

use super::{container::ContainerHistory, histogram::Histogram, settings::ModelRules};

/// The histograms of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
}

/// The histograms of a container, including restored ones.
#[derive(Debug)]
pub enum AggregateView<'a> {
    /// There is only one history, and these are its histograms.
    Single(&'a Histogram, &'a Histogram),
    /// The merged histograms.
    Merged(Aggregate),
}

impl Aggregate {
    /// Merges another aggregate into this one.
    pub(super) fn merge(&mut self, other: &Self, rules: &ModelRules) {
        self.cpu.merge(rules.cpu_histogram_config(), &other.cpu);
        self.memory.merge(rules.memory_histogram_config(), &other.memory);
    }
}

impl AggregateView<'_> {
    /// CPU usage.
    pub fn cpu(&self) -> &Histogram {
        match self {
            Self::Single(cpu, _) => cpu,
            Self::Merged(aggregate) => &aggregate.cpu,
        }
    }

    /// Memory peaks.
    pub fn memory(&self) -> &Histogram {
        match self {
            Self::Single(_, memory) => memory,
            Self::Merged(aggregate) => &aggregate.memory,
        }
    }
}

impl ContainerHistory {
    /// Returns all histograms of the container, merged if necessary.
    pub fn aggregate(&self, rules: &ModelRules) -> AggregateView<'_> {
        let Some(restored) = &self.restored_aggregate else {
            return AggregateView::Single(&self.cpu, &self.memory);
        };
        let mut aggregate = Aggregate {
            cpu: Histogram::new(rules.cpu_histogram_config().buckets),
            memory: Histogram::new(rules.memory_histogram_config().buckets),
        };
        aggregate.cpu.merge(rules.cpu_histogram_config(), &self.cpu);
        aggregate.memory.merge(rules.memory_histogram_config(), &self.memory);
        aggregate.merge(restored, rules);
        AggregateView::Merged(aggregate)
    }
}
