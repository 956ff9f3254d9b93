//! What is seen, pooled with what came back. Upstream keeps the two apart and adds them anew for every look, each by
//! its own reference; the last digit of a weight, and what fades to nothing, depend on it.

use super::{container::ContainerHistory, histogram::Histogram, settings::Rules};

/// The histograms of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
}

/// The histograms of a container, as somebody looks at them.
#[derive(Debug)]
pub enum Pooled<'a> {
    /// There is one history, and these are its own.
    One(&'a Histogram, &'a Histogram),
    /// They were added for this look.
    Sum(Pool),
}

impl Pool {
    /// Adds another.
    pub(super) fn merge(&mut self, other: &Self, rules: &Rules) {
        self.cpu.merge(rules.cpu_axis(), &other.cpu);
        self.memory.merge(rules.memory_axis(), &other.memory);
    }
}

impl Pooled<'_> {
    /// CPU usage.
    pub fn cpu(&self) -> &Histogram {
        match self {
            Self::One(cpu, _) => cpu,
            Self::Sum(pool) => &pool.cpu,
        }
    }

    /// Memory peaks.
    pub fn memory(&self) -> &Histogram {
        match self {
            Self::One(_, memory) => memory,
            Self::Sum(pool) => &pool.memory,
        }
    }
}

impl ContainerHistory {
    /// What is known of it, wherever it came from.
    pub fn pooled(&self, rules: &Rules) -> Pooled<'_> {
        let Some(apart) = &self.apart else { return Pooled::One(&self.cpu, &self.memory) };
        let mut pool = Pool {
            cpu: Histogram::new(rules.cpu_axis().buckets),
            memory: Histogram::new(rules.memory_axis().buckets),
        };
        pool.cpu.merge(rules.cpu_axis(), &self.cpu);
        pool.memory.merge(rules.memory_axis(), &self.memory);
        pool.merge(apart, rules);
        Pooled::Sum(pool)
    }
}
