//! Inputs whose size users choose: a review takes time in proportion to it, and its messages stay short.

use std::time::Duration;

use plimsoll_core::{
    admission::{
        AdmissionSettings, patch_pod,
        validation::{
            MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_REQUIREMENTS, ValidationResult, validate,
        },
    },
    api::VerticalPodAutoscaler,
    sizing::{
        AdmissionPod, LimitRangeItem, NamespaceLimitRanges, SizingError, SizingRules, SizingSpec,
        size_limits::{MAX_CONTAINERS, MAX_POLICIES, MAX_RESOURCES},
    },
    types::compat::Compat,
};
use serde_json::{Value, json};

use super::validation::{ALL, object};
use crate::support::cpu_time;

/// CPU time of one review in an unoptimized build. A quadratic comparison would take minutes.
const TIME_LIMIT: Duration = Duration::from_secs(15);

fn review(new: &Value, old: Option<&Value>) -> ValidationResult {
    let (new, old) = (object(new), old.map(object));
    let (verdict, spent) = cpu_time::measure_on_thread(|| {
        validate(&new, old.as_deref(), ALL, SizingRules::for_compat(Compat::Plimsoll), &[])
    });
    assert!(spent < TIME_LIMIT, "{spent:?} for {} bytes", new.len());
    assert!(verdict.errors.len() <= MAX_MESSAGES + 1 && verdict.warnings.len() <= MAX_MESSAGES + 1);
    let long = verdict.warnings.iter().chain(verdict.errors.iter().map(|error| &error.detail));
    assert!(long.into_iter().all(|text| text.len() <= MAX_MESSAGE_BYTES + 3));
    verdict
}

fn paths(verdict: &ValidationResult) -> Vec<&str> {
    verdict.errors.iter().map(|error| &*error.path).collect()
}

fn policies(count: usize, name: impl Fn(usize) -> String) -> Value {
    let policies: Vec<Value> =
        (0..count).map(|index| json!({"containerName": name(index)})).collect();
    json!({"resourcePolicy": {"containerPolicies": policies}, "updatePolicy": {"updateMode": "Off"}})
}

#[test]
fn fifty_thousand_container_policies_are_rejected_quickly_unless_already_stored() {
    let path = "spec.resourcePolicy.containerPolicies";
    for name in [(|_| "app".to_owned()) as fn(usize) -> String, |index| format!("c{index}")] {
        let many = policies(50_000, name);
        assert_eq!(paths(&review(&many, None)), [path]);
        assert_eq!(paths(&review(&many, Some(&policies(49_999, name)))), [path]);
        // An update that does not change the invalid part of a stored object gets a warning and is not rejected.
        let stored = review(&many, Some(&many));
        assert_eq!(paths(&stored), [""; 0]);
        assert!(stored.warnings[0].starts_with(path), "{:?}", stored.warnings);
        let mut other = many.clone();
        other["updatePolicy"]["updateMode"] = "Initial".into();
        assert_eq!(paths(&review(&other, Some(&many))), [""; 0]);
        other["updatePolicy"]["updateMode"] = "bad".into();
        assert_eq!(paths(&review(&other, Some(&many))), ["spec.updatePolicy.updateMode"]);
    }
    let most = policies(MAX_POLICIES, |index| format!("c{index}"));
    assert_eq!(review(&most, None), ValidationResult::default());
    let same = policies(MAX_POLICIES, |_| "app".to_owned());
    let warnings = review(&same, None).warnings;
    assert_eq!(warnings.len(), MAX_MESSAGES + 1);
    let more = MAX_POLICIES - 1 - MAX_MESSAGES;
    assert_eq!(warnings.last().map(String::as_str), Some(&*format!("and {more} more warnings")));
}

#[test]
fn other_long_fields_of_a_vpa_are_reviewed_quickly_with_short_messages() {
    let policy = |policy: Value| json!({"resourcePolicy": {"containerPolicies": [policy]}});
    let requirement =
        json!({"resources": ["cpu"], "changeRequirement": "TargetHigherThanRequests"});
    let requirements = |count: usize| {
        json!({"updatePolicy": {
            "updateMode": "Off", "evictionRequirements": vec![requirement.clone(); count],
        }})
    };
    let path = "spec.updatePolicy.evictionRequirements";
    assert_eq!(paths(&review(&requirements(50_000), None)), [path]);
    assert_eq!(review(&requirements(50_000), Some(&requirements(50_000))).errors, []);
    assert_eq!(review(&requirements(MAX_REQUIREMENTS), None), ValidationResult::default());
    let names: Vec<String> = (0..50_000).map(|index| format!("example.com/{index}")).collect();
    let controlled = policy(json!({"containerName": "app", "controlledResources": names}));
    assert_eq!(review(&controlled, None).errors.len(), MAX_MESSAGES + 1);
    assert_eq!(review(&controlled, Some(&controlled)).errors, []);
    let amounts: Value = names
        .iter()
        .map(|name| (name.clone(), json!("1")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let least =
        policy(json!({"containerName": "app", "minAllowed": amounts, "maxAllowed": amounts}));
    assert_eq!(review(&least, None).errors, []);
    let long = json!({"updatePolicy": {"updateMode": "x".repeat(1 << 20)}});
    assert!(review(&long, None).errors[0].body().len() < 3 * MAX_MESSAGE_BYTES);
}

fn vpa(names: &[&str], policies: usize) -> VerticalPodAutoscaler {
    let target = json!({"cpu": "250m", "memory": "256Mi"});
    let recommended = |name: &&str| {
        json!({
            "containerName": name, "target": target, "lowerBound": target, "upperBound": target,
        })
    };
    let recommended: Vec<Value> = names.iter().map(recommended).collect();
    let policies: Vec<Value> =
        (0..policies).map(|index| json!({"containerName": format!("c{index}")})).collect();
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "resourcePolicy": {"containerPolicies": policies},
        },
        "status": {"recommendation": {"containerRecommendations": recommended}},
    }))
    .expect("valid VPA")
}

fn pod(containers: usize) -> Value {
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let items: Vec<Value> = (0..containers)
        .map(|index| json!({"name": format!("c{index}"), "resources": resources}))
        .collect();
    json!({"spec": {"containers": items}, "status": {"containerStatuses": items}})
}

/// Parses a pod as in a review, and sizes it under a LimitRange that changes every container.
fn sized(pod: &Value, vpa: &VerticalPodAutoscaler, compat: Compat) -> Result<usize, SizingError> {
    let text = pod.to_string();
    let ranges: Vec<LimitRangeItem> = serde_json::from_value(json!([
        {"type": "Pod", "max": {"cpu": "99999m", "memory": "99999999999"}},
    ]))
    .expect("valid LimitRange entries");
    let ranges = NamespaceLimitRanges::merge(&ranges);
    let admission = AdmissionSettings {
        rules: SizingRules::for_compat(compat),
        ..AdmissionSettings::default()
    };
    let (sized, spent) = cpu_time::measure_on_thread(|| {
        let AdmissionPod { pod, .. } = serde_json::from_str(&text).expect("valid pod");
        patch_pod(&pod, &SizingSpec::from_vpa(vpa), Some(&ranges), &admission)
            .map(|patch| patch.operations.len())
    });
    assert!(spent < TIME_LIMIT, "{spent:?} for {} bytes", text.len());
    sized
}

#[test]
fn a_pod_of_58000_containers_is_left_unchanged_quickly_and_one_of_500_is_sized() {
    let names: Vec<String> = (0..60_000).map(|index| format!("c{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (most, more) = (vpa(&names, MAX_POLICIES), vpa(&names, MAX_POLICIES + 1));
    for compat in [Compat::Plimsoll, Compat::Upstream] {
        // Recommendations for containers that the pod does not have are cheap as well.
        let refused = sized(&pod(58_000), &most, compat);
        let Err(SizingError::TooLarge { count: 58_000, most: MAX_CONTAINERS, .. }) = refused else {
            panic!("{refused:?}")
        };
        let operations = sized(&pod(MAX_CONTAINERS), &most, compat);
        assert!(operations.expect("sized") > MAX_CONTAINERS, "{compat:?}");
        let refused = sized(&pod(MAX_CONTAINERS), &more, compat);
        assert!(
            matches!(refused, Err(SizingError::TooLarge { most: MAX_POLICIES, .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_container_with_very_many_resources_is_not_sized_and_reviewed_quickly() {
    let vpa = vpa(&["c0"], 0);
    for (count, is_sized) in [(200_000, false), (MAX_RESOURCES, true)] {
        // In reverse order, which no API server writes.
        let amounts: Vec<String> =
            (0..count).rev().map(|index| format!(r#""example.com/{index:06}":"1""#)).collect();
        let amounts = format!("{{{}}}", amounts.join(","));
        let text = format!(
            r#"{{"spec":{{"containers":[{{"name":"c0","resources":{{"requests":{amounts}}}}}]}}}}"#
        );
        let (sized, spent) = cpu_time::measure_on_thread(|| {
            let AdmissionPod { pod, .. } = serde_json::from_str(&text).expect("valid pod");
            let admission = AdmissionSettings {
                rules: SizingRules::for_compat(Compat::Plimsoll),
                ..AdmissionSettings::default()
            };
            patch_pod(
                &pod,
                &SizingSpec::from_vpa(&vpa),
                Some(&NamespaceLimitRanges::default()),
                &admission,
            )
        });
        assert!(spent < TIME_LIMIT, "{spent:?} for {} bytes", text.len());
        assert_eq!(sized.is_ok(), is_sized, "{:?}", sized.err());
    }
}
