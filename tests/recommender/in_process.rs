//! Starts a recommender in the test's process: real cluster, real metrics API, stepped clock.

use std::time::Duration;

use kube::api::Api;
use plimsoll::controllers;
use plimsoll::{
    cli::recommender_config,
    cluster::clock::Clock,
    controllers::recommender::{PassSummary, RecommenderHandle},
};
use plimsoll_core::api::VerticalPodAutoscaler;

use crate::support::{Testbed, wait};

/// Starts a recommender with these flags. It listens on a free port and needs no Lease unless the flags say so.
pub async fn start(bed: &Testbed, clock: &Clock, flags: &[&str]) -> RecommenderHandle {
    let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig_path().display());
    let mut all = vec![&*kubeconfig, "--address=127.0.0.1:0", "--leader-elect=false"];
    all.extend(flags);
    let config = recommender_config(&all).expect("valid flags");
    let client = controllers::connect(&config).await.expect("a client");
    controllers::start(config, client, clock.clone()).await.expect("starts")
}

/// Steps the clock and waits for the pass that this starts.
pub async fn step(running: &RecommenderHandle, clock: &Clock, by: Duration) -> PassSummary {
    let mut passes = running.passes();
    let before = passes.borrow_and_update().0;
    clock.step(by);
    wait_for_passes(running, before + 1).await
}

/// Waits until `count` passes are done.
pub async fn wait_for_passes(running: &RecommenderHandle, count: u64) -> PassSummary {
    let mut passes = running.passes();
    let done = passes.wait_for(|(done, _)| *done >= count);
    tokio::time::timeout(wait::PATIENCE, done).await.expect("a pass in time").expect("runs").1
}

/// Waits until every pending status is written.
pub async fn wait_until_written(running: &RecommenderHandle) {
    wait::until("everything is written", || async {
        (running.pending_statuses() == 0).then_some(())
    })
    .await;
}

/// Waits until a VPA satisfies a condition.
pub async fn wait_for_vpa(
    bed: &Testbed,
    namespace: &str,
    name: &str,
    what: &str,
    is: impl Fn(&VerticalPodAutoscaler) -> bool,
) -> VerticalPodAutoscaler {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    wait::until(&format!("VPA {name}: {what}"), || async {
        api.get_opt(name).await.ok()?.filter(|vpa| is(vpa))
    })
    .await
}
