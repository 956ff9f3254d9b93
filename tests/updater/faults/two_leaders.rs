//! Two updaters that both believe to be the only one.

use plimsoll_core::updater::guard::BudgetKind;

use crate::support::{
    holding_proxy::{HeldMoment, HoldPoint, HoldingProxy, RoleWrite},
    hollow_nodes::{Behaviour, StartBehaviour},
    wait,
};
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{
        self, deployment, recorded_disruptions, set_mode, vpa, wait_for_passes,
        wait_until_blocked_by,
    },
    sizing_webhook::SizingWebhook,
};

const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

/// Two updaters decide at the same time about the same eight pods, of which four may be unavailable. One makes its four
/// evictions; then the other one, which does not see them, is released. New pods do not start before both are done. Returns
/// the smallest number of ready pods.
async fn min_available(
    name: &str,
    flags: &[&str],
    moment: HeldMoment,
    wanted: usize,
) -> Option<usize> {
    let (bed, namespace) = fixture::testbed_and_namespace(name).await?;
    deployment(&bed, &namespace, "web", 8).await;
    vpa(&bed, &namespace, "web", "Initial", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    fixture::wait_for_age(&bed, &namespace, "web", 6).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let first = HoldingProxy::start(&bed, &format!("{namespace}-first")).await;
    let second = HoldingProxy::start(&bed, &format!("{namespace}-second")).await;
    let updater = fixture::start(first.client(), &namespace, flags).await;
    let other_updater = fixture::start(second.client(), &namespace, flags).await;
    wait_for_passes(&updater, 1).await;
    wait_for_passes(&other_updater, 1).await;
    second.freeze_pod_view();
    first.hold(moment);
    second.hold(moment);
    bed.nodes().set_behaviour(
        &namespace,
        "web-",
        Behaviour { start: StartBehaviour::Held, ..Behaviour::default() },
    );
    set_mode(&bed, &namespace, "web", "Recreate").await;
    first.wait_until_held().await;
    second.wait_until_held().await;
    first.release();
    wait::until("four pods are down", || async { (availability.up() == 4).then_some(()) }).await;
    second.release();
    // Pods start again only after both updaters are done.
    wait::until("the expected number of pods is down", || async {
        (availability.up() <= wanted).then_some(())
    })
    .await;
    wait_for_passes(&other_updater, 3).await;
    wait_for_passes(&updater, 3).await;
    bed.nodes().set_behaviour(&namespace, "web-", Behaviour::default());
    availability.wait_for_cpu(8, "250m").await;
    availability.wait_until_available(8).await;
    wait_for_passes(&updater, 3).await;
    wait_for_passes(&other_updater, 3).await;
    updater.stop().await;
    other_updater.stop().await;
    assert_eq!(
        availability.total_pods(),
        16,
        "each was evicted once: {:?}",
        availability.requests_over_time()
    );
    if !flags.contains(&"--compat=upstream") {
        let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await;
        assert!((8..=9).contains(&charged), "{charged} disruptions recorded for 8 evictions");
    }
    Some(availability.min_available())
}

#[tokio::test]
async fn two_concurrent_updaters_stay_within_the_disruption_budget() {
    let Some(least) = min_available("pair", FLAGS, (RoleWrite::Lease, HoldPoint::Request), 4).await
    else {
        return;
    };
    assert_eq!(least, 4);
}

/// Shows that the other test can fail.
#[tokio::test]
async fn two_concurrent_updaters_without_records_evict_everything() {
    let mut flags = FLAGS.to_vec();
    flags.push("--compat=upstream");
    let moment = (RoleWrite::Eviction, HoldPoint::Request);
    let Some(least) = min_available("pair-upstream", &flags, moment, 0).await else { return };
    assert_eq!(least, 0);
}

#[tokio::test]
async fn concurrent_updaters_share_the_budget_of_a_namespace_with_a_third() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("pair-budget").await else {
        return;
    };
    let mut watches = Vec::new();
    for name in ["db", "web"] {
        deployment(&bed, &namespace, name, 6).await;
        watches.push(AvailabilityWatch::watch(bed.client(), &namespace, name).await);
    }
    let mut flags = FLAGS.to_vec();
    flags.push("--max-namespace-resizes-per-hour=5");
    let (first, second) = (
        HoldingProxy::start(&bed, &format!("{namespace}-1")).await,
        HoldingProxy::start(&bed, &format!("{namespace}-2")).await,
    );
    for proxy in [&first, &second] {
        proxy.hold((RoleWrite::Lease, HoldPoint::Request));
    }
    for name in ["db", "web"] {
        vpa(&bed, &namespace, name, "InPlaceOrRecreate", "250m").await;
    }
    let updater = fixture::start(first.client(), &namespace, &flags).await;
    let other_updater = fixture::start(second.client(), &namespace, &flags).await;
    for proxy in [&first, &second] {
        proxy.wait_until_held().await;
        proxy.release();
    }
    for name in ["db", "web"] {
        wait_until_blocked_by(&bed, &namespace, name, "NamespaceBudget").await;
    }
    wait_for_passes(&updater, 3).await;
    wait_for_passes(&other_updater, 3).await;
    updater.stop().await;
    other_updater.stop().await;
    let third = fixture::start(bed.client(), &namespace, &flags).await;
    wait_for_passes(&third, 3).await;
    let metrics = fixture::metrics(&third).await;
    third.stop().await;
    let resized: usize =
        watches.iter().map(|availability| availability.count_with_cpu("250m")).sum();
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await;
    assert_eq!(charged, 5);
    assert!((1..=5).contains(&resized), "{resized} of 12, with five disruptions recorded");
    let tried = first.attempted_paths(RoleWrite::Resize).len()
        + second.attempted_paths(RoleWrite::Resize).len();
    assert!(tried >= resized, "{tried} attempts, and the third updater made none");
    for name in ["db", "web"] {
        let labels =
            [r#"reason="namespace_budget""#, &format!(r#"name="{name}""#)].map(str::to_owned);
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let value = fixture::metric_sum(&metrics, "plimsoll_restricted_scaling", &labels);
        assert_eq!(value, 1.0, "{metrics}");
    }
}
