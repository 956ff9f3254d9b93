//! Properties that hold for every pod, recommendation, policy and LimitRange.

use std::collections::BTreeMap;

use plimsoll_core::{
    admission::{AdmissionSettings, patch_pod},
    api::{ResourceList, ResourceName, VerticalPodAutoscaler},
    sizing::{
        LimitPolicy, NamespaceLimitRanges, Operation, Pod, SizingError, SizingRules, SizingSpec,
        api_validation, cap_recommendation, pod_totals::PodTotals, qos_with, size_containers,
    },
    types::{
        compat::Compat,
        quantity::{Format, Quantity},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{pod, ranges, vpa};
use crate::support::tier;

/// Optional amounts of CPU and memory, mostly of a realistic size.
fn amounts() -> impl Strategy<Value = ResourceList> {
    let cpu = prop_oneof![1_i64..20, 1_i64..5000, Just(0), Just(i64::MAX)];
    let memory = prop_oneof![
        1_i64..20,
        1_i64..(8 << 30),
        (1_i64..4096).prop_map(|mebibytes| mebibytes << 20),
        Just(i64::MAX)
    ];
    let format = prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi)];
    let memory = (memory, format).prop_map(|(amount, format)| Quantity::from_units(amount, format));
    let cpu = cpu.prop_map(|amount| Quantity::from_milli(amount, Format::DecimalSi));
    (proptest::option::weighted(0.8, cpu), proptest::option::weighted(0.8, memory))
        .prop_map(|(cpu, memory)| ResourceList::cpu_and_memory(cpu, memory))
}

/// Requests and limits that the API server accepts: no request exceeds its limit.
fn container() -> impl Strategy<Value = (ResourceList, ResourceList)> {
    (amounts(), amounts()).prop_map(|(requests, limits)| {
        let limits = limits.iter().map(|(name, limit)| {
            let request = requests.get(name).unwrap_or_default();
            (name.clone(), if limit < request { request } else { limit })
        });
        let limits: ResourceList = limits.filter(|(_, limit)| !limit.is_zero()).collect();
        (requests, limits)
    })
}

fn value(list: &ResourceList) -> Value {
    serde_json::to_value(list).expect("serializes")
}

#[derive(Clone, Debug)]
struct Case {
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    ranges: NamespaceLimitRanges,
    limits: LimitPolicy,
}

prop_compose! {
    fn ordered(most: usize)(
        lists in proptest::collection::vec((amounts(), amounts(), amounts(), any::<bool>()), 1..=most)
    ) -> Vec<Option<[ResourceList; 3]>> {
        lists.into_iter().map(|(lower, target, upper, is_recommended)| is_recommended.then_some([target, lower, upper])).collect()
    }
}

prop_compose! {
    fn cases()(
        containers in proptest::collection::vec(container(), 1..4),
        recommended in ordered(4),
        (min, max, only, off) in (amounts(), amounts(), any::<bool>(), any::<bool>()),
        (pod_min, pod_max, low, high, default) in (amounts(), amounts(), amounts(), amounts(), amounts()),
        (has_policy, has_pod, has_container) in (any::<bool>(), any::<bool>(), any::<bool>()),
        ratio in proptest::option::of(1_i64..5),
        limits in prop_oneof![
            4 => Just("ratio"), 1 => Just("requestsOnly"), 1 => Just("fixed:1.5"), 1 => Just("max")
        ],
    ) -> Case {
        let mut pod = pod(&vec![""; containers.len()]);
        for (container, (requests, limits)) in pod.containers.iter_mut().zip(containers) {
            container.spec.requests = Some(requests).filter(|list| !list.is_empty());
            container.spec.limits = Some(limits).filter(|list| !list.is_empty());
        }
        let policy = json!([{
            "containerName": "*",
            "mode": if off { "Off" } else { "Auto" },
            "minAllowed": value(&min),
            "maxAllowed": value(&max),
            "controlledValues": if only { "RequestsOnly" } else { "RequestsAndLimits" },
        }]);
        let mut vpa = vpa(if has_policy { policy } else { Value::Null }, &[]);
        let status = vpa.status.get_or_insert_default();
        let recommendation = status.recommendation.get_or_insert_default();
        for (index, lists) in recommended.into_iter().enumerate() {
            let Some([target, lower_bound, upper_bound]) = lists else { continue };
            recommendation.container_recommendations.push(plimsoll_core::api::vpa::ContainerRecommendation {
                container_name: format!("c{}", index + 1),
                target,
                lower_bound,
                upper_bound,
                uncapped_target: ResourceList::EMPTY,
            });
        }
        let mut items = Vec::new();
        if has_pod {
            items.push(json!({"type": "Pod", "min": value(&pod_min), "max": value(&pod_max)}));
        }
        if has_container {
            let mut item = json!({
                "type": "Container", "min": value(&low), "max": value(&high), "default": value(&default),
            });
            if let Some(ratio) = ratio {
                item["maxLimitRequestRatio"] = json!({"cpu": ratio, "memory": ratio});
            }
            items.push(item);
        }
        Case { pod, vpa, ranges: ranges(json!(items)), limits: limits.parse().expect("valid policy") }
    }
}

impl Case {
    fn plan(&self) -> SizingSpec<'_> {
        SizingSpec { limit_policy: self.limits, ..SizingSpec::from_vpa(&self.vpa) }
    }

    fn sizes(&self) -> Result<Vec<plimsoll_core::sizing::SizedContainer>, SizingError> {
        size_containers(
            &self.pod,
            &self.plan(),
            Some(&self.ranges),
            SizingRules::for_compat(Compat::Plimsoll),
        )
    }
}

/// Applies a patch to a document.
fn apply(document: &mut Value, operations: &[Operation]) {
    for operation in operations {
        let (parent, name) = operation.path.rsplit_once('/').expect("has a path");
        let name = name.replace("~1", "/").replace("~0", "~");
        let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
        match parent {
            Value::Object(map) => drop(map.insert(name, operation.value.clone())),
            Value::Array(list) => {
                list[name.parse::<usize>().expect("valid index")] = operation.value.clone();
            }
            other => panic!("{other} cannot be added to"),
        }
    }
}

fn document(pod: &Pod) -> Value {
    let container = |container: &plimsoll_core::sizing::Container| json!({"name": &*container.name, "resources": serde_json::to_value(&container.spec).expect("serializes")});
    let containers: Vec<Value> = pod.containers.iter().map(container).collect();
    json!({"metadata": {"name": &*pod.name}, "spec": {"containers": containers}})
}

proptest! {
    #![proptest_config(tier::properties(64, 5_000))]

    #[test]
    fn no_amount_is_negative_and_no_limit_is_below_its_request(case in cases()) {
        let sizes = case.sizes().expect("Plimsoll rejects nothing here");
        for size in &sizes {
            for (resource, amount) in size.requests.iter().chain(size.limits.iter()) {
                prop_assert!(!amount.is_negative(), "{resource} {amount}: {size:?}");
            }
            for (resource, limit) in size.limits.iter() {
                let request = size.requests.get(resource).unwrap_or_default();
                prop_assert!(limit >= request, "{resource}: {size:?}");
            }
        }
    }

    #[test]
    fn upstreams_rules_never_panic_and_fail_only_where_upstream_crashes(case in cases()) {
        let rules = SizingRules::for_compat(Compat::Upstream);
        if let Err(refusal) = cap_recommendation(&case.pod, &case.plan(), &case.ranges, rules) {
            prop_assert!(matches!(refusal, SizingError::CrashesUpstream { .. }), "{refusal}");
        }
    }

    #[test]
    fn only_recommended_resources_are_written(case in cases()) {
        let recommended = &case.vpa.status.as_ref().and_then(|status| status.recommendation.as_ref()).expect("exists");
        for (size, container) in case.sizes().expect("sizes are computed").iter().zip(&case.pod.containers) {
            let recommended = recommended.container_recommendations.iter().find(|entry| entry.container_name == *container.name);
            for (resource, _) in size.requests.iter().chain(size.limits.iter()) {
                prop_assert!(recommended.is_some_and(|entry| entry.target.get(resource).is_some()), "{size:?}");
            }
        }
    }

    #[test]
    fn a_pod_is_within_the_pod_limit_range_if_its_minimums_are(case in cases()) {
        let Some(range) = &case.ranges.pod else { return Ok(()) };
        let sizes = case.sizes().expect("sizes are computed");
        let demand = PodTotals::new(&case.pod, &sizes);
        // The limit of a container whose recommended request is zero does not change.
        let recommended = case.vpa.status.iter().filter_map(|status| status.recommendation.as_ref());
        let mut recommended = recommended.flat_map(|recommendation| &recommendation.container_recommendations);
        if recommended.any(|entry| entry.target.iter().any(|(_, amount)| amount.is_zero())) {
            return Ok(());
        }
        // The minimum that policies and ranges allow for everything that changes.
        let mut least = case.clone();
        let tiny = ResourceList::cpu_and_memory(
            Some(Quantity::from_milli(1, Format::DecimalSi)),
            Some(Quantity::from_units(1, Format::DecimalSi)),
        );
        let status = least.vpa.status.as_mut().and_then(|status| status.recommendation.as_mut()).expect("exists");
        for entry in &mut status.container_recommendations {
            entry.target = entry.target.iter().filter_map(|(name, _)| Some((name.clone(), tiny.get(name)?))).collect();
        }
        least.ranges.pod = None;
        let floor = PodTotals::new(&least.pod, &least.sizes().expect("sizes are computed"));
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            let Some(max) = range.max(&resource) else { continue };
            let of = |list: &ResourceList| list.get(&resource).unwrap_or_default();
            let fits = |demand: &PodTotals| of(&demand.requests) <= max && of(&demand.limits) <= max;
            prop_assert!(
                fits(&demand) || !fits(&floor),
                "{resource}: {demand:?} though {floor:?} was possible, max {max}"
            );
        }
    }

    #[test]
    fn an_acceptable_pod_stays_acceptable(case in cases()) {
        let admission = AdmissionSettings { rules: SizingRules::for_compat(Compat::Plimsoll), ..AdmissionSettings::default() };
        match patch_pod(&case.pod, &case.plan(), Some(&case.ranges), &admission) {
            Ok(admitted) => {
                let now = api_validation::violations(&case.pod, &[], &case.ranges);
                let then = api_validation::violations(&case.pod, &admitted.sized_containers, &case.ranges);
                prop_assert!(!now.is_empty() || then.is_empty(), "{then:?}");
            }
            Err(refusal) => {
                let is_known = matches!(refusal, SizingError::WouldBeRejected { .. });
                prop_assert!(is_known, "{refusal}");
            }
        }
    }

    #[test]
    fn a_resize_never_changes_the_qos_class(case in cases()) {
        let sizes = case.sizes().expect("sizes are computed");
        if api_validation::ensure_same_qos_class(&case.pod, &sizes).is_ok() {
            prop_assert_eq!(qos_with(&case.pod, &sizes), case.pod.qos());
        }
    }

    #[test]
    fn applying_a_patch_twice_changes_nothing_more(case in cases()) {
        for compat in [Compat::Upstream, Compat::Plimsoll] {
            let admission = AdmissionSettings { rules: SizingRules::for_compat(compat), ..AdmissionSettings::default() };
            let Ok(admitted) = patch_pod(&case.pod, &case.plan(), Some(&case.ranges), &admission) else { continue };
            let mut once = document(&case.pod);
            apply(&mut once, &admitted.operations);
            let mut twice = once.clone();
            apply(&mut twice, &admitted.operations);
            prop_assert_eq!(&once, &twice);
            let patched: Pod = serde_json::from_value(once).expect("still a valid pod");
            for (size, container) in admitted.sized_containers.iter().zip(&patched.containers) {
                prop_assert!(!size.changes(&container.spec), "{size:?} {container:?}");
            }
        }
    }

    #[test]
    fn calling_the_webhook_again_changes_nothing(mut case in cases()) {
        // Proportional limits are rounded down to whole units, and the next ratio is computed from the rounded value. With a
        // LimitRange, whose bounds depend on that ratio, a unit may be gained.
        case.ranges = NamespaceLimitRanges::default();
        let admission = AdmissionSettings { rules: SizingRules::for_compat(Compat::Plimsoll), ..AdmissionSettings::default() };
        let Ok(first) = patch_pod(&case.pod, &case.plan(), Some(&case.ranges), &admission) else { return Ok(()) };
        let mut pod = case.pod.clone();
        for (size, container) in first.sized_containers.iter().zip(&mut pod.containers) {
            container.spec = size.apply_to(&container.spec);
        }
        let observed = pod.containers.iter().map(|container| &*container.name).collect::<Vec<_>>().join(", ");
        pod.annotations = Some(BTreeMap::from([("vpaObservedContainers".to_owned(), observed)]));
        let second = patch_pod(&pod, &case.plan(), Some(&case.ranges), &admission).expect("second patch");
        for (size, container) in second.sized_containers.iter().zip(&pod.containers) {
            prop_assert!(!size.changes(&container.spec), "{size:?} of {container:?}");
        }
    }
}
