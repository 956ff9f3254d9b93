//! Single status writes with all outcomes on the real API server.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams};
use plimsoll::cluster::{
    leader::Fence,
    write::{
        Permit, RateLimiter, StatusPatch, UpdateError, VpaWriteResult, WriteContext, WriteError,
        WriteStats,
        stats::WriteKind,
        vpa_status::{RECOMMENDER_FIELD_MANAGER, try_write},
    },
};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::ObjectKey;
use serde_json::{Value, json};

use super::{bed_with_definitions, read, vpa};
use crate::support::api_proxy::{self, ApiProxy};

fn patch(key: &ObjectKey, object: &VerticalPodAutoscaler, body: Value) -> StatusPatch {
    let resource_version = object.metadata.resource_version.clone().expect("a version");
    StatusPatch {
        key: key.clone(),
        resource_version: resource_version.into(),
        body,
        field_manager: RECOMMENDER_FIELD_MANAGER,
    }
}

async fn write_status(client: &Client, permit: &Permit, patch: &StatusPatch) -> VpaWriteResult {
    let stats = &WriteStats::default();
    let writer = WriteContext { client, permit, stats, field_manager: patch.field_manager };
    try_write(writer, patch, WriteKind::Status).await
}

fn condition(kind: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": "True"}]}})
}

#[tokio::test]
async fn each_outcome_of_a_write_is_distinguished() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("status").await;
    let key = ObjectKey::new(namespace.as_str(), "web");
    let client = bed.client();
    let open = Permit::new(Fence::open(), RateLimiter::new(-1.0, 1));
    let object = vpa(&bed, &namespace, "web").await;

    let first = patch(&key, &object, condition("RecommendationProvided"));
    let written = write_status(&client, &open, &first).await;
    let Ok(resource_version) = &written else { panic!("{written:?}") };
    let stored = read(&bed, &key).await;
    assert_eq!(stored.metadata.resource_version.as_deref(), Some(&**resource_version));
    assert_eq!(
        stored.status.clone().expect("a status").conditions[0].kind,
        "RecommendationProvided"
    );
    assert_eq!(stored.spec, object.spec);

    // The patch was made for an outdated version.
    let Err(UpdateError::Conflict(now)) = write_status(&client, &open, &first).await else {
        panic!("no conflict")
    };
    assert_eq!(*now, stored, "the object as it is now");

    let closed = Permit::new(Fence::closed(), RateLimiter::new(-1.0, 1));
    let fenced = write_status(&client, &closed, &patch(&key, &stored, condition("Other"))).await;
    assert_eq!(fenced, Err(WriteError::NotLeader.into()));
    assert_eq!(read(&bed, &key).await, stored, "nothing was sent");

    let stranger = bed.service_account(&namespace, "stranger").await.client;
    let invalid = json!({"status": {"conditions": "many"}});
    for (client, body, words) in [
        (&client, invalid, "422"),
        (&stranger, condition("A"), "403"),
        (&client, json!([]), "object"),
    ] {
        let failed = write_status(client, &open, &patch(&key, &stored, body)).await;
        let Err(UpdateError::Failed(error)) = &failed else { panic!("{failed:?}") };
        let why = error.to_string();
        assert!(why.contains(words) && !why.contains('\n'), "{why}");
    }

    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    api.delete("web", &DeleteParams::default()).await.expect("deleted");
    let gone = write_status(&client, &open, &patch(&key, &stored, condition("A"))).await;
    assert_eq!(gone, Err(WriteError::NotFound.into()));
    vpa(&bed, &namespace, "web").await;
    let another = write_status(&client, &open, &patch(&key, &stored, condition("A"))).await;
    assert!(matches!(another, Err(UpdateError::Conflict(_))), "another of that name: {another:?}");
}

#[tokio::test]
async fn a_response_that_is_no_status_fails_in_one_line() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("status").await;
    let key = ObjectKey::new(namespace.as_str(), "web");
    let object = vpa(&bed, &namespace, "web").await;
    let open = Permit::new(Fence::open(), RateLimiter::new(-1.0, 1));
    let proxy = ApiProxy::start(bed.client(), |_, _| api_proxy::respond_with(503, None)).await;
    let write = patch(&key, &object, condition("A"));
    let limit = Duration::from_secs(30);
    let failed = tokio::time::timeout(limit, write_status(&proxy.client, &open, &write)).await;
    let Ok(Err(UpdateError::Failed(error))) = failed else { panic!("{failed:?}") };
    assert_eq!(error.to_string(), "503: not now");
}
