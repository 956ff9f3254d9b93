//! A VPA as received: every field is optional, so that all errors can be reported.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use crate::types::quantity::Quantity;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawVpa {
    pub metadata: Option<Metadata>,
    pub spec: Option<Spec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub target_ref: Option<TargetRef>,
    pub update_policy: Option<UpdatePolicy>,
    pub resource_policy: Option<ResourcePolicy>,
    pub recommenders: Option<Vec<IgnoredAny>>,
    pub startup_boost: Option<StartupBoost>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TargetRef {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UpdatePolicy {
    pub update_mode: Option<String>,
    pub min_replicas: Option<i32>,
    #[serde(rename = "evictAfterOOMSeconds")]
    pub evict_after_oom_seconds: Option<i32>,
    pub eviction_requirements: Option<Vec<EvictionRequirement>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EvictionRequirement {
    pub resources: Option<Vec<String>>,
    pub change_requirement: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourcePolicy {
    pub container_policies: Option<Vec<ContainerPolicy>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerPolicy {
    pub container_name: Option<String>,
    pub mode: Option<String>,
    pub min_allowed: Option<BTreeMap<String, Quantity>>,
    pub max_allowed: Option<BTreeMap<String, Quantity>>,
    pub controlled_resources: Option<Vec<String>>,
    pub controlled_values: Option<String>,
    pub oom_bump_up_ratio: Option<Quantity>,
    pub oom_min_bump_up: Option<Quantity>,
    pub memory_aggregation_interval_seconds: Option<i32>,
    pub memory_aggregation_interval_count: Option<i64>,
    pub startup_boost: Option<StartupBoost>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct StartupBoost {
    pub cpu: Option<CpuBoost>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CpuBoost {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub factor: Option<i32>,
    pub quantity: Option<Quantity>,
    pub duration_seconds: Option<i32>,
}

impl Spec {
    pub fn container_policies(&self) -> &[ContainerPolicy] {
        let policies =
            self.resource_policy.as_ref().and_then(|policy| policy.container_policies.as_deref());
        policies.unwrap_or_default()
    }

    pub fn eviction_requirements(&self) -> &[EvictionRequirement] {
        let requirements =
            self.update_policy.as_ref().and_then(|policy| policy.eviction_requirements.as_deref());
        requirements.unwrap_or_default()
    }

    /// Truncates the container policies and eviction requirements to these lengths.
    pub fn truncate(&mut self, policies: usize, requirements: usize) {
        if let Some(list) =
            self.resource_policy.as_mut().and_then(|policy| policy.container_policies.as_mut())
        {
            list.truncate(policies);
        }
        if let Some(list) =
            self.update_policy.as_mut().and_then(|policy| policy.eviction_requirements.as_mut())
        {
            list.truncate(requirements);
        }
    }

    /// Returns the update mode, if set.
    pub fn update_mode(&self) -> Option<&str> {
        self.update_policy.as_ref()?.update_mode.as_deref()
    }

    /// Returns all startup boosts with their paths.
    pub fn startup_boosts(&self) -> impl Iterator<Item = (String, &StartupBoost)> {
        let policies =
            self.container_policies().iter().enumerate().filter_map(|(index, policy)| {
                Some((policy_path(index) + ".startupBoost", policy.startup_boost.as_ref()?))
            });
        policies.chain(self.startup_boost.iter().map(|boost| ("spec.startupBoost".into(), boost)))
    }
}

/// Returns the path of a container policy.
pub(super) fn policy_path(index: usize) -> String {
    format!("spec.resourcePolicy.containerPolicies[{index}]")
}
