//! Whether an object is valid: vectors V1 to V10, F3 to F5, and each check of section 3.2.

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    watermark::{
        conditions::{self, ConditionUpdate},
        spec::with_defaults,
        validation::validate,
    },
};
use serde_json::{Value, json};

use super::{NOW, spec};

/// Validates the spec as written, without defaults.
fn check(spec: &WatermarkPodAutoscalerSpec) -> String {
    validate(spec, "shop/web").err().map_or_else(|| "ok".to_owned(), |why| why.to_string())
}

/// Validates the spec after filling in defaults, as a reconcile does.
fn filled(fields: Value) -> String {
    check(&with_defaults(&spec(fields)))
}

#[test]
fn invalid_objects_have_upstreams_messages() {
    let empty = WatermarkPodAutoscalerSpec::default();
    assert_eq!(
        check(&empty),
        "the Spec.ScaleTargetRef should be populated, currently Kind: and/or Name: are not set properly",
        "V1"
    );
    let bounds = "watermark pod autoscaler requires the minimum number of replicas to be configured and inferior to \
                  the maximum";
    assert_eq!(check(&spec(json!({"maxReplicas": 0}))), bounds, "V2");
    for (name, fields, expected) in [
        ("V3", json!({"minReplicas": 4, "maxReplicas": 3}), bounds),
        ("equal", json!({"minReplicas": 4, "maxReplicas": 4}), "ok"),
        (
            "V4",
            json!({"tolerance": "5"}),
            "tolerance should be set as a quantity between 0 and 1, currently set to : 5, which is 500%",
        ),
        (
            "V5",
            json!({"scaleUpLimitFactor": 101, "scaleDownLimitFactor": 10, "tolerance": "50m"}),
            "ok",
        ),
        (
            "V6",
            json!({"scaleUpLimitFactor": -1}),
            "scaleuplimitfactor should be set as a positive quantity, currently set to : -1, which could yield a -1% \
             growth",
        ),
        (
            "V7",
            json!({"scaleDownLimitFactor": 134}),
            "scaledownlimitfactor should be set as a quantity between 0 and 100 (exc.), currently set to : 134, which \
             could yield a 134% decrease",
        ),
        ("V8", json!({"scaleUpLimitFactor": 10, "scaleDownLimitFactor": 10}), "ok"),
        ("V10", json!({"tolerance": "500m"}), "ok"),
    ] {
        let mut fields = fields;
        for (key, value) in [("minReplicas", 4), ("maxReplicas", 7)] {
            if fields[key].is_null() {
                fields[key] = value.into();
            }
        }
        assert_eq!(filled(fields), expected, "{name}");
    }
    let text = "scaleuplimitfactor and scaledownlimitfactor can't be nil, make sure the WPA spec is defaulted";
    assert_eq!(check(&spec(json!({"minReplicas": 4}))), text, "V9");
}

#[test]
fn invalid_metrics_have_upstreams_messages() {
    let external = |fields: Value| {
        let mut block = json!({"metricName": "deadbeef", "metricSelector": {"matchLabels": {"label": "value"}}});
        for (key, value) in fields.as_object().into_iter().flatten() {
            block[key] = value.clone();
        }
        json!({"metrics": [{"type": "External", "external": block}]})
    };
    for (fields, expected) in [
        (
            external(json!({})),
            "watermarks are not set correctly, removing the WPA shop/web from the Reconciler",
        ),
        (
            external(json!({"highWatermark": "3", "lowWatermark": "4"})),
            "low WaterMark of External metric deadbeef{map[label:value]} has to be strictly inferior to the High \
             Watermark",
        ),
        (external(json!({"highWatermark": "4", "lowWatermark": "4"})), "ok"),
        (external(json!({"lowWatermark": "4"})), "ok"),
        (
            external(json!({"highWatermark": "4", "metricSelector": null})),
            "missing Labels for the External metric deadbeef",
        ),
        (
            json!({"metrics": [{"type": "External"}]}),
            "metric.External is nil while metric.Type is 'External'",
        ),
        (
            json!({"metrics": [{"type": "Resource"}]}),
            "metric.Resource is nil while metric.Type is 'Resource'",
        ),
        (
            json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "highWatermark": 1}}]}),
            "missing Labels for the Resource metric cpu",
        ),
        (json!({"metrics": [{"type": "Object"}]}), "incorrect metric.Type: 'Object'"),
        (
            json!({"recommender": {"url": "http://any"}, "metrics": [{"type": "Resource"}]}),
            "recommender and metrics can't be set at the same time, please choose one",
        ),
        (json!({"recommender": {"url": "http://any"}}), "ok"),
    ] {
        assert_eq!(filled(fields.clone()), expected, "{fields}");
    }
}

/// Vectors F3 to F5: the first condition in the status of an invalid object.
#[test]
fn the_reason_of_an_invalid_object_is_the_first_condition() {
    let with = |marks: Value| {
        let mut block = json!({"metricName": "deadbeef", "metricSelector": {"matchLabels": {"label": "value"}}});
        for (key, value) in marks.as_object().into_iter().flatten() {
            block[key] = value.clone();
        }
        json!({"minReplicas": 1, "maxReplicas": 5, "metrics": [{"type": "External", "external": block}]})
    };
    for (name, fields, text) in [
        (
            "F3",
            with(json!({})),
            "watermarks are not set correctly, removing the WPA shop/web from the Reconciler",
        ),
        (
            "F4",
            json!({"minReplicas": 5, "maxReplicas": 3}),
            "watermark pod autoscaler requires the minimum number of replicas to be configured and inferior to the \
             maximum",
        ),
        (
            "F5",
            with(json!({"highWatermark": "3", "lowWatermark": "4"})),
            "low WaterMark of External metric deadbeef{map[label:value]} has to be strictly inferior to the High \
             Watermark",
        ),
    ] {
        let invalid = validate(&with_defaults(&spec(fields)), "shop/web").expect_err(name);
        let [inactive, _] = ConditionUpdate::unprocessed();
        let mut status = WatermarkPodAutoscalerStatus::default();
        for update in [inactive, invalid.condition()] {
            conditions::set_condition(&mut status, &update, NOW);
        }
        let first = &status.conditions[0];
        let condition = (first.kind.as_str(), first.status.as_str(), first.reason.as_str());
        assert_eq!(condition, ("AbleToScale", "False", "FailedSpecCheck"), "{name}");
        assert_eq!(first.message, format!("Invalid WPA specification: {text}"), "{name}");
        assert_eq!(status.conditions[1].reason, "FailedProcessWPA", "{name}");
        assert_eq!(status.last_condition_type, "AbleToScale", "{name}");
    }
}

#[test]
fn an_object_beyond_the_size_limits_is_rejected_with_the_reason() {
    let metric = |name: &str, labels: Value| {
        json!({"type": "External", "external": {
            "metricName": name, "metricSelector": {"matchLabels": labels}, "highWatermark": "2",
        }})
    };
    let many = |count: usize| vec![metric("load", json!({})); count];
    assert_eq!(filled(json!({"metrics": many(50)})), "ok");
    assert_eq!(
        filled(json!({"metrics": many(51)})),
        "51 metrics are set, at most 50 are supported: scaling is disabled until some are removed"
    );
    let long = "x".repeat(20_000);
    for (fields, expected) in [
        (json!({"metrics": [metric(&long, json!({}))]}), "the name of a metric has 20000 bytes"),
        (
            json!({"metrics": [metric("load", json!({"app": long}))]}),
            "the selector of a metric has",
        ),
        (json!({"metrics": [{"type": long}]}), "the type of a metric has"),
        (
            json!({"scaleTargetRef": {"kind": "Deployment", "name": long}}),
            "the target's name has 20000 bytes",
        ),
        (json!({"recommender": {"url": format!("http://{long}")}}), "url has 20007 bytes"),
        (
            json!({"recommender": {"url": "http://a", "settings": {"a": long}}}),
            "targetType and settings",
        ),
    ] {
        let message = filled(fields);
        assert!(message.contains(expected) && message.len() < 200, "{message}");
    }
}
