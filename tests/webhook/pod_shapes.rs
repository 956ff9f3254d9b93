//! Pods other than with one plain container: with native sidecars, and with a CPU startup boost.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::cluster::{
    RunningWebhook, cpu, pod, recommended, start, wait_until_called, wait_until_created,
    wait_until_ready,
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, wait},
};

const WEB: &str = "
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - name: setup
        image: example/setup
        resources: {requests: {cpu: 20m, memory: 32Mi}}
      - name: proxy
        image: example/proxy
        restartPolicy: Always
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 20m}}
      containers:
      - name: main
        image: example/web
        resources: {requests: {cpu: 100m, memory: 64Mi}}
";

/// Lets the cluster's controllers create one pod once the webhook has the recommendation, and returns that pod.
async fn create_pod(
    bed: &Testbed,
    namespace: &str,
    web: &Deployment,
    cpu_then: &'static str,
) -> Value {
    let is_known = |pod: &Pod| cpu(pod) == Some(cpu_then);
    wait_until_created(bed, namespace, &pod(web, "probe"), "it is recommended", is_known).await;
    let deployments = Api::<Deployment>::namespaced(bed.client(), namespace);
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments.patch("web", &PatchParams::default(), &scale).await.expect("scaled");
    let pods = Api::<Pod>::namespaced(bed.client(), namespace);
    let created_pod = wait::until("the controllers create a pod", || async {
        pods.list(&ListParams::default()).await.ok()?.items.pop()
    })
    .await;
    assert!(
        created_pod.metadata.generate_name.is_some(),
        "created by a ReplicaSet: {}",
        created_pod.name_any()
    );
    serde_json::to_value(&created_pod).expect("JSON")
}

async fn start_webhook(
    flags: &[&str],
    more: &str,
) -> Option<(Testbed, String, Deployment, RunningWebhook)> {
    let bed = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers)?;
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = recommended(&bed, &namespace, WEB, more, &["main", "proxy", "setup"]).await;
    let served = start(bed.client(), flags, |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    Some((bed, namespace, web, served))
}

#[tokio::test]
async fn native_sidecars_are_sized_with_their_gate_and_init_containers_never() {
    for (gate, proxy, limit, observed) in [
        ("--feature-gates=NativeSidecar=true", "250m", "500m", "main, proxy"),
        ("--feature-gates=NativeSidecar=false", "10m", "20m", "main"),
    ] {
        let Some((bed, namespace, web, served)) = start_webhook(&[gate], "").await else { return };
        let pod = create_pod(&bed, &namespace, &web, "250m").await;
        let [setup, sidecar] = [0, 1].map(|index| &pod["spec"]["initContainers"][index]);
        assert_eq!(sidecar["name"], "proxy");
        assert_eq!(sidecar["resources"]["requests"]["cpu"], proxy, "{gate}");
        assert_eq!(sidecar["resources"]["limits"]["cpu"], limit, "{gate}");
        assert_eq!(setup["resources"]["requests"]["cpu"], "20m", "{gate}");
        let main = &pod["spec"]["containers"][0];
        assert_eq!(main["resources"]["requests"]["cpu"], "250m", "{gate}");
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations["vpaObservedContainers"], observed, "{gate}");
        served.running.stop().await;
    }
}

#[tokio::test]
async fn a_pod_starts_boosted_and_annotated_with_its_original_resources() {
    let boost = ", startupBoost: {cpu: {type: Factor, factor: 3, durationSeconds: 60}}";
    let flags = ["--feature-gates=CPUStartupBoost=true", "--max-allowed-cpu-boost=700m"];
    let Some((bed, namespace, web, served)) = start_webhook(&flags, boost).await else { return };
    let pod = create_pod(&bed, &namespace, &web, "700m").await;
    let main = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(main["requests"]["cpu"], "700m", "three times what is recommended, but no more");
    assert_eq!(main["requests"]["memory"], "128Mi");
    let annotations = &pod["metadata"]["annotations"];
    let before = annotations["vpaCpuStartupBoost/main"].as_str().expect("has an annotation");
    let before: Value = serde_json::from_str(before).expect("JSON");
    assert_eq!(before, json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {}}));
    assert!(annotations.get("vpaCpuStartupBoost/setup").is_none(), "{annotations}");
    served.running.stop().await;
}
