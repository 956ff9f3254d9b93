//! The API server is unavailable in the middle of a rollout and comes back, or it does not return everything that a pass
//! needs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use plimsoll_core::updater::guard::BudgetKind;

use crate::storage::checkpoint_objects::create_definitions;
use crate::support::{
    Testbed,
    api_proxy::{self, ApiProxy},
    captured_log,
    http_get::http_get,
    wait,
};
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{self, deployment, metric_sum, metrics, recorded_disruptions, vpa, wait_for_passes},
    proxy::{HoldPoint, HoldingProxy, RoleWrite},
};

const FLAGS: &[&str] = &[
    "--updater-interval=300ms",
    "--cool-down=0",
    "--canary-watch=0",
    "--resize-rate-limit=4",
    "--leader-elect-lease-duration=9s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];

#[tokio::test]
async fn an_api_server_outage_stops_no_process_and_repeats_no_change() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bed.nodes().add("node", "16", "64Gi").await;
    let (log, _guard) = captured_log::capture();
    let namespace = bed.namespace("outage").await;
    deployment(&bed, &namespace, "web", 8).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let running = fixture::start(proxy.client(), &namespace, FLAGS).await;
    let election = running.election().expect("election is enabled").clone();
    wait::until("some pods are resized", || async {
        (availability.count_with_cpu("250m") >= 2).then_some(())
    })
    .await;
    proxy.hold((RoleWrite::VpaAnnotation, HoldPoint::Request));
    proxy.wait_until_held().await;
    bed.control_plane().kill_api_server().await;
    proxy.release();

    wait::until("it lost the Lease", || async { (!election.is_leader()).then_some(()) }).await;
    let attempts = proxy.attempted_paths(RoleWrite::Resize).len();
    wait_for_passes(&running, 5).await;
    let alive = http_get(&format!("http://{}/livez", running.address())).await.expect("response");
    assert_eq!(&*alive, b"ok\n");
    assert_eq!(
        proxy.attempted_paths(RoleWrite::Resize).len(),
        attempts,
        "no attempts without the Lease"
    );
    log.assert_line(&["failed to persist the intent of a change; skipping the change"]);
    log.assert_line(&["watch failed; retrying", "verticalpodautoscalers"]);

    bed.control_plane().restart_api_server().await;
    availability.wait_for_cpu(8, "250m").await;
    wait::until("it leads again", || async { election.is_leader().then_some(()) }).await;
    wait_for_passes(&running, 3).await;
    let requests = availability.requests_over_time();
    assert_eq!(requests.len(), 8, "none was replaced: {requests:?}");
    assert!(
        requests.values().all(|values| values.len() == 2),
        "each was resized once: {requests:?}"
    );
    assert_eq!(proxy.attempt_count(RoleWrite::Resize), 8);
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction), [""; 0]);
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await;
    assert!((8..=9).contains(&charged), "{charged} disruptions recorded for 8 resizes");
    running.stop().await;
}

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
    let running = fixture::start(proxy.client.clone(), &namespace, FLAGS).await;
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
