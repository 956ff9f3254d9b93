//! A DatadogMonitor that has to be well before an object is followed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::fixture::{Fixture, create_definition, object};
use crate::support::wait;

/// As much of the definition as is read.
async fn define(stage: &Fixture) {
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
    .expect("a definition");
    create_definition(&stage.bed, &definition).await;
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("datadoghq.com", "v1alpha1", "DatadogMonitor"))
}

fn monitors(stage: &Fixture) -> Api<DynamicObject> {
    Api::namespaced_with(stage.bed.client(), &stage.namespace, &kind())
}

async fn monitor(stage: &Fixture, name: &str) {
    let one = DynamicObject::new(name, &kind());
    let api = monitors(stage);
    wait::until("its kind is served", || async {
        api.create(&PostParams::default(), &one).await.ok()
    })
    .await;
}

async fn is(stage: &Fixture, name: &str, word: &str) {
    let status = Patch::Merge(json!({"status": {"monitorState": word}}));
    monitors(stage).patch_status(name, &PatchParams::default(), &status).await.expect("told");
}

fn controlled(name: &str, more: &Value) -> Value {
    let mut one = object(name, json!({}));
    let mut annotations = json!({"wpa.datadoghq.com/lifecycle-control.enabled": "true"});
    annotations
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().cloned().expect("an object"));
    one["metadata"]["annotations"] = annotations;
    one
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_stay_while_the_monitor_is_not_well_and_where_nobody_knows_as_it_is_asked_for() {
    let Some(stage) = Fixture::new("monitor", &[]).await else { return };
    define(&stage).await;
    monitor(&stage, "web").await;
    is(&stage, "web", "Alert").await;
    let blocked = async |name: &str| stage.condition(name, "ScalingBlocked").await.expect("said");
    for (name, more) in [
        ("web", json!({})),
        // Another one's, by name; none of its own, and taken for well.
        ("other", json!({"plimsoll.dev/monitor": "web"})),
        ("open", json!({"plimsoll.dev/unknown-gate": "follow"})),
        ("closed", json!({})),
    ] {
        stage.deployment(name, 2).await;
        stage.metric(name, 1_000.0);
        stage.create(&controlled(name, &more)).await;
    }
    stage.advance_seconds(300).await;
    for (name, replicas, reason) in [
        ("web", 2, "DatadogMonitorNotOK"),
        ("other", 2, "DatadogMonitorNotOK"),
        ("closed", 2, "FailedGetDatadogMonitor"),
    ] {
        assert_eq!(stage.replicas(name).await, replicas, "{name}");
        assert_eq!(blocked(name).await, ("True".to_owned(), reason.to_owned()), "{name}");
    }
    assert!(stage.replicas("open").await > 2);
    // Nobody is told of it again and again.
    for name in ["open", "closed"] {
        let events = stage.events(name).await;
        let told = events.iter().filter(|reason| *reason == "FailedGetDatadogMonitor").count();
        assert_eq!(told, 1, "{name}: {events:?}");
    }
    assert_eq!(blocked("open").await, ("False".to_owned(), "DatadogMonitorUnknown".to_owned()));
    let of = ["reason=\"lifecycle\"", "name=\"web\""];
    assert_eq!(stage.series("plimsoll_restricted_scaling", &of).await, [1.0]);

    is(&stage, "web", "OK").await;
    stage.advance_period().await;
    for name in ["web", "other"] {
        assert_eq!(stage.replicas(name).await, 4, "{name}");
        assert_eq!(blocked(name).await, ("False".to_owned(), "DatadogMonitorOK".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_gate_is_taken_away_is_blocked_no_more_and_says_so() {
    let Some(stage) = Fixture::private("released", &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 1_000.0);
    stage.create(&controlled("web", &json!({}))).await;
    stage.advance_period().await;
    let blocked = async || stage.condition("web", "ScalingBlocked").await;
    let told = async || {
        stage.series("wpa_controller_conditions", &["condition=\"scaling_blocked\""]).await
    };
    assert_eq!(blocked().await.expect("said").0, "True");
    assert_eq!(told().await, [1.0]);
    let none = json!({"wpa.datadoghq.com/lifecycle-control.enabled": null});
    stage.patch_and_reconcile("web", json!({"metadata": {"annotations": none}})).await;
    stage.wait_until_scaled("web", 4).await;
    assert_eq!(blocked().await, Some(("False".to_owned(), "NotControlled".to_owned())));
    assert_eq!(told().await, [0.0], "or an alert about it would never end");
}

/// Vectors F6 and F7 of the original's reconciler.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_originals_way_a_missing_monitor_is_asked_for_every_two_minutes_and_nothing_else_runs()
 {
    let Some(stage) = Fixture::new("gate", &["--compat=upstream"]).await else { return };
    define(&stage).await;
    monitor(&stage, "well").await;
    is(&stage, "well", "OK").await;
    stage.deployment("missing", 2).await;
    stage.metric("missing", 1_000.0);
    stage.create(&controlled("missing", &json!({}))).await;
    let status = stage.status("missing").await;
    let first = &status["conditions"][0];
    assert_eq!(first["reason"], "FailedGetDatadogMonitor", "{status:#}");
    let text =
        format!("monitor {}/missing not found, blocking the WPA from proceeding", stage.namespace);
    assert_eq!(first["message"], text, "{status:#}");
    assert_eq!(status["conditions"][1]["reason"], "FailedProcessWPA", "{status:#}");
    let looks = stage.role.reconciles();
    stage.advance_seconds(105).await;
    assert_eq!(stage.role.reconciles(), looks, "two minutes are not over");
    stage.advance_period().await;
    assert_eq!(stage.role.reconciles(), looks + 1);
    assert_eq!(stage.replicas("missing").await, 2);

    stage.deployment("well", 0).await;
    let mut well = controlled("well", &json!({}));
    well["spec"]["metrics"] = json!([]);
    well["spec"]["minReplicas"] = json!(3);
    well["spec"]["maxReplicas"] = json!(5);
    stage.create(&well).await;
    let status = stage.status("well").await;
    let conditions = status["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 7, "{status:#}");
    assert_eq!(conditions[6]["type"], "ScalingBlocked", "{status:#}");
    assert_eq!(conditions[6]["reason"], "DatadogMonitorOK", "{status:#}");
    let of = |family: String, more: Option<&str>| {
        let stage = &stage;
        let more = more.map(|more| format!("condition=\"{more}\""));
        async move {
            let of = ["wpa_name=\"well\"", more.as_deref().unwrap_or_default()];
            stage.series(&format!("wpa_controller_{family}"), &of).await
        }
    };
    assert_eq!(of("min_replicas".into(), None).await, [3.0]);
    assert_eq!(of("max_replicas".into(), None).await, [5.0]);
    assert_eq!(of("conditions".into(), Some("able_to_scale")).await, [1.0]);
    assert_eq!(of("conditions".into(), Some("scaling_limited")).await, [1.0]);
    let looks = stage.role.reconciles();
    stage.advance_period().await;
    assert_eq!(stage.role.reconciles(), looks + 1, "it has its turn in each period");
    assert_eq!(stage.replicas("well").await, 0);
}
