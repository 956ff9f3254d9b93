//! VerticalPodAutoscaler, `autoscaling.k8s.io/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_with::skip_serializing_none;
use strum::IntoStaticStr;

use crate::{
    api::{ResourceList, ResourceName},
    types::{Quantity, Resource},
};

/// The desired behavior of a VerticalPodAutoscaler.
#[expect(clippy::duplicated_attributes, reason = "columns of one type repeat its name")]
#[skip_serializing_none]
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
    /// How recommendations are applied to pods. If unset, pods are recreated.
    pub update_policy: Option<UpdatePolicy>,
    /// Policies for containers. If unset, all containers are sized without limits.
    pub resource_policy: Option<ResourcePolicy>,
    /// The name of the recommender to use; at most one. Defaults to the recommender default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommenders: Vec<RecommenderSelector>,
    /// Extra resources while a pod starts, for containers without their own entry.
    pub startup_boost: Option<StartupBoost>,
}

/// The target workload of a VerticalPodAutoscaler.
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

/// How recommendations are applied to pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// When recommendations are applied to pods. Defaults to Recreate.
    pub update_mode: Option<UpdateMode>,
    /// Pods are evicted only while at least this many are alive. If unset, the updater's flag applies.
    pub min_replicas: Option<i32>,
    /// Requirements that must all be met before a pod is evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_requirements: Vec<EvictionRequirement>,
    /// A pod that ran out of memory within this many seconds of its start is evicted early.
    #[serde(rename = "evictAfterOOMSeconds", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub evict_after_oom_seconds: Option<i32>,
}

/// When recommendations are applied to pods.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[strum(const_into_str)]
pub enum UpdateMode {
    /// Never: the recommendation is only published.
    Off,
    /// Only when pods are created.
    Initial,
    /// When pods are created, and later by evicting them.
    #[default]
    Recreate,
    /// When pods are created, and later in place, or by evicting them if that fails.
    InPlaceOrRecreate,
    /// When pods are created, and later in place. Pods are never evicted.
    InPlace,
    /// Deprecated name of `Recreate`.
    Auto,
}

impl UpdateMode {
    /// Whether running pods are changed, but for the end of a startup boost.
    pub const fn changes_running_pods(self) -> bool {
        !matches!(self, Self::Off | Self::Initial)
    }
}

/// A requirement for evictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequirement {
    /// The resources to check. One that meets the requirement is enough.
    pub resources: Vec<ResourceName>,
    /// How the target must compare to the request of the pod.
    pub change_requirement: ChangeRequirement,
}

/// How a target must compare to the request for an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChangeRequirement {
    /// The target is above the request.
    TargetHigherThanRequests,
    /// The target is below the request.
    TargetLowerThanRequests,
}

/// Policies for containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePolicy {
    /// One entry per container, and one named * for all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_policies: Vec<ContainerPolicy>,
}

/// The policy of one container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPolicy {
    /// Name of the container, or * for all containers without an entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// Whether the container is sized. Defaults to Auto.
    pub mode: Option<ContainerMode>,
    /// The minimum recommendation.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub min_allowed: ResourceList,
    /// The maximum recommendation. If the two cross, this one wins.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub max_allowed: ResourceList,
    /// The resources that are sized: cpu, memory or both. Left out, both; an empty list means none.
    pub controlled_resources: Option<Vec<ResourceName>>,
    /// Whether limits are scaled with the requests. If unset, they are, in their original proportion.
    pub controlled_values: Option<ControlledValues>,
    /// Memory is multiplied by at least this after an out-of-memory kill; 1 or more, rounded up to three decimals.
    pub oom_bump_up_ratio: Option<Quantity>,
    /// Memory grows by at least this after an out-of-memory kill.
    pub oom_min_bump_up: Option<Quantity>,
    /// Length of the windows that each contribute one memory peak.
    #[schemars(range(min = 1))]
    pub memory_aggregation_interval_seconds: Option<i32>,
    /// The number of such windows in the history.
    #[schemars(range(min = 1))]
    pub memory_aggregation_interval_count: Option<i64>,
    /// Extra resources while a pod starts; replaces the one for all containers.
    pub startup_boost: Option<StartupBoost>,
}

/// Whether a container is sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ContainerMode {
    /// The container is sized.
    #[default]
    Auto,
    /// The container is not sized, and not listed in the recommendation.
    Off,
}

/// Which values of a container are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlledValues {
    /// Requests, and limits in proportion.
    #[default]
    RequestsAndLimits,
    /// Only requests.
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
#[skip_serializing_none]
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
    /// Whether factor or quantity is used.
    #[serde(rename = "type")]
    pub kind: BoostKind,
    /// The CPU is multiplied by this.
    pub factor: Option<i32>,
    /// This much is added to the CPU.
    pub quantity: Option<Quantity>,
    /// How long the boost lasts after the pod became ready. Defaults to 0, which ends it immediately.
    pub duration_seconds: Option<i32>,
}

/// The type of a boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BoostKind {
    /// Multiply by a factor.
    Factor,
    /// Add a quantity.
    Quantity,
}

/// The observed state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerticalPodAutoscalerStatus {
    /// The latest recommendation.
    pub recommendation: Option<Recommendation>,
    /// The conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the object that the status is based on.
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// The recommendation for the pods of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// One entry per container, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_recommendations: Vec<ContainerRecommendation>,
}

/// The recommendation for one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecommendation {
    /// Name of the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// The recommended request.
    pub target: ResourceList,
    /// A request below this is too small.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub lower_bound: ResourceList,
    /// A request above this is wasteful.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub upper_bound: ResourceList,
    /// What the target would be without the limits of the policy.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub uncapped_target: ResourceList,
}

/// A condition of the object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, such as RecommendationProvided.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition, one of True, False or Unknown.
    pub status: String,
    /// When the status last changed.
    pub last_transition_time: Option<Time>,
    /// Reason for the status, in CamelCase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message with details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation of the object that the condition is based on.
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

impl VerticalPodAutoscalerSpec {
    /// The update mode, with its default. `Auto` is not mapped to `Recreate`, because users are warned about it.
    pub fn update_mode(&self) -> UpdateMode {
        self.update_policy.as_ref().and_then(|policy| policy.update_mode).unwrap_or_default()
    }

    /// The name of the recommender that it selects.
    pub fn recommender_name(&self) -> &str {
        self.recommenders.first().map_or("default", |selector| &selector.name)
    }

    /// The policy of a container: the entry with its name, or else the `*` entry.
    pub fn container_policy(&self, container: &str) -> Option<&ContainerPolicy> {
        ContainerPolicy::find(&self.resource_policy.as_ref()?.container_policies, container)
    }
}

impl ContainerPolicy {
    /// The policy of a container: the entry with its name, or else the `*` entry.
    pub fn find<'a>(policies: &'a [Self], container: &str) -> Option<&'a Self> {
        let own = policies.iter().find(|policy| policy.container_name == container);
        // Of several `*` entries the last one applies, as in upstream.
        own.or_else(|| policies.iter().rfind(|policy| policy.container_name == "*"))
    }

    /// Whether it lets the request of a resource be changed.
    pub fn controls(&self, resource: Resource) -> bool {
        let listed = self.controlled_resources.as_ref();
        self.mode.unwrap_or_default() == ContainerMode::Auto
            && listed.is_none_or(|names| names.contains(&resource.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_for_a_container_overrides_the_default_policy() {
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

    #[test]
    fn a_policy_controls_the_listed_resources_unless_it_is_off() {
        for (object, cpu, memory) in [
            (json!({}), true, true),
            (json!({ "mode": "Auto", "controlledResources": ["memory"] }), false, true),
            (json!({ "controlledResources": [] }), false, false),
            (json!({ "mode": "Off" }), false, false),
        ] {
            let policy: ContainerPolicy = serde_json::from_value(object).expect("is a policy");
            let controls = (policy.controls(Resource::Cpu), policy.controls(Resource::Memory));
            assert_eq!(controls, (cpu, memory), "{policy:?}");
        }
    }
}
