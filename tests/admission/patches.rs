//! Patches of new pods: golden vectors 83 to 92, 279 to 283, 298.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_core::{
    admission::patch_pod,
    api::{VerticalPodAutoscaler, vpa::UpdateMode},
    sizing::{NamespaceLimitRanges, Operation, Pod, SizingSpec},
    types::compat::Compat,
    vpa_match,
};
use serde_json::{Value, json};

use super::{admission, patch};
use crate::sizing::{pod, ranges, vpa};

const BOTH: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn annotated(containers: &[&str]) -> Pod {
    Pod { annotations: Some(BTreeMap::new()), ..pod(containers) }
}

/// Container resources, recommendation, container policies, VPA annotations or other fields, and the expected patch.
type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Value, &'a [&'a str]);

#[test]
fn a_patch_equals_upstreams() {
    let null = Value::Null;
    let only = json!([{"containerName": "*", "controlledValues": "RequestsOnly"}]);
    let rows: Vec<Row<'_>> = vec![
        (
            "83",
            &[""],
            &["c1: cpu 1"],
            null.clone(),
            &[
                "c0 {}",
                "c0/requests {}",
                "c0/requests/cpu 1",
                "vpaUpdates Pod resources updated by web: container 0: cpu request",
            ],
        ),
        (
            "84",
            &["cpu 0"],
            &["c1: cpu 1"],
            null.clone(),
            &[
                "c0/requests/cpu 1",
                "vpaUpdates Pod resources updated by web: container 0: cpu request",
            ],
        ),
        (
            "85",
            &["cpu 0", ""],
            &["c1: cpu 1", "c2: cpu 2"],
            null.clone(),
            &[
                "c0/requests/cpu 1",
                "c1 {}",
                "c1/requests {}",
                "c1/requests/cpu 2",
                "vpaUpdates Pod resources updated by web: container 0: cpu request; container 1: cpu request",
            ],
        ),
        (
            "example of 3.5.3",
            &["cpu 100m, memory 100Mi; cpu 300m, memory 150Mi"],
            &["c1: cpu 25m, memory 262144k"],
            null.clone(),
            &[
                "c0/requests/cpu 25m",
                "c0/requests/memory 262144k",
                "c0/limits/cpu 75m",
                "c0/limits/memory 375Mi",
                "vpaUpdates Pod resources updated by web: container 0: cpu request, memory request, cpu limit, memory limit",
            ],
        ),
        (
            "88",
            &["cpu 100m, memory 100Mi; cpu 300m, memory 150Mi"],
            &["c1: memory 200Mi"],
            null.clone(),
            &[
                "c0/requests/memory 200Mi",
                "c0/limits/memory 300Mi",
                "vpaUpdates Pod resources updated by web: container 0: cpu: limit NOT set since recommendedRequest is nil or 0, memory request, memory limit",
            ],
        ),
        (
            "89",
            &["; cpu 1"],
            &["c1: cpu 25m"],
            null.clone(),
            &[
                "c0/requests {}",
                "c0/requests/cpu 25m",
                "c0/limits/cpu 25m",
                "vpaUpdates Pod resources updated by web: container 0: memory: limit NOT set since originalLimit is nil or 0, cpu request, cpu limit",
            ],
        ),
        (
            "91",
            &["cpu 100m, memory 1Gi; cpu 1, memory 1500Mi"],
            &["c1: cpu 2, memory 2Gi"],
            only,
            &[
                "c0/requests/cpu 1",
                "c0/requests/memory 1500Mi",
                "vpaUpdates Pod resources updated by web: container 0: cpu capped to container limit, memory capped to container limit, cpu request, memory request",
            ],
        ),
    ];
    for (name, current, recommended, policies, expected) in rows {
        for compat in BOTH {
            let (pod, vpa) = (annotated(current), vpa(policies.clone(), recommended));
            let found =
                patch(&pod, &vpa, &NamespaceLimitRanges::default(), admission(compat)).expect(name);
            let observed = if current.len() == 1 { "c1" } else { "c1, c2" };
            let mut expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            expected.push(format!("vpaObservedContainers {observed}"));
            if name == "91" && compat == Compat::Plimsoll {
                expected[0] = "c0/requests/cpu 999m".into(); // else it would turn Guaranteed
            }
            assert_eq!(found, expected, "{name} {compat:?}");
        }
    }
}

/// Golden vectors 87, 90, 298 and 3.4.1.
#[test]
fn a_pod_without_a_recommendation_is_annotated_as_observed() {
    let current = &["cpu 100m"];
    for compat in BOTH {
        let silent = VerticalPodAutoscaler { status: None, ..vpa(Value::Null, &[]) };
        let found =
            patch(&pod(current), &silent, &NamespaceLimitRanges::default(), admission(compat))
                .expect("87");
        assert_eq!(found, ["/metadata/annotations {}", "vpaObservedContainers c1"]);
        let mut off = vpa(Value::Null, &["c1: cpu 1"]);
        off.spec.update_policy =
            serde_json::from_value(json!({"updateMode": "Off"})).expect("valid policy");
        let found =
            patch(&annotated(current), &off, &NamespaceLimitRanges::default(), admission(compat))
                .expect("90");
        assert_eq!(found, ["vpaObservedContainers c1"]);
    }
    // Upstream adds the empty resource lists although no amounts follow, and writes the annotation.
    let silent = VerticalPodAutoscaler { status: None, ..vpa(Value::Null, &[]) };
    let found = |compat| {
        patch(&annotated(&[""]), &silent, &NamespaceLimitRanges::default(), admission(compat))
    };
    assert_eq!(
        found(Compat::Upstream).expect("admitted"),
        [
            "c0 {}",
            "vpaUpdates Pod resources updated by web: container 0: ",
            "vpaObservedContainers c1"
        ]
    );
    assert_eq!(found(Compat::Plimsoll).expect("admitted"), ["vpaObservedContainers c1"]);
}

/// Golden vectors 92 and 306.
#[test]
fn with_a_pod_limit_range_upstream_writes_resources_without_a_recommendation() {
    let vpa = vpa(Value::Null, &["c1: memory 1Gi"]);
    let pod = annotated(&["memory 1Gi; memory 1Gi", "memory 2Gi; memory 2Gi"]);
    let ranges = ranges(json!([{"type": "Pod", "max": {"memory": "8Gi"}}]));
    let found = patch(&pod, &vpa, &ranges, admission(Compat::Upstream)).expect("92");
    assert!(found.contains(&"c1/requests/memory 2Gi".to_owned()), "{found:?}");
    assert!(found.contains(&"c1/limits/memory 2Gi".to_owned()), "{found:?}");
    let found = patch(&pod, &vpa, &ranges, admission(Compat::Plimsoll)).expect("92, ours");
    assert!(!found.iter().any(|operation| operation.starts_with("c1")), "{found:?}");

    let vpa = crate::sizing::vpa(Value::Null, &["c1: memory 2Gi", "c2: cpu 1"]);
    let pod = annotated(&["memory 1Gi; memory 1Gi"; 2]);
    let ranges = crate::sizing::ranges(json!([{"type": "Pod", "max": {"memory": "1Gi"}}]));
    let found = patch(&pod, &vpa, &ranges, admission(Compat::Upstream)).expect("306");
    assert!(found.contains(&"c1/requests/memory -1".to_owned()), "{found:?}");
    assert!(found.contains(&"c1/limits/memory -1".to_owned()), "{found:?}");
    let found = patch(&pod, &vpa, &ranges, admission(Compat::Plimsoll)).expect("306, ours");
    assert!(!found.iter().any(|operation| operation.contains("-1")), "{found:?}");
}

#[test]
fn native_sidecars_are_sized_as_init_containers() {
    let object = json!({
        "metadata": {"name": "pod", "annotations": {}},
        "spec": {
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
                {"name": "migrate"},
                {"name": "proxy", "restartPolicy": "Always", "resources": {}},
            ],
        },
    });
    let pod: Pod = serde_json::from_value(object).expect("valid pod");
    let vpa = vpa(Value::Null, &["app: cpu 2", "migrate: cpu 3", "proxy: cpu 4"]);
    let paths = |compat| {
        let plan = SizingSpec::from_vpa(&vpa);
        let admitted =
            patch_pod(&pod, &plan, Some(&NamespaceLimitRanges::default()), &admission(compat));
        let operations = admitted.expect("admitted").operations;
        let line = |operation: &Operation| format!("{} {}", operation.path, operation.value);
        operations.iter().map(line).collect::<Vec<String>>()
    };
    let upstream = [
        "/spec/containers/0/resources/requests/cpu \"2\"",
        "/metadata/annotations/vpaUpdates \"Pod resources updated by web: container 0: cpu request\"",
        "/metadata/annotations/vpaObservedContainers \"app\"",
    ];
    assert_eq!(paths(Compat::Upstream), upstream);
    let ours = paths(Compat::Plimsoll);
    assert!(
        ours.contains(&"/spec/initContainers/1/resources/requests/cpu \"4\"".to_owned()),
        "{ours:?}"
    );
    assert!(ours[ours.len() - 1].ends_with("\"app, proxy\""), "{ours:?}");
    assert!(!ours.iter().any(|operation| operation.contains("initContainers/0")), "{ours:?}");
}

#[test]
fn a_container_injected_after_the_webhook_is_not_sized_unless_named() {
    let vpa = vpa(Value::Null, &["c1: cpu 1", "c2: cpu 2"]);
    let mut pod = annotated(&["cpu 100m", "cpu 100m"]);
    let observed = BTreeMap::from([("vpaObservedContainers".to_owned(), "c1".to_owned())]);
    pod.annotations = Some(observed);
    let named: [Box<str>; 1] = ["c2".into()];
    let writes = |compat, injected| {
        let plan = SizingSpec { managed_sidecars: injected, ..SizingSpec::from_vpa(&vpa) };
        let found =
            patch_pod(&pod, &plan, Some(&NamespaceLimitRanges::default()), &admission(compat));
        let found = super::format_operations(&found.expect("admitted").operations);
        (found.iter().any(|operation| operation.starts_with("c1/")), found[found.len() - 1].clone())
    };
    assert_eq!(writes(Compat::Plimsoll, &[]), (false, "vpaObservedContainers c1".into()));
    assert_eq!(writes(Compat::Plimsoll, &named), (true, "vpaObservedContainers c1, c2".into()));
    assert_eq!(writes(Compat::Upstream, &[]), (true, "vpaObservedContainers c1, c2".into()));
}

fn vpa_with_mode(name: &str, mode: UpdateMode) -> VerticalPodAutoscaler {
    let mut vpa = vpa(Value::Null, &[]);
    vpa.metadata.name = Some(name.into());
    let policy = json!({"updateMode": mode});
    vpa.spec.update_policy = Some(serde_json::from_value(policy).expect("valid policy"));
    vpa
}

/// Golden vectors 279 to 283.
#[test]
fn a_pod_belongs_to_the_oldest_active_vpa() {
    let chosen = |vpas: &[(&VerticalPodAutoscaler, i64, bool)]| {
        let candidates = vpas.iter().filter(|(vpa, _, selects_pod)| {
            *selects_pod && vpa.spec.target_ref.name == "web" && vpa_match::changes_new_pods(vpa)
        });
        let created = candidates.map(|(vpa, seconds, _)| {
            let created = Timestamp::from_second(*seconds).expect("a time");
            let mut vpa = (*vpa).clone();
            vpa.metadata.creation_timestamp = Some(Time(created));
            vpa
        });
        let created: Vec<_> = created.collect();
        vpa_match::select(&created, |vpa| vpa).and_then(|vpa| vpa.metadata.name.clone())
    };
    let (recreate, initial) =
        (vpa_with_mode("r", UpdateMode::Recreate), vpa_with_mode("i", UpdateMode::Initial));
    let off = vpa_with_mode("o", UpdateMode::Off);
    assert_eq!(chosen(&[(&recreate, 5, true)]).as_deref(), Some("r"), "279");
    assert_eq!(chosen(&[(&initial, 5, true)]).as_deref(), Some("i"), "279");
    let mut elsewhere = vpa_with_mode("e", UpdateMode::Recreate);
    elsewhere.spec.target_ref.name = "other".into();
    assert_eq!(
        chosen(&[(&elsewhere, 1, true), (&recreate, 2, false), (&off, 3, true)]),
        None,
        "280"
    );
    assert_eq!(chosen(&[]), None, "280");
    assert_eq!(chosen(&[(&off, 1, true), (&recreate, 2, true)]).as_deref(), Some("r"), "281");
    let boost = json!({"cpu": {"type": "Factor", "factor": 2}});
    let mut boosted = off.clone();
    boosted.spec.startup_boost = Some(serde_json::from_value(boost.clone()).expect("a boost"));
    assert_eq!(chosen(&[(&boosted, 1, true)]).as_deref(), Some("o"), "282");
    let mut boosted = off.clone();
    let policies = json!({"containerPolicies": [{"containerName": "c1", "startupBoost": boost}]});
    boosted.spec.resource_policy = Some(serde_json::from_value(policies).expect("policies"));
    assert_eq!(chosen(&[(&boosted, 1, true)]).as_deref(), Some("o"), "282");
    let first = [(&initial, 10, true), (&recreate, 5, true), (&boosted, 2, false)];
    assert_eq!(chosen(&first).as_deref(), Some("r"), "283");
    assert_eq!(
        chosen(&[(&recreate, 5, true), (&initial, 5, true)]).as_deref(),
        Some("i"),
        "by name"
    );
}
