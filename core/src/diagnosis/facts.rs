//! What the checks need to know about a cluster. What could not be read is an error with the reason; it is never empty.

use crate::{
    api::{
        resource_list::ResourceList,
        vpa::{TargetRef, VerticalPodAutoscalerSpec},
    },
    rightsizing::survey::{Amounts, Resource, Survey},
    sizing::LimitRangeItem,
    types::Time,
};

/// Something that was read, or the reason why not.
pub type Reading<T> = Result<T, String>;

/// A cluster as it is now.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    /// The time of this machine.
    pub now: Time,
    /// The version of this program.
    pub version: String,
    /// The version of the API server, such as `v1.36.3`.
    pub api_version: Reading<String>,
    /// The time of the API server at `now`.
    pub api_time: Reading<Time>,
    /// The CustomResourceDefinitions that Plimsoll needs.
    pub crds: Vec<CrdFacts>,
    /// Whether the API server serves `pods/resize`.
    pub resize_served: Reading<bool>,
    pub nodes: Reading<Vec<NodeFacts>>,
    /// What a Prometheus knows.
    pub series: Reading<SeriesFacts>,
    pub metrics_api: Reading<MetricsApiFacts>,
    /// VerticalPodAutoscalers.
    pub vpas: Reading<Vec<VpaFacts>>,
    /// HorizontalPodAutoscalers.
    pub hpas: Reading<Vec<HpaFacts>>,
    /// WatermarkPodAutoscalers.
    pub wpas: Reading<Vec<ScalerFacts>>,
    /// Workloads, and kinds that could not be read.
    pub survey: Survey,
    pub limit_ranges: Reading<Vec<LimitRangeFacts>>,
    /// ResourceQuotas.
    pub quotas: Reading<Vec<QuotaFacts>>,
    /// PodDisruptionBudgets.
    pub budgets: Reading<Vec<BudgetFacts>>,
    /// Configurations of mutating webhooks.
    pub webhooks: Reading<Vec<WebhookFacts>>,
    /// The response of the webhook to a pod; `None` if it was not tried.
    pub live_pod: Option<Reading<LivePod>>,
    /// The Leases of the roles.
    pub leases: Reading<Vec<LeaseFacts>>,
    /// Running updaters of any project.
    pub updaters: Reading<Vec<UpdaterFacts>>,
    /// Access reviews of the roles that run.
    pub rights: Reading<Vec<RightFacts>>,
}

/// A CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct CrdFacts {
    pub name: String,
    /// Whether anything works without it.
    pub is_optional: bool,
    /// `None` if it does not exist.
    pub served: Reading<Option<ServedCrd>>,
}

/// A CustomResourceDefinition that exists.
#[derive(Clone, Debug, Default)]
pub struct ServedCrd {
    /// Whether the version that Plimsoll uses is served.
    pub has_version: bool,
    /// The fields that the API server would drop.
    pub missing_fields: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: Box<str>,
    /// The version of its kubelet.
    pub kubelet: Box<str>,
    /// Whether it runs Linux.
    pub is_linux: bool,
}

/// Series of a Prometheus, by the nodes that they are from.
#[derive(Clone, Debug)]
pub struct SeriesFacts {
    pub server: String,
    /// The metric families of kube-state-metrics that are missing; `None` if it has none of them.
    pub missing_families: Reading<Option<Vec<String>>>,
    /// Nodes with series of containers.
    pub nodes: Reading<u64>,
    /// Nodes with pressure stall information.
    pub psi_nodes: Reading<u64>,
    /// Nodes by the version of cgroups that their kubelet reports.
    pub cgroup: Reading<CgroupNodes>,
}

/// Nodes by the version of cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupNodes {
    /// Nodes with version 1.
    pub v1: u64,
    /// Nodes with version 2.
    pub v2: u64,
}

/// The metrics API and its samples.
#[derive(Clone, Debug)]
pub struct MetricsApiFacts {
    /// `None` if the APIService is available, else why not.
    pub unavailable: Option<String>,
    pub samples: Reading<SampleFacts>,
}

#[derive(Clone, Debug)]
pub struct SampleFacts {
    pub pods: usize,
    pub newest: Option<Time>,
    /// Running pods that are older than a few minutes and have no sample.
    pub pods_without: Reading<Vec<String>>,
}

/// A VerticalPodAutoscaler.
#[derive(Clone, Debug)]
pub struct VpaFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub spec: VerticalPodAutoscalerSpec,
    /// The recommended requests by container.
    pub targets: Vec<(Box<str>, Amounts)>,
    /// Whether its target exists.
    pub target_exists: Reading<bool>,
}

/// An autoscaler of replicas.
#[derive(Clone, Debug)]
pub struct ScalerFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub target: TargetRef,
}

/// A HorizontalPodAutoscaler.
#[derive(Clone, Debug)]
pub struct HpaFacts {
    /// The object.
    pub scaler: ScalerFacts,
    /// Resources whose utilization is a target, with the container that counts; `None` for all.
    pub utilization: Vec<(Resource, Option<Box<str>>)>,
}

#[derive(Clone, Debug)]
pub struct LimitRangeFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub items: Vec<LimitRangeItem>,
}

/// A ResourceQuota that applies to all pods of its namespace.
#[derive(Clone, Debug)]
pub struct QuotaFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// `status.hard`.
    pub hard: ResourceList,
    /// `status.used`.
    pub used: ResourceList,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default)]
pub struct BudgetFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// Pods that are counted.
    pub expected_pods: i32,
    /// Pods that must stay healthy.
    pub desired_healthy: i32,
    /// Whether the status belongs to the current spec.
    pub is_observed: bool,
}

/// The webhooks of a MutatingWebhookConfiguration that are called for new pods.
#[derive(Clone, Debug)]
pub struct WebhookFacts {
    /// The name of the configuration, which determines the order of calls.
    pub name: Box<str>,
    /// Whether it is that of the admission controller.
    pub is_admission_controller: bool,
    /// Whether a webhook is called when a pod is created.
    pub mutates_pods: bool,
    /// Whether a webhook is called again after others have changed the pod.
    pub is_reinvoked: bool,
    /// The Service without ready endpoints, or why its endpoints are not known.
    pub without_endpoints: Option<Reading<String>>,
    /// When the last of the CA certificates expires; an error if there is no valid one.
    pub ca_expires: Reading<Time>,
}

/// How the webhook changed a pod that was not persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePod {
    /// The pod that was copied.
    pub pod: String,
    /// Whether the webhook changed it.
    pub is_changed: bool,
}

/// The Lease of a role.
#[derive(Clone, Debug)]
pub struct LeaseFacts {
    /// Its namespace and name.
    pub lease: String,
    pub role: String,
    /// The process that holds it; empty if none does.
    pub holder: String,
    /// When it was renewed.
    pub renewed: Option<Time>,
    /// How long it may go without renewal, in seconds.
    pub seconds: i64,
    /// The version of the role, if it is one of Plimsoll.
    pub version: Option<String>,
}

/// The pod of an updater.
#[derive(Clone, Debug)]
pub struct UpdaterFacts {
    /// Its namespace and name.
    pub pod: String,
    /// Whether it is Plimsoll.
    pub is_plimsoll: bool,
}

/// A permission of the account of a role.
#[derive(Clone, Debug)]
pub struct RightFacts {
    pub role: String,
    /// The service account: `system:serviceaccount:kube-system:plimsoll-updater`.
    pub account: String,
    /// The permission: `patch pods/resize`.
    pub permission: String,
    /// Whether the role needs it; else no role may have it.
    pub is_needed: bool,
    /// Whether it is granted.
    pub is_granted: Reading<bool>,
}

impl VpaFacts {
    /// `shop/web`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl ScalerFacts {
    /// `shop/web`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// An object that autoscalers have in common: namespace, API group, kind and name.
pub type TargetKey<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The key of a target. The version of the API does not matter.
pub fn target_key<'a>(namespace: &'a str, target: &'a TargetRef) -> TargetKey<'a> {
    let group = group_of_target(target.api_version.as_deref(), &target.kind);
    (namespace, group, &target.kind, &target.name)
}

/// The API group of a target. Without a version, that of the usual kinds is meant.
pub(super) fn group_of_target<'a>(api_version: Option<&'a str>, kind: &str) -> &'a str {
    let group = api_version.and_then(|version| version.split_once('/'));
    match (group.map_or("", |(group, _)| group), kind) {
        ("", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") => "apps",
        ("", "Job" | "CronJob") => "batch",
        (group, _) => group,
    }
}
