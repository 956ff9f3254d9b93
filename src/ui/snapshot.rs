//! What all pages are made from: the objects and reports of one time. Requests only read it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::{
    rightsizing::{
        report::{Report, WorkloadReport},
        survey::Unread,
    },
    types::{ObjectKey, Time},
};

pub use super::rows::{RequestAndTarget, WorkloadRow};
use super::{
    facts::{AutoscalerFacts, VpaFacts},
    quota::QuotaFacts,
    timeline_reader::{ReplicaKind, ReplicaSubject},
};
pub use crate::report::collect::pod::preview::{NamespacePreview, PodPreview, WorkloadPreview};
use crate::report::status::StatusReport;

/// What a snapshot is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotParts {
    /// The address or context of the cluster.
    pub cluster: String,
    pub at: Time,
    /// Workloads, with the recommendations of their VPAs.
    pub report: Report,
    /// When workloads and their history were read; `None` if they have not been read yet.
    pub history_at: Option<Time>,
    /// Why there is no history.
    pub history_error: Option<String>,
    pub vpas: BTreeMap<ObjectKey, VpaFacts>,
    /// The autoscalers of replicas.
    pub autoscalers: Vec<AutoscalerFacts>,
    /// What the updater would do, by namespace, and when that was decided.
    pub preview: BTreeMap<String, NamespacePreview>,
    /// The status of the roles.
    pub status: Option<StatusReport>,
    /// The ResourceQuotas of CPU and memory.
    pub quotas: Vec<QuotaFacts>,
    /// What could not be read, besides what the report says.
    pub unread: Vec<Unread>,
}

/// The objects and reports of one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub parts: SnapshotParts,
    /// The rows of the workloads, in the order of the report.
    pub rows: Vec<WorkloadRow>,
}

impl Snapshot {
    /// Prepares what lists need. The autoscalers are sorted by namespace, kind and name.
    pub fn new(mut parts: SnapshotParts) -> Self {
        parts
            .autoscalers
            .sort_by_cached_key(|one| (one.namespace.clone(), one.kind.clone(), one.name.clone()));
        let workloads = parts.report.workloads.iter();
        let rows = workloads.map(|workload| {
            let vpa = parts.vpa_of(workload);
            WorkloadRow::of(workload, vpa, parts.at)
        });
        let rows = rows.collect();
        Self { parts, rows }
    }

    /// A workload with its VPA.
    pub fn workload(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Option<(&WorkloadReport, Option<&VpaFacts>)> {
        let key = (namespace, kind, name);
        let workloads = &self.parts.report.workloads;
        let found =
            workloads.iter().find(|one| (&*one.namespace, &*one.kind, &*one.name) == key)?;
        Some((found, self.parts.vpa_of(found)))
    }

    /// The VPA that targets a workload which may no longer exist.
    pub fn vpa_for(&self, namespace: &str, kind: &str, name: &str) -> Option<String> {
        let key = (namespace, kind, name);
        let mut vpas = self.parts.vpas.values();
        let found =
            vpas.find(|vpa| (&*vpa.namespace, &*vpa.target_kind, &*vpa.target_name) == key)?;
        Some(found.name.clone())
    }

    /// The autoscalers of a name, in the order of their page.
    pub fn replica_subjects(&self, namespace: &str, name: &str) -> Vec<ReplicaSubject> {
        let autoscalers = self.parts.autoscalers.iter();
        let named = autoscalers.filter(|one| one.namespace == namespace && one.name == name);
        let subjects = named.map(|one| ReplicaSubject {
            kind: if one.kind == "WatermarkPodAutoscaler" {
                ReplicaKind::Wpa
            } else {
                ReplicaKind::Hpa
            },
            namespace: one.namespace.clone(),
            name: one.name.clone(),
        });
        subjects.collect()
    }

    /// Whether anything is in a namespace.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.parts.report.namespaces.contains_key(namespace)
            || self.parts.vpas.keys().any(|key| &*key.namespace == namespace)
            || self.parts.autoscalers.iter().any(|one| one.namespace == namespace)
    }

    /// All namespaces, sorted.
    pub fn namespaces(&self) -> BTreeSet<&str> {
        let parts = &self.parts;
        let of_vpas = parts.vpas.keys().map(|key| &*key.namespace);
        let of_autoscalers = parts.autoscalers.iter().map(|one| &*one.namespace);
        let of_workloads = parts.report.namespaces.keys().map(String::as_str);
        of_workloads.chain(of_vpas).chain(of_autoscalers).collect()
    }
}

impl SnapshotParts {
    fn vpa_of(&self, workload: &WorkloadReport) -> Option<&VpaFacts> {
        let name = workload.vpa.as_deref()?;
        self.vpas.get(&ObjectKey::new(&*workload.namespace, name))
    }
}
