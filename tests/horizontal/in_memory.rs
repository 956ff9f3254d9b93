//! The horizontal controller on an in-memory API server, for what happens between namespaces.

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use plimsoll::{
    cli::horizontal_config,
    cluster::clock::Clock,
    controllers::{self, horizontal::HorizontalHandle},
};

use super::{MEMORY, hpa};
use crate::support::{in_memory_api::InMemoryApiServer, manifests};

/// Nobody but this controller changes the replicas of an object with this behavior.
pub const DISABLED: &str =
    "{scaleUp: {selectPolicy: Disabled}, scaleDown: {selectPolicy: Disabled}}";

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
