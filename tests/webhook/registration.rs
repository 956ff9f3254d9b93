//! The registration, beside upstream's.
//!
//! The gate compares with the object that upstream created when it was recorded; deep has upstream create it.

mod deep;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use plimsoll::{
    cli::admission_config,
    cluster::{
        leader::Fence,
        write::{
            Permit, RateLimiter, WebhookConfigWriter,
            webhook_config::{NAME, WebhookChange, WebhookScope},
        },
    },
};
use serde_json::{Value, json};

use super::{cluster::configurations, fixture::certificate};
use crate::support::{Testbed, upstream_recording::UpstreamOutput};

const REGISTRATION: UpstreamOutput =
    UpstreamOutput { name: "registration.json", part: "registered" };

/// What is compared of a registration. Whom it trusts is of one start alone.
fn bare(object: &MutatingWebhookConfiguration) -> Value {
    let mut webhooks = serde_json::to_value(&object.webhooks).expect("JSON");
    let client = &mut webhooks[0]["clientConfig"];
    assert!(client["caBundle"].is_string(), "{client}");
    client["caBundle"] = Value::Null;
    json!({ "labels": object.metadata.labels, "webhooks": webhooks })
}

#[tokio::test]
async fn the_registration_is_upstreams_to_the_field_and_is_mended_without_a_gap() {
    let Some(bed) = Testbed::private().await else { return };
    let theirs = serde_json::from_str(&REGISTRATION.read()).expect("JSON");
    is_registered_and_mended(&bed, &theirs).await;
}

/// Registers our webhook and compares it with upstream's.
async fn is_registered_and_mended(bed: &Testbed, theirs: &Value) {
    let configurations = configurations(bed);
    let config = admission_config(&["--compat=upstream"], |_| String::new()).expect("no flags");
    let wanted = config.registration.expect("it is registered");
    let (_, trusts) = certificate();
    let permit = Permit::new(Fence::open(), RateLimiter::new(-1.0, 1));
    let registration = Arc::new(WebhookConfigWriter::new(bed.client(), wanted.clone()));
    // Replicas that start at once.
    let ensure = |extent| {
        let (registration, permit) = (Arc::clone(&registration), permit.clone());
        let trusts = trusts.clone();
        async move { registration.ensure(&permit, extent, &|_| trusts.clone()).await }
    };
    let done = futures::future::join_all((0..8).map(|_| ensure(WebhookScope::Full))).await;
    let done: Vec<WebhookChange> =
        done.into_iter().map(|one| one.expect("is registered").change).collect();
    let made = done.iter().filter(|change| **change == WebhookChange::Created).count();
    assert_eq!(made, 1, "{done:?}");
    assert!(!done.contains(&WebhookChange::Patched), "{done:?}");
    let ours = configurations.get(NAME).await.expect("it is there");
    assert_eq!(bare(&ours), *theirs);

    // Somebody changes it: what differs is mended, and it is the same object as before.
    let meddling = json!([
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1},
        {"op": "replace", "path": "/webhooks/0/rules", "value": []},
        {"op": "add", "path": "/metadata/annotations", "value": {"of": "others"}},
    ]);
    let meddling: Patch<()> = Patch::Json(serde_json::from_value(meddling).expect("a patch"));
    configurations.patch(NAME, &PatchParams::default(), &meddling).await.expect("patched");
    assert_eq!(
        ensure(WebhookScope::CaBundle).await.expect("is registered").change,
        WebhookChange::None
    );
    assert_eq!(
        ensure(WebhookScope::Full).await.expect("is registered").change,
        WebhookChange::Patched
    );
    let mended = configurations.get(NAME).await.expect("it is there");
    assert_eq!(bare(&mended), *theirs);
    assert_eq!(mended.metadata.uid, ours.metadata.uid, "it was never deleted");
    assert!(mended.metadata.annotations.is_some(), "what others keep on it stays");
    assert_eq!(
        ensure(WebhookScope::Full).await.expect("is registered").change,
        WebhookChange::None
    );
    let again = configurations.get(NAME).await.expect("it is there");
    assert_eq!(again.metadata.resource_version, mended.metadata.resource_version);
}
