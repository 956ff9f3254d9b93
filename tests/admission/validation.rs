//! Validation of VPA objects: golden vectors 244 to 278, and warnings.

use plimsoll_core::{
    admission::validation::{
        FeatureGates, OtherAutoscaler, UtilizationMetric, ValidationResult, validate,
    },
    sizing::SizingRules,
    types::compat::{Compat, Fix, Fixes},
};
use serde_json::{Value, json};

pub const ALL: FeatureGates =
    FeatureGates { startup_boost: true, per_vpa_config: true, in_place: true };

pub fn object(spec: &Value) -> Vec<u8> {
    let mut spec = spec.clone();
    if spec.get("targetRef").is_none() {
        spec["targetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    }
    let object = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    serde_json::to_vec(&object).expect("serializes")
}

fn verdict(spec: &Value, old: Option<&Value>, gates: FeatureGates) -> ValidationResult {
    validate(
        &object(spec),
        old.map(object).as_deref(),
        gates,
        SizingRules::for_compat(Compat::Upstream),
        &[],
    )
}

/// Formats each error as `path cause value`.
fn errors(verdict: &ValidationResult) -> Vec<String> {
    let line = |error: &plimsoll_core::admission::validation::FieldError| {
        let path = error.path.replace("spec.resourcePolicy.containerPolicies[0]", "P");
        let cause = error.error_type.cause_type().trim_start_matches("FieldValue").to_owned();
        let value = error.value.iter().map(|value| format!(" {value}"));
        value.fold(format!("{path} {cause}"), |line, value| line + &value)
    };
    verdict.errors.iter().map(line).collect()
}

fn policy(fields: Value) -> Value {
    let mut policy = fields;
    if policy.get("containerName").is_none() {
        policy["containerName"] = json!("c1");
    }
    json!({"resourcePolicy": {"containerPolicies": [policy]}})
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn validation_errors_equal_upstreams() {
    let none = FeatureGates::default();
    let boost = |cpu: Value| json!({"startupBoost": {"cpu": cpu}});
    let rows: Vec<(&str, Value, FeatureGates, &[&str])> = vec![
        ("244", json!({}), none, &[]),
        ("246", json!({"updatePolicy": {}}), none, &["spec.updatePolicy.updateMode Required"]),
        (
            "247",
            json!({"updatePolicy": {"updateMode": "bad"}}),
            none,
            &["spec.updatePolicy.updateMode NotSupported \"bad\""],
        ),
        ("248", json!({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}), none, &[]),
        ("249", json!({"updatePolicy": {"updateMode": "Auto"}}), none, &[]),
        (
            "250",
            json!({"updatePolicy": {"updateMode": "Recreate", "minReplicas": 0}}),
            none,
            &["spec.updatePolicy.minReplicas Invalid 0"],
        ),
        ("251", policy(json!({"containerName": ""})), none, &["P.containerName Required"]),
        ("252", policy(json!({"mode": "bad"})), none, &["P.mode NotSupported \"bad\""]),
        (
            "253",
            json!({"recommenders": [{"name": "a"}, {"name": "b"}]}),
            none,
            &["spec.recommenders TooMany 2"],
        ),
        (
            "254",
            policy(json!({"minAllowed": {"cpu": "100"}, "maxAllowed": {"cpu": "10"}})),
            none,
            &["P.maxAllowed[cpu] Invalid \"10\""],
        ),
        (
            "255",
            policy(json!({"minAllowed": {"cpu": "187500u"}})),
            none,
            &["P.minAllowed[cpu] Invalid \"187500u\""],
        ),
        (
            "256",
            policy(json!({"minAllowed": {"memory": "100m"}})),
            none,
            &["P.minAllowed[memory] Invalid \"100m\""],
        ),
        (
            "257",
            policy(json!({"maxAllowed": {"cpu": "187500u"}})),
            none,
            &["P.maxAllowed[cpu] Invalid \"187500u\""],
        ),
        (
            "258",
            policy(json!({"maxAllowed": {"memory": "500m"}})),
            none,
            &["P.maxAllowed[memory] Invalid \"500m\""],
        ),
        (
            "259",
            policy(json!({"mode": "Off", "controlledValues": "RequestsAndLimits"})),
            none,
            &["P.controlledValues Forbidden"],
        ),
        (
            "261",
            boost(json!({"type": "Factor", "factor": 2})),
            none,
            &["spec.startupBoost Forbidden"],
        ),
        (
            "261, container",
            policy(json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 2}}})),
            none,
            &["P.startupBoost Forbidden"],
        ),
        (
            "262",
            boost(json!({"type": "Factor", "factor": 0})),
            ALL,
            &["spec.startupBoost.cpu.factor Invalid 0"],
        ),
        (
            "263",
            boost(json!({"type": "Quantity", "quantity": "187500u"})),
            ALL,
            &["spec.startupBoost.cpu.quantity Invalid \"187500u\""],
        ),
        (
            "264",
            boost(json!({"type": "bad"})),
            ALL,
            &["spec.startupBoost.cpu.type NotSupported \"bad\""],
        ),
        ("265", boost(json!({})), ALL, &["spec.startupBoost.cpu.type Required"]),
        ("266", boost(json!({"type": "Quantity", "quantity": "100m"})), ALL, &[]),
        ("267", policy(json!({"oomBumpUpRatio": "-1"})), ALL, &["P.oomBumpUpRatio Invalid -1"]),
        ("268", policy(json!({"oomBumpUpRatio": "0.5"})), ALL, &["P.oomBumpUpRatio Invalid 0.5"]),
        ("269", policy(json!({"oomMinBumpUp": "-1"})), ALL, &["P.oomMinBumpUp Invalid -1"]),
        ("270", policy(json!({"oomMinBumpUp": "2"})), none, &["P.oomMinBumpUp Forbidden"]),
        ("271", policy(json!({"memoryAggregationIntervalSeconds": 3600})), ALL, &[]),
        (
            "271",
            policy(json!({"memoryAggregationIntervalSeconds": 0})),
            ALL,
            &["P.memoryAggregationIntervalSeconds Invalid 0"],
        ),
        (
            "271",
            policy(json!({"memoryAggregationIntervalSeconds": -5})),
            none,
            &["P.memoryAggregationIntervalSeconds Forbidden"],
        ),
        ("272", policy(json!({"memoryAggregationIntervalCount": 10})), ALL, &[]),
        (
            "272",
            policy(json!({"memoryAggregationIntervalCount": -3})),
            ALL,
            &["P.memoryAggregationIntervalCount Invalid -3"],
        ),
        (
            "272",
            policy(json!({"memoryAggregationIntervalCount": 10})),
            none,
            &["P.memoryAggregationIntervalCount Forbidden"],
        ),
        (
            "273",
            json!({"updatePolicy": {"updateMode": "InPlace"}}),
            none,
            &["spec.updatePolicy.updateMode Forbidden"],
        ),
        ("274", json!({"updatePolicy": {"updateMode": "InPlace"}}), ALL, &[]),
        (
            "275",
            policy(json!({"controlledResources": ["cpu", "broken"]})),
            none,
            &["P.controlledResources[1] NotSupported \"broken\""],
        ),
    ];
    for (name, spec, gates, expected) in rows {
        let found = verdict(&spec, None, gates);
        assert_eq!(errors(&found), expected, "{name}: {spec}");
        let warned = usize::from(name == "249");
        assert_eq!(found.warnings.len(), warned, "{name}: {:?}", found.warnings);
    }
    let fine = json!({
        "updatePolicy": {"updateMode": "Off", "minReplicas": 1},
        "resourcePolicy": {"containerPolicies": [{
            "containerName": "c1", "mode": "Auto", "minAllowed": {"cpu": "10"}, "maxAllowed": {"cpu": "100"},
        }]},
    });
    assert_eq!(verdict(&fine, None, none), ValidationResult::default(), "260");
}

/// Golden vectors 276 and 278.
#[test]
fn features_that_an_object_uses_already_stay_allowed() {
    let none = FeatureGates::default();
    let broken = policy(json!({"controlledResources": ["cpu", "broken", "broken"]}));
    let found = verdict(&broken, Some(&broken), none);
    assert_eq!((found.errors.len(), found.warnings.len()), (0, 2), "276");
    let cpu = json!({"cpu": {"type": "Factor", "factor": 2}});
    let boosted = json!({"startupBoost": cpu});
    let policied = policy(json!({"startupBoost": cpu}));
    for old in [&boosted, &policied] {
        assert_eq!(verdict(&boosted, Some(old), none).errors, [], "278");
    }
    let empty = json!({"startupBoost": {}});
    assert_eq!(
        errors(&verdict(&boosted, Some(&empty), none)),
        ["spec.startupBoost Forbidden"],
        "278"
    );
    let in_place = json!({"updatePolicy": {"updateMode": "InPlace"}});
    assert_eq!(verdict(&in_place, Some(&in_place), none).errors, []);
}

/// Golden vector 277, without the target: upstream cannot tell a create from an update, so that rule never applies.
#[test]
fn all_errors_are_reported_at_once_in_the_words_of_the_api() {
    let cpu = json!({"cpu": {"type": "Factor", "factor": 2}});
    let spec = json!({
        "updatePolicy": {"updateMode": "bad", "minReplicas": 0, "evictAfterOOMSeconds": 5},
        "resourcePolicy": {"containerPolicies": [
            {"containerName": "c1", "startupBoost": cpu, "controlledResources": ["broken"]},
        ]},
        "startupBoost": cpu,
        "recommenders": [{"name": "a"}, {"name": "b"}],
    });
    let found = verdict(&spec, None, FeatureGates::default());
    assert_eq!(found.errors.len(), 7, "{:?}", errors(&found));
    assert!(found.operations.is_empty());
    let message = found.message("VerticalPodAutoscaler", "autoscaling.k8s.io", "web");
    assert!(
        message.starts_with(
            "VerticalPodAutoscaler.autoscaling.k8s.io \"web\" is invalid: [spec.updatePolicy.updateMode: Unsupported \
             value: \"bad\": supported values: \"InPlace\", \"InPlaceOrRecreate\", \"Initial\", \"Off\", \"Recreate\", "
        ),
        "{message}"
    );
    assert!(
        message.ends_with("spec.recommenders: Too many: 2: must have at most 1 item]"),
        "{message}"
    );
    let broken = validate(b"{", None, ALL, SizingRules::for_compat(Compat::Upstream), &[]);
    assert_eq!(errors(&broken).len(), 1);
    assert!(broken.message("V", "g", "n").contains("is invalid: .: Internal error: "), "297");
}

#[test]
fn an_object_without_an_update_policy_gets_the_default() {
    let text = |spec: Value| serde_json::to_string(&verdict(&spec, None, ALL).operations);
    let expected =
        r#"[{"op":"add","path":"/spec/updatePolicy","value":{"updateMode":"Recreate"}}]"#;
    assert_eq!(text(json!({})).expect("serializes"), expected);
    assert_eq!(text(json!({"updatePolicy": {"updateMode": "Off"}})).expect("serializes"), "[]");
}

#[test]
fn suspicious_specs_give_warnings_only_in_plimsolls_mode() {
    let rows = [
        (
            json!({"targetRef": {"apiVersion": "example.com/v1", "kind": "Deployment", "name": "web"}}),
            "targetRef.apiVersion",
        ),
        (
            json!({"resourcePolicy": {"containerPolicies": [{"containerName": "*"}, {"containerName": "*"}]}}),
            "containerPolicies[0]: has no effect",
        ),
        (
            json!({"resourcePolicy": {"containerPolicies": [{"containerName": "a"}, {"containerName": "a"}]}}),
            "containerPolicies[1]: has no effect",
        ),
        (policy(json!({"minAllowed": {"cpu": "-1"}})), "minAllowed[cpu]: -1 is below 0"),
        (policy(json!({"maxAllowed": {"storage": "1"}})), "maxAllowed[storage]: has no effect"),
        (json!({"startupBoost": {}}), "startupBoost: has no effect"),
        (
            json!({"startupBoost": {"cpu": {"type": "Quantity", "quantity": "-1", "durationSeconds": 1}}}),
            "quantity: -1 is below 0",
        ),
        (
            json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 1, "durationSeconds": -1}}}),
            "durationSeconds: -1",
        ),
        (
            json!({"updatePolicy": {"updateMode": "Recreate", "evictionRequirements": [
                {"resources": ["cpu"], "changeRequirement": "TargetHigherThanRequests"},
                {"resources": ["cpu"], "changeRequirement": "TargetLowerThanRequests"},
            ]}}),
            "evictionRequirements[1]: contradicts entry 0",
        ),
        (
            json!({"updatePolicy": {"updateMode": "Recreate", "evictionRequirements": [
                {"resources": [], "changeRequirement": "TargetHigherThanRequests"},
            ]}}),
            "evictionRequirements[0]: names no resource",
        ),
    ];
    for (spec, expected) in rows {
        let ours =
            validate(&object(&spec), None, ALL, SizingRules::for_compat(Compat::Plimsoll), &[]);
        assert_eq!(ours.errors, [], "{spec}");
        assert_eq!(ours.warnings.len(), 1, "{:?}", ours.warnings);
        assert!(ours.warnings[0].contains(expected), "{:?}", ours.warnings);
        assert!(verdict(&spec, None, ALL).warnings.is_empty(), "{spec}");
    }
    let vpa = |name| OtherAutoscaler {
        kind: "VerticalPodAutoscaler",
        name,
        target_kind: "Deployment",
        target_name: "web",
        utilization_of: Vec::new(),
    };
    let neighbours =
        [vpa("web"), vpa("second"), OtherAutoscaler { target_name: "other", ..vpa("third") }];
    let rules = SizingRules::for_compat(Compat::Plimsoll);
    let found = validate(&object(&json!({})), None, ALL, rules, &neighbours);
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
}

#[test]
fn an_autoscaler_is_warned_about_if_it_is_relative_to_requests_that_the_vpa_changes() {
    let hpa = |resource, container| OtherAutoscaler {
        kind: "HorizontalPodAutoscaler",
        name: "busy",
        target_kind: "Deployment",
        target_name: "web",
        utilization_of: vec![UtilizationMetric { resource, container }],
    };
    let policies = |policies: Value| json!({"resourcePolicy": {"containerPolicies": policies}});
    let only_memory = json!({"containerName": "*", "controlledResources": ["memory"]});
    let off = json!({"containerName": "app", "mode": "Off"});
    for (spec, other, expected) in [
        (json!({}), hpa("cpu", None), Some("utilization of cpu requests")),
        (json!({}), hpa("memory", Some("app")), Some("utilization of memory requests")),
        (json!({}), OtherAutoscaler { target_name: "other", ..hpa("cpu", None) }, None),
        (json!({}), OtherAutoscaler { utilization_of: Vec::new(), ..hpa("cpu", None) }, None),
        (json!({"updatePolicy": {"updateMode": "Off"}}), hpa("cpu", None), None),
        (policies(json!([only_memory])), hpa("cpu", None), None),
        (
            policies(json!([only_memory])),
            hpa("memory", None),
            Some("utilization of memory requests"),
        ),
        (policies(json!([off])), hpa("cpu", Some("app")), None),
        (policies(json!([off])), hpa("cpu", None), Some("utilization of cpu requests")),
        (policies(json!([off, only_memory])), hpa("cpu", None), None),
    ] {
        let rules = SizingRules::for_compat(Compat::Plimsoll);
        let found = validate(&object(&spec), None, ALL, rules, std::slice::from_ref(&other));
        assert_eq!(found.errors, [], "{spec}");
        let warnings = found.warnings;
        assert_eq!(
            warnings.len(),
            usize::from(expected.is_some()),
            "{spec} {other:?} {warnings:?}"
        );
        let is_expected = |text: &str| warnings[0].contains(text) && warnings[0].contains("busy");
        assert!(expected.is_none_or(is_expected), "{warnings:?}");
    }
}

#[test]
fn unchanged_spec_is_accepted() {
    let annotated = |spec: &Value, value: &str| {
        let annotations = json!({"example.com/note": value});
        let metadata = json!({"name": "web", "annotations": annotations});
        serde_json::to_vec(&json!({"metadata": metadata, "spec": spec})).expect("serializes")
    };
    let stored = json!({"updatePolicy": {"updateMode": "bad", "minReplicas": 0}});
    let other = json!({"updatePolicy": {"updateMode": "bad", "minReplicas": -1}});
    let valid = json!({"updatePolicy": {"updateMode": "Off"}});
    let unreadable =
        json!({"resourcePolicy": {"containerPolicies": [{"minAllowed": {"cpu": "x"}}]}});
    let ours = SizingRules::for_compat(Compat::Plimsoll);
    let without = SizingRules {
        fixes: Fixes::for_compat(Compat::Plimsoll).without(Fix::UnchangedSpecIsAccepted),
        ..ours
    };
    for (old, new, errors) in [
        (&stored, &stored, [2, 2, 0]),
        (&unreadable, &unreadable, [1, 1, 0]),
        (&stored, &other, [2, 2, 2]),
        (&stored, &valid, [0, 0, 0]),
        (&valid, &stored, [2, 2, 2]),
    ] {
        let found = [SizingRules::for_compat(Compat::Upstream), without, ours].map(|rules| {
            let (old, new) = (annotated(old, "before"), annotated(new, "after"));
            validate(&new, Some(&old), FeatureGates::default(), rules, &[])
        });
        assert_eq!(found.each_ref().map(|result| result.errors.len()), errors, "{old} -> {new}");
        let [.., last] = found;
        let warnings = last.warnings.iter().filter(|text| text.contains("the spec is unchanged"));
        assert_eq!(warnings.count(), errors[0] - errors[2], "{:?}", last.warnings);
        assert!(last.errors.is_empty() || last.operations.is_empty());
    }
    let created = validate(&annotated(&stored, "new"), None, FeatureGates::default(), ours, &[]);
    assert_eq!(created.errors.len(), 2, "a new error is rejected");
}
