//! An updater that is killed between what it books, what it does, and what it says of it.

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

/// No rest and no canary, and nobody waits for an eviction to show its effect: only what is booked keeps a pod from being
/// changed twice.
const FLAGS: &[&str] = &[
    "--leader-elect=false",
    "--updater-interval=300ms",
    "--cool-down=0",
    "--canary-watch=0",
    "--max-unproven-evictions=0",
];

/// Kills an updater at each of these moments, and starts another one, which is let alone in the end.
async fn kill_at(
    bed: &Testbed,
    namespace: &str,
    way: &HoldingProxy,
    moments: &[HeldMoment],
) -> RoleProcess {
    let start = || RoleProcess::start(bed, "updater", namespace, way.kubeconfig(), FLAGS);
    for moment in moments {
        way.hold(*moment);
        let process = start();
        way.wait_until_held().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    way.open();
    start()
}

#[tokio::test]
async fn a_kill_at_any_moment_of_an_eviction_evicts_nobody_twice_and_breaks_no_budget() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("kill-evict").await else { return };
    deployment(&bed, &namespace, "web", 8).await;
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    fixture::wait_for_age(&bed, &namespace, "web", 6).await;
    let referee = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let way = HoldingProxy::start(&bed, &namespace).await;
    let moments = [
        (Ledger, HoldPoint::Request),
        (Ledger, HoldPoint::Answer),
        (VpaAnnotation, HoldPoint::Request),
        // From here on the eviction counts as made, though it is not.
        (VpaAnnotation, HoldPoint::Answer),
        (Eviction, HoldPoint::Request),
        (Eviction, HoldPoint::Answer),
    ];
    let process = kill_at(&bed, &namespace, &way, &moments).await;
    // Two were booked and never evicted: for ten minutes nobody knows that they will not go.
    referee.wait_for_cpu(6, "250m").await;
    process.wait_for_passes(3).await;
    referee.wait_until_available(8).await;
    assert_eq!(referee.count_with_cpu("250m"), 6);
    assert_eq!(referee.total_pods(), 14, "none went twice: {:?}", referee.requests_over_time());
    let mut tried = way.attempted_paths(Eviction);
    assert_eq!(tried.len(), 7, "one was never sent on");
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 7, "each is another pod");
    assert!(referee.min_available() >= 4, "{} of 8 were up", referee.min_available());
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await;
    assert!((6..=10).contains(&charged), "{charged} booked for 6 evictions and 4 deaths");
}

#[tokio::test]
async fn a_kill_at_any_moment_of_a_resize_resizes_nobody_twice_and_evicts_nobody() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("kill-resize").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 8).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let referee = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let way = HoldingProxy::start(&bed, &namespace).await;
    let moments = [
        (VpaAnnotation, HoldPoint::Answer),
        (Resize, HoldPoint::Request),
        (Resize, HoldPoint::Answer),
        (PodAnnotation, HoldPoint::Request),
        (PodAnnotation, HoldPoint::Answer),
    ];
    let process = kill_at(&bed, &namespace, &way, &moments).await;
    referee.wait_for_cpu(6, "250m").await;
    process.wait_for_passes(3).await;
    let now = pods(&bed.client(), &namespace, "web").await;
    assert_eq!(uids(&now), before, "none was replaced");
    let twice = |life: &&Vec<String>| life.len() > 2;
    assert_eq!(referee.requests_over_time().values().find(twice), None);
    let mut tried = way.attempted_paths(Resize);
    assert_eq!(tried.len(), 7, "one was never sent on");
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 7, "each is another pod");
    assert_eq!(way.attempted_paths(Eviction), [""; 0]);
    assert_eq!(referee.min_available(), 8);
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await;
    assert!((6..=8).contains(&charged), "{charged} booked for 6 resizes and two that died");
}
