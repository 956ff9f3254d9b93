//! The self-check of the webhook: whether an API server calls it, and the Lease that reports this to updaters.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use http::Method;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use plimsoll::cluster::write::webhook_config::NAME;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::{
    cluster::{configurations, cpu, pod, start, wait_until_called, wait_until_ready, workload},
    fixture::certificate,
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        api_proxy::{self, ApiProxy},
        http_get::http_get,
        manifests, wait,
    },
};

const REGISTRATIONS: &str = "/mutatingwebhookconfigurations";
const LEASE: &str = "/leases/vpa-admission-controller";

#[tokio::test]
async fn the_api_server_calls_the_webhook_and_pods_get_the_recommendation() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let served = start(bed.client(), &["--webhook-failure-policy-fail"], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let pods = Api::<Pod>::namespaced(bed.client(), &namespace);
    let created = wait::until("a pod gets the recommendation", || async {
        let created =
            pods.create(&PostParams::default(), &pod(&web, "web-0")).await.expect("created");
        if cpu(&created) == Some("250m") {
            return Some(created);
        }
        // The watch has not reported the VPA's status yet.
        let now = DeleteParams::default().grace_period(0);
        pods.delete("web-0", &now).await.expect("deleted");
        None
    })
    .await;
    let annotations = created.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("vpaObservedContainers").map(String::as_str), Some("main"));
    let updates = annotations.get("vpaUpdates").map(String::as_str).unwrap_or_default();
    assert!(updates.starts_with("Pod resources updated by web: container 0: "), "{updates}");
    let other = manifests::create::<Pod>(
        bed.client(),
        &namespace,
        &manifests::pod("alone", "Always", "100m", "64Mi"),
    )
    .await;
    assert_eq!(cpu(&other), Some("100m"), "no pod is left unchanged");

    // VPAs: defaults are filled in, and invalid ones are rejected with the API's own messages.
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let filled = vpas.get("web").await.expect("exists").spec.update_policy;
    assert!(filled.is_none(), "it was created before the registration");
    let bad = json!({"spec": {"updatePolicy": {"updateMode": "Recreate", "minReplicas": 0}}});
    let refused = vpas.patch("web", &PatchParams::default(), &Patch::Merge(&bad)).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, &*status.reason), (422, "Invalid"), "{status:?}");
    assert!(status.message.contains("minReplicas"), "{}", status.message);

    let address = format!("http://{}/metrics", served.running.address());
    let scraped = wait::until("it is scraped", || http_get(&address)).await;
    let text = String::from_utf8(scraped.to_vec()).expect("UTF-8");
    for line in [
        "vpa_admission_controller_admission_pods_total{applied=\"true\"} ",
        "vpa_admission_controller_admission_latency_seconds_count{resource=\"Pod\",status=\"applied\"} ",
        "vpa_admission_controller_execution_latency_seconds_count{step=\"total\"} ",
        "plimsoll_admission_reviews_total{outcome=\"no_controller\",resource=\"Pod\"} 1",
        "plimsoll_webhook_registered 1",
        "plimsoll_webhook_reachable 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("the Lease is renewed", || async {
        leases.get_opt("vpa-admission-controller").await.ok()??.spec?.renew_time
    })
    .await;
    served.running.stop().await;
}

#[tokio::test]
async fn the_lease_is_renewed_only_while_the_api_server_would_trust_the_webhook() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let is_held = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(bed.client(), {
        let is_held = Arc::clone(&is_held);
        move |method, path| {
            let mends = *method != Method::GET && path.contains(REGISTRATIONS);
            let refuses = mends && is_held.load(Relaxed);
            if refuses { api_proxy::respond_with(503, None) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let writes = |part: &str| {
        let requests = proxy.requests().into_iter();
        requests.filter(|(method, path)| *method != Method::GET && path.contains(part)).count()
    };
    let served = start(proxy.client.clone(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    let renewed = || async {
        let lease = leases.get_opt("vpa-admission-controller").await.ok()??;
        lease.spec?.renew_time.map(|time| time.0)
    };
    let first = wait::until("the Lease is renewed", renewed).await;
    wait::until("renewed again", || async { renewed().await.filter(|time| *time > first) }).await;

    // It cannot be repaired for now.
    is_held.store(true, Relaxed);
    // A third party sets another CA: evicted pods would come back unchanged.
    let (_, other_trusts) = certificate();
    let bundle = k8s_openapi::ByteString(other_trusts.to_pem());
    let patch =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).expect("valid patch"));
    let configurations = configurations(&bed);
    configurations.patch(NAME, &PatchParams::default(), &patch).await.expect("patched");
    let address = format!("http://{}/metrics", served.running.address());
    let says = |line: &'static str| {
        let address = address.clone();
        async move {
            let text = http_get(&address).await?;
            String::from_utf8_lossy(&text).lines().any(|text_line| text_line == line).then_some(())
        }
    };
    wait::until("it notices that", || says("plimsoll_webhook_registered 0")).await;
    let (renewals, tries) = (writes(LEASE), writes(REGISTRATIONS));
    // It retries the repair more often than it renews a Lease.
    wait::until("it tries to repair it", || async {
        (writes(REGISTRATIONS) >= tries + 12).then_some(())
    })
    .await;
    // A renewal that was in flight may have arrived.
    assert!(writes(LEASE) <= renewals + 1, "renewed anyway");
    says("plimsoll_webhook_registered 0").await.expect("failure is reported");
    assert!(served.running.ready().is_ok(), "it is reachable, and updaters may trust it");
    let last = renewed().await.expect("was renewed before");
    is_held.store(false, Relaxed);
    wait::until("it is repaired", || says("plimsoll_webhook_registered 1")).await;
    wait::until("it is renewed again", || async { renewed().await.filter(|time| *time > last) })
        .await;
    served.running.stop().await;
}
