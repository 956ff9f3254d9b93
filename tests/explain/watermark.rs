//! `plimsoll explain wpa`: the report depends only on the object.

use plimsoll::report::{
    explain::{WpaReport, wpa::text},
    style::{Glyphs, Style},
};
use plimsoll_core::api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus};
use plimsoll_core::types::Time;
use serde_json::{Value, json};

use crate::schema::{faults, schema};

const NOW: Time = Time::from_secs(1_800_000_000);

fn spec(max: i32) -> WatermarkPodAutoscalerSpec {
    serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": max, "upscaleForbiddenWindowSeconds": 60,
        "metrics": [{"type": "Resource", "resource": {
            "name": "cpu", "metricSelector": {}, "highWatermark": "1",
        }}],
    }))
    .expect("a spec")
}

fn status(decision: Value) -> WatermarkPodAutoscalerStatus {
    let mut status = json!({
        "currentReplicas": 4, "desiredReplicas": 4, "lastScaleTime": "2027-01-15T07:59:20Z",
        "scalingEventsCount": 3,
        "conditions": [{
            "type": "AbleToScale", "status": "False", "reason": "BackoffUpscale",
            "lastTransitionTime": "2027-01-15T07:59:20Z", "message": "it has to wait",
        }],
    });
    if decision != Value::Null {
        status["decision"] = decision;
    }
    serde_json::from_value(status).expect("a status")
}

fn held() -> Value {
    json!({
        "at": "2027-01-15T07:59:50Z", "from": 4, "proposal": 8, "limited": 6, "to": 4,
        "heldUntil": "2027-01-15T08:00:20Z", "restrictions": ["upscale_capping", "forbidden_window"],
        "sources": [{
            "name": "requests{map[app:web]}", "value": "150", "low": "45", "high": "110",
            "position": "above", "proposal": 8, "chosen": true, "since": "2027-01-15T07:59:20Z",
        }],
    })
}

#[test]
fn a_decision_is_explained_step_by_step_and_as_json() {
    let report = WpaReport::of(("shop", "web"), &[].into(), &spec(10), &status(held()), NOW);
    let data = serde_json::to_value(&report).expect("JSON");
    assert_eq!(faults(&schema("explain-wpa.v1.json"), &data), Vec::<String>::new());
    assert_eq!(data["left"], json!([20, 260]));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() };
    let text = text::render(&report, &style);
    for words in [
        "shop/web",
        "Deployment web, 2 to 10 replicas",
        "UNCHANGED, RESTRICTED",
        "upscale_capping, forbidden_window",
        "150, which is above the watermarks, since 40 s ago",
        "45 to 110, including tolerance",
        "upscale allowed in 20 s, downscale in 260 s",
        "`average` is usually meant",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn each_problem_of_a_wpa_is_a_finding() {
    let unknown = json!({
        "from": 4, "to": 4, "restrictions": ["metric_unknown"],
        "sources": [{"name": "requests{map[]}", "unknown": "empty", "message": "no metrics returned"}],
    });
    let codes = |spec: &WatermarkPodAutoscalerSpec, status: &WatermarkPodAutoscalerStatus| {
        let report = WpaReport::of(("shop", "web"), &[].into(), spec, status, NOW);
        report.findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(&spec(10), &status(unknown)), ["metric_unknown"]);
    assert_eq!(codes(&spec(1), &status(held())), ["invalid"]);
    assert_eq!(codes(&spec(10), &WatermarkPodAutoscalerStatus::default()), ["never_looked_at"]);
    // Datadog's controller does not record its decision.
    let report = WpaReport::of(("shop", "web"), &[].into(), &spec(10), &status(Value::Null), NOW);
    assert!(
        report.findings.is_empty()
            && report.notes.iter().any(|note| note.contains("plimsoll crds"))
    );
}
