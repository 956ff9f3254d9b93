//! The workloads of a cluster as they are now, from the API server or from the series of kube-state-metrics.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::labels::Labels;
use crate::types::{
    Time,
    units::{Bytes, MilliCpu},
};

pub use crate::types::Resource;

/// Workloads, and what could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Sorted by namespace, kind and name, each cluster for itself. Those of a page share what has not changed since the
    /// survey before.
    pub workloads: Vec<Arc<Workload>>,
    /// What is missing from `workloads`. If this is not empty, the report is incomplete.
    pub unread: Vec<Unread>,
    /// Nodes by name, for prices and node groups; empty if they could not be read.
    pub nodes: BTreeMap<Box<str>, Node>,
    /// Why the nodes could not be read. The report is complete without them, but for prices by node and node groups.
    pub nodes_unread: Option<Unread>,
    /// What else could not be read. The report is complete without it.
    pub remarks: Vec<String>,
}

impl Survey {
    /// Names the cluster of all workloads, for reports on several clusters. Nodes of several clusters may have the same
    /// name, so the name of the cluster becomes a part of theirs: `prod-eu/node-1`.
    #[must_use]
    pub fn in_cluster(mut self, cluster: &str) -> Self {
        let in_cluster = |node: &str| Box::from(format!("{cluster}/{node}"));
        for workload in self.workloads.iter_mut().map(Arc::make_mut) {
            workload.cluster = Some(cluster.into());
            for node in &mut workload.nodes {
                *node = in_cluster(node);
            }
        }
        self.nodes = self.nodes.into_iter().map(|(name, node)| (in_cluster(&name), node)).collect();
        self.unread = self.unread.into_iter().map(|unread| unread.in_cluster(cluster)).collect();
        self.nodes_unread = self.nodes_unread.map(|unread| unread.in_cluster(cluster));
        self
    }

    /// Adds the survey of another cluster.
    pub fn merge(&mut self, other: Self) {
        self.workloads.extend(other.workloads);
        self.unread.extend(other.unread);
        self.nodes.extend(other.nodes);
        self.remarks.extend(other.remarks);
        if self.nodes_unread.is_none() {
            self.nodes_unread = other.nodes_unread;
        }
    }
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unread {
    /// What: `deployments in namespace shop`, `context prod-eu`.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

impl Unread {
    /// Names the cluster, for reports on several clusters.
    #[must_use]
    pub fn in_cluster(self, cluster: &str) -> Self {
        Self { what: format!("{} in cluster {cluster}", self.what), ..self }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// What its pods may use.
    pub allocatable: Amounts,
}

/// CPU and memory. A missing amount is not set or unknown; it is never 0.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    pub cpu: Option<MilliCpu>,
    pub memory: Option<Bytes>,
}

/// A workload: the topmost controller of pods, or pods that are grouped as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The name of the context or the value of the cluster label, if the report covers several clusters.
    pub cluster: Option<Box<str>>,
    pub namespace: Arc<str>,
    /// `apps/v1`; `None` if only series are known.
    pub api_version: Option<Arc<str>>,
    /// Its kind, such as `Deployment`.
    pub kind: Arc<str>,
    pub name: Box<str>,
    /// The labels of the object.
    pub labels: Labels,
    /// The annotations of the object that decisions use: those with the prefixes of Plimsoll and Helm.
    pub annotations: Labels,
    /// The number of its pods that should run; `None` if unknown.
    pub replicas: Option<u32>,
    /// When it was created, if known.
    pub created: Option<Time>,
    /// The names of the nodes that its pods run on, one for each pod that is scheduled.
    pub nodes: Vec<Box<str>>,
    /// The names of its existing pods.
    pub pods: Vec<Box<str>>,
    /// Metrics of HorizontalPodAutoscalers whose targets are relative to its requests. The watermarks of a
    /// WatermarkPodAutoscaler are amounts, so a new request does not change what they mean.
    pub utilization_targets: Vec<UtilizationTarget>,
    /// The minimum and maximum of HorizontalPodAutoscalers that target it.
    pub replica_ranges: Vec<ReplicaRange>,
    /// Whether autoscalers of its namespace could not be read, so that `utilization_targets` may be incomplete.
    pub autoscalers_unknown: bool,
    /// The name of the VerticalPodAutoscaler that targets it.
    pub vpa: Option<Box<str>>,
    /// The object whose pod template this workload uses, if it is another one: `Deployment/web` for a Rollout with a
    /// `workloadRef`.
    pub template_owner: Option<Box<str>>,
    /// The autoscalers of replicas that target it.
    pub scaled_by: Vec<AutoscalerRef>,
    /// The containers of the pod template. Workloads with equal containers share them.
    pub containers: Arc<[Container]>,
    /// The containers that only its newest pod has, such as those of a service mesh. No manifest has them, so their requests
    /// do not change.
    pub injected: Arc<[Container]>,
    /// The owners of pods that it stands for, if it is a group of them.
    pub group: Option<OwnerGroup>,
}

impl Workload {
    /// All containers of its pods: those of the template, then the injected ones.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().chain(&*self.injected)
    }
}

/// An autoscaler of replicas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerRef {
    /// `HorizontalPodAutoscaler` or `WatermarkPodAutoscaler`.
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// How many replicas a HorizontalPodAutoscaler may set, and whether by other metrics than the utilization of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaRange {
    /// The name of the autoscaler.
    pub autoscaler: Box<str>,
    /// The minimum, if known.
    pub min: Option<u32>,
    /// The maximum, if known.
    pub max: Option<u32>,
    /// Whether it has metrics that are not among [`Workload::utilization_targets`].
    pub has_other_metrics: bool,
}

/// Owners of pods that are one workload: `--group-jobs-by` and `--group-by-owner`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerGroup {
    /// What they have in common: `label app`, or `owner`.
    pub by: Box<str>,
    /// The owners, the latest first. Each of them is a run.
    pub members: Vec<GroupMember>,
    /// How many earlier ones are no members, because there are too many.
    pub omitted: usize,
}

/// An owner of pods in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    pub kind: Box<str>,
    pub name: Box<str>,
    /// When it was created, if known.
    pub created: Option<Time>,
    /// The names of its existing pods.
    pub pods: Vec<Box<str>>,
}

/// A metric of an autoscaler whose target is relative to the requests of a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UtilizationTarget {
    /// `HorizontalPodAutoscaler` or `WatermarkPodAutoscaler`.
    pub kind: Box<str>,
    /// The name of the autoscaler.
    pub name: Box<str>,
    /// The index of the metric in `spec.metrics`.
    pub metric: usize,
    pub resource: Resource,
    /// The container; `None` if the requests of all containers count.
    pub container: Option<Box<str>>,
    /// The target in percent of the requests.
    pub percent: u32,
}

/// A container of a pod template. A large cluster has many: what few of them have is boxed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Container {
    pub name: Arc<str>,
    /// When it runs.
    pub role: ContainerRole,
    /// The requests of the pod template. A missing one is its limit, if it has one.
    pub requests: Amounts,
    /// The limits of the pod template.
    pub limits: Amounts,
    /// What its pods run with: a VerticalPodAutoscaler or a resize in place changes pods and not the template. `None` if there
    /// are no pods, or no template.
    pub running: Option<Box<RunningAmounts>>,
    /// The LimitRange whose defaults are among its requests and limits.
    pub limit_range: Option<Box<str>>,
    /// Whether requests and limits could not be read. Then a missing amount is unknown, and not unset.
    pub resources_unknown: bool,
    /// Settings of the runtime that determine its memory.
    pub runtime: Option<Box<RuntimeHint>>,
}

/// The requests and limits of a container in existing pods. If the pods differ, the largest amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunningAmounts {
    pub requests: Amounts,
    pub limits: Amounts,
}

impl Amounts {
    /// The larger amount of each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerRole {
    /// All the time.
    #[default]
    Main,
    /// Before the others, until it ends.
    Init,
    /// All the time, started before the others: an init container with `restartPolicy: Always`.
    Sidecar,
}

/// Settings of a language runtime in the arguments and the environment of a container.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "camelCase", tag = "runtime")]
pub enum RuntimeHint {
    /// A Java virtual machine.
    #[serde(rename_all = "camelCase")]
    Jvm {
        /// The option that this is known by, such as `-Xmx2g`.
        known_by: String,
        /// The maximum of the heap, if it is fixed.
        max_heap: Option<Bytes>,
        /// The maximum of the heap in percent of the limit, if it is relative.
        max_heap_percent: Option<u8>,
    },
    #[serde(rename_all = "camelCase")]
    Go {
        /// The variable that this is known by, such as `GOMEMLIMIT=2GiB`.
        known_by: String,
        /// The memory limit of the runtime, if it is fixed.
        memory_limit: Option<Bytes>,
        /// Whether the memory limit is set from the limit of the container.
        follows_limit: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surveys_of_several_clusters_do_not_mix_up_nodes() {
        let survey = |cluster: &str| {
            let workload = Workload {
                name: "web".into(),
                nodes: vec!["node-1".into()],
                ..Workload::default()
            };
            let unread = |what: &str| Unread { what: what.to_owned(), why: "forbidden".to_owned() };
            let survey = Survey {
                workloads: vec![workload.into()],
                unread: vec![unread("deployments.apps")],
                nodes: [("node-1".into(), Node::default())].into(),
                nodes_unread: Some(unread("nodes")),
                remarks: Vec::new(),
            };
            survey.in_cluster(cluster)
        };
        let mut both = survey("eu");
        both.merge(survey("us"));
        let nodes: Vec<_> = both.nodes.keys().map(|name| &**name).collect();
        assert_eq!(nodes, ["eu/node-1", "us/node-1"]);
        let of_workloads: Vec<_> =
            both.workloads.iter().map(|one| (one.cluster.as_deref(), &*one.nodes[0])).collect();
        assert_eq!(of_workloads, [(Some("eu"), "eu/node-1"), (Some("us"), "us/node-1")]);
        assert_eq!(both.unread[1].what, "deployments.apps in cluster us");
        assert_eq!(both.nodes_unread.expect("unread").what, "nodes in cluster eu");
    }
}
