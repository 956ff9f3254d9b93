//! Runs a webhook that sizes the new pods of one namespace, and ignores those of other tests.

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment,
        core::v1::Pod,
    },
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::fixture::cpu;
use crate::support::{Testbed, plimsoll_process::PlimsollProcesses, wait};

/// Plimsoll's admission controller. Stops when dropped.
pub struct SizingWebhook {
    bed: Testbed,
    name: String,
    _ours: PlimsollProcesses,
}

impl SizingWebhook {
    /// Starts a webhook for this namespace, which has a VPA and the Deployment `name`; waits until new pods would get this
    /// much CPU.
    pub async fn start(bed: &Testbed, namespace: &str, name: &str, wanted: &str) -> Self {
        Self::start_with(bed, namespace, name, wanted, &[]).await
    }

    /// Like [`SizingWebhook::start`], with more flags.
    pub async fn start_with(
        bed: &Testbed,
        namespace: &str,
        name: &str,
        wanted: &str,
        more: &[&str],
    ) -> Self {
        let (ours, as_process) = (PlimsollProcesses::new(bed), format!("webhook-of-{namespace}"));
        let (only, lease) = (
            format!("--vpa-object-namespace={namespace}"),
            format!("--status-lease-namespace={namespace}"),
        );
        let (port, authority) = ours.webhook(&as_process, &[&[&*only, &*lease], more].concat());
        let called = json!({
            "name": "vpa.k8s.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 10,
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}"),
                "caBundle": ByteString(authority.into_bytes()),
            },
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        });
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": as_process}, "webhooks": [called],
        }))
        .expect("valid configuration");
        let configurations = Api::<MutatingWebhookConfiguration>::all(bed.client());
        configurations.create(&PostParams::default(), &configuration).await.expect("registered");
        let webhook = Self { bed: bed.clone(), name: as_process, _ours: ours };
        webhook.wait_until_sizing(namespace, name, wanted).await;
        webhook
    }

    /// Waits until a new pod of a Deployment would get this much CPU.
    pub async fn wait_until_sizing(&self, namespace: &str, name: &str, wanted: &str) {
        let deployments = Api::<Deployment>::namespaced(self.bed.client(), namespace);
        let owner = deployments.get(name).await.expect("exists");
        let template = owner.spec.clone().expect("valid spec").template;
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{name}-probe"), "labels": {"app": name},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": name,
                    "uid": owner.uid().expect("created"), "controller": true,
                }],
            },
            "spec": template.spec,
        }))
        .expect("valid pod");
        let pods = Api::<Pod>::namespaced(self.bed.client(), namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        wait::until_ok("the webhook sizes new pods", || async {
            let created = pods.create(&dry, &pod).await.map_err(|why| why.to_string())?;
            let found = cpu(&created).unwrap_or_default();
            if found == wanted { Ok(()) } else { Err(found.to_owned()) }
        })
        .await;
    }
}

impl Drop for SizingWebhook {
    fn drop(&mut self) {
        // The webhook configuration stays. It covers only that namespace and is ignored while the webhook is down.
        self.bed.process_guard().signal(&self.name, "KILL");
    }
}
