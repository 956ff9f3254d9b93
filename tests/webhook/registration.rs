//! The webhook configuration, compared with upstream's.
//!
//! By default the comparison is with the recorded object of upstream; in a deep run upstream creates it.

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

/// Returns the compared part of a configuration. The CA bundle is different for each start.
fn bare(object: &MutatingWebhookConfiguration) -> Value {
    let mut webhooks = serde_json::to_value(&object.webhooks).expect("JSON");
    let client = &mut webhooks[0]["clientConfig"];
    assert!(client["caBundle"].is_string(), "{client}");
    client["caBundle"] = Value::Null;
    json!({ "labels": object.metadata.labels, "webhooks": webhooks })
}

#[tokio::test]
async fn the_webhook_configuration_matches_upstream_and_is_repaired_without_a_gap() {
    let Some(bed) = Testbed::private().await else { return };
    let theirs = serde_json::from_str(&REGISTRATION.read()).expect("JSON");
    assert_registered_and_repaired(&bed, &theirs).await;
}

/// Registers Plimsoll's webhook and compares it with upstream's.
async fn assert_registered_and_repaired(bed: &Testbed, theirs: &Value) {
    let configurations = configurations(bed);
    let config = admission_config(&["--compat=upstream"], |_| String::new()).expect("no flags");
    let wanted = config.registration.expect("registered");
    let (_, trusts) = certificate();
    let permit = Permit::new(Fence::open(), RateLimiter::new(-1.0, 1));
    let registration =
        Arc::new(WebhookConfigWriter::new(bed.client(), wanted.clone(), Arc::default()));
    // Replicas that start at the same time.
    let ensure = |extent| {
        let (registration, permit) = (Arc::clone(&registration), permit.clone());
        let trusts = trusts.clone();
        async move { registration.ensure(&permit, extent, &|_| trusts.clone()).await }
    };
    let changes = futures::future::join_all((0..8).map(|_| ensure(WebhookScope::Full))).await;
    let changes: Vec<WebhookChange> =
        changes.into_iter().map(|result| result.expect("registered").change).collect();
    let created = changes.iter().filter(|change| **change == WebhookChange::Created).count();
    assert_eq!(created, 1, "{changes:?}");
    assert!(!changes.contains(&WebhookChange::Patched), "{changes:?}");
    let ours = configurations.get(NAME).await.expect("exists");
    assert_eq!(bare(&ours), *theirs);

    // A third party changes it: the differences are repaired, in the same object.
    let meddling = json!([
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1},
        {"op": "replace", "path": "/webhooks/0/rules", "value": []},
        {"op": "add", "path": "/metadata/annotations", "value": {"of": "others"}},
    ]);
    let meddling: Patch<()> = Patch::Json(serde_json::from_value(meddling).expect("valid patch"));
    configurations.patch(NAME, &PatchParams::default(), &meddling).await.expect("patched");
    assert_eq!(
        ensure(WebhookScope::CaBundle).await.expect("registered").change,
        WebhookChange::None
    );
    assert_eq!(
        ensure(WebhookScope::Full).await.expect("registered").change,
        WebhookChange::Patched
    );
    let repaired = configurations.get(NAME).await.expect("exists");
    assert_eq!(bare(&repaired), *theirs);
    assert_eq!(repaired.metadata.uid, ours.metadata.uid, "it was never deleted");
    assert!(repaired.metadata.annotations.is_some(), "annotations of others stay");
    assert_eq!(ensure(WebhookScope::Full).await.expect("registered").change, WebhookChange::None);
    let again = configurations.get(NAME).await.expect("exists");
    assert_eq!(again.metadata.resource_version, repaired.metadata.resource_version);
}
