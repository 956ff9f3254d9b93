//! What comes of it when an API server calls, and when updaters are told that it does.

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
async fn the_api_server_calls_and_pods_get_what_is_recommended() {
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
    let made = wait::until("a pod has what is recommended", || async {
        let made = pods.create(&PostParams::default(), &pod(&web, "web-0")).await.expect("made");
        if cpu(&made) == Some("250m") {
            return Some(made);
        }
        // The watch has not told of the VPA's status yet.
        let now = DeleteParams::default().grace_period(0);
        pods.delete("web-0", &now).await.expect("deleted");
        None
    })
    .await;
    let annotations = made.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("vpaObservedContainers").map(String::as_str), Some("main"));
    let updates = annotations.get("vpaUpdates").map(String::as_str).unwrap_or_default();
    assert!(updates.starts_with("Pod resources updated by web: container 0: "), "{updates}");
    let other = manifests::create::<Pod>(
        bed.client(),
        &namespace,
        &manifests::pod("alone", "Always", "100m", "64Mi"),
    )
    .await;
    assert_eq!(cpu(&other), Some("100m"), "nobody's pod is left as it is");

    // VPAs: a default is filled in, and what is wrong is refused in the API's own words.
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let filled = vpas.get("web").await.expect("it is there").spec.update_policy;
    assert!(filled.is_none(), "that one was made before anybody was registered");
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
async fn the_lease_is_renewed_only_while_the_api_server_would_believe_the_webhook() {
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
    wait::until("and again", || async { renewed().await.filter(|time| *time > first) }).await;

    // It cannot be mended for now.
    is_held.store(true, Relaxed);
    // Somebody registers another authority: evicted pods would come back as they were.
    let (_, others) = certificate();
    let bundle = k8s_openapi::ByteString(others.to_pem());
    let patch =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).expect("a patch"));
    let configurations = configurations(&bed);
    configurations.patch(NAME, &PatchParams::default(), &patch).await.expect("patched");
    let address = format!("http://{}/metrics", served.running.address());
    let says = |line: &'static str| {
        let address = address.clone();
        async move {
            let text = http_get(&address).await?;
            String::from_utf8_lossy(&text).lines().any(|said| said == line).then_some(())
        }
    };
    wait::until("it sees that", || says("plimsoll_webhook_registered 0")).await;
    let (renewals, tries) = (writes(LEASE), writes(REGISTRATIONS));
    // It tries to mend that more often than it renews a Lease.
    wait::until("it tries to mend it", || async {
        (writes(REGISTRATIONS) >= tries + 12).then_some(())
    })
    .await;
    // A renewal that was under way may have come in.
    assert!(writes(LEASE) <= renewals + 1, "it is renewed all the same");
    says("plimsoll_webhook_registered 0").await.expect("it knows");
    assert!(served.running.ready().is_ok(), "it can be reached, and others may believe it");
    let last = renewed().await.expect("it was renewed before");
    is_held.store(false, Relaxed);
    wait::until("it is mended", || says("plimsoll_webhook_registered 1")).await;
    wait::until("it is renewed again", || async { renewed().await.filter(|time| *time > last) })
        .await;
    served.running.stop().await;
}
