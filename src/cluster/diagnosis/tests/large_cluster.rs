//! A cluster of 10,000 objects is read in pages, with few requests.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{HPAS, VPAS, fake_server::FakeServer, hpa, named, owned_by, pod_template, vpa};
use crate::cluster::{
    diagnosis::{ListReader, api_server, objects, targets, webhooks},
    survey::{SurveyScope, survey_cluster},
};

/// What `kubectl apply` adds to an object, and a part of what the API server adds: most of its bytes.
fn applied(mut object: Value) -> Value {
    let configuration = "x".repeat(4 << 10);
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": configuration});
    object
}

fn large_cluster() -> FakeServer {
    let names = |count: usize| (0..count).map(|number| format!("web-{number:05}"));
    FakeServer::default()
        .with_list(
            "/apis/apps/v1/deployments",
            names(2_000).map(|name| {
                applied(json!({"metadata": named(&name), "spec": {"replicas": 2, "template": pod_template()}}))
            }),
        )
        .with_list(
            "/apis/apps/v1/replicasets",
            names(2_000).map(|name| {
                applied(json!({"metadata": owned_by("Deployment", &format!("{name}-1"), &name),
                    "spec": {"template": pod_template()}}))
            }),
        )
        .with_list(
            "/api/v1/pods",
            names(3_000).enumerate().map(|(number, name)| {
                let owner = format!("web-{:05}-1", number % 2_000);
                applied(json!({"metadata": owned_by("ReplicaSet", &name, &owner),
                    "spec": pod_template()["spec"], "status": {"phase": "Running"}}))
            }),
        )
        .with_list(VPAS, names(1_500).map(|name| applied(vpa(&name))))
        .with_list(HPAS, names(1_500).map(|name| applied(hpa(&name))))
}

#[tokio::test]
async fn ten_thousand_objects_need_few_requests() {
    let server = large_cluster();
    read_large_cluster(&server).await;
    let requests = server.requests.load(Ordering::Relaxed);
    let bytes = server.bytes.load(Ordering::Relaxed);
    let most = server.concurrent[1].load(Ordering::Relaxed);
    // 20 pages of objects, 6 of VPAs and HPAs again, and one of each other kind.
    assert!(requests <= 45, "{requests} requests");
    assert!(bytes < 13_000 * (5 << 10), "{bytes} bytes");
    assert!(most <= 8, "{most} requests at once");
}

async fn read_large_cluster(server: &FakeServer) {
    let client = server.client();
    let reader = ListReader::new(&client, None);
    let survey = survey_cluster(&client, &SurveyScope::default(), None).await;
    let (vpas, hpas, wpas, nodes, budgets) = tokio::join!(
        objects::vpas(&reader),
        objects::hpas(&reader),
        objects::wpas(&reader),
        objects::nodes(&reader),
        objects::budgets(&reader),
    );
    let (ranges, quotas, webhooks, resize, version) = tokio::join!(
        objects::limit_ranges(&reader),
        objects::quotas(&reader),
        webhooks::webhooks(&reader),
        api_server::resize_served(&reader),
        api_server::api_version(&reader),
    );
    let mut vpas = vpas.expect("readable");
    targets::find_targets(&reader, &mut vpas, &survey).await;
    assert_eq!((vpas.len(), hpas.expect("readable").len()), (1_500, 1_500));
    assert!(vpas.iter().all(|vpa| vpa.target_exists == Ok(true)));
    assert_eq!(survey.workloads.len(), 2_000);
    for count in [
        wpas.expect("not served is empty").len(),
        nodes.expect("readable").len(),
        budgets.expect("readable").len(),
        ranges.expect("readable").len(),
        quotas.expect("readable").len(),
        webhooks.expect("readable").len(),
    ] {
        assert_eq!(count, 0);
    }
    assert!(resize.is_err() && version.is_err(), "a missing document is not an empty one");
}
