//! Startup boosts as samples of usage need them: what a container uses while it is boosted tells nothing of later (W14).

use std::time::Duration;

use plimsoll_core::types::Time;

use crate::cluster::watch::partial_objects::PartialPod;
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    sizing::{boost, pod_annotations, sizing_spec::SizingSpec},
    vpa_match,
};

/// The boosts that a pod was created with: few pods have any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodStartupBoost {
    /// Since when it is ready, if it is.
    ready_since: Option<Time>,
    /// The containers that its annotations name.
    containers: Box<[Box<str>]>,
}

/// How long a VPA's boosts last after a pod became ready: of containers that have a policy, and of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoostDurations {
    by_container: Box<[(Box<str>, Duration)]>,
    default_duration: Duration,
}

// === impl Startup ===

impl PodStartupBoost {
    /// What a pod says, if it says anything.
    pub fn from_pod(slim: &PartialPod) -> Option<Box<Self>> {
        let annotations = slim.metadata.annotations.iter().flatten();
        let containers: Box<[Box<str>]> = annotations
            .filter_map(|(key, _)| Some(key.strip_prefix(pod_annotations::BOOST)?.into()))
            .collect();
        (!containers.is_empty())
            .then(|| Box::new(Self { ready_since: slim.status.ready_since, containers }))
    }

    /// Whether a container had its boost then. It has it until it was ready for as long as the VPA says: an annotation
    /// that nobody takes away does not keep usage out for ever.
    /// Where a VPA boosts nothing any more, that is until it is ready.
    pub fn is_boosted_at(
        &self,
        container: &str,
        boosts: Option<&BoostDurations>,
        at: Time,
    ) -> bool {
        if !self.containers.iter().any(|one| **one == *container) {
            return false;
        }
        let Some(ready) = self.ready_since else { return true };
        let lasts = boosts.map_or(Duration::ZERO, |boosts| boosts.duration_for(container));
        at.nanos_since(ready) <= i64::try_from(lasts.as_nanos()).unwrap_or(i64::MAX)
    }
}

// === impl Boosts ===

impl BoostDurations {
    /// What a VPA says; none if it boosts nothing.
    pub fn new(vpa: &VerticalPodAutoscaler) -> Option<Box<Self>> {
        let plan = SizingSpec::from_vpa(vpa);
        if !vpa_match::has_startup_boost(&vpa.spec) {
            return None;
        }
        let policies =
            vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let names = policies.map(|policy| policy.container_name.as_str());
        let by_policy = names.map(|name| (name.into(), boost::duration(&plan, name))).collect();
        // No container has this name, so that it is of those without a policy of their own.
        Some(Box::new(Self {
            by_container: by_policy,
            default_duration: boost::duration(&plan, ""),
        }))
    }

    fn duration_for(&self, container: &str) -> Duration {
        let own = self.by_container.iter().find(|(name, _)| **name == *container);
        own.map_or(self.default_duration, |(_, lasts)| *lasts)
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
    fn a_boosted_container_is_starting_until_it_was_ready_for_as_long_as_its_vpa_says() {
        let lasting = boosts(&json!({"startupBoost": boost(60)})).expect("it boosts");
        let startup = startup(&ready()).expect("it is boosted");
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
    fn a_boosted_pod_that_is_not_ready_is_starting_however_long_it_takes() {
        let lasting = boosts(&json!({"startupBoost": boost(1)})).expect("it boosts");
        let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(0)});
        for unready in [unready, json!({"type": "Initialized", "status": "True"})] {
            let startup = startup(&unready).expect("it is boosted");
            assert!(startup.is_boosted_at("main", Some(&lasting), at(1_000_000)));
        }
    }

    #[test]
    fn the_boost_of_a_policy_goes_before_that_of_its_vpa() {
        let policies = json!({"containerPolicies": [
            {"containerName": "main", "startupBoost": boost(10)},
            {"containerName": "plain"},
            {"containerName": "*", "startupBoost": boost(20)},
        ]});
        let all = boosts(&json!({"startupBoost": boost(60), "resourcePolicy": policies}));
        let all = all.expect("it boosts");
        let lasts = ["main", "plain", "side"].map(|name| all.duration_for(name).as_secs());
        assert_eq!(lasts, [10, 60, 20]);
        assert_eq!(boosts(&json!({})), None);
    }

    #[test]
    fn a_pod_without_boosts_keeps_nothing() {
        let pod = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": "a-1", "annotations": {"else": "long"}},
            "status": {"conditions": [ready()]},
        }));
        assert_eq!(PodStartupBoost::from_pod(&pod.expect("a pod")), None);
    }
}
