//! Which containers of a report are shown first, and how many: `--sort` and `--top`.

use std::{cmp::Ordering, str::FromStr};

use super::{
    report::{ContainerReport, Level, Report, ResourceReport, Totals, WorkloadReport},
    survey::Resource,
};

/// The order of containers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[strum(serialize_all = "camelCase")]
pub enum SortKey {
    /// What changes save a month; without prices, the share of all requests.
    #[default]
    Money,
    /// The highest risk, then money.
    Risk,
    /// The highest waste, then money.
    Waste,
    /// How much CPU changes, in either direction.
    Cpu,
    /// How much memory changes, in either direction.
    Memory,
    /// Cluster, namespace, kind and name.
    Name,
}

/// An order that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{0}` of --sort; use money, risk, waste, cpu, memory or name")]
pub struct InvalidSortKey(String);

impl FromStr for SortKey {
    type Err = InvalidSortKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        use strum::IntoEnumIterator;
        let found = Self::iter().find(|key| <&str>::from(*key) == text);
        found.ok_or_else(|| InvalidSortKey(text.to_owned()))
    }
}

/// A container with its workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerRow<'a> {
    /// The workload.
    pub workload: &'a WorkloadReport,
    /// The container.
    pub container: &'a ContainerReport,
}

/// The first rows of a list, and how many there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<'a> {
    /// The rows that are shown.
    pub shown: Vec<ContainerRow<'a>>,
    /// The number of all.
    pub total: usize,
}

/// Containers with a risk of at least medium, the most dangerous first.
pub fn too_little(report: &Report, top: Option<usize>) -> Rows<'_> {
    select(report, SortKey::Risk, top, |row| row.risk() >= Level::Medium)
}

/// Containers with waste and without such a risk.
pub fn too_much(report: &Report, sort: SortKey, top: Option<usize>) -> Rows<'_> {
    select(report, sort, top, |row| row.waste() >= Level::Low && row.risk() < Level::Medium)
}

/// Containers without any number.
pub fn unsaid(report: &Report) -> Rows<'_> {
    select(report, SortKey::Name, None, |row| {
        row.container.resources.iter().all(|row| row.target.is_none())
    })
}

/// All containers in this order.
pub fn all(report: &Report, sort: SortKey, top: Option<usize>) -> Rows<'_> {
    select(report, sort, top, |_| true)
}

/// The containers that pass a filter, in this order, at most `top` of them.
pub fn select<'a>(
    report: &'a Report,
    sort: SortKey,
    top: Option<usize>,
    filter: impl Fn(&ContainerRow<'a>) -> bool,
) -> Rows<'a> {
    let of_workload = |workload: &'a WorkloadReport| {
        workload.containers.iter().map(move |container| ContainerRow { workload, container })
    };
    // In the order of the report, which is the one of names.
    let mut rows: Vec<ContainerRow<'a>> =
        report.workloads.iter().flat_map(of_workload).filter(filter).collect();
    rows.sort_by(|left, right| left.compare(right, sort, &report.totals));
    let total = rows.len();
    rows.truncate(top.unwrap_or(usize::MAX));
    Rows { shown: rows, total }
}

impl ContainerRow<'_> {
    /// The highest risk of both resources.
    pub fn risk(&self) -> Level {
        self.highest(|row| row.risk)
    }

    /// The highest waste of both resources.
    pub fn waste(&self) -> Level {
        self.highest(|row| row.waste)
    }

    /// What the targets save a month, negative if they cost more; `None` without prices.
    pub fn saving(&self) -> Option<f64> {
        let savings = self.container.resources.iter().map(|row| Some(row.cost? - row.new_cost?));
        savings.flatten().reduce(|sum, saving| sum + saving)
    }

    /// What the targets give back, as a share of everything that is requested, CPU and memory alike.
    fn saved_share(&self, totals: &Totals) -> f64 {
        [(Resource::Cpu, totals.cpu.requested), (Resource::Memory, totals.memory.requested)]
            .into_iter()
            .map(|(resource, total)| -self.change(resource) / (total.max(1)) as f64)
            .sum()
    }

    /// How much more all pods would request of a resource. A workload of an unknown number of pods counts as
    /// one pod.
    fn change(&self, resource: Resource) -> f64 {
        let pods = f64::from(self.workload.replicas.unwrap_or(1));
        let row = self.container.resources.iter().find(|row| row.resource == resource);
        let difference = |row: &ResourceReport| Some((row.target? - row.request?) as f64 * pods);
        row.and_then(difference).unwrap_or(0.0)
    }

    fn highest(&self, level: fn(&ResourceReport) -> Level) -> Level {
        self.container.resources.iter().map(level).max().unwrap_or(Level::Unsaid)
    }

    fn compare(&self, other: &Self, sort: SortKey, totals: &Totals) -> Ordering {
        let descending = |of: &dyn Fn(&Self) -> f64| of(other).total_cmp(&of(self));
        let by_money = || match (self.saving(), other.saving()) {
            (None, None) => descending(&|row| row.saved_share(totals)),
            (left, right) => {
                let amount = |saving: Option<f64>| saving.unwrap_or(f64::NEG_INFINITY);
                amount(right).total_cmp(&amount(left))
            }
        };
        match sort {
            SortKey::Money => by_money(),
            SortKey::Risk => other.risk().cmp(&self.risk()).then_with(by_money),
            SortKey::Waste => other.waste().cmp(&self.waste()).then_with(by_money),
            SortKey::Cpu => descending(&|row| row.change(Resource::Cpu).abs()),
            SortKey::Memory => descending(&|row| row.change(Resource::Memory).abs()),
            SortKey::Name => Ordering::Equal,
        }
    }
}

#[cfg(test)]
mod tests;
