//! A DatadogMonitor that has to be well before an object is followed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::stage::{Stage, object};
use crate::support::wait;

/// As much of the definition as is read.
async fn define(stage: &Stage) {
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
    let api = Api::<CustomResourceDefinition>::all(stage.bed.client());
    api.create(&PostParams::default(), &definition).await.expect("defined");
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("datadoghq.com", "v1alpha1", "DatadogMonitor"))
}

fn monitors(stage: &Stage) -> Api<DynamicObject> {
    Api::namespaced_with(stage.bed.client(), &stage.namespace, &kind())
}

async fn monitor(stage: &Stage, name: &str) {
    let one = DynamicObject::new(name, &kind());
    let api = monitors(stage);
    wait::until("its kind is served", || async {
        api.create(&PostParams::default(), &one).await.ok()
    })
    .await;
}

async fn is(stage: &Stage, name: &str, word: &str) {
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
    let Some(stage) = Stage::new("monitor", &[]).await else { return };
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
    stage.seconds(300).await;
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
    stage.period().await;
    for name in ["web", "other"] {
        assert_eq!(stage.replicas(name).await, 4, "{name}");
        assert_eq!(blocked(name).await, ("False".to_owned(), "DatadogMonitorOK".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_gate_is_taken_away_is_blocked_no_more_and_says_so() {
    let Some(stage) = Stage::new("released", &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 1_000.0);
    stage.create(&controlled("web", &json!({}))).await;
    stage.period().await;
    let blocked = async || stage.condition("web", "ScalingBlocked").await;
    let told = async || {
        stage.series("wpa_controller_conditions", &["condition=\"scaling_blocked\""]).await
    };
    assert_eq!(blocked().await.expect("said").0, "True");
    assert_eq!(told().await, [1.0]);
    let none = json!({"wpa.datadoghq.com/lifecycle-control.enabled": null});
    stage.change("web", json!({"metadata": {"annotations": none}})).await;
    stage.scaled("web", 4).await;
    assert_eq!(blocked().await, Some(("False".to_owned(), "NotControlled".to_owned())));
    assert_eq!(told().await, [0.0], "or an alert about it would never end");
}
