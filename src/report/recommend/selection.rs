//! Which containers a form shows, in which order.

use std::{cmp::Ordering, collections::BTreeMap};

use plimsoll_core::rightsizing::{
    evidence::EvidenceGap,
    report::{ContainerReport, Level, Report, ResourceReport, WorkloadReport},
    survey::Resource,
    totals::without_recommendation,
};
use strum::{EnumIter, EnumString, IntoStaticStr};

/// The order of rows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, EnumIter, IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "lowercase")]
pub enum SortKey {
    /// By cluster, namespace, kind and name.
    Name,
    /// The highest risk first.
    Risk,
    /// The highest waste first.
    Waste,
    /// The largest saving of money first.
    Cost,
    /// The largest saving of CPU over all pods first.
    Cpu,
    /// The largest saving of memory over all pods first.
    Memory,
}

/// A container with its workload.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) workload: &'a WorkloadReport,
    pub(super) container: &'a ContainerReport,
    /// The index of the workload in the report.
    pub(super) index: usize,
}

impl<'a> Entry<'a> {
    pub(super) fn risk(&self) -> Level {
        self.container.resources.iter().map(|resource| resource.risk).max().unwrap_or_default()
    }

    pub(super) fn waste(&self) -> Level {
        self.container.resources.iter().map(|resource| resource.waste).max().unwrap_or_default()
    }

    pub(super) fn resource(&self, wanted: Resource) -> Option<&'a ResourceReport> {
        self.container.resources.iter().find(|resource| resource.resource == wanted)
    }

    /// By how much the cost of a month changes; `None` if it is unknown.
    pub(super) fn cost_change(&self) -> Option<f64> {
        let changes: Vec<f64> = self.container.resources.iter().filter_map(cost_change).collect();
        (!changes.is_empty()).then(|| changes.iter().sum())
    }

    /// How much less all pods request after the change; negative if they request more.
    fn saved(&self, wanted: Resource) -> f64 {
        let Some(resource) = self.resource(wanted) else { return 0.0 };
        let (Some(request), Some(new)) = (resource.request, resource.new_request()) else {
            return 0.0;
        };
        (request as f64 - new as f64) * f64::from(self.workload.replicas.unwrap_or(1))
    }
}

/// By how much the cost of the requests of all pods changes a month, if they change. The new request may differ from
/// the target that the report has the cost of.
pub(super) fn cost_change(resource: &ResourceReport) -> Option<f64> {
    let new = resource.new_request()? as f64;
    let (cost, cost_of_target) = (resource.cost?, resource.new_cost?);
    let is_some_amount = |amount: &i64| *amount > 0;
    let cost_of_new =
        match (resource.target.filter(is_some_amount), resource.request.filter(is_some_amount)) {
            (Some(target), _) => cost_of_target * (new / target as f64),
            (None, Some(request)) => cost * (new / request as f64),
            (None, None) => return None,
        };
    Some(cost_of_new - cost)
}

/// All containers of a report.
pub(super) fn entries(report: &Report) -> impl Iterator<Item = Entry<'_>> {
    report.workloads.iter().enumerate().flat_map(|(index, workload)| {
        workload.containers.iter().map(move |container| Entry { workload, container, index })
    })
}

/// Sorts entries; equal ones keep the order of the report.
pub(super) fn sort(entries: &mut [Entry<'_>], key: SortKey, report: &Report) {
    let descending = |one: f64, other: f64| other.total_cmp(&one);
    let share = share_of_totals(report);
    let compare = |one: &Entry<'_>, other: &Entry<'_>| match key {
        SortKey::Name => Ordering::Equal,
        SortKey::Risk => other.risk().cmp(&one.risk()),
        SortKey::Waste => {
            other.waste().cmp(&one.waste()).then(descending(share(one), share(other)))
        }
        SortKey::Cost => descending(
            -one.cost_change().unwrap_or_default(),
            -other.cost_change().unwrap_or_default(),
        ),
        SortKey::Cpu => descending(one.saved(Resource::Cpu), other.saved(Resource::Cpu)),
        SortKey::Memory => descending(one.saved(Resource::Memory), other.saved(Resource::Memory)),
    };
    entries.sort_by(compare);
}

/// Weighs the saving of CPU and of memory by what all pods request, for reports without prices.
fn share_of_totals(report: &Report) -> impl Fn(&Entry<'_>) -> f64 {
    let total = |requested: i64| (requested as f64).max(1.0);
    let (cpu, memory) = (total(report.totals.cpu.requested), total(report.totals.memory.requested));
    move |entry| entry.saved(Resource::Cpu) / cpu + entry.saved(Resource::Memory) / memory
}

/// The containers of a report by what is to be done with them. One may be both at risk and overprovisioned, by
/// different resources.
pub(super) struct Selection<'a> {
    /// The risk is at least medium; the highest first.
    pub(super) at_risk: Vec<Entry<'a>>,
    /// Some of the requests is not needed; the most expensive first.
    pub(super) overprovisioned: Vec<Entry<'a>>,
    /// No recommendation, by reason.
    pub(super) without: BTreeMap<EvidenceGap, usize>,
    /// Containers that are in none of these.
    pub(super) others: usize,
}

impl<'a> Selection<'a> {
    pub(super) fn new(report: &'a Report, key: Option<SortKey>) -> Self {
        let mut selection = Self {
            at_risk: Vec::new(),
            overprovisioned: Vec::new(),
            without: BTreeMap::new(),
            others: 0,
        };
        for entry in entries(report) {
            let (at_risk, waste) = (is_at_risk(entry.risk()), entry.waste() > Level::Ok);
            let gap = without_recommendation(entry.container);
            if at_risk {
                selection.at_risk.push(entry);
            }
            if waste {
                selection.overprovisioned.push(entry);
            }
            if let Some(gap) = gap {
                *selection.without.entry(gap).or_default() += 1;
            }
            if !at_risk && !waste && gap.is_none() {
                selection.others += 1;
            }
        }
        let by_saving = if report.currency.is_some() { SortKey::Cost } else { SortKey::Waste };
        sort(&mut selection.at_risk, key.unwrap_or(SortKey::Risk), report);
        sort(&mut selection.overprovisioned, key.unwrap_or(by_saving), report);
        selection
    }

    pub(super) fn without_recommendation(&self) -> usize {
        self.without.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Whether a level is shown as a risk.
pub(super) fn is_at_risk(level: Level) -> bool {
    level >= Level::Medium
}

/// How overprovisioned containers are ordered, in words.
pub(super) fn order_in_words(key: Option<SortKey>, report: &Report) -> &'static str {
    match key {
        None if report.currency.is_some() => "by cost",
        None | Some(SortKey::Waste) => "by waste",
        Some(SortKey::Name) => "by name",
        Some(SortKey::Risk) => "by risk",
        Some(SortKey::Cost) => "by cost",
        Some(SortKey::Cpu) => "by CPU",
        Some(SortKey::Memory) => "by memory",
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;
    use crate::report::recommend::test_reports::sample;

    fn names(entries: &[Entry<'_>]) -> Vec<String> {
        entries.iter().map(|entry| entry.workload.name.clone()).collect()
    }

    #[test]
    fn the_highest_risk_and_the_largest_saving_come_first() {
        let report = sample();
        let selection = Selection::new(&report, None);
        assert_eq!(names(&selection.at_risk), ["checkout", "kafka", "reindex"]);
        assert_eq!(names(&selection.overprovisioned), ["embed", "logs", "search"]);
        assert_eq!(selection.without.get(&EvidenceGap::TooYoung), Some(&1));
        assert_eq!((selection.without_recommendation(), selection.others), (2, 1));
    }

    #[test]
    fn the_new_request_has_its_own_cost() {
        let report = sample();
        let all = entries(&report).flat_map(|entry| &entry.container.resources);
        let mut priced = all.filter(|one| one.change.request.is_some() && one.cost.is_some());
        let mut resource = priced.next().expect("a change with a cost").clone();
        (resource.request, resource.target) = (Some(1000), Some(400));
        (resource.cost, resource.new_cost) = (Some(100.0), Some(40.0));
        for (request, target, expected) in [
            (Some(400), Some(400), Some(-60.0)),
            (Some(500), Some(400), Some(-50.0)),
            (Some(500), Some(0), Some(-50.0)),
            (None, Some(400), None),
        ] {
            (resource.change.request, resource.target) = (request, target);
            assert_eq!(cost_change(&resource), expected, "{request:?} {target:?}");
        }
        resource.change.request = Some(500);
        resource.cost = None;
        assert_eq!(cost_change(&resource), None);
    }

    #[test]
    fn both_count_containers_without_recommendation_alike() {
        let report = sample();
        let selection = Selection::new(&report, None);
        assert_eq!(selection.without, report.totals.unsaid);
    }

    #[test]
    fn each_key_sorts_by_what_it_names() {
        let report = sample();
        let first = |key| {
            let mut all: Vec<Entry<'_>> = entries(&report).collect();
            sort(&mut all, key, &report);
            all[0].workload.name.clone()
        };
        for (key, expected) in [
            (SortKey::Name, "kafka"),
            (SortKey::Risk, "checkout"),
            (SortKey::Waste, "embed"),
            (SortKey::Cost, "embed"),
            (SortKey::Cpu, "embed"),
            (SortKey::Memory, "embed"),
        ] {
            assert_eq!(first(key), expected, "{key}");
        }
        for key in SortKey::iter() {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}
