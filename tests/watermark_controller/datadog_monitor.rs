//! A DatadogMonitor that must be healthy before its object is reconciled.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::fixture::{Fixture, create_definition, object};
use crate::support::wait;

/// Creates the part of the definition that is read.
async fn define(fixture: &Fixture) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "datadogmonitors.datadoghq.com"},
        "spec": {
            "group": "datadoghq.com", "scope": "Namespaced",
            "names": {"kind": "DatadogMonitor", "plural": "datadogmonitors", "singular": "datadogmonitor"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    }))
    .expect("valid definition");
    create_definition(&fixture.bed, &definition).await;
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("datadoghq.com", "v1alpha1", "DatadogMonitor"))
}

fn monitors(fixture: &Fixture) -> Api<DynamicObject> {
    Api::namespaced_with(fixture.bed.client(), &fixture.namespace, &kind())
}

async fn monitor(fixture: &Fixture, name: &str) {
    let monitor = DynamicObject::new(name, &kind());
    let api = monitors(fixture);
    wait::until("its kind is served", || async {
        api.create(&PostParams::default(), &monitor).await.ok()
    })
    .await;
}

async fn is(fixture: &Fixture, name: &str, word: &str) {
    let status = Patch::Merge(json!({"status": {"monitorState": word}}));
    monitors(fixture)
        .patch_status(name, &PatchParams::default(), &status)
        .await
        .expect("status is written");
}

fn controlled(name: &str, more: &Value) -> Value {
    let mut object = object(name, json!({}));
    let mut annotations = json!({"wpa.datadoghq.com/lifecycle-control.enabled": "true"});
    annotations
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().cloned().expect("an object"));
    object["metadata"]["annotations"] = annotations;
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_stay_unless_the_monitor_is_healthy_or_unknown_is_tolerated() {
    let Some(fixture) = Fixture::new("monitor", &[]).await else { return };
    define(&fixture).await;
    monitor(&fixture, "web").await;
    is(&fixture, "web", "Alert").await;
    let blocked = async |name: &str| {
        fixture.condition(name, "ScalingBlocked").await.expect("condition is set")
    };
    for (name, more) in [
        ("web", json!({})),
        // Refers to another object's monitor by name; that one has none of its own and is treated as healthy.
        ("other", json!({"plimsoll.dev/monitor": "web"})),
        ("open", json!({"plimsoll.dev/unknown-gate": "follow"})),
        ("closed", json!({})),
    ] {
        fixture.deployment(name, 2).await;
        fixture.metric(name, 1_000.0);
        fixture.create(&controlled(name, &more)).await;
    }
    fixture.advance_seconds(300).await;
    for (name, replicas, reason) in [
        ("web", 2, "DatadogMonitorNotOK"),
        ("other", 2, "DatadogMonitorNotOK"),
        ("closed", 2, "FailedGetDatadogMonitor"),
    ] {
        assert_eq!(fixture.replicas(name).await, replicas, "{name}");
        assert_eq!(blocked(name).await, ("True".to_owned(), reason.to_owned()), "{name}");
    }
    assert!(fixture.replicas("open").await > 2);
    // Reported only once.
    for name in ["open", "closed"] {
        let events = fixture.events(name).await;
        let count = events.iter().filter(|reason| *reason == "FailedGetDatadogMonitor").count();
        assert_eq!(count, 1, "{name}: {events:?}");
    }
    assert_eq!(blocked("open").await, ("False".to_owned(), "DatadogMonitorUnknown".to_owned()));
    let of = ["reason=\"lifecycle\"", "name=\"web\""];
    assert_eq!(fixture.series("plimsoll_restricted_scaling", &of).await, [1.0]);

    is(&fixture, "web", "OK").await;
    fixture.advance_period().await;
    for name in ["web", "other"] {
        assert_eq!(fixture.replicas(name).await, 4, "{name}");
        assert_eq!(blocked(name).await, ("False".to_owned(), "DatadogMonitorOK".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_its_lifecycle_annotation_is_unblocked() {
    let Some(fixture) = Fixture::private("released", &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 1_000.0);
    fixture.create(&controlled("web", &json!({}))).await;
    fixture.advance_period().await;
    let blocked = async || fixture.condition("web", "ScalingBlocked").await;
    let values = async || {
        fixture.series("wpa_controller_conditions", &["condition=\"scaling_blocked\""]).await
    };
    assert_eq!(blocked().await.expect("condition is set").0, "True");
    assert_eq!(values().await, [1.0]);
    let none = json!({"wpa.datadoghq.com/lifecycle-control.enabled": null});
    fixture.patch_and_reconcile("web", json!({"metadata": {"annotations": none}})).await;
    fixture.wait_until_scaled("web", 4).await;
    assert_eq!(blocked().await, Some(("False".to_owned(), "NotControlled".to_owned())));
    assert_eq!(values().await, [0.0], "or an alert about it would never end");
}

/// Vectors F6 and F7 of upstream's reconciler.
#[tokio::test(flavor = "multi_thread")]
async fn in_upstreams_mode_a_missing_monitor_is_retried_every_two_minutes_and_blocks() {
    let Some(fixture) = Fixture::new("gate", &["--compat=upstream"]).await else { return };
    define(&fixture).await;
    monitor(&fixture, "well").await;
    is(&fixture, "well", "OK").await;
    fixture.deployment("missing", 2).await;
    fixture.metric("missing", 1_000.0);
    fixture.create(&controlled("missing", &json!({}))).await;
    let status = fixture.status("missing").await;
    let first = &status["conditions"][0];
    assert_eq!(first["reason"], "FailedGetDatadogMonitor", "{status:#}");
    let text = format!(
        "monitor {}/missing not found, blocking the WPA from proceeding",
        fixture.namespace
    );
    assert_eq!(first["message"], text, "{status:#}");
    assert_eq!(status["conditions"][1]["reason"], "FailedProcessWPA", "{status:#}");
    let reconciles = fixture.role.reconciles();
    fixture.advance_seconds(105).await;
    assert_eq!(fixture.role.reconciles(), reconciles, "two minutes are not over");
    fixture.advance_period().await;
    assert_eq!(fixture.role.reconciles(), reconciles + 1);
    assert_eq!(fixture.replicas("missing").await, 2);

    fixture.deployment("well", 0).await;
    let mut well = controlled("well", &json!({}));
    well["spec"]["metrics"] = json!([]);
    well["spec"]["minReplicas"] = json!(3);
    well["spec"]["maxReplicas"] = json!(5);
    fixture.create(&well).await;
    let status = fixture.status("well").await;
    let conditions = status["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 7, "{status:#}");
    assert_eq!(conditions[6]["type"], "ScalingBlocked", "{status:#}");
    assert_eq!(conditions[6]["reason"], "DatadogMonitorOK", "{status:#}");
    let of = |family: String, more: Option<&str>| {
        let fixture = &fixture;
        let more = more.map(|more| format!("condition=\"{more}\""));
        async move {
            let of = ["wpa_name=\"well\"", more.as_deref().unwrap_or_default()];
            fixture.series(&format!("wpa_controller_{family}"), &of).await
        }
    };
    assert_eq!(of("min_replicas".into(), None).await, [3.0]);
    assert_eq!(of("max_replicas".into(), None).await, [5.0]);
    assert_eq!(of("conditions".into(), Some("able_to_scale")).await, [1.0]);
    assert_eq!(of("conditions".into(), Some("scaling_limited")).await, [1.0]);
    let reconciles = fixture.role.reconciles();
    fixture.advance_period().await;
    assert_eq!(fixture.role.reconciles(), reconciles + 1, "reconciled in each period");
    assert_eq!(fixture.replicas("well").await, 0);
}
