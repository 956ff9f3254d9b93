//! What all pages are made from: the objects and totals of one time. Requests only read it.
//!
//! The report of a large cluster takes hundreds of MiB, so only a row of each workload is kept. The page of one workload makes
//! the report of that workload again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use plimsoll_core::{
    rightsizing::{
        report::{Report, WorkloadReport},
        survey::Unread,
    },
    types::{ObjectKey, Time},
};

pub use super::rows::{RequestAndTarget, RowBuilder, WorkloadRow};
use super::{
    facts::{AutoscalerFacts, VpaFacts},
    quota::QuotaFacts,
    timeline_reader::{ReplicaKind, ReplicaSubject},
};
pub use crate::report::collect::pod::preview::{NamespacePreview, PodPreview, WorkloadPreview};
use crate::report::status::StatusReport;

/// The VPAs of a cluster.
pub type Vpas = BTreeMap<ObjectKey, Arc<VpaFacts>>;

/// Makes the reports of single workloads.
pub trait WorkloadReports: Debug + Send + Sync {
    /// Makes the reports of the workloads with these indexes, one after the other.
    fn visit(
        &self,
        vpas: &Vpas,
        indexes: &mut dyn Iterator<Item = usize>,
        visit: &mut dyn FnMut(WorkloadReport),
    );

    /// The labels of a workload, with their values.
    fn labels(&self, index: usize) -> Box<dyn Iterator<Item = (&str, &str)> + '_>;
}

/// Reports that are all in memory.
impl WorkloadReports for Vec<WorkloadReport> {
    fn visit(
        &self,
        _: &Vpas,
        indexes: &mut dyn Iterator<Item = usize>,
        visit: &mut dyn FnMut(WorkloadReport),
    ) {
        for report in indexes.filter_map(|index| self.get(index)) {
            visit(report.clone());
        }
    }

    fn labels(&self, index: usize) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        let labels = self.get(index).into_iter().flat_map(|workload| &workload.labels);
        Box::new(labels.map(|(label, value)| (&**label, &**value)))
    }
}

/// What a snapshot is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotParts {
    /// The address or context of the cluster.
    pub cluster: String,
    pub at: Time,
    /// The report with the recommendations of VPAs.
    pub report: Report,
    /// When workloads and their history were read; `None` if they have not been read yet.
    pub history_at: Option<Time>,
    /// Why there is no history.
    pub history_error: Option<String>,
    pub vpas: Vpas,
    /// The autoscalers of replicas.
    pub autoscalers: Vec<Arc<AutoscalerFacts>>,
    /// What the updater would do, by namespace, and when that was decided.
    pub preview: BTreeMap<String, Arc<NamespacePreview>>,
    /// The status of the roles.
    pub status: Option<StatusReport>,
    /// The ResourceQuotas of CPU and memory.
    pub quotas: Vec<QuotaFacts>,
    /// What could not be read, besides what the report says.
    pub unread: Vec<Unread>,
}

/// The objects and totals of one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The report in it has no workloads: those are [`Self::rows`] and [`Self::reports`].
    pub parts: SnapshotParts,
    /// The rows of the workloads, in the order of the report.
    pub rows: Vec<WorkloadRow>,
    /// The reports of the workloads.
    pub reports: Arc<dyn WorkloadReports>,
}

impl Snapshot {
    /// A snapshot with all workloads of the report.
    pub fn new(mut parts: SnapshotParts) -> Self {
        let workloads = std::mem::take(&mut parts.report.workloads);
        let mut rows = RowBuilder::new(&parts.vpas, parts.at);
        for (index, workload) in workloads.iter().enumerate() {
            rows.add(index, workload);
        }
        let rows = rows.finish();
        Self::with_rows(parts, rows, Arc::new(workloads))
    }

    /// A snapshot whose rows were made while the report was. The autoscalers are sorted by namespace, kind and name.
    pub fn with_rows(
        mut parts: SnapshotParts,
        rows: Vec<WorkloadRow>,
        reports: Arc<dyn WorkloadReports>,
    ) -> Self {
        let key =
            |one: &AutoscalerFacts| (one.namespace.clone(), one.kind.clone(), one.name.clone());
        parts.autoscalers.sort_by_cached_key(|one| key(one));
        Self { parts, rows, reports }
    }

    /// The row of a workload.
    pub fn row(&self, namespace: &str, kind: &str, name: &str) -> Option<&WorkloadRow> {
        let key = (namespace, kind, name);
        self.rows.iter().find(|one| (&*one.namespace, &*one.kind, &*one.name) == key)
    }

    /// The report of a workload.
    pub fn report(&self, row: &WorkloadRow) -> Option<WorkloadReport> {
        let mut found = None;
        let mut index = std::iter::once(row.index());
        self.reports.visit(&self.parts.vpas, &mut index, &mut |report| found = Some(report));
        found
    }

    /// The VPA of a workload.
    pub fn vpa_of(&self, workload: &WorkloadReport) -> Option<&Arc<VpaFacts>> {
        find_vpa(&self.parts.vpas, workload)
    }

    /// The VPA that targets a workload which may no longer exist.
    pub fn vpa_for(&self, namespace: &str, kind: &str, name: &str) -> Option<String> {
        let key = (namespace, kind, name);
        let mut vpas = self.parts.vpas.values();
        let found =
            vpas.find(|vpa| (&*vpa.namespace, &*vpa.target_kind, &*vpa.target_name) == key)?;
        Some(found.name.as_ref().to_owned())
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

/// The VPA that targets a workload.
pub(super) fn find_vpa<'a>(vpas: &'a Vpas, workload: &WorkloadReport) -> Option<&'a Arc<VpaFacts>> {
    let name = workload.vpa.as_deref()?;
    vpas.get(&ObjectKey::new(&*workload.namespace, name))
}
