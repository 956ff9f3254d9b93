//! WatermarkPodAutoscalers that are written while the webhook is running.

use http::header::{CONTENT_TYPE, WARNING};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::{Value, json};

use super::cluster::{start, wait_until_called, wait_until_ready};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, wait},
    watermark_controller::fixture::object,
};

/// Creates an object, and returns the API server's status code, message and warnings.
async fn create(bed: &Testbed, namespace: &str, object: &Value) -> (u16, String, Vec<String>) {
    let mut complete = object.clone();
    complete["apiVersion"] = json!("datadoghq.com/v1alpha1");
    complete["kind"] = json!("WatermarkPodAutoscaler");
    let path =
        format!("/apis/datadoghq.com/v1alpha1/namespaces/{namespace}/watermarkpodautoscalers");
    let request = http::Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(complete.to_string().into_bytes()))
        .expect("valid request");
    let answer = bed.client().send(request).await.expect("response");
    let code = answer.status().as_u16();
    let warnings = answer.headers().get_all(WARNING).iter();
    let warnings = warnings.map(|text| text.to_str().unwrap_or_default().to_owned()).collect();
    let body = answer.into_body().collect_bytes().await.expect("has a body");
    // A kind that was just defined may not be served yet: the server returns plain text.
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, body["message"].as_str().unwrap_or_default().to_owned(), warnings)
}

fn with_query(name: &str, query: &str) -> Value {
    let mut object = object(name, json!({}));
    object["metadata"]["annotations"] = json!({"query.plimsoll.dev/requests": query});
    object
}

#[tokio::test]
async fn an_invalid_wpa_is_rejected_and_an_existing_one_can_be_deleted() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let crossed = object("old", json!({"minReplicas": 5, "maxReplicas": 2}));
    wait::until("it is created, as the webhook does not run yet", || async {
        (create(&bed, &namespace, &crossed).await.0 == 201).then_some(())
    })
    .await;
    let served = start(bed.client(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;

    let mut crossed_too = crossed.clone();
    crossed_too["metadata"]["name"] = json!("crossed");
    wait::until("the webhook is called for them too", async || {
        (create(&bed, &namespace, &crossed_too).await.0 == 422).then_some(())
    })
    .await;
    let (_, message, _) = create(&bed, &namespace, &crossed_too).await;
    assert!(
        message.contains(
            "WatermarkPodAutoscaler.datadoghq.com \"crossed\" is invalid: spec.minReplicas"
        ),
        "{message}"
    );
    let (code, message, _) = create(&bed, &namespace, &with_query("bad", "sum(rate(x[5m])")).await;
    assert_eq!(code, 422);
    assert!(message.contains("metadata.annotations[query.plimsoll.dev/requests]"), "{message}");
    let (code, message, warnings) =
        create(&bed, &namespace, &with_query("good", "sum(rate(x[5m]))")).await;
    assert_eq!((code, &warnings[..]), (201, &[][..]), "{message}");
    let mut suspicious = object("odd", json!({"algorithm": "mean"}));
    suspicious["metadata"]["annotations"] = json!({"plimsoll.dev/delays": "both"});
    let (code, _, warnings) = create(&bed, &namespace, &suspicious).await;
    assert_eq!((code, warnings.len()), (201, 2), "{warnings:?}");

    // An object that is invalid already can be labelled and deleted; changes of its spec are rejected.
    let objects = Api::<WatermarkPodAutoscaler>::namespaced(bed.client(), &namespace);
    let patch = async |patch: Value| {
        objects.patch("old", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let labelled = patch(json!({"metadata": {"labels": {"team": "a"}}})).await.expect("labelled");
    assert_eq!(labelled.labels().get("team").map(String::as_str), Some("a"));
    let refused =
        patch(json!({"spec": {"minReplicas": 4}})).await.expect_err("bounds are still invalid");
    assert!(refused.to_string().contains("spec.minReplicas"), "{refused}");
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    patch(held).await.expect("finalizer added");
    objects.delete("old", &DeleteParams::default()).await.expect("terminating");
    patch(json!({"metadata": {"finalizers": null}})).await.expect("finalizer removed");
    wait::until("it is gone", async || {
        objects.get_opt("old").await.is_ok_and(|object| object.is_none()).then_some(())
    })
    .await;
    // The webhook does not review its status.
    let status = json!({"status": {"desiredReplicas": 3}});
    let status = Patch::Merge(status);
    objects.patch_status("good", &PatchParams::default(), &status).await.expect("written");
    served.running.stop().await;
}
