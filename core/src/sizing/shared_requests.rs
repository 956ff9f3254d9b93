//! Requests that an autoscaler of replicas uses too: they are not changed, or have bounds.

use super::{
    pod::{Container, Pod},
    pod_limit_range::{CapReason, RecommendationField},
    reason::{CapRule, SizingReason},
    sizing_spec::SizingRules,
};
use crate::{
    api::{ResourceName, vpa::ContainerRecommendation},
    coordination::{RequestRange, Resource, SharedRequest, SharedRequestRule},
    types::quantity::{Format, Quantity},
};

/// Milli-units of a byte: an amount of memory is a whole number of them.
const MILLI_PER_BYTE: i64 = 1000;

/// Applies the rules to the recommendation of a pod, and returns why targets changed.
pub(super) fn apply(
    recommendations: &mut [ContainerRecommendation],
    pod: &Pod,
    shared: &[SharedRequest],
    rules: SizingRules,
) -> Vec<CapReason> {
    let mut reasons = Vec::new();
    for request in shared {
        match request.rule {
            SharedRequestRule::Held | SharedRequestRule::Waits(_) => {
                hold(recommendations, pod, request, rules, &mut reasons);
            }
            SharedRequestRule::AtLeast(_)
            | SharedRequestRule::Within { .. }
            | SharedRequestRule::AtMaxReplicas(_)
            | SharedRequestRule::Idle => {
                bound(recommendations, pod, request, rules, &mut reasons);
            }
        }
    }
    reasons
}

/// Removes the resource from the recommendation. A container without a request gets one: without it, the autoscaler of
/// replicas could not compute anything.
fn hold(
    recommendations: &mut [ContainerRecommendation],
    pod: &Pod,
    request: &SharedRequest,
    rules: SizingRules,
    reasons: &mut Vec<CapReason>,
) {
    let resource = ResourceName::from(request.resource);
    for (index, recommendation) in recommendations.iter_mut().enumerate() {
        let container = sized_container(pod, &recommendation.container_name, rules);
        let Some(current) =
            container.and_then(|container| container.actual().requests().get(&resource))
        else {
            continue;
        };
        if !request.counts(&recommendation.container_name) || current.is_zero() {
            continue;
        }
        for field in RecommendationField::ALL {
            let removed = field.amounts_mut(recommendation).remove(&resource);
            if field == RecommendationField::Target && removed.is_some() {
                let (resource, hpa) = (resource.clone(), request.hpa.clone());
                reasons.push((index, SizingReason::HeldForHpa { resource, hpa }));
            }
        }
        recommendation.uncapped_target.remove(&resource);
    }
}

/// Changes the amounts of the containers in proportion, so that their sum is within what the rule asks for. Memory is never
/// lowered, because its usage hardly falls when replicas are added.
fn bound(
    recommendations: &mut [ContainerRecommendation],
    pod: &Pod,
    request: &SharedRequest,
    rules: SizingRules,
    reasons: &mut Vec<CapReason>,
) {
    let (min, max, rule) = match request.rule {
        SharedRequestRule::AtMaxReplicas(milli) => (Some(milli), None, CapRule::AtMaxReplicas),
        SharedRequestRule::AtLeast(milli) => (Some(milli), None, CapRule::ScalePoint),
        SharedRequestRule::Within { min, max } => (Some(min), Some(max), CapRule::ScalePoint),
        SharedRequestRule::Idle | SharedRequestRule::Held | SharedRequestRule::Waits(_) => {
            (None, None, CapRule::ScalePoint)
        }
    };
    let resource = ResourceName::from(request.resource);
    let range = RequestRange { min, max, ..RequestRange::default() };
    for field in RecommendationField::ALL {
        let mut found: Vec<(usize, Quantity)> = Vec::new();
        // What the containers have of memory.
        let mut lowest: Vec<i64> = Vec::new();
        for (index, recommendation) in recommendations.iter().enumerate() {
            let name = &recommendation.container_name;
            let Some(container) = sized_container(pod, name, rules) else { continue };
            let amount = field.amounts(recommendation).get(&resource);
            let Some(amount) = amount.filter(|_| request.counts(name)) else { continue };
            let current = container.actual().requests().get(&resource);
            let kept = current.filter(|_| request.resource == Resource::Memory);
            found.push((index, kept.map_or(amount, |current| current.max(amount))));
            lowest.push(kept.map_or(0, Quantity::milli_value));
        }
        let is_recommended = |name: &str| {
            found.iter().any(|(index, _)| {
                recommendations.get(*index).is_some_and(|one| one.container_name == name)
            })
        };
        // A metric counts those that run as long as the pod.
        let others = pod.sized_containers(true).map(|(_, container)| container);
        let others = others.filter(|container| request.counts(&container.name));
        let fixed = others
            .filter(|container| !is_recommended(&container.name))
            .filter_map(|container| container.actual().requests().get(&resource))
            .fold(0_i64, |sum, amount| sum.saturating_add(amount.milli_value()));
        let amounts: Vec<i64> = found.iter().map(|(_, amount)| amount.milli_value()).collect();
        for ((index, before), milli) in found.iter().zip(fit(range, &amounts, &lowest, fixed)) {
            let to = quantity(request.resource, milli, *before);
            let Some(recommendation) = recommendations.get_mut(*index) else { continue };
            let Some(from) = field.amounts_mut(recommendation).insert(resource.clone(), to) else {
                continue;
            };
            if field == RecommendationField::Target && from != to {
                let is_lowered =
                    rule == CapRule::ScalePoint && to.milli_value() < from.milli_value();
                let rule = if is_lowered { CapRule::ScalePointRange } else { rule };
                reasons.push((*index, SizingReason::capped_request(&resource, rule, from, to)));
            }
        }
    }
}

/// Changes amounts in proportion, so that their sum with `fixed` is within the range, but none below its lowest.
fn fit(range: RequestRange, amounts: &[i64], lowest: &[i64], fixed: i64) -> Vec<i64> {
    let sum = |amounts: &[i64]| amounts.iter().fold(fixed, |sum, one| sum.saturating_add(*one));
    if range.max.is_none_or(|max| sum(amounts) <= max) {
        return range.fit(amounts, fixed);
    }
    let pairs = || amounts.iter().zip(lowest);
    let raises: Vec<i64> = pairs().map(|(amount, lowest)| amount.saturating_sub(*lowest)).collect();
    let raises = RequestRange { min: None, ..range }.fit(&raises, sum(lowest));
    raises.iter().zip(lowest).map(|(raise, lowest)| lowest.saturating_add(*raise)).collect()
}

/// The amount, in the format that it had if it did not change.
fn quantity(resource: Resource, milli: i64, before: Quantity) -> Quantity {
    if milli == before.milli_value() {
        return before;
    }
    match resource {
        Resource::Cpu => Quantity::from_milli(milli, Format::DecimalSi),
        Resource::Memory => {
            let bytes = milli.saturating_add(MILLI_PER_BYTE - 1) / MILLI_PER_BYTE;
            Quantity::from_units(bytes, Format::DecimalSi)
        }
    }
}

fn sized_container<'a>(pod: &'a Pod, name: &str, rules: SizingRules) -> Option<&'a Container> {
    let mut containers = pod.sized_containers(rules.sidecars);
    containers.find_map(|(_, container)| (*container.name == *name).then_some(container))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{VerticalPodAutoscaler, vpa::UpdateMode},
        coordination::change_timing::Replicas,
        sizing::{NamespaceLimitRanges, SizedContainer, SizingSpec, size_containers},
        types::compat::Compat,
    };

    fn shared(
        resource: Resource,
        container: Option<&str>,
        rule: SharedRequestRule,
    ) -> SharedRequest {
        SharedRequest {
            hpa: "web".into(),
            resource,
            container: container.map(Into::into),
            scale_point: None,
            rule,
            replicas: Replicas::default(),
            lacks_replicas: false,
            target: None,
        }
    }

    fn pod(containers: &Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "web-0"}, "spec": {"containers": containers}}),
        )
        .expect("a pod")
    }

    fn vpa(recommendations: &Value) -> VerticalPodAutoscaler {
        let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
            "status": {"recommendation": {"containerRecommendations": recommendations}},
        }))
        .expect("a VPA");
        assert_ne!(vpa.spec.update_mode(), UpdateMode::Off);
        vpa
    }

    fn sizes(
        pod: &Pod,
        vpa: &VerticalPodAutoscaler,
        shared: &[SharedRequest],
    ) -> Vec<SizedContainer> {
        let spec = SizingSpec::from_vpa(vpa).with_shared_requests(shared);
        let rules = SizingRules::for_compat(Compat::Plimsoll);
        size_containers(pod, &spec, Some(&NamespaceLimitRanges::default()), rules).expect("sizes")
    }

    fn requests(sizes: &[SizedContainer]) -> Value {
        let requests: Vec<_> = sizes.iter().map(|size| &size.requests).collect();
        serde_json::to_value(requests).expect("requests")
    }

    fn web() -> (Pod, VerticalPodAutoscaler) {
        let pod = pod(&json!([
            {"name": "app", "resources": {"requests": {"cpu": "400m", "memory": "1Gi"}}},
            {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}},
        ]));
        let vpa = vpa(&json!([
            {"containerName": "app", "target": {"cpu": "200m", "memory": "2Gi"}},
            {"containerName": "proxy", "target": {"cpu": "50m", "memory": "64Mi"}},
        ]));
        (pod, vpa)
    }

    #[test]
    fn a_held_resource_is_not_changed_and_the_others_are() {
        let (pod, vpa) = web();
        let held = |container| [shared(Resource::Cpu, container, SharedRequestRule::Held)];
        let sized = sizes(&pod, &vpa, &held(None));
        assert_eq!(requests(&sized), json!([{"memory": "2Gi"}, {"memory": "64Mi"}]));
        let reason = sized[0].reasons.iter().find_map(SizingReason::annotation_text);
        assert_eq!(
            reason.as_deref(),
            Some(
                "cpu request not changed since HorizontalPodAutoscaler web scales by its utilization"
            )
        );
        assert_eq!(
            requests(&sizes(&pod, &vpa, &held(Some("app")))),
            json!([{"memory": "2Gi"}, {"cpu": "50m", "memory": "64Mi"}])
        );
        let memory = [shared(Resource::Memory, None, SharedRequestRule::Held)];
        // The proxy has no memory request yet.
        assert_eq!(
            requests(&sizes(&pod, &vpa, &memory)),
            json!([{"cpu": "200m"}, {"cpu": "50m", "memory": "64Mi"}])
        );
        assert_eq!(
            requests(&sizes(&pod, &vpa, &[])),
            json!([{"cpu": "200m", "memory": "2Gi"}, {"cpu": "50m", "memory": "64Mi"}])
        );
    }

    #[test]
    fn a_floor_raises_the_containers_in_proportion() {
        let (pod, vpa) = web();
        let floor = |container, milli| {
            let shared = [shared(Resource::Cpu, container, SharedRequestRule::AtLeast(milli))];
            let sized = sizes(&pod, &vpa, &shared);
            sized
                .iter()
                .map(|size| size.requests.cpu().expect("a request").milli_value())
                .collect::<Vec<_>>()
        };
        assert_eq!(floor(None, 250), [200, 50]);
        assert_eq!(floor(None, 500), [400, 100]);
        assert_eq!(floor(Some("app"), 300), [300, 50]);
        assert_eq!(floor(Some("proxy"), 40), [200, 50]);
    }

    #[test]
    fn a_range_lowers_the_containers_in_proportion_too_but_no_memory() {
        let (pod, _) = web();
        let vpa = vpa(&json!([
            {"containerName": "app", "target": {"cpu": "600m", "memory": "4Gi"}},
            {"containerName": "proxy", "target": {"cpu": "200m", "memory": "64Mi"}},
        ]));
        let sized = |resource, container, min, max| {
            let rule = SharedRequestRule::Within { min, max };
            sizes(&pod, &vpa, &[shared(resource, container, rule)])
        };
        let cpu = |container, min, max| {
            let sized = sized(Resource::Cpu, container, min, max);
            let cpu = sized.iter().map(|size| size.requests.cpu().map(Quantity::milli_value));
            cpu.collect::<Option<Vec<_>>>().expect("requests")
        };
        assert_eq!(cpu(None, 316, 600), [450, 150]);
        assert_eq!(cpu(None, 316, 1000), [600, 200]);
        assert_eq!(cpu(None, 1000, 2000), [750, 250]);
        assert_eq!(cpu(Some("app"), 100, 300), [300, 200]);
        let sized = sized(Resource::Cpu, None, 316, 600);
        let text = sized[0].reasons.iter().find_map(SizingReason::annotation_text);
        let expected =
            "cpu lowered to the range around the scale point of the HorizontalPodAutoscaler";
        assert_eq!(text.as_deref(), Some(expected));
        // The application has 1Gi, and is wanted to have 4Gi.
        let mebibytes = |max: i64| {
            let rule = SharedRequestRule::Within { min: 0, max: max * MILLI_PER_BYTE * (1 << 20) };
            let sized = sizes(&pod, &vpa, &[shared(Resource::Memory, Some("app"), rule)]);
            sized[0].requests.memory().expect("a request").milli_value()
                / MILLI_PER_BYTE
                / (1 << 20)
        };
        assert_eq!((mebibytes(512), mebibytes(2048), mebibytes(8192)), (1024, 2048, 4096));
    }

    #[test]
    fn at_max_replicas_the_containers_are_raised_with_that_reason_and_an_idle_workload_has_no_floor()
     {
        let (pod, vpa) = web();
        let sized = |rule| sizes(&pod, &vpa, &[shared(Resource::Cpu, None, rule)]);
        let cpu = |sized: &[SizedContainer]| {
            let cpu = |size: &SizedContainer| size.requests.cpu().map(Quantity::milli_value);
            sized.iter().map(cpu).collect::<Option<Vec<_>>>().expect("requests")
        };
        let raised = sized(SharedRequestRule::AtMaxReplicas(500));
        assert_eq!(cpu(&raised), [400, 100]);
        let rule = raised[0].reasons.iter().find_map(|reason| match reason {
            SizingReason::Capped { rule, .. } => Some(rule.into_str()),
            _ => None,
        });
        assert_eq!(rule, Some("at_max_replicas"));
        let text = raised[0].reasons.iter().find_map(SizingReason::annotation_text);
        let expected =
            "cpu raised because maxReplicas of the HorizontalPodAutoscaler are not enough";
        assert_eq!(text.as_deref(), Some(expected));
        let idle = sized(SharedRequestRule::Idle);
        assert_eq!(cpu(&idle), [200, 50]);
        assert!(idle.iter().all(|size| size.reasons.is_empty()), "{idle:?}");
    }

    #[test]
    fn containers_that_the_vpa_does_not_control_count_for_the_floor() {
        let (pod, _) = web();
        let vpa = vpa(&json!([{"containerName": "app", "target": {"cpu": "200m"}}]));
        let shared = [shared(Resource::Cpu, None, SharedRequestRule::AtLeast(400))];
        assert_eq!(requests(&sizes(&pod, &vpa, &shared))[0], json!({"cpu": "300m"}));
    }

    #[test]
    fn memory_that_replicas_follow_is_never_lowered() {
        let pod = pod(&json!([
            {"name": "app", "resources": {"requests": {"memory": "2Gi"}}},
        ]));
        for rule in [SharedRequestRule::AtLeast(1), SharedRequestRule::Idle] {
            let shared = [shared(Resource::Memory, None, rule)];
            for (target, expected) in [("1Gi", "2Gi"), ("3Gi", "3Gi")] {
                let vpa = vpa(&json!([{"containerName": "app", "target": {"memory": target}}]));
                assert_eq!(requests(&sizes(&pod, &vpa, &shared))[0], json!({"memory": expected}));
            }
        }
    }
}
