//! Startup boosts of pods: usage while a container is boosted says nothing about its usage later (W14).

use std::time::Duration;

use plimsoll_core::types::Time;

use crate::cluster::watch::partial_objects::PartialPod;
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    sizing::{boost, pod_annotations, sizing_spec::SizingSpec},
    vpa_match,
};

/// The startup boosts that a pod was created with: few pods have any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodStartupBoost {
    ready_since: Option<Time>,
    containers: Box<[Box<str>]>,
}

/// How long a VPA's startup boosts last after a pod became ready, by container policy and by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoostDurations {
    by_container: Box<[(Box<str>, Duration)]>,
    default_duration: Duration,
}

impl PodStartupBoost {
    /// Reads the boost annotations of a pod; `None` if it has none.
    pub fn from_pod(partial_pod: &PartialPod) -> Option<Box<Self>> {
        let annotations = partial_pod.metadata.annotations.iter().flatten();
        let containers: Box<[Box<str>]> = annotations
            .filter_map(|(key, _)| Some(key.strip_prefix(pod_annotations::BOOST)?.into()))
            .collect();
        (!containers.is_empty())
            .then(|| Box::new(Self { ready_since: partial_pod.status.ready_since, containers }))
    }

    /// Whether a container was boosted at that time: until the pod was ready for the duration in the VPA, so that a boost
    /// annotation that is never removed does not exclude usage forever. If the VPA no longer configures a boost, until the
    /// pod was ready.
    pub fn is_boosted_at(
        &self,
        container: &str,
        boosts: Option<&BoostDurations>,
        at: Time,
    ) -> bool {
        if !self.containers.iter().any(|name| **name == *container) {
            return false;
        }
        let Some(ready) = self.ready_since else { return true };
        let duration = boosts.map_or(Duration::ZERO, |boosts| boosts.duration_for(container));
        at.nanos_since(ready) <= i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
    }
}

impl BoostDurations {
    /// The boost durations of a VPA; `None` if it configures no boost.
    pub fn new(vpa: &VerticalPodAutoscaler) -> Option<Box<Self>> {
        let sizing_spec = SizingSpec::from_vpa(vpa);
        if !vpa_match::has_startup_boost(&vpa.spec) {
            return None;
        }
        let policies =
            vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let names = policies.map(|policy| policy.container_name.as_str());
        let by_container =
            names.map(|name| (name.into(), boost::duration(&sizing_spec, name))).collect();
        // No container has an empty name, so this is the default of containers without a policy.
        Some(Box::new(Self { by_container, default_duration: boost::duration(&sizing_spec, "") }))
    }

    fn duration_for(&self, container: &str) -> Duration {
        let own = self.by_container.iter().find(|(name, _)| **name == *container);
        own.map_or(self.default_duration, |(_, duration)| *duration)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn startup(ready: &Value) -> Option<Box<PodStartupBoost>> {
        let pod = serde_json::from_value(json!({
            "metadata": {
                "namespace": "web", "name": "a-1",
                "annotations": {"vpaCpuStartupBoost/main": "{}", "vpaCpuStartupBoost/side": "{}", "else": "long"},
            },
            "spec": {"containers": [{"name": "main"}, {"name": "side"}, {"name": "plain"}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}, ready]},
        }));
        PodStartupBoost::from_pod(&pod.expect("a pod"))
    }

    fn boosts(spec: &Value) -> Option<Box<BoostDurations>> {
        let mut object = json!({
            "metadata": {"namespace": "web", "name": "a"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        });
        if let (Some(into), Some(from)) = (object["spec"].as_object_mut(), spec.as_object()) {
            into.extend(from.clone());
        }
        BoostDurations::new(&serde_json::from_value(object).expect("a VPA"))
    }

    fn boost(seconds: u32) -> Value {
        json!({"cpu": {"type": "Factor", "factor": 2, "durationSeconds": seconds}})
    }

    fn at(seconds: i64) -> Time {
        Time::from_secs(1_790_000_000 + seconds)
    }

    fn ready() -> Value {
        json!({"type": "Ready", "status": "True", "lastTransitionTime": at(0)})
    }

    #[test]
    fn a_boosted_container_is_starting_until_its_boost_duration_after_readiness() {
        let lasting = boosts(&json!({"startupBoost": boost(60)})).expect("it boosts");
        let startup = startup(&ready()).expect("the pod is boosted");
        for (container, seconds, expected) in [
            ("main", -5, true),
            ("main", 60, true),
            ("main", 61, false),
            ("side", 30, true),
            ("plain", -5, false),
            ("plain", 30, false),
        ] {
            let covers = startup.is_boosted_at(container, Some(&lasting), at(seconds));
            assert_eq!(covers, expected, "{container} after {seconds} s");
        }
        assert!(
            startup.is_boosted_at("main", None, at(-1))
                && !startup.is_boosted_at("main", None, at(1))
        );
    }

    #[test]
    fn a_boosted_pod_that_is_not_ready_is_starting() {
        let lasting =
            boosts(&json!({"startupBoost": boost(1)})).expect("the VPA configures a boost");
        let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(0)});
        for unready in [unready, json!({"type": "Initialized", "status": "True"})] {
            let startup = startup(&unready).expect("the pod is boosted");
            assert!(startup.is_boosted_at("main", Some(&lasting), at(1_000_000)));
        }
    }

    #[test]
    fn the_boost_of_a_container_policy_overrides_that_of_the_vpa() {
        let policies = json!({"containerPolicies": [
            {"containerName": "main", "startupBoost": boost(10)},
            {"containerName": "plain"},
            {"containerName": "*", "startupBoost": boost(20)},
        ]});
        let durations = boosts(&json!({"startupBoost": boost(60), "resourcePolicy": policies}));
        let durations = durations.expect("the VPA configures a boost");
        let lasts = ["main", "plain", "side"].map(|name| durations.duration_for(name).as_secs());
        assert_eq!(lasts, [10, 60, 20]);
        assert_eq!(boosts(&json!({})), None);
    }

    #[test]
    fn a_pod_without_boosts_stores_nothing() {
        let pod = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": "a-1", "annotations": {"else": "long"}},
            "status": {"conditions": [ready()]},
        }));
        assert_eq!(PodStartupBoost::from_pod(&pod.expect("a pod")), None);
    }
}
