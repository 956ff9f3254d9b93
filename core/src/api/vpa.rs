//! VerticalPodAutoscaler, `autoscaling.k8s.io/v1`: what users ask for and what they are told.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// What a VerticalPodAutoscaler is asked to do.
#[expect(clippy::duplicated_attributes, reason = "columns of one type repeat its name")]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscaler",
    shortname = "vpa",
    namespaced,
    status = "VerticalPodAutoscalerStatus",
    derive = "PartialEq",
    schema = "disabled", // core/src/api/crdgen.rs makes it
    annotation("api-approved.kubernetes.io", "https://github.com/kubernetes/kubernetes/pull/63797"),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.updatePolicy.updateMode"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.recommendation.containerRecommendations[0].target.cpu"
    ),
    printcolumn(
        name = "Mem",
        type_ = "string",
        json_path = ".status.recommendation.containerRecommendations[0].target.memory"
    ),
    printcolumn(
        name = "Provided",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='RecommendationProvided')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MinReplicas",
        type_ = "integer",
        json_path = ".spec.updatePolicy.minReplicas",
        priority = 1
    ),
    printcolumn(
        name = "OOMSeconds",
        type_ = "integer",
        json_path = ".spec.updatePolicy.evictAfterOOMSeconds",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerSpec {
    /// The workload whose pods are sized: anything with a scale subresource, or a DaemonSet.
    pub target_ref: TargetRef,
    /// How a recommendation reaches the pods. Left out, pods are recreated for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_policy: Option<UpdatePolicy>,
    /// Limits and exceptions for single containers. Left out, every container is sized without limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<ResourcePolicy>,
    /// The recommender in charge, by name; at most one. Left out or empty, it is the one named "default".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommenders: Vec<RecommenderSelector>,
    /// Extra resources while a pod starts, for all containers that say nothing of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

/// The workload that a VerticalPodAutoscaler is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct TargetRef {
    /// Group and version of the workload, such as apps/v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the workload, such as Deployment.
    pub kind: String,
    /// Name of the workload, in the namespace of this object.
    pub name: String,
}

/// A recommender by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecommenderSelector {
    /// The name that the recommender was started with.
    pub name: String,
}

/// How a recommendation reaches the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// When pods get what is recommended. Left out, it is Recreate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_mode: Option<UpdateMode>,
    /// Pods are only evicted while at least this many of them are alive. Left out, the updater's flag decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Conditions that must all hold before a pod is evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_requirements: Vec<EvictionRequirement>,
    /// A pod that ran out of memory within this many seconds of its start is evicted early.
    #[serde(rename = "evictAfterOOMSeconds", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub evict_after_oom_seconds: Option<i32>,
}

/// When pods get what is recommended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UpdateMode {
    /// Never: the recommendation is only shown.
    Off,
    /// When they are created, and never again.
    Initial,
    /// When they are created, and later by evicting them.
    #[default]
    Recreate,
    /// When they are created, and later in place; by evicting them where that fails.
    InPlaceOrRecreate,
    /// When they are created, and later in place; never by evicting them.
    InPlace,
    /// An old name of Recreate.
    Auto,
}

impl UpdateMode {
    /// As it is written in objects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Initial => "Initial",
            Self::Recreate => "Recreate",
            Self::InPlaceOrRecreate => "InPlaceOrRecreate",
            Self::InPlace => "InPlace",
            Self::Auto => "Auto",
        }
    }
}

/// A condition on evictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequirement {
    /// The resources that are looked at; one that meets the requirement is enough.
    pub resources: Vec<ResourceName>,
    /// How the target must stand to the pod's request.
    pub change_requirement: ChangeRequirement,
}

/// How a target must stand to the request for an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChangeRequirement {
    /// Above it.
    TargetHigherThanRequests,
    /// Below it.
    TargetLowerThanRequests,
}

/// Limits and exceptions for single containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePolicy {
    /// One entry a container, and one named * for all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_policies: Vec<ContainerPolicy>,
}

/// What holds for one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPolicy {
    /// Name of the container, or * for all that have no entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// Whether the container is sized at all. Left out, it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ContainerMode>,
    /// The least that is ever recommended.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub min_allowed: ResourceList,
    /// The most that is ever recommended. Where the two cross, this one wins.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub max_allowed: ResourceList,
    /// The resources that are sized: cpu, memory or both. Left out, both; an empty list means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_resources: Option<Vec<ResourceName>>,
    /// Whether limits follow the requests. Left out, they do, in the proportion that they were written with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_values: Option<ControlledValues>,
    /// Memory is multiplied by at least this after an out-of-memory kill; 1 or more, rounded up to three decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_bump_up_ratio: Option<Quantity>,
    /// Memory grows by at least this after an out-of-memory kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_min_bump_up: Option<Quantity>,
    /// Length of the windows that each contribute one memory peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_aggregation_interval_seconds: Option<i32>,
    /// How many such windows are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_aggregation_interval_count: Option<i64>,
    /// Extra resources while a pod starts; replaces the one for all containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

/// Whether a container is sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ContainerMode {
    /// It is.
    #[default]
    Auto,
    /// It is left alone, and not shown in the recommendation.
    Off,
}

/// What of a container is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlledValues {
    /// Requests, and limits in proportion.
    #[default]
    RequestsAndLimits,
    /// Requests alone.
    RequestsOnly,
}

/// Extra resources while a pod starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartupBoost {
    /// Extra CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuBoost>,
}

/// Extra CPU while a pod starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([
    {
        "rule": "(self.type == 'Factor') == has(self.factor)",
        "message": "factor is required when type is Factor and forbidden otherwise",
    },
    {
        "rule": "(self.type == 'Quantity') == has(self.quantity)",
        "message": "quantity is required when type is Quantity and forbidden otherwise",
    },
])))]
pub struct CpuBoost {
    /// Which of the two says how much.
    #[serde(rename = "type")]
    pub kind: BoostKind,
    /// The CPU is multiplied by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<i32>,
    /// This much is added to the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// How long the boost stays after the pod became ready. Left out, it ends right then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i32>,
}

/// How a boost says how much it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BoostKind {
    /// By a factor.
    Factor,
    /// By an amount.
    Quantity,
}

/// What users are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerStatus {
    /// The latest recommendation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommendation>,
    /// What stands in the way of a recommendation, or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of this object that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// What is recommended for the pods of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// One entry a container, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_recommendations: Vec<ContainerRecommendation>,
}

/// What is recommended for one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecommendation {
    /// Name of the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// What to request.
    pub target: ResourceList,
    /// A request below this is too small.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub lower_bound: ResourceList,
    /// A request above this is a waste.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub upper_bound: ResourceList,
    /// What the target would be without the limits of the policy.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub uncapped_target: ResourceList,
}

/// One fact about the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which fact, such as RecommendationProvided.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds: True, False or Unknown.
    pub status: String,
    /// When that last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation of the object that the fact is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

impl VerticalPodAutoscalerSpec {
    /// When pods get what is recommended, with what is left out filled in. `Auto` stays apart from
    /// `Recreate`, because users are warned about it.
    pub fn update_mode(&self) -> UpdateMode {
        self.update_policy.as_ref().and_then(|policy| policy.update_mode).unwrap_or_default()
    }

    /// What holds for a container: the entry of its name, else the one for all others.
    pub fn container_policy(&self, container: &str) -> Option<&ContainerPolicy> {
        let policies = &self.resource_policy.as_ref()?.container_policies;
        let own = policies.iter().find(|policy| policy.container_name == container);
        // Of several entries for all others the last one holds, as upstream has it.
        own.or_else(|| policies.iter().rfind(|policy| policy.container_name == "*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_own_policy_beats_the_one_for_all() {
        let policy =
            |name: &str| ContainerPolicy { container_name: name.into(), ..Default::default() };
        let mut spec: VerticalPodAutoscalerSpec =
            serde_json::from_value(json!({"targetRef": {"kind": "Deployment", "name": "web"}}))
                .expect("the least that a spec can say");
        assert_eq!(spec.container_policy("app"), None);
        assert_eq!(spec.update_mode(), UpdateMode::Recreate);
        let last = ContainerPolicy { mode: Some(ContainerMode::Off), ..policy("*") };
        let container_policies = vec![policy("*"), policy("app"), last.clone(), policy("app")];
        spec.resource_policy = Some(ResourcePolicy { container_policies });
        assert_eq!(spec.container_policy("app"), Some(&policy("app")));
        assert_eq!(spec.container_policy("proxy"), Some(&last));
    }
}
