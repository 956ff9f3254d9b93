//! The horizontal controller on an in-memory API server, for what happens between namespaces.

use http::{Method, Response};
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use plimsoll::{
    cli::horizontal_config,
    cluster::clock::Clock,
    controllers::{self, horizontal::HorizontalHandle},
};
use serde_json::json;

use super::{MEMORY, hpa};
use crate::support::{in_memory_api::InMemoryApiServer, manifests};

/// Only this controller changes the replicas of an object with this behavior.
pub const DISABLED: &str =
    "{scaleUp: {selectPolicy: Disabled}, scaleDown: {selectPolicy: Disabled}}";

/// An API server that refuses to change the two replicas of a workload.
pub fn read_only_scales() -> InMemoryApiServer {
    InMemoryApiServer::with_interceptor(|method, path| {
        let name = path.strip_suffix("/scale").and_then(|path| path.rsplit('/').next());
        let response = name.map(|name| {
            let (status, body) = if *method == Method::GET {
                let scale = json!({
                    "kind": "Scale", "apiVersion": "autoscaling/v1",
                    "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
                    "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": format!("app={name}")},
                });
                (200, scale)
            } else {
                (403, json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "read-only"}))
            };
            Response::builder().status(status).body(body.to_string().into()).expect("a response")
        });
        Box::pin(async move { response })
    })
}

/// Creates a workload with two replicas and no pods, and an object for it.
pub async fn create(api: &InMemoryApiServer, namespace: &str, name: &str, annotations: &str) {
    let workload = manifests::deployment(name, 2, "100m", "256Mi");
    manifests::create::<Deployment>(api.client(), namespace, &workload).await;
    let hpa = hpa(name, &[MEMORY], DISABLED, annotations);
    manifests::create::<HorizontalPodAutoscaler>(api.client(), namespace, &hpa).await;
}

/// Starts the controller with one worker, a period of a second and more flags.
pub async fn start(api: &InMemoryApiServer, flags: &[&str]) -> HorizontalHandle {
    let mut all = vec![
        "--address=127.0.0.1:0",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--concurrent-horizontal-pod-autoscaler-syncs=1",
        "--leader-elect=false",
    ];
    all.extend(flags);
    let config = horizontal_config(&all).expect("valid flags");
    controllers::start(config, api.client(), Clock::wall()).await.expect("starts")
}
