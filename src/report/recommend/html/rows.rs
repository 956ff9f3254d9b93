//! The containers of a report as rows of tables: what should change, and by how much.

use plimsoll_core::rightsizing::{
    report::{ContainerReport, Level, NoPatchReason, Report, ResourceReport, WorkloadReport},
    survey::{ContainerRole, Resource},
};

/// A container of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub workload: &'a WorkloadReport,
    pub container: &'a ContainerReport,
    /// Whether it is the first container of the workload, with which remarks on the whole workload are shown.
    pub is_first: bool,
}

/// What the report says about the request of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proposal {
    /// There is no number.
    Unknown,
    /// The request stays as it is.
    Keep,
    /// The request changes to this.
    Change(i64),
    /// The request should be this, but something prevents the change.
    Held(i64),
}

impl<'a> Row<'a> {
    /// All containers, in the order of the report.
    pub fn all(report: &'a Report) -> Vec<Self> {
        let rows = report.workloads.iter().flat_map(|workload| {
            let containers = workload.containers.iter().enumerate();
            containers.map(move |(place, container)| Self {
                workload,
                container,
                is_first: place == 0,
            })
        });
        rows.collect()
    }

    pub fn resource(&self, wanted: Resource) -> Option<&'a ResourceReport> {
        self.container.resources.iter().find(|one| one.resource == wanted)
    }

    /// The highest risk of its resources.
    pub fn risk(&self) -> Level {
        self.container.resources.iter().map(|one| one.risk).max().unwrap_or_default()
    }

    /// The highest waste of its resources.
    pub fn waste(&self) -> Level {
        self.container.resources.iter().map(|one| one.waste).max().unwrap_or_default()
    }

    /// What the requests of all pods cost a month, now and with the targets. `None` unless both are known.
    pub fn cost(&self) -> Option<(f64, f64)> {
        let costs =
            self.container.resources.iter().filter_map(|one| Some((one.cost?, one.new_cost?)));
        costs.reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }

    /// How many pods a change counts for. If their number is unknown, it counts once.
    pub fn pods(&self) -> f64 {
        f64::from(self.workload.replicas.unwrap_or(1))
    }

    /// How much all pods together request too much, as a share of what the whole report requests of each resource.
    pub fn excess(&self, report: &Report) -> f64 {
        let share = |resource: Resource, requested: i64| {
            let excess = self.resource(resource).map_or(0.0, |one| -shortfall(one)).max(0.0);
            if requested > 0 { excess * self.pods() / requested as f64 } else { 0.0 }
        };
        share(Resource::Cpu, report.totals.cpu.requested)
            + share(Resource::Memory, report.totals.memory.requested)
    }

    /// Its name, and when it runs if that is not all the time.
    pub fn container_name(&self) -> String {
        let name = match self.container.role {
            ContainerRole::Main => self.container.name.clone(),
            ContainerRole::Init => format!("{} (init)", self.container.name),
            ContainerRole::Sidecar => format!("{} (sidecar)", self.container.name),
        };
        match self.container.no_patch {
            Some(NoPatchReason::Injected) => format!("{name} (injected)"),
            Some(NoPatchReason::Grouped) | None => name,
        }
    }
}

/// What the report says about the request of a resource.
pub(crate) fn proposal(resource: &ResourceReport) -> Proposal {
    match (resource.new_request(), resource.target) {
        (Some(request), _) => Proposal::Change(request),
        (None, Some(target)) if resource.change.held.is_some() => Proposal::Held(target),
        (None, Some(_)) => Proposal::Keep,
        (None, None) => Proposal::Unknown,
    }
}

/// How much more one pod should request; negative if it requests too much, 0 if that is unknown.
pub(crate) fn shortfall(resource: &ResourceReport) -> f64 {
    let wanted = match proposal(resource) {
        Proposal::Change(to) | Proposal::Held(to) => Some(to),
        Proposal::Keep | Proposal::Unknown => None,
    };
    wanted.map_or(0.0, |wanted| wanted as f64 - resource.request.unwrap_or(0) as f64)
}

/// The shortfall as a share of the request, for the order of rows. Without a request it is infinite.
pub(crate) fn relative_shortfall(resource: &ResourceReport) -> f64 {
    let shortfall = shortfall(resource);
    match resource.request {
        Some(request) if request > 0 => shortfall / request as f64,
        _ if shortfall > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}
