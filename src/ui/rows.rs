//! Workloads as rows of lists: all containers of one pod together.
//!
//! The page keeps a row of each workload, so rows share texts that many of them have.

use std::sync::Arc;

use plimsoll_core::{
    rightsizing::{
        report::{ContainerReport, Level, ResourceReport, WorkloadReport},
        survey::{ContainerRole, Resource},
    },
    types::{Time, interner::Interner},
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::snapshot::{Vpas, find_vpa};
use crate::report::recommend::html::notes::{gap_text, risk_text};

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    pub namespace: Arc<str>,
    pub kind: Arc<str>,
    pub name: Box<str>,
    /// The number of its pods; absent if it is unknown.
    pub replicas: Option<u32>,
    pub vpa: Option<Arc<str>>,
    /// The update mode of the VPA.
    pub update_mode: Option<Arc<str>>,
    /// Why updates are held back.
    pub held_back: Option<Arc<str>>,
    /// The highest risk of its containers.
    pub risk: Level,
    /// The highest waste of its containers.
    pub waste: Level,
    /// CPU of one pod in millicores.
    pub cpu: RequestAndTarget,
    /// Memory of one pod in bytes.
    pub memory: RequestAndTarget,
    /// What the requests of all pods cost a month.
    pub cost: Option<f64>,
    /// What the targets would cost.
    pub needed_cost: Option<f64>,
    /// The most important reason.
    pub why: Arc<str>,
    /// The index by which its report is made.
    #[serde(skip)]
    index: u32,
}

/// The sums of one pod. Absent if the amount of a container is unknown.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestAndTarget {
    /// What one pod requests.
    pub request: Option<i64>,
    /// What it should request.
    pub target: Option<i64>,
}

impl RequestAndTarget {
    fn of(containers: &[ContainerReport], wanted: Resource) -> Self {
        let running = || containers.iter().filter(|one| one.role != ContainerRole::Init);
        let sum = |amount: fn(&ResourceReport) -> Option<i64>| {
            let mut amounts = running().map(|container| {
                amount(container.resources.iter().find(|one| one.resource == wanted)?)
            });
            let first = amounts.next()??;
            amounts.try_fold(first, |sum, amount| Some(sum.saturating_add(amount?)))
        };
        Self { request: sum(|one| one.request), target: sum(|one| one.target) }
    }

    /// Target minus request.
    pub fn gap(self) -> Option<i64> {
        Some(self.target?.saturating_sub(self.request?))
    }
}

/// Makes rows of reports, which are dropped then.
#[derive(Debug)]
pub struct RowBuilder<'a> {
    vpas: &'a Vpas,
    now: Time,
    texts: Interner<str>,
    rows: Vec<WorkloadRow>,
}

impl<'a> RowBuilder<'a> {
    pub fn new(vpas: &'a Vpas, now: Time) -> Self {
        Self { vpas, now, texts: Interner::default(), rows: Vec::new() }
    }

    /// Adds the row of a workload. Its report can be made again by this index.
    pub fn add(&mut self, index: usize, workload: &WorkloadReport) {
        let row = self.row(index, workload);
        self.rows.push(row);
    }

    /// The rows in the order in which they were added.
    pub fn finish(mut self) -> Vec<WorkloadRow> {
        self.rows.shrink_to_fit();
        self.rows
    }

    fn row(&mut self, index: usize, workload: &WorkloadReport) -> WorkloadRow {
        let resources = || workload.containers.iter().flat_map(|container| &container.resources);
        let costs = workload.monthly_costs();
        let risk = resources().map(|one| one.risk).max().unwrap_or_default();
        let vpa = find_vpa(self.vpas, workload);
        let held = vpa.and_then(|vpa| vpa.held_back.as_ref());
        let named = || Some(self.texts.intern(workload.vpa.as_deref()?));
        WorkloadRow {
            vpa: vpa.map(|vpa| Arc::clone(&vpa.name)).or_else(named),
            update_mode: vpa.map(|vpa| Arc::clone(&vpa.update_mode)),
            held_back: held.map(|held| Arc::clone(&held.reason)),
            namespace: self.texts.intern(&workload.namespace),
            kind: self.texts.intern(&workload.kind),
            name: workload.name.as_str().into(),
            replicas: workload.replicas,
            risk,
            waste: resources().map(|one| one.waste).max().unwrap_or_default(),
            cpu: RequestAndTarget::of(&workload.containers, Resource::Cpu),
            memory: RequestAndTarget::of(&workload.containers, Resource::Memory),
            cost: costs.map(|(cost, _)| cost),
            needed_cost: costs.map(|(_, needed)| needed),
            why: self.texts.intern(&why(workload, risk, self.now)),
            index: u32::try_from(index).unwrap_or(u32::MAX),
        }
    }
}

impl WorkloadRow {
    /// The row of a workload of which only the name is known.
    pub fn of_unknown(namespace: &str, kind: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            kind: kind.into(),
            name: name.into(),
            index: u32::MAX,
            ..Self::default()
        }
    }

    /// The index by which its report is made.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// How much less the targets cost.
    pub fn saving(&self) -> Option<f64> {
        Some(self.cost? - self.needed_cost?)
    }

    /// Target minus request of all pods.
    pub fn gap(&self, resource: Resource) -> Option<i64> {
        let amounts = match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        };
        let pods = i64::from(self.replicas.unwrap_or(1));
        amounts.gap().map(|gap| gap.saturating_mul(pods))
    }
}

/// The reason of the highest risk, or why there is no number.
fn why(workload: &WorkloadReport, risk: Level, now: Time) -> String {
    let resources = || workload.containers.iter().flat_map(|container| &container.resources);
    let risky = resources().filter(|one| one.risk == risk && risk > Level::Ok);
    if let Some(reason) = risky.flat_map(|one| &one.risk_reasons).next() {
        return risk_text(reason, now);
    }
    let held = resources().find_map(|one| one.change.held.as_deref());
    match (held, resources().find_map(|one| one.unsaid)) {
        (Some(held), _) => held.to_owned(),
        (None, Some(gap)) => gap_text(gap).to_owned(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rightsizing::evidence::EvidenceGap;

    use super::*;
    use crate::{report::recommend::html::sample_report::sample, ui::snapshot::Vpas};

    #[test]
    fn a_row_is_a_fraction_of_its_report_and_shares_what_many_have() {
        let template = sample().workloads.remove(0);
        let vpas = Vpas::new();
        let mut rows = RowBuilder::new(&vpas, Time::EPOCH);
        for index in 0..100 {
            let mut workload = WorkloadReport { name: format!("web-{index}"), ..template.clone() };
            for resource in workload.containers.iter_mut().flat_map(|one| &mut one.resources) {
                (resource.risk, resource.unsaid) = (Level::Ok, Some(EvidenceGap::TooYoung));
            }
            rows.add(index, &workload);
        }
        let rows = rows.finish();
        assert_eq!(rows.capacity(), 100);
        let (first, last) = (&rows[0], &rows[99]);
        for (one, other) in [
            (&first.namespace, &last.namespace),
            (&first.kind, &last.kind),
            (&first.why, &last.why),
        ] {
            assert!(Arc::ptr_eq(one, other), "{one}");
        }
        assert_eq!((first.index(), last.index()), (0, 99));
        // 10,000 workloads take 2 MiB, and their names.
        assert!(size_of::<WorkloadRow>() <= 224, "{} bytes", size_of::<WorkloadRow>());
    }
}
