//! Namespaces with a ResourceQuota: a pod is created, with the recommended resources or without.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{Api, api::PostParams};

use super::cluster::{
    PACED_LOAD, cpu, pod, start, under_load, wait_until_called, wait_until_created,
    wait_until_ready, workload,
};
use crate::{
    deploy::shipped,
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, http_get::http_get, manifests, wait},
};

#[tokio::test]
async fn a_pod_that_would_exceed_a_quota_is_created_unchanged() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    // Pods request 100m, and would get 250m.
    let quotas = "
metadata: {name: team}
spec: {hard: {requests.cpu: 400m}}
";
    manifests::create::<ResourceQuota>(bed.client(), &namespace, quotas).await;
    let served = start(bed.client(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let pods = Api::<Pod>::namespaced(bed.client(), &namespace);
    let requests_cpu = |cpu_wanted: &'static str| move |pod: &Pod| cpu(pod) == Some(cpu_wanted);
    wait_until_created(
        &bed,
        &namespace,
        &pod(&web, "web-0"),
        "there is room",
        requests_cpu("250m"),
    )
    .await;
    let first = pods.create(&PostParams::default(), &pod(&web, "web-0")).await.expect("created");
    assert_eq!(cpu(&first), Some("250m"));
    // 150m are left. Until the watch reports that, the API server rejects the recommended request.
    wait_until_created(
        &bed,
        &namespace,
        &pod(&web, "web-1"),
        "there is less",
        requests_cpu("100m"),
    )
    .await;
    let second = pods.create(&PostParams::default(), &pod(&web, "web-1")).await.expect("created");
    assert_eq!(cpu(&second), Some("100m"));
    let address = format!("http://{}/metrics", served.running.address());
    let text = wait::until("it is scraped", || http_get(&address)).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = "plimsoll_admission_reviews_total{outcome=\"quota_exceeded\",resource=\"Pod\"} ";
    assert!(text.contains(line), "{line} is not in\n{text}");
    served.running.stop().await;
}

#[tokio::test]
async fn pods_are_sized_without_permission_to_read_quotas() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let text = shipped("admission-controller");
    let less = text.replace("resources: [resourcequotas]", "resources: [nothing]");
    assert_ne!(less, text, "there is a rule to leave out");
    grant(&bed.client(), &less).await;
    let account = bed.service_account("kube-system", "plimsoll-admission-controller").await;
    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let served = start(account.client.clone(), &["--webhook-failure-policy-fail"], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    under_load(&bed, &namespace, &web, PACED_LOAD, async {}).await;
    served.running.stop().await;
}
