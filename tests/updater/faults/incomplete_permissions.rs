//! An API server that does not return everything that a pass needs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::support::{
    api_proxy::{self, ApiProxy},
    role_process::SHORT_LEASE_FLAGS,
    wait,
};
use crate::updater::fixture::{
    self, FAST_FLAGS, deployment, metric_sum, metrics, vpa, wait_for_passes,
};

#[tokio::test]
async fn a_pass_that_cannot_check_resize_support_does_not_succeed() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("silent").await else { return };
    bed.nodes().add("node-silent", "16", "64Gi").await;
    deployment(&bed, &namespace, "web", 1).await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let silent = Arc::new(AtomicBool::new(true));
    let proxy = ApiProxy::start(bed.client(), {
        let silent = Arc::clone(&silent);
        move |_, path| {
            let is_asked = path == "/api/v1" && silent.load(Ordering::Relaxed);
            if is_asked { api_proxy::respond_with(503, None) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let flags = [FAST_FLAGS, SHORT_LEASE_FLAGS].concat();
    let running = fixture::start(proxy.client.clone(), &namespace, &flags).await;
    let election = running.election().expect("election is enabled").clone();
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    let succeeded = async || {
        let name = "plimsoll_loop_last_success_timestamp_seconds";
        metric_sum(&metrics(&running).await, name, &["role=\"updater\""])
    };
    // Passes that started before the permissions are known do nothing and do not count.
    let mut passes = running.passes();
    let blind = passes.wait_for(|(_, summary)| summary.could_not_start);
    tokio::time::timeout(wait::PATIENCE, blind).await.expect("in time").expect("running");
    let before = succeeded().await;
    wait_for_passes(&running, 4).await;
    assert_eq!(succeeded().await, before, "those passes could do nothing");

    silent.store(false, Ordering::Relaxed);
    wait::until("a pass succeeds", || async { (succeeded().await > before).then_some(()) }).await;
    running.stop().await;
}
