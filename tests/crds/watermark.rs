//! Compares the CRD of the WatermarkPodAutoscaler with upstream's: it accepts everything that upstream's accepts, the
//! columns are the same, and additions are listed here.

use std::{collections::BTreeMap, fs, path::Path};

use plimsoll_core::api::{crds, wpa::WatermarkPodAutoscaler};
use serde_json::{Value, json};

const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Intended differences, with the reason. Any other difference is a bug, and so is an entry that no longer applies.
const EXPECTED_DIFFERENCES: [(&str, &str); 8] = [
    ("status.decision", "the last decision, which only Plimsoll reports"),
    (
        "status",
        "no field is required, because Plimsoll's status is merged and the first part may be written alone",
    ),
    ("spec.metrics[].containerResource", "an additional metric type"),
    ("spec.metrics[].containerResource.container", "an additional metric type"),
    ("spec.metrics[].containerResource.highWatermark", "an additional metric type"),
    ("spec.metrics[].containerResource.lowWatermark", "an additional metric type"),
    ("spec.metrics[].containerResource.metricSelector", "an additional metric type"),
    ("spec.metrics[].containerResource.name", "an additional metric type"),
];

/// Name, type, path and priority of each column, in upstream's order.
const COLUMNS: [(&str, &str, &str, u32); 12] = [
    ("scaling active", "string", r#".status.conditions[?(@.type=="ScalingActive")].status"#, 0),
    ("condition", "string", ".status.lastConditionType", 0),
    ("condition state", "string", ".status.lastConditionState", 0),
    ("value", "string", ".status.currentMetrics[*].external.currentValue..", 0),
    ("high watermark", "string", ".spec..highWatermark", 0),
    ("low watermark", "string", ".spec..lowWatermark", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("min replicas", "integer", ".spec.minReplicas", 0),
    ("max replicas", "integer", ".spec.maxReplicas", 0),
    ("dry-run", "string", r#".status.conditions[?(@.type=="DryRun")].status"#, 0),
    ("last scale", "date", ".status.lastScaleTime", 0),
    ("scale count", "integer", ".status.scalingEventsCount", 1),
];

fn definition() -> Value {
    let all = crds().expect("definitions");
    let ours = all
        .iter()
        .find(|one| one.metadata.name.as_deref() == Some("watermarkpodautoscalers.datadoghq.com"));
    serde_json::to_value(ours.expect("it is printed")).expect("JSON")
}

/// Type and validation of each field in upstream's CRD.
fn upstream() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/watermark-definition.tsv");
    let table = fs::read_to_string(path).expect("the table is in the repository");
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let (path, rest) = row.split_once('\t').expect("a row has three columns");
        (path.to_owned(), rest.trim_end().to_owned())
    })
    .collect()
}

/// Type and validation of each field in a schema.
fn rows(schema: &Value, path: &str, rows: &mut BTreeMap<String, String>) {
    let (kind, mut rules) = (kind(schema, path), Vec::new());
    for (key, words) in [("minimum", "at least"), ("maximum", "at most"), ("pattern", "like")] {
        if let Some(value) = schema.get(key).filter(|_| kind != "quantity") {
            let value = value.as_f64().map_or_else(|| text(value), |number| number.to_string());
            rules.push(format!("{words} {value}"));
        }
    }
    let names = schema["required"].as_array().into_iter().flatten().map(text);
    let names = names.collect::<Vec<_>>().join(", ");
    if !names.is_empty() && kind != "selector" {
        rules.push(format!("needs {names}"));
    }
    for key in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        rules.extend(schema.get(key).map(text));
    }
    for (key, _) in schema.as_object().expect("a schema") {
        assert!(KNOWN.contains(&key.as_str()), "{path}: the keyword {key} is not compared");
    }
    rows.insert(path.to_owned(), format!("{kind}\t{}", rules.join("; ")).trim_end().to_owned());
    if kind == "selector" {
        return;
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        self::rows(inner, &format!("{path}.{name}"), rows);
    }
    if let Some(items) = schema.get("items") {
        self::rows(items, &format!("{path}[]"), rows);
    }
}

/// All keywords that our schemas may use. A default would be written into users' objects.
const KNOWN: [&str; 14] = [
    "additionalProperties",
    "anyOf",
    "description",
    "format",
    "items",
    "maximum",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn kind(schema: &Value, path: &str) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        assert_eq!(schema["pattern"], PATTERN, "{path}");
        assert_eq!(schema["anyOf"], json!([{"type": "integer"}, {"type": "string"}]), "{path}");
        return "quantity".to_owned();
    }
    if schema["properties"].get("matchLabels").is_some() {
        assert_eq!(plain(schema), selector(), "{path}");
        return "selector".to_owned();
    }
    match (text(&schema["type"]).as_str(), schema.get("format").map(text).as_deref()) {
        ("integer", Some(format)) => format.to_owned(),
        ("string", Some("date-time")) => "time".to_owned(),
        ("array", None) => "list".to_owned(),
        ("object", None) if schema.get("additionalProperties").is_some() => {
            format!("map of {}", text(&schema["additionalProperties"]["type"]))
        }
        (other, format) => {
            assert_eq!(format, None, "{path}");
            other.to_owned()
        }
    }
}

/// A schema without descriptions.
fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !(*key == "description" && value.is_string()))
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect(),
        Value::Array(list) => list.iter().map(plain).collect(),
        leaf => leaf.clone(),
    }
}

/// The schema of a label selector.
fn selector() -> Value {
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string"},
            "values": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "atomic",
            },
        },
    });
    json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "items": expression,
                "x-kubernetes-list-type": "atomic",
            },
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    })
}

#[test]
fn the_wpa_schema_accepts_what_upstreams_accepts() {
    let definition = definition();
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    assert_eq!(schema.get("required"), None, "upstream takes an object with a name alone");
    let mut ours = BTreeMap::new();
    for half in ["spec", "status"] {
        rows(&schema["properties"][half], half, &mut ours);
    }
    let theirs = upstream();
    assert!(theirs.len() > 85, "only {} fields are in the table", theirs.len());
    let mut paths: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    paths.sort();
    paths.dedup();
    let differ: Vec<&String> =
        paths.into_iter().filter(|&path| ours.get(path) != theirs.get(path)).collect();
    let surprises: Vec<String> = differ
        .iter()
        .filter(|path| !EXPECTED_DIFFERENCES.iter().any(|(known, _)| *known == path.as_str()))
        .filter(|path| !path.starts_with("status.decision."))
        .map(|path| format!("{path}: {:?} instead of {:?}", ours.get(*path), theirs.get(*path)))
        .collect();
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    for (path, why) in EXPECTED_DIFFERENCES {
        assert!(differ.iter().any(|found| *found == path), "{path} ({why}) no longer differs");
    }
}

#[test]
fn the_wpa_names_and_columns_match_upstream() {
    let definition = definition();
    let spec = &definition["spec"];
    assert_eq!((&spec["group"], &spec["scope"]), (&json!("datadoghq.com"), &json!("Namespaced")));
    assert_eq!(
        spec["names"],
        json!({
            "kind": "WatermarkPodAutoscaler",
            "listKind": "WatermarkPodAutoscalerList",
            "plural": "watermarkpodautoscalers",
            "singular": "watermarkpodautoscaler",
            "shortNames": ["wpa"],
        })
    );
    let versions = spec["versions"].as_array().expect("versions");
    let [version] = versions.as_slice() else { panic!("{} versions", versions.len()) };
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!((&version["served"], &version["storage"]), (&json!(true), &json!(true)));
    assert_eq!(version["subresources"], json!({"status": {}}), "there is no scale");
    let columns = version["additionalPrinterColumns"].as_array().expect("columns");
    let found: Vec<_> = columns
        .iter()
        .map(|column| {
            let word = |key: &str| column[key].as_str().expect(key);
            let priority = column.get("priority").and_then(Value::as_u64).unwrap_or(0) as u32;
            (word("name"), word("type"), word("jsonPath"), priority)
        })
        .collect();
    assert_eq!(found, COLUMNS);
}

#[test]
fn an_upstream_wpa_with_every_field_survives_deserialization() {
    let object = json!({
        "apiVersion": "datadoghq.com/v1alpha1",
        "kind": "WatermarkPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "algorithm": "average",
            "convergeTowardsWatermark": "highwatermark",
            "downscaleDelayBelowWatermarkSeconds": 30,
            "downscaleForbiddenWindowSeconds": 300,
            "dryRun": true,
            "maxReplicas": 40,
            "metrics": [
                {"type": "External", "external": {
                    "metricName": "requests",
                    "metricSelector": {"matchLabels": {"service": "web"}},
                    "highWatermark": "80",
                    "lowWatermark": "60",
                }},
                {"type": "Resource", "resource": {
                    "name": "cpu",
                    "metricSelector": {"matchLabels": {"app": "web"}},
                    "highWatermark": "500m",
                    "lowWatermark": "300m",
                }},
            ],
            "minAvailableReplicaPercentage": 50,
            "minReplicas": 4,
            "readinessDelaySeconds": 20,
            "recommender": {
                "url": "https://recommender",
                "targetType": "cpu",
                "highWatermark": "800m",
                "lowWatermark": "600m",
                "settings": {"a": "b"},
                "tlsConfig": {
                    "caFile": "/ca", "certFile": "/cert", "keyFile": "/key", "serverName": "name",
                    "insecureSkipVerify": true, "minVersion": "TLS12", "maxVersion": "TLS13",
                },
            },
            "replicaScalingAbsoluteModulo": 2,
            "scaleDownLimitFactor": "20",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "scaleUpLimitFactor": "50",
            "tolerance": "50m",
            "tolerateZero": true,
            "upscaleDelayAboveWatermarkSeconds": 10,
            "upscaleForbiddenWindowSeconds": 60,
        },
    });
    let read: WatermarkPodAutoscaler = serde_json::from_value(object.clone()).expect("a WPA");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), object);
    let fields = object["spec"].as_object().expect("a spec").len();
    let defined = definition();
    let defined =
        &defined["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(defined["properties"].as_object().map(serde_json::Map::len), Some(fields));
}
