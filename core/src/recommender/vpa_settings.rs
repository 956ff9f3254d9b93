//! The settings of a VPA, parsed when it changes: policies and annotations.

use std::{collections::BTreeMap, time::Duration};

use super::{
    container::ContainerHistory,
    model_settings::{ModelRules, Settings},
    plan::PlanRules,
    policy::{self, ContainerPolicy, ControlledResources, Overrides, ResourceAmounts},
    tuning_annotations::Tuning,
};
use crate::{
    api::{
        annotations::InvalidAnnotation,
        vpa::{self, ContainerMode, UpdateMode},
    },
    types::quantity::Quantity,
};

/// The settings of a VPA, parsed when it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaSettings {
    pub policies: Vec<ContainerPolicy>,
    /// Containers whose CPU is rounded up to whole cores.
    pub integer_cpu_containers: Vec<Box<str>>,
    pub tuning: Tuning,
    /// Whether the update mode evicts pods to change their requests.
    pub evicts: bool,
    /// Annotations that were ignored.
    pub invalid_annotations: Vec<InvalidAnnotation>,
}

const INTEGER_CPU_PREFIX: &str = "vpa-post-processor.kubernetes.io/";
const INTEGER_CPU_SUFFIX: &str = "_integerCPU";

impl VpaSettings {
    pub fn new(policies: Vec<ContainerPolicy>, annotations: &BTreeMap<String, String>) -> Self {
        let (tuning, invalid_annotations) = Tuning::from_annotations(annotations);
        let integer_cpu_containers = annotations
            .iter()
            .filter(|(_, value)| *value == "true")
            .filter_map(|(key, _)| integer_cpu_container(key))
            .map(Into::into)
            .collect();
        Self { policies, integer_cpu_containers, tuning, evicts: false, invalid_annotations }
    }

    /// Sets whether the update mode evicts pods to change their requests.
    #[must_use]
    pub fn with_update_mode(self, mode: UpdateMode) -> Self {
        Self { evicts: matches!(mode, UpdateMode::Recreate | UpdateMode::Auto), ..self }
    }

    /// Applies the policy to a container's history. Returns the rules for its samples from now on.
    pub fn apply_policy(
        &self,
        name: &str,
        container: &mut ContainerHistory,
        settings: &Settings,
    ) -> ModelRules {
        let policy = policy::policy_for(&self.policies, name).filter(|_| settings.per_vpa_config);
        let rules = self.rules(Some(container), settings);
        container.apply_policy(policy.map(|policy| &policy.overrides), &rules);
        self.rules(Some(container), settings)
    }

    pub fn rules(&self, container: Option<&ContainerHistory>, settings: &Settings) -> ModelRules {
        let overrides = container.and_then(ContainerHistory::overrides);
        let mut rules = settings.rules(overrides.filter(|_| settings.per_vpa_config), &self.tuning);
        if let Some(plan) = rules.plan.filter(|_| self.evicts) {
            rules.plan = Some(PlanRules::new(&settings.plan, plan.selection.for_evictions()));
        }
        rules
    }
}

/// Returns the container that an annotation requests whole cores for.
pub fn integer_cpu_container(annotation: &str) -> Option<&str> {
    let name = annotation.strip_prefix(INTEGER_CPU_PREFIX)?.strip_suffix(INTEGER_CPU_SUFFIX)?;
    (!name.is_empty()).then_some(name)
}

impl From<&vpa::ContainerPolicy> for ContainerPolicy {
    fn from(policy: &vpa::ContainerPolicy) -> Self {
        let amounts = |list: &crate::api::ResourceList| ResourceAmounts {
            cpu: list.cpu(),
            memory: list.memory(),
        };
        Self {
            container: policy.container_name.as_str().into(),
            off: policy.mode == Some(ContainerMode::Off),
            controlled: policy.controlled_resources.as_ref().map_or_else(
                ControlledResources::default,
                |listed| ControlledResources {
                    cpu: listed.iter().any(|name| name.as_str() == "cpu"),
                    memory: listed.iter().any(|name| name.as_str() == "memory"),
                },
            ),
            min_allowed: amounts(&policy.min_allowed),
            max_allowed: amounts(&policy.max_allowed),
            overrides: Overrides {
                oom_ratio: policy.oom_bump_up_ratio.map(round_up_to_milli),
                oom_min_bump: policy.oom_min_bump_up.map(round_up_to_milli),
                interval: policy
                    .memory_aggregation_interval_seconds
                    .and_then(|seconds| u64::try_from(seconds).ok())
                    .filter(|seconds| *seconds > 0)
                    .map(Duration::from_secs),
                interval_count: policy
                    .memory_aggregation_interval_count
                    .and_then(|count| u32::try_from(count).ok())
                    .filter(|count| *count > 0),
            },
        }
    }
}

/// A ratio or amount of a policy: three decimals, rounded up.
fn round_up_to_milli(quantity: Quantity) -> f64 {
    quantity.milli_value() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recommender::plan::{
        CpuPlanSettings, PlanProfile, PlanSelection, PlanSettings, RequestProfile,
    };

    #[test]
    fn a_policy_is_read_from_the_object() {
        let object = json!({
            "containerName": "app",
            "mode": "Auto",
            "minAllowed": { "cpu": "50m" },
            "maxAllowed": { "memory": "1Gi" },
            "controlledResources": ["memory"],
            "oomBumpUpRatio": "1.2345",
            "oomMinBumpUp": "100Mi",
            "memoryAggregationIntervalSeconds": 3600,
            "memoryAggregationIntervalCount": 24,
        });
        let policy: vpa::ContainerPolicy = serde_json::from_value(object).expect("is a policy");
        let policy = ContainerPolicy::from(&policy);
        assert_eq!((&*policy.container, policy.off), ("app", false));
        assert_eq!(policy.controlled, ControlledResources { cpu: false, memory: true });
        assert_eq!(policy.min_allowed.cpu.map(Quantity::milli_value), Some(50));
        assert_eq!((policy.min_allowed.memory, policy.max_allowed.cpu), (None, None));
        assert_eq!(policy.max_allowed.memory.map(Quantity::value), Some(1 << 30));
        let overrides = policy.overrides;
        assert_eq!(overrides.oom_ratio, Some(1.235));
        assert_eq!(overrides.oom_min_bump, Some(1.048_576e8));
        assert_eq!(overrides.interval, Some(Duration::from_hours(1)));
        assert_eq!(overrides.interval_count, Some(24));
    }

    #[test]
    fn an_empty_list_of_resources_means_none() {
        let object = json!({ "containerName": "*", "controlledResources": [] });
        let policy: vpa::ContainerPolicy = serde_json::from_value(object).expect("is a policy");
        let policy = ContainerPolicy::from(&policy);
        assert_eq!(policy.controlled, ControlledResources { cpu: false, memory: false });
    }

    #[test]
    fn a_mode_that_evicts_gets_the_steady_profile() {
        let plan = PlanSettings { profile: RequestProfile::Tide, ..PlanSettings::default() };
        let settings = Settings { plan, ..Settings::default() };
        for (mode, profile, replaced) in [
            (UpdateMode::Recreate, PlanProfile::Steady, Some(PlanProfile::Tide)),
            (UpdateMode::Auto, PlanProfile::Steady, Some(PlanProfile::Tide)),
            (UpdateMode::InPlaceOrRecreate, PlanProfile::Tide, None),
            (UpdateMode::InPlace, PlanProfile::Tide, None),
            (UpdateMode::Initial, PlanProfile::Tide, None),
            (UpdateMode::Off, PlanProfile::Tide, None),
        ] {
            let vpa_settings = VpaSettings::default().with_update_mode(mode);
            let rules = vpa_settings.rules(None, &settings).plan.expect("is planned");
            assert_eq!(rules.selection, PlanSelection { profile, replaced }, "{mode:?}");
            assert_eq!(rules.cpu, CpuPlanSettings::of(profile), "{mode:?}");
            let default = vpa_settings.rules(None, &Settings::default()).plan;
            assert_eq!(default, None, "{mode:?}: off by default");
        }
        let steady = PlanSelection::of(PlanProfile::Steady).for_evictions();
        assert_eq!(steady.replaced, None);
    }

    #[test]
    fn overrides_apply_only_with_the_feature_gate() {
        let overrides = Overrides { oom_ratio: Some(3.0), ..Overrides::default() };
        let policy =
            ContainerPolicy { container: "app".into(), overrides, ..ContainerPolicy::default() };
        let vpa_settings = VpaSettings { policies: vec![policy], ..VpaSettings::default() };
        for (gate, ratio) in [(false, 1.2), (true, 3.0)] {
            let settings = Settings { per_vpa_config: gate, ..Settings::default() };
            let rules = vpa_settings.rules(None, &settings);
            let mut container = ContainerHistory::new(crate::types::Time::EPOCH, &rules);
            let rules = vpa_settings.apply_policy("app", &mut container, &settings);
            assert!((rules.oom_ratio - ratio).abs() < 1e-12, "gate {gate}");
        }
    }
}
