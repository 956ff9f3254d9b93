//! Sums over all workloads, and over those of a namespace.

use std::collections::BTreeMap;

use super::{
    evidence::EvidenceGap,
    report::{ContainerReport, Level, ResourceReport, ResourceTotals, Totals, WorkloadReport},
    score::ScoreParts,
    survey::{ContainerRole, Resource},
};

/// Why a container has no recommendation, for neither of its resources.
pub fn without_recommendation(container: &ContainerReport) -> Option<EvidenceGap> {
    let rows = &container.resources;
    let gap = rows.iter().find_map(|row| row.unsaid);
    gap.filter(|_| rows.iter().all(|row| row.target.is_none()))
}

/// Sums workloads.
#[derive(Clone, Debug, Default)]
pub struct TotalsBuilder {
    workloads: usize,
    containers: usize,
    cpu: Sums,
    memory: Sums,
    score: ScoreParts,
    risk: BTreeMap<Level, usize>,
    waste: BTreeMap<Level, usize>,
    unsaid: BTreeMap<EvidenceGap, usize>,
}

/// Sums of one resource. Pods of jobs count by the time that they run, so amounts have fractions.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requested: f64,
    needed: f64,
    cost: f64,
    needed_cost: f64,
    with_price: usize,
    without_price: usize,
}

impl Sums {
    fn totals(self) -> ResourceTotals {
        let known = |cost: f64| (self.with_price > 0).then_some(cost);
        ResourceTotals {
            requested: self.requested.round() as i64,
            needed: self.needed.round() as i64,
            cost: known(self.cost),
            needed_cost: known(self.needed_cost),
            without_price: if self.with_price > 0 { self.without_price } else { 0 },
        }
    }
}

impl TotalsBuilder {
    /// Adds a workload. `pods` is the mean number of pods that run at a time; if it is unknown, the requests
    /// are in no sum.
    pub fn add(&mut self, workload: &WorkloadReport, pods: Option<f64>) {
        self.workloads += 1;
        for container in &workload.containers {
            self.containers += 1;
            self.add_levels(container);
            // An init container ends before the others start, so its requests are not added to theirs.
            let Some(pods) = pods.filter(|_| container.role != ContainerRole::Init) else {
                continue;
            };
            for resource in &container.resources {
                self.add_requests(resource, pods);
            }
        }
    }

    fn add_levels(&mut self, container: &ContainerReport) {
        let highest = |level: fn(&ResourceReport) -> Level| {
            container.resources.iter().map(level).max().unwrap_or(Level::Unsaid)
        };
        let (risk, waste) = (highest(|row| row.risk), highest(|row| row.waste));
        self.score.add_container(risk);
        for (levels, level) in [(&mut self.risk, risk), (&mut self.waste, waste)] {
            if level > Level::Unsaid {
                *levels.entry(level).or_default() += 1;
            }
        }
        if let Some(gap) = without_recommendation(container) {
            *self.unsaid.entry(gap).or_default() += 1;
        }
    }

    fn add_requests(&mut self, row: &ResourceReport, pods: f64) {
        let (Some(request), Some(target)) = (row.request, row.target) else { return };
        let (request, target) = (request as f64 * pods, target as f64 * pods);
        let costs = row.cost.zip(row.new_cost);
        self.score.add_requests(row.resource, request, target, costs);
        let sums = match row.resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
        };
        sums.requested += request;
        sums.needed += target;
        match costs {
            Some((cost, new_cost)) => {
                sums.cost += cost;
                sums.needed_cost += new_cost;
                sums.with_price += 1;
            }
            None => sums.without_price += 1,
        }
    }

    /// The sums.
    pub fn totals(self) -> Totals {
        Totals {
            workloads: self.workloads,
            containers: self.containers,
            cpu: self.cpu.totals(),
            memory: self.memory.totals(),
            score: self.score.score(),
            risk: self.risk,
            waste: self.waste,
            unsaid: self.unsaid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rightsizing::{ReportOptions, report, survey::Survey, testing};
    use crate::types::Time;

    #[test]
    fn a_container_with_one_number_has_a_recommendation() {
        let amounts = testing::amounts(Some(500), Some(testing::MI));
        let web = testing::container(amounts, testing::amounts(None, None));
        let survey = Survey {
            workloads: vec![testing::deployment("web", 1, vec![web]).into()],
            ..Survey::default()
        };
        let report = report(&survey, &|_, _| None, &ReportOptions::default(), Time::EPOCH);
        let mut container = report.workloads[0].containers[0].clone();
        assert_eq!(without_recommendation(&container), container.resources[0].unsaid);
        assert!(container.resources[0].unsaid.is_some());
        container.resources[1].target = Some(1);
        container.resources[1].unsaid = None;
        assert_eq!(without_recommendation(&container), None);
    }
}
