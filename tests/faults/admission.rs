//! An admission controller that registers its webhook with a certificate of its own. It elects no leader.

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment, core::v1::Secret,
};
use kube::{Api, api::ListParams};

use super::FaultSubject;
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, Certificate, WebhookConfig},
        },
        ports::Port,
        role_process::RoleProcess,
    },
    webhook::cluster::{cpu, pod, wait_until_created, workload},
};

/// An admission controller with a workload whose new pods get a recommendation.
pub struct AdmissionController {
    bed: Testbed,
    namespace: String,
    web: Deployment,
    /// The port of the webhook, which is registered by address.
    port: Port,
}

impl FaultSubject for AdmissionController {
    const ROLE: &str = "admission-controller";
    const LEASE: Option<&str> = None;
    const WITHOUT_LEASE: &[&str] = &[];
    const ACTION: RoleWrite = WebhookConfig;
    const ACTIONS: Option<usize> = Some(1);
    const CRASHES: &[HeldMoment] = &[
        (Certificate, HoldPoint::Request),
        (Certificate, HoldPoint::Answer),
        (WebhookConfig, HoldPoint::Request),
        (WebhookConfig, HoldPoint::Answer),
    ];
    const OUTAGE_LOG: &[&[&str]] = &[
        &["watch failed; retrying", "verticalpodautoscalers"],
        &["failed to update certificates or webhook configuration"],
    ];

    /// On a private testbed, because a webhook is registered for the whole cluster.
    async fn new(name: &str, _private: bool) -> Option<Self> {
        let bed = Testbed::api_server_only().await?;
        create_definitions(&bed).await;
        let namespace = bed.namespace(&format!("admission-{name}")).await;
        let web = workload(&bed, &namespace).await;
        Some(Self { bed, namespace, web, port: Port::claim() })
    }

    fn bed(&self) -> &Testbed {
        &self.bed
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        vec![
            format!("--address=127.0.0.1:{port}"),
            format!("--port={}", self.port),
            format!("--webhook-port={}", self.port),
            "--webhook-address=https://127.0.0.1".to_owned(),
            "--register-by-url".to_owned(),
            "--shutdown-delay=0".to_owned(),
        ]
    }

    async fn assert_done_once(&self, _process: &RoleProcess, _unmade: usize) {
        let is_sized = |pod: &_| cpu(pod) == Some("250m");
        let pod = pod(&self.web, "web-0");
        wait_until_created(&self.bed, &self.namespace, &pod, "new pods are sized", is_sized).await;
        let everything = ListParams::default();
        let webhooks = Api::<MutatingWebhookConfiguration>::all(self.bed.client());
        assert_eq!(webhooks.list(&everything).await.expect("a list").items.len(), 1);
        // A second certificate would be kept next to the first one.
        let secrets = Api::<Secret>::namespaced(self.bed.client(), "kube-system");
        let certificates: Vec<Secret> = secrets
            .list(&everything)
            .await
            .expect("a list")
            .into_iter()
            .filter(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"))
            .collect();
        assert_eq!(certificates.len(), 1);
        let data = certificates[0].data.as_ref().expect("data");
        let authority = String::from_utf8_lossy(&data["ca.crt"].0);
        assert_eq!(authority.matches("BEGIN CERTIFICATE").count(), 1, "{authority}");
    }
}
