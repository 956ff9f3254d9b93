//! Workloads as rows of lists: all containers of one pod together.

use plimsoll_core::{
    rightsizing::{
        report::{ContainerReport, Level, ResourceReport, WorkloadReport},
        survey::{ContainerRole, Resource},
    },
    types::Time,
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::facts::VpaFacts;
use crate::report::recommend::html::notes::{gap_text, risk_text};

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    /// The number of its pods; absent if it is unknown.
    pub replicas: Option<u32>,
    pub vpa: Option<String>,
    /// The update mode of the VPA.
    pub update_mode: Option<String>,
    /// Why updates are held back.
    pub held_back: Option<String>,
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
    pub why: String,
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

impl WorkloadRow {
    pub fn of(workload: &WorkloadReport, vpa: Option<&VpaFacts>, now: Time) -> Self {
        let resources = || workload.containers.iter().flat_map(|container| &container.resources);
        let costs = workload.monthly_costs();
        let risk = resources().map(|one| one.risk).max().unwrap_or_default();
        Self {
            namespace: workload.namespace.clone(),
            kind: workload.kind.clone(),
            name: workload.name.clone(),
            replicas: workload.replicas,
            vpa: workload.vpa.clone(),
            update_mode: vpa.map(|vpa| vpa.update_mode.clone()),
            held_back: vpa.and_then(|vpa| Some(vpa.held_back.as_ref()?.reason.clone())),
            risk,
            waste: resources().map(|one| one.waste).max().unwrap_or_default(),
            cpu: RequestAndTarget::of(&workload.containers, Resource::Cpu),
            memory: RequestAndTarget::of(&workload.containers, Resource::Memory),
            cost: costs.map(|(cost, _)| cost),
            needed_cost: costs.map(|(_, needed)| needed),
            why: why(workload, risk, now),
        }
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
