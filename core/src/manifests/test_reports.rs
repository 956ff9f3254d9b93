//! Reports for tests.

use std::collections::BTreeMap;

use crate::{
    rightsizing::{
        report::{
            Change, ContainerReport, Level, Report, ResourceReport, SCHEMA_VERSION, TargetChange,
            Totals, WorkloadReport,
        },
        survey::{ContainerRole, Resource, UtilizationTarget},
    },
    types::Time,
};

pub(super) const MIB: i64 = 1 << 20;

/// A report with these workloads.
pub(super) fn report(workloads: Vec<WorkloadReport>) -> Report {
    Report {
        schema_version: SCHEMA_VERSION,
        kind: "recommend".to_owned(),
        version: "0.1.0".to_owned(),
        at: Time::from_secs(0),
        sources: Vec::new(),
        settings: Vec::new(),
        strategy: None,
        currency: None,
        totals: Totals::default(),
        namespaces: BTreeMap::new(),
        workloads,
        unread: Vec::new(),
        remarks: Vec::new(),
    }
}

/// A workload, named as `shop/Deployment/web`.
pub(super) fn workload(title: &str, containers: Vec<ContainerReport>) -> WorkloadReport {
    let [namespace, kind, name] = title.splitn(3, '/').collect::<Vec<_>>()[..] else {
        panic!("{title} is not NAMESPACE/KIND/NAME");
    };
    WorkloadReport {
        cluster: None,
        namespace: namespace.to_owned(),
        api_version: None,
        kind: kind.to_owned(),
        name: name.to_owned(),
        labels: BTreeMap::new(),
        replicas: Some(1),
        vpa: None,
        scaled_by: Vec::new(),
        target_changes: Vec::new(),
        shape: None,
        runs: None,
        containers,
    }
}

/// A container with changes.
pub(super) fn container(name: &str, resources: Vec<ResourceReport>) -> ContainerReport {
    ContainerReport {
        name: name.to_owned(),
        role: ContainerRole::Main,
        no_patch: None,
        resources,
        oom_kills: 0,
        last_oom_kill: None,
        throttled_share: None,
        memory_peak: None,
        rare_memory_peak: None,
        needed_memory_peak: None,
        node_groups: Vec::new(),
        runtime: None,
        remarks: Vec::new(),
    }
}

pub(super) fn resource(resource: Resource, change: Change) -> ResourceReport {
    ResourceReport {
        resource,
        request: None,
        limit: None,
        template: None,
        target: change.request,
        lower: None,
        upper: None,
        change,
        risk: Level::Ok,
        risk_reasons: Vec::new(),
        waste: Level::Ok,
        cost: None,
        new_cost: None,
        unsaid: None,
        explanation: None,
    }
}

/// A new request and a new limit.
pub(super) fn set(request: Option<i64>, limit: Option<i64>) -> Change {
    Change { request, limit, ..Change::default() }
}

/// A new CPU request in millicores.
pub(super) fn cpu(request: i64) -> ResourceReport {
    resource(Resource::Cpu, set(Some(request), None))
}

/// A new memory request in mebibytes.
pub(super) fn memory(request: i64) -> ResourceReport {
    resource(Resource::Memory, set(Some(request * MIB), None))
}

/// A limit that is removed.
pub(super) fn without_limit(of: Resource) -> ResourceReport {
    resource(of, Change { remove_limit: true, ..Change::default() })
}

/// A target that changes from 60 %.
pub(super) fn target(name: &str, resource: Resource, new_percent: u32) -> TargetChange {
    TargetChange {
        target: UtilizationTarget {
            kind: "HorizontalPodAutoscaler".into(),
            name: name.into(),
            metric: 0,
            resource,
            container: None,
            percent: 60,
        },
        new_percent: Some(new_percent),
        held: None,
    }
}
