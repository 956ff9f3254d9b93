//! The settings of a VPA, parsed when it changes: policies and annotations.

use std::collections::BTreeMap;

use super::{
    container::ContainerHistory,
    model_settings::{ModelRules, Settings},
    plan::PlanRules,
    policy::Overrides,
    tuning_annotations::Tuning,
};
use crate::api::{
    annotations::InvalidAnnotation,
    vpa::{ContainerPolicy, UpdateMode},
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
        let policy = ContainerPolicy::find(&self.policies, name);
        let overrides = policy.filter(|_| settings.per_vpa_config).map(Overrides::of);
        let rules = self.rules(Some(container), settings);
        container.apply_policy(overrides, &rules);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommender::plan::{
        CpuPlanSettings, PlanProfile, PlanSelection, PlanSettings, RequestProfile,
    };

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
        let policy = ContainerPolicy {
            container_name: "app".into(),
            oom_bump_up_ratio: "3".parse().ok(),
            ..ContainerPolicy::default()
        };
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
