//! What is seen, pooled with what came back. Upstream keeps the two apart and adds them anew for every look, each by
//! its own reference; the last digit of a weight, and what fades to nothing, depend on it.

use super::{container::ContainerHistory, histogram::Histogram, settings::ModelRules};

/// The histograms of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
}

/// The histograms of a container, as somebody looks at them.
#[derive(Debug)]
pub enum AggregateView<'a> {
    /// There is one history, and these are its own.
    Single(&'a Histogram, &'a Histogram),
    /// They were added for this look.
    Merged(Aggregate),
}

impl Aggregate {
    /// Adds another.
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
            Self::Merged(pool) => &pool.cpu,
        }
    }

    /// Memory peaks.
    pub fn memory(&self) -> &Histogram {
        match self {
            Self::Single(_, memory) => memory,
            Self::Merged(pool) => &pool.memory,
        }
    }
}

impl ContainerHistory {
    /// What is known of it, wherever it came from.
    pub fn aggregate(&self, rules: &ModelRules) -> AggregateView<'_> {
        let Some(apart) = &self.restored_aggregate else {
            return AggregateView::Single(&self.cpu, &self.memory);
        };
        let mut pool = Aggregate {
            cpu: Histogram::new(rules.cpu_histogram_config().buckets),
            memory: Histogram::new(rules.memory_histogram_config().buckets),
        };
        pool.cpu.merge(rules.cpu_histogram_config(), &self.cpu);
        pool.memory.merge(rules.memory_histogram_config(), &self.memory);
        pool.merge(apart, rules);
        AggregateView::Merged(pool)
    }
}
