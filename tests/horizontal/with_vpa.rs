//! An HPA and a VPA on CPU of the same workload.

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::{Fixture, MEBIBYTE, hpa};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{MetricsServer, Testbed, manifests, metrics_server::UsageValue, wait},
    updater::fixture as updater,
};

const CPU: &str =
    "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}";
/// 60 % of the request in the template, 100m.
const USAGE: UsageValue = UsageValue { cpu: 0.06, memory: 32 * MEBIBYTE };
/// No cooldown and no canary.
const FAST: &[&str] = &["--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

/// The average utilization in the status of the HPA controller.
async fn utilization(bed: &Testbed, namespace: &str) -> Option<i32> {
    let api = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), namespace);
    let status = api.get("web").await.expect("the object").status?;
    status.current_metrics?.first()?.resource.as_ref()?.current.average_utilization
}

async fn wait_for_utilization(bed: &Testbed, namespace: &str, percent: i32) {
    wait::until_ok(&format!("the HPA controller observes {percent} %"), || async {
        let found = utilization(bed, namespace).await;
        if found == Some(percent) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// CPU and memory requests of the pods.
async fn requests(bed: &Testbed, namespace: &str) -> Vec<(String, String)> {
    let pods = updater::pods(&bed.client(), namespace, "web").await;
    let request = |pod: &Pod, name: &str| {
        let container = pod.spec.as_ref()?.containers.first()?;
        Some(container.resources.as_ref()?.requests.as_ref()?.get(name)?.0.clone())
    };
    let both = |pod: &Pod| {
        (request(pod, "cpu").unwrap_or_default(), request(pod, "memory").unwrap_or_default())
    };
    pods.iter().map(both).collect()
}

async fn wait_for_requests(bed: &Testbed, namespace: &str, cpu: &str, memory: &str) {
    wait::until_ok(&format!("all pods request {cpu} and {memory}"), || async {
        let found = requests(bed, namespace).await;
        let is_expected = |(one, other): &(String, String)| one == cpu && other == memory;
        if found.iter().all(is_expected) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Sets a recommendation above what the pods have.
async fn recommend(bed: &Testbed, namespace: &str) {
    let amounts = json!({"cpu": "250m", "memory": "128Mi"});
    let container = json!({"containerName": "main", "target": amounts, "lowerBound": amounts,
        "upperBound": {"cpu": "4", "memory": "1Gi"}});
    let status = json!({"status": {"recommendation": {"containerRecommendations": [container]}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patched = api.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("a valid status");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_an_hpa_scales_by_is_changed_only_by_upstreams_rules() {
    let Some((bed, namespace)) = updater::testbed_and_namespace("with-vpa").await else { return };
    let usage = MetricsServer::shared(&bed, &namespace).await;
    updater::deployment(&bed, &namespace, "web", 2).await;
    usage.set_all(&namespace, "web-", "main", USAGE);
    let object = hpa("web", &[CPU], "null", "{}");
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, &object).await;
    wait_for_utilization(&bed, &namespace, 60).await;
    let mode = json!({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}});
    updater::vpa_with(&bed, &namespace, "web", mode, "100m").await;
    recommend(&bed, &namespace).await;

    // Memory is changed, and CPU is not.
    let running = updater::start(bed.client(), &namespace, FAST).await;
    wait_for_requests(&bed, &namespace, "100m", "128Mi").await;
    updater::wait_until_blocked_by(&bed, &namespace, "web", "HpaSameResource").await;
    updater::wait_for_passes(&running, 4).await;
    wait_for_requests(&bed, &namespace, "100m", "128Mi").await;
    let vpa = updater::read(&bed, &namespace, "web").await;
    let conditions = vpa.status.expect("a status").conditions;
    let message = conditions.iter().find(|one| one.reason == "HpaSameResource");
    let message = &message.expect("the condition").message;
    assert!(message.contains("HorizontalPodAutoscaler web"), "{message}");
    assert!(message.contains("averageValue: 60m"), "{message}");
    let page = updater::metrics(&running).await;
    let of_namespace = format!("namespace=\"{namespace}\"");
    let labels = [&*of_namespace, "reason=\"hpa_same_resource\""];
    assert_eq!(updater::metric_sum(&page, "plimsoll_restricted_scaling", &labels), 1.0);
    wait_for_utilization(&bed, &namespace, 60).await;
    running.stop().await;

    // Upstream's updater changes what the target is relative to.
    let running = updater::start(bed.client(), &namespace, &["--compat=upstream"]).await;
    wait_for_requests(&bed, &namespace, "250m", "128Mi").await;
    wait_for_utilization(&bed, &namespace, 24).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_plimsoll_sets_follow_the_template_and_not_the_requests_of_a_vpa() {
    // Without the CRD, the controller would not watch VPAs.
    if let Some(bed) = Testbed::shared().await {
        create_definitions(&bed).await;
    }
    let Some(fixture) = Fixture::new("scale-point", "adopted").await else { return };
    let (bed, namespace) = (&fixture.bed, &*fixture.namespace);
    updater::deployment(bed, namespace, "web", 4).await;
    fixture.usage.set_all(namespace, "web-", "main", USAGE);
    let vpa = json!({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}});
    updater::vpa_with(bed, namespace, "web", vpa, "200m").await;
    // What the updater would have done.
    let pods = Api::<Pod>::namespaced(bed.client(), namespace);
    let resize = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}});
    for pod in updater::pods(&bed.client(), namespace, "web").await {
        let patch = Patch::Strategic(&resize);
        let name = pod.name_any();
        let resized =
            pods.patch_subresource("resize", &name, &PatchParams::default(), &patch).await;
        resized.expect("the pod is resized");
    }
    let disabled = "{scaleUp: {selectPolicy: Disabled}, scaleDown: {selectPolicy: Disabled}}";
    let at_once = r#"{"scaleDown":{"stabilizationWindowSeconds":0}}"#;
    let annotations = |more: &str| {
        format!("{{plimsoll.dev/hpa: drive, plimsoll.dev/behavior: '{at_once}'{more}}}")
    };
    let object = hpa("web", &[CPU], disabled, &annotations(""));
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), namespace, &object).await;

    // 60m are 30 % of the requests, and exactly the scale point.
    wait::until_ok("the scale point is followed", || async {
        let reasons = fixture.series("plimsoll_restricted_scaling", "reason").await;
        let (point, wave) = (reasons.get("at_scale_point"), reasons.get("vpa_wave"));
        if point == Some(&1.0) && wave.is_none_or(|wave| *wave == 0.0) {
            return Ok(());
        }
        Err(format!("{reasons:?}"))
    })
    .await;
    let target = fixture.series("plimsoll_target", "name").await;
    assert_eq!(target.get("web"), Some(&0.06), "the target in cores");
    let before = fixture.role.reconciles();
    wait::until("it is reconciled again", || async {
        (fixture.role.reconciles() >= before + 5).then_some(())
    })
    .await;
    let replicas = || async {
        let api = Api::<Deployment>::namespaced(bed.client(), namespace);
        api.get("web").await.expect("the workload").spec.and_then(|spec| spec.replicas)
    };
    assert_eq!(replicas().await, Some(4));

    // By upstream's rule, half of them are too many.
    let patch = json!({"metadata": {"annotations": {"plimsoll.dev/utilization-of": "request"}}});
    let hpas = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patched = hpas.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.expect("it is annotated");
    wait::until_ok("the replicas follow the requests", || async {
        let found = replicas().await;
        if found == Some(2) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    fixture.role.stop().await;
}
