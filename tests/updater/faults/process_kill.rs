//! An updater that is killed between persisting its intent, evicting, and reporting the eviction.

use plimsoll_core::updater::guard::BudgetKind;

use crate::support::Testbed;
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{self, deployment, pods, recorded_disruptions, uids, vpa},
    proxy::{
        HeldMoment, HoldPoint, HoldingProxy,
        RoleWrite::{Eviction, Ledger, PodAnnotation, Resize, VpaAnnotation},
    },
    role_process::RoleProcess,
    sizing_webhook::SizingWebhook,
};

/// No cooldown, no canary and no wait for the effect of an eviction: only the persisted intent prevents a second change of a
/// pod.
const FLAGS: &[&str] = &[
    "--leader-elect=false",
    "--updater-interval=300ms",
    "--cool-down=0",
    "--canary-watch=0",
    "--max-unproven-evictions=0",
];

/// Kills an updater at each of these points and starts another one; the last one is not killed.
async fn kill_at(
    bed: &Testbed,
    namespace: &str,
    proxy: &HoldingProxy,
    moments: &[HeldMoment],
) -> RoleProcess {
    let start = || RoleProcess::start(bed, "updater", namespace, proxy.kubeconfig(), FLAGS);
    for moment in moments {
        proxy.hold(*moment);
        let process = start();
        proxy.wait_until_held().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    proxy.open();
    start()
}

#[tokio::test]
async fn a_crash_at_any_step_of_an_eviction_evicts_no_pod_twice_and_breaks_no_budget() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("kill-evict").await else { return };
    deployment(&bed, &namespace, "web", 8).await;
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    fixture::wait_for_age(&bed, &namespace, "web", 6).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let moments = [
        (Ledger, HoldPoint::Request),
        (Ledger, HoldPoint::Answer),
        (VpaAnnotation, HoldPoint::Request),
        // From here on the eviction counts as made, although it was not.
        (VpaAnnotation, HoldPoint::Answer),
        (Eviction, HoldPoint::Request),
        (Eviction, HoldPoint::Answer),
    ];
    let process = kill_at(&bed, &namespace, &proxy, &moments).await;
    // Two evictions were recorded and never made: it takes ten minutes until they count as failed.
    availability.wait_for_cpu(6, "250m").await;
    process.wait_for_passes(3).await;
    availability.wait_until_available(8).await;
    assert_eq!(availability.count_with_cpu("250m"), 6);
    assert_eq!(
        availability.total_pods(),
        14,
        "none was evicted twice: {:?}",
        availability.requests_over_time()
    );
    let mut attempts = proxy.attempted_paths(Eviction);
    assert_eq!(attempts.len(), 7, "one was never forwarded");
    attempts.sort_unstable();
    attempts.dedup();
    assert_eq!(attempts.len(), 7, "each is a different pod");
    assert!(
        availability.min_available() >= 4,
        "only {} of 8 were ready",
        availability.min_available()
    );
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await;
    assert!(
        (6..=10).contains(&charged),
        "{charged} disruptions recorded for 6 evictions and 4 kills"
    );
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_resize_resizes_no_pod_twice_and_evicts_none() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("kill-resize").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 8).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let moments = [
        (VpaAnnotation, HoldPoint::Answer),
        (Resize, HoldPoint::Request),
        (Resize, HoldPoint::Answer),
        (PodAnnotation, HoldPoint::Request),
        (PodAnnotation, HoldPoint::Answer),
    ];
    let process = kill_at(&bed, &namespace, &proxy, &moments).await;
    availability.wait_for_cpu(6, "250m").await;
    process.wait_for_passes(3).await;
    let now = pods(&bed.client(), &namespace, "web").await;
    assert_eq!(uids(&now), before, "none was replaced");
    let changed_twice = |values: &&Vec<String>| values.len() > 2;
    assert_eq!(availability.requests_over_time().values().find(changed_twice), None);
    let mut attempts = proxy.attempted_paths(Resize);
    assert_eq!(attempts.len(), 7, "one was never forwarded");
    attempts.sort_unstable();
    attempts.dedup();
    assert_eq!(attempts.len(), 7, "each is a different pod");
    assert_eq!(proxy.attempted_paths(Eviction), [""; 0]);
    assert_eq!(availability.min_available(), 8);
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await;
    assert!((6..=8).contains(&charged), "{charged} disruptions recorded for 6 resizes and 2 kills");
}
