//! A webhook that injects conflicts: while a role writes an object, the webhook updates it first. So the roles'
//! conflict handling is tested reliably, and not only when two writes happen to coincide.

use std::{collections::HashMap, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, task::block_in_place};

use super::fixture::Fixture;
use crate::{
    metric_sources::loopback_server::{LoopbackServer, TestResponse},
    support::certificates::CertificateAuthority,
};

/// One of this many writes of an account to a kind gets a conflict, starting with the first; a conflict on each one
/// would prevent any progress.
const CONFLICT_INTERVAL: usize = 3;

/// Injects conflicts for the accounts of a namespace until it is dropped.
pub struct ConflictInjector {
    _server: LoopbackServer,
}

impl ConflictInjector {
    /// Registers the webhook.
    pub async fn begin(fixture: &Fixture, namespace: &str) -> Self {
        let authority = CertificateAuthority::new("plimsoll-overtaking");
        let (client, counts) = (fixture.bed.client(), Mutex::default());
        let server = LoopbackServer::start_tls(tls(&authority), move |request| {
            block_in_place(|| Handle::current().block_on(answer(&client, &counts, &request.body)))
        })
        .await;
        fixture.apply(&[registration(&authority, server.port, namespace)]).await;
        Self { _server: server }
    }
}

fn tls(authority: &CertificateAuthority) -> ServerConfig {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity = authority.sign("overtaking");
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
        .expect("the key is the certificate's")
}

fn registration(authority: &CertificateAuthority, port: u16, namespace: &str) -> Value {
    let rule = |group: &str, resources: &[&str]| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": resources,
        })
    };
    let ours =
        format!("request.userInfo.username.startsWith('system:serviceaccount:{namespace}:')");
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "overtaking"},
        "webhooks": [{
            "name": "overtaking.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun", "failurePolicy": "Ignore",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/"),
                "caBundle": STANDARD.encode(authority.certificate()),
            },
            "matchConditions": [{"name": "roles", "expression": ours}],
            "rules": [
                rule("", &["pods"]),
                rule("autoscaling.k8s.io", &[
                    "verticalpodautoscalers", "verticalpodautoscalers/status",
                    "verticalpodautoscalercheckpoints",
                ]),
                rule("datadoghq.com", &[
                    "watermarkpodautoscalers", "watermarkpodautoscalers/status",
                ]),
            ],
        }],
    })
}

async fn answer(
    client: &Client,
    counts: &Mutex<HashMap<String, usize>>,
    body: &str,
) -> TestResponse {
    let review: Value = serde_json::from_str(body).expect("the server sends JSON");
    let request = &review["request"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = &request["resource"];
    let (group, version, plural) =
        (text(&resource["group"]), text(&resource["version"]), text(&resource["resource"]));
    let writer = format!("{} {plural}", request["userInfo"]["username"]);
    let count = {
        let mut counts = counts.lock().expect("no panic");
        let count = counts.entry(writer).or_default();
        *count += 1;
        *count - 1
    };
    if count.is_multiple_of(CONFLICT_INTERVAL) && request["dryRun"] != true {
        let api_version =
            if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        let kind = text(&request["kind"]["kind"]);
        let resource = ApiResource { group, version, api_version, kind, plural };
        let namespace = text(&request["namespace"]);
        let all = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
        let change = json!({"metadata": {"labels": {"overtaken": count.to_string()}}});
        let name = text(&request["name"]);
        // The object may be gone; then there is no conflict.
        let _ = all.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    }
    TestResponse::json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": request["uid"], "allowed": true},
    }))
}
