//! A request that replicas follow, with the real HPA controller: when it is changed, and who may change it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use k8s_openapi::api::{
    autoscaling::v2::HorizontalPodAutoscaler, coordination::v1::Lease, core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, role_health},
    coordination::{Resource, TargetRecord},
    hpa::retarget::SCALE_POINT_ANNOTATION,
    updater::{WorkloadState, guard::workload_state},
};
use serde_json::json;

use super::fixture::{self, cpu, pods, wait_until_blocked_by};
use crate::support::{
    MetricsServer, Testbed,
    api_proxy::{self, ApiProxy},
    clock::wall_now,
    manifests,
    metrics_server::UsageValue,
    wait,
};

const MEBIBYTE: u64 = 1 << 20;

/// The HPA controller writes the status, and its bounds leave it no other number of replicas.
const HPA: &str = "
metadata: {name: web}
spec:
  minReplicas: 2
  maxReplicas: 2
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
";

async fn wait_for_utilization(bed: &Testbed, namespace: &str, percent: i32) {
    let api = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), namespace);
    wait::until_ok(&format!("the HPA controller observes {percent} %"), || async {
        let status = api.get("web").await.expect("the object").status;
        let metrics = status.and_then(|status| status.current_metrics).unwrap_or_default();
        let resource = metrics.into_iter().next().and_then(|metric| metric.resource);
        let found = resource.and_then(|resource| resource.current.average_utilization);
        if found == Some(percent) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Recommends less CPU than the pods have, with an upper bound that they exceed.
async fn recommend(bed: &Testbed, namespace: &str, target: &str, upper: &str) {
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "64Mi"});
    let container = json!({"containerName": "main", "target": amounts(target),
        "lowerBound": amounts("25m"), "upperBound": amounts(upper)});
    let status = json!({"status": {"recommendation": {"containerRecommendations": [container]}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patched = api.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("a valid status");
}

/// Renews the Lease of a horizontal controller of this mode until the task is aborted.
async fn renew_lease(client: Client, namespace: String, mode: &'static str) {
    let leases = Api::<Lease>::namespaced(client, &namespace);
    let name = "plimsoll-horizontal";
    let health = json!({"role": "horizontal", "mode": mode}).to_string();
    let lease =
        json!({"metadata": {"name": name, "annotations": {role_health::ANNOTATION: health}}});
    let lease: Lease = serde_json::from_value(lease).expect("a Lease");
    leases.create(&PostParams::default(), &lease).await.expect("created");
    let mut renewals = tokio::time::interval(Duration::from_millis(500));
    loop {
        renewals.tick().await;
        let renewed = wall_now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({"spec": {"holderIdentity": "test", "leaseDurationSeconds": 15,
            "renewTime": renewed}});
        let patch = Patch::Merge(&spec);
        leases.patch(name, &PatchParams::default(), &patch).await.expect("renewed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_hpa_controller_is_replaced_a_request_changes_once_the_replicas_suffice() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("request-turns").await else {
        return;
    };
    let usage = MetricsServer::shared(&bed, &namespace).await;
    fixture::deployment(&bed, &namespace, "web", 2).await;
    // The template has 100m, so the scale point is 60m, and twice that asks for more replicas than allowed.
    let busy = UsageValue { cpu: 0.12, memory: 32 * MEBIBYTE };
    usage.set_all(&namespace, "web-", "main", busy);
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, HPA).await;
    wait_for_utilization(&bed, &namespace, 120).await;
    fixture::vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "100m").await;
    recommend(&bed, &namespace, "70m", "80m").await;
    let running = fixture::start(bed.client(), &namespace, fixture::FAST_FLAGS).await;
    wait_until_blocked_by(&bed, &namespace, "web", "HpaSameResource").await;

    let lease = tokio::spawn(renew_lease(bed.client(), namespace.clone(), "replace"));
    wait_until_blocked_by(&bed, &namespace, "web", "AtMaxReplicas").await;
    let have = |expected: &'static str| {
        let (client, namespace) = (bed.client(), namespace.clone());
        async move {
            let pods: Vec<Pod> = pods(&client, &namespace, "web").await;
            let found: Vec<_> = pods.iter().map(|pod| cpu(pod).map(str::to_owned)).collect();
            let is_so = found.iter().all(|cpu| cpu.as_deref() == Some(expected));
            if is_so { Ok(()) } else { Err(format!("{found:?}")) }
        }
    };
    assert_eq!(have("100m").await, Ok(()));

    // Exactly at the scale point: as many replicas as there are.
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.06, ..busy });
    wait::until_ok("all pods request 70m", || have("70m")).await;
    let vpa = fixture::read(&bed, &namespace, "web").await;
    let annotations = vpa.metadata.annotations.as_ref().expect("annotations");
    let state = WorkloadState::read(&annotations[workload_state::ANNOTATION], &vpa.spec.target_ref);
    assert!(state.expect("the state").request_changed(Resource::Cpu).is_some());

    recommend(&bed, &namespace, "65m", "66m").await;
    wait_until_blocked_by(&bed, &namespace, "web", "ChangedRecently").await;
    assert_eq!(have("70m").await, Ok(()));
    running.stop().await;
    lease.abort();
}

/// Rejects all patches of HorizontalPodAutoscalers while `is_open` is false.
async fn hpa_gate(bed: &Testbed, is_open: Arc<AtomicBool>) -> ApiProxy {
    ApiProxy::start(bed.client(), move |method, path| {
        let is_patch = *method == Method::PATCH && path.contains("/horizontalpodautoscalers/");
        if is_patch && !is_open.load(Ordering::Relaxed) {
            api_proxy::respond_with(403, None)
        } else {
            api_proxy::pass_through()
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_of_an_hpa_is_written_before_its_pods_change_or_they_do_not() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("retarget").await else { return };
    let usage = MetricsServer::shared(&bed, &namespace).await;
    fixture::deployment(&bed, &namespace, "web", 2).await;
    // The template has 100m, so the scale point is 60m: as many replicas as there are.
    let steady = UsageValue { cpu: 0.06, memory: 32 * MEBIBYTE };
    usage.set_all(&namespace, "web-", "main", steady);
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, HPA).await;
    wait_for_utilization(&bed, &namespace, 60).await;
    fixture::vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "100m").await;
    recommend(&bed, &namespace, "70m", "80m").await;
    let is_open = Arc::new(AtomicBool::new(false));
    let proxy = hpa_gate(&bed, Arc::clone(&is_open)).await;
    let flags = [fixture::FAST_FLAGS, &["--retarget-hpas"]].concat();
    let running = fixture::start(proxy.client.clone(), &namespace, &flags).await;
    let patches = |of: &str| {
        let requests = proxy.requests().into_iter();
        requests.filter(|(method, path)| *method == Method::PATCH && path.contains(of)).count()
    };
    wait::until("the target is not written", || async {
        (patches("/horizontalpodautoscalers/") >= 2).then_some(())
    })
    .await;
    assert_eq!((patches("/resize"), patches("/eviction")), (0, 0));

    is_open.store(true, Ordering::Relaxed);
    wait::until("all pods request 70m", || async {
        let pods = pods(&bed.client(), &namespace, "web").await;
        pods.iter().all(|pod| cpu(pod) == Some("70m")).then_some(())
    })
    .await;
    let hpas = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), &namespace);
    wait::until_ok("the target belongs to 70m", || async {
        let hpa = hpas.get("web").await.expect("the object");
        let text = hpa.metadata.annotations.unwrap_or_default();
        let text = text.get(SCALE_POINT_ANNOTATION).cloned().unwrap_or_default();
        let record = TargetRecord::parse(&text)?;
        let metrics = hpa.spec.and_then(|spec| spec.metrics).unwrap_or_default();
        let target = metrics[0].resource.as_ref().map(|resource| &resource.target);
        let percent = target.and_then(|target| target.average_utilization);
        let kept = &record.metrics[0];
        let found = (percent, kept.written, kept.original, kept.scale_point);
        if found == (Some(86), 86, 60, 60) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    let written = proxy.accepted();
    let first = |of: &str| {
        let is_one =
            |(method, path, _): &(Method, String, _)| *method == Method::PATCH && path.contains(of);
        written.iter().position(is_one)
    };
    assert!(
        first("/horizontalpodautoscalers/").expect("a target")
            < first("/resize").expect("a resize")
    );
    running.stop().await;
}
