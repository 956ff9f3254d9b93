//! The watermark controller with the permissions of upstream's chart, and with Plimsoll's.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use plimsoll::controllers;
use plimsoll::{cli::watermark_config, cluster::clock::Clock};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::json;

use super::fixture::{METRIC, object};
use crate::{
    deploy::shipped,
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed, captured_log, manifests, metrics_server::MetricsServer, skipped::report_skipped,
        wait,
    },
    updater::fixture::deployment,
};

/// The permissions of upstream's chart for the resources that every cluster has.
const ORIGINALS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: watermarkpodautoscaler, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watermarkpodautoscaler}
rules:
  - {apiGroups: [datadoghq.com], resources: [watermarkpodautoscalers, watermarkpodautoscalers/status], verbs: ['*']}
  - apiGroups: [apps, extensions]
    resources: [deployments/scale, replicasets/scale, statefulsets/scale, replicationcontrollers/scale]
    verbs: [get, update]
  - {apiGroups: [''], resources: [pods], verbs: [list, watch]}
  - {apiGroups: [''], resources: [events], verbs: [create, patch]}
  - {apiGroups: [external.metrics.k8s.io, metrics.k8s.io], resources: ['*'], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watermarkpodautoscaler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watermarkpodautoscaler}
subjects: [{kind: ServiceAccount, name: watermarkpodautoscaler, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: watermarkpodautoscaler, namespace: kube-system}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [watermarkpodautoscaler-lock]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: watermarkpodautoscaler, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: watermarkpodautoscaler}
subjects: [{kind: ServiceAccount, name: watermarkpodautoscaler, namespace: kube-system}]
";

/// Leads, scales, reports it, and removes a finalizer with this client; returns the log.
async fn scales(bed: &Testbed, client: Client) -> captured_log::CapturedLog {
    create_definitions(bed).await;
    bed.nodes().add("node", "16", "64Gi").await;
    let namespace = bed.namespace("web").await;
    let usage = MetricsServer::serve(bed).await;
    usage.set_external(&namespace, METRIC, &[("app", "web")], 10_000.0);
    deployment(bed, &namespace, "web", 2).await;
    let mut wanted = object("web", json!({}));
    wanted["metadata"]["finalizers"] = json!(["finalizer.watermarkpodautoscaler.datadoghq.com"]);
    let yaml = serde_json::to_string(&wanted).expect("JSON is YAML");
    manifests::create::<WatermarkPodAutoscaler>(bed.client(), &namespace, &yaml).await;
    let (log, _guard) = captured_log::capture();
    let flags = [
        "--metrics-addr=127.0.0.1:0",
        "--health-port=0",
        "--period=500ms",
        "--leader-elect-resource-namespace=kube-system",
    ];
    let config = watermark_config(&flags, |_| String::new()).expect("valid flags");
    let running = controllers::start(config, client, Clock::wall()).await.expect("starts");
    let api = Api::<WatermarkPodAutoscaler>::namespaced(bed.client(), &namespace);
    let deployments = Api::<Deployment>::namespaced(bed.client(), &namespace);
    let events = Api::<Event>::namespaced(bed.client(), &namespace);
    wait::until("it has scaled and reported it", || async {
        let scale = deployments.get_scale("web").await.ok()?.spec?.replicas?;
        let found = api.get("web").await.ok()?;
        let is_reported = found.status.as_ref()?.desired_replicas == 4;
        let events = events.list(&ListParams::default()).await.ok()?;
        let is_rescale =
            |event: &Event| event.involved_object.kind.as_deref() == Some("WatermarkPodAutoscaler");
        let is_free = found.finalizers().is_empty();
        (scale == 4 && is_reported && is_free && events.items.iter().any(is_rescale)).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(log.lines(&["forbidden"]), [""; 0], "no forbidden request was sent");
    log
}

#[tokio::test]
async fn datadogs_rbac_is_sufficient_to_take_over() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else {
        return report_skipped("a whole control plane");
    };
    grant(&bed.client(), ORIGINALS).await;
    let account = bed.service_account("kube-system", "watermarkpodautoscaler").await;
    let log = scales(&bed, account.client).await;
    let lines = log.lines(&["RBAC rule is missing"]);
    assert_eq!(lines.len(), 1, "reads of Deployment scales: {lines:?}");
}

#[tokio::test]
async fn our_rbac_is_sufficient() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else {
        return report_skipped("a whole control plane");
    };
    grant(&bed.client(), &shipped("watermark")).await;
    let account = bed.service_account("kube-system", "plimsoll-watermark").await;
    let log = scales(&bed, account.client).await;
    assert_eq!(log.lines(&["RBAC rule is missing"]), [""; 0]);
}
