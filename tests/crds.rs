//! The CustomResourceDefinitions of `plimsoll crds`: equal to upstream's field by field, and to the committed files.

mod dry_run;
mod watermark;

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use plimsoll_core::{
    api::{
        crdgen::to_yaml,
        crds, crds_yaml,
        vpa::{UpdateMode, VerticalPodAutoscaler},
    },
    types::quantity::Quantity,
};
use serde_json::{Value, json};

use crate::support::skipped::report_skipped;

/// Intended differences, with the reason. Any other difference is a bug, and so is an entry that no longer applies.
const EXPECTED_DIFFERENCES: [(&str, &str); 2] = [
    (
        "/metadata/annotations/controller-gen.kubebuilder.io~1version",
        "names the generator of upstream's file",
    ),
    ("/versions/v1beta2", "not served by upstream either, and no object is stored as it any more"),
];

/// The CRDs of upstream's release.
fn upstream() -> Result<String, String> {
    let file = xtask::test_programs::autoscaler_crds().map_err(|error| format!("{error:#}"))?;
    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The leaves of a CRD by path, without descriptions. Versions are keyed by name, not by index.
fn leaves(definition: &Value) -> BTreeMap<String, Value> {
    let mut definition = definition.clone();
    let versions = definition["spec"]["versions"].take();
    for version in versions.as_array().expect("a list of versions") {
        let name = version["name"].as_str().expect("a version has a name").to_owned();
        definition["versions"][name] = version.clone();
    }
    let mut leaves = BTreeMap::new();
    collect(&definition, "", &mut leaves);
    leaves
}

fn collect(value: &Value, path: &str, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                let prose = key == "description" && inner.is_string();
                if !prose {
                    collect(inner, &format!("{path}/{}", key.replace('/', "~1")), leaves);
                }
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (place, inner) in list.iter().enumerate() {
                collect(inner, &format!("{path}/{place}"), leaves);
            }
        }
        leaf => {
            leaves.insert(path.to_owned(), leaf.clone());
        }
    }
}

/// All leaves that differ, as `path: ours instead of theirs`.
fn differences(ours: &Value, theirs: &Value) -> Vec<(String, String)> {
    let (ours, theirs) = (leaves(ours), leaves(theirs));
    let mut paths: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    paths.sort();
    paths.dedup();
    let show = |leaf: Option<&Value>| leaf.map_or_else(|| "nothing".to_owned(), Value::to_string);
    paths
        .into_iter()
        .filter(|&path| ours.get(path) != theirs.get(path))
        .map(|path| {
            let line =
                format!("{path}: {} instead of {}", show(ours.get(path)), show(theirs.get(path)));
            (path.clone(), line)
        })
        .collect()
}

#[test]
fn the_crds_match_upstream_field_by_field() {
    let upstream = match upstream() {
        Ok(upstream) => upstream,
        Err(reason) => return report_skipped(reason),
    };
    let theirs: Vec<Value> = serde_saphyr::from_multiple(&upstream).expect("upstream's YAML");
    let ours: Vec<Value> =
        serde_saphyr::from_multiple(&crds_yaml().expect("definitions")).expect("our YAML");
    assert_eq!(theirs.len(), 2, "upstream defines two kinds");
    for theirs in &theirs {
        let name = theirs["metadata"]["name"].as_str().expect("a name");
        let ours = ours.iter().find(|ours| ours["metadata"]["name"] == name).expect(name);
        assert!(leaves(ours).len() > 40, "{name} has more to compare than {}", leaves(ours).len());
        let found = differences(ours, theirs);
        for (path, why) in EXPECTED_DIFFERENCES {
            assert!(
                found.iter().any(|(found, _)| found.starts_with(path)),
                "{name}: {path} ({why}) no longer differs"
            );
        }
        let surprises: Vec<_> = found
            .iter()
            .filter(|(path, _)| {
                !EXPECTED_DIFFERENCES.iter().any(|(allowed, _)| path.starts_with(allowed))
            })
            .map(|(_, line)| line.as_str())
            .collect();
        assert!(surprises.is_empty(), "{name} differs:\n{}", surprises.join("\n"));
    }
}

#[test]
fn a_difference_in_any_field_of_a_crd_is_detected() {
    let definitions = crds().expect("definitions");
    let theirs = serde_json::to_value(&definitions[1]).expect("JSON");
    for (place, value) in [
        ("/spec/names/shortNames/0", json!("vp")),
        ("/spec/versions/0/subresources/status", json!(null)),
        ("/spec/versions/0/additionalPrinterColumns/2/jsonPath", json!(".spec")),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/required/0",
            json!("updatePolicy"),
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/observedGeneration/minimum",
            json!(1),
        ),
    ] {
        let mut ours = theirs.clone();
        *ours.pointer_mut(place).expect(place) = value;
        assert_eq!(differences(&ours, &theirs).len(), 1, "{place}");
    }
    let mut ours = theirs.clone();
    ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("other words");
    assert!(differences(&ours, &theirs).is_empty(), "descriptions may differ");
}

/// `UPDATE=1 cargo test crds` writes the files.
#[test]
fn the_committed_crds_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    for definition in crds().expect("definitions") {
        let name = definition.metadata.name.as_deref().expect("a name");
        let file = folder.join(format!("{name}.yaml"));
        let printed = to_yaml(&definition).expect("YAML");
        if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&folder).expect("deploy/crds can be made");
            fs::write(&file, &printed).expect("deploy/crds can be written");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == printed,
            "{} is out of date: run UPDATE=1 cargo test crds",
            file.display()
        );
    }
}

#[test]
fn the_printed_yaml_parses_as_the_crds_with_yaml_1_1_and_1_2() {
    let yaml = crds_yaml().expect("definitions");
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&yaml).expect("YAML");
    assert_eq!(read, crds().expect("definitions"));
    // A bare Off is false for YAML 1.1 parsers, including kubectl.
    assert!(!yaml.contains("- Off\n"), "Off must be quoted");
    assert!(yaml.lines().all(|line| line.len() < 200), "long texts are wrapped");
}

/// An object that uses every field.
fn full() -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {
                "updateMode": "InPlaceOrRecreate",
                "minReplicas": 2,
                "evictionRequirements": [
                    {"resources": ["cpu", "memory"], "changeRequirement": "TargetHigherThanRequests"},
                ],
                "evictAfterOOMSeconds": 600,
            },
            "resourcePolicy": {"containerPolicies": [{
                "containerName": "*",
                "mode": "Off",
                "minAllowed": {"cpu": "10m", "memory": "64Mi"},
                "maxAllowed": {"cpu": "2"},
                "controlledResources": ["cpu"],
                "controlledValues": "RequestsOnly",
                "oomBumpUpRatio": "1500m",
                "oomMinBumpUp": "100Mi",
                "memoryAggregationIntervalSeconds": 3600,
                "memoryAggregationIntervalCount": 24,
                "startupBoost": {"cpu": {"type": "Quantity", "quantity": "500m"}},
            }]},
            "recommenders": [{"name": "nightly"}],
            "startupBoost": {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 30}},
        },
        "status": {
            "recommendation": {"containerRecommendations": [{
                "containerName": "web",
                "target": {"cpu": "126m", "memory": "250Mi"},
                "lowerBound": {"cpu": "25m", "memory": "250Mi"},
                "upperBound": {"cpu": "100G", "memory": "97656250000Ki"},
                "uncappedTarget": {"cpu": "126m", "memory": "250Mi"},
            }]},
            "conditions": [{
                "type": "RecommendationProvided",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "Because",
                "message": "It is so.",
                "observedGeneration": 3,
            }],
            "observedGeneration": 3,
        },
    })
}

#[test]
fn a_vpa_with_every_field_survives_deserialization() {
    let object: VerticalPodAutoscaler = serde_json::from_value(full()).expect("a VPA");
    assert_eq!(object.spec.update_mode(), UpdateMode::InPlaceOrRecreate);
    let boost = object.spec.container_policy("web").and_then(|policy| policy.startup_boost.clone());
    let boost = boost.and_then(|boost| boost.cpu).and_then(|cpu| cpu.quantity);
    assert_eq!(boost.map(Quantity::milli_value), Some(500));
    assert_eq!(serde_json::to_value(&object).expect("JSON"), full());
}

#[test]
fn the_full_vpa_sets_every_field_of_the_schema() {
    let vpa = serde_json::to_value(&crds().expect("definitions")[1]).expect("JSON");
    let schema = &vpa["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let text = full().to_string();
    let mut fields = 0;
    let mut pending = vec![&schema["spec"], &schema["status"]];
    while let Some(schema) = pending.pop() {
        pending.extend(schema.get("items"));
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            assert!(text.contains(&format!("\"{name}\":")), "{name} is missing in the object");
            fields += 1;
            pending.push(inner);
        }
    }
    assert!(fields > 45, "only {fields} fields were found");
}

#[test]
fn unset_fields_are_not_serialized() {
    let json = json!({
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": [{"target": {}}]}, "conditions": [{"type": "A", "status": "True"}]},
    });
    let object: VerticalPodAutoscaler = serde_json::from_value(json.clone()).expect("a VPA");
    assert_eq!(serde_json::to_value(&object).expect("JSON"), json);
}
