//! Two updaters that both believe that they are alone.

use plimsoll_core::updater::guard::BudgetKind;

use crate::support::{
    hollow_nodes::{Behaviour, StartBehaviour},
    wait,
};
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{
        self, deployment, recorded_disruptions, set_mode, vpa, wait_for_passes,
        wait_until_blocked_by,
    },
    proxy::{HeldMoment, HoldPoint, HoldingProxy, RoleWrite},
    sizing_webhook::SizingWebhook,
};

const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

/// Two updaters decide at the same time about the same eight pods, of which four may be down. One makes its four
/// evictions, and then the other one, which sees nothing of that, is let on. New pods do not start before both have done
/// what they wanted to. Answers how many were up when the fewest were.
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
    let referee = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    let first = HoldingProxy::start(&bed, &format!("{namespace}-first")).await;
    let second = HoldingProxy::start(&bed, &format!("{namespace}-second")).await;
    let one = fixture::start(first.client(), &namespace, flags).await;
    let two = fixture::start(second.client(), &namespace, flags).await;
    wait_for_passes(&one, 1).await;
    wait_for_passes(&two, 1).await;
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
    wait::until("four are down", || async { (referee.up() == 4).then_some(()) }).await;
    second.release();
    // Pods start again only after both have done what they were about to do.
    wait::until("as many are down as there should be", || async {
        (referee.up() <= wanted).then_some(())
    })
    .await;
    wait_for_passes(&two, 3).await;
    wait_for_passes(&one, 3).await;
    bed.nodes().set_behaviour(&namespace, "web-", Behaviour::default());
    referee.wait_for_cpu(8, "250m").await;
    referee.wait_until_available(8).await;
    wait_for_passes(&one, 3).await;
    wait_for_passes(&two, 3).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(referee.total_pods(), 16, "each went once: {:?}", referee.requests_over_time());
    if !flags.contains(&"--compat=upstream") {
        let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await;
        assert!((8..=9).contains(&charged), "{charged} booked for 8 evictions");
    }
    Some(referee.min_available())
}

#[tokio::test]
async fn two_at_once_one_of_them_blind_never_take_down_more_than_the_budget() {
    let Some(least) =
        min_available("pair", FLAGS, (RoleWrite::Ledger, HoldPoint::Request), 4).await
    else {
        return;
    };
    assert_eq!(least, 4);
}

/// Shows that the other one could fail.
#[tokio::test]
async fn two_at_once_without_notes_as_upstream_has_it_take_down_everything() {
    let mut flags = FLAGS.to_vec();
    flags.push("--compat=upstream");
    let moment = (RoleWrite::Eviction, HoldPoint::Request);
    let Some(least) = min_available("pair-upstream", &flags, moment, 0).await else { return };
    assert_eq!(least, 0);
}

#[tokio::test]
async fn two_at_once_share_the_budget_of_a_namespace_and_a_third_one_knows_it_too() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("pair-budget").await else {
        return;
    };
    let mut referees = Vec::new();
    for name in ["db", "web"] {
        deployment(&bed, &namespace, name, 6).await;
        referees.push(AvailabilityWatch::watch(bed.client(), &namespace, name).await);
    }
    let mut flags = FLAGS.to_vec();
    flags.push("--max-namespace-resizes-per-hour=5");
    let (first, second) = (
        HoldingProxy::start(&bed, &format!("{namespace}-1")).await,
        HoldingProxy::start(&bed, &format!("{namespace}-2")).await,
    );
    for way in [&first, &second] {
        way.hold((RoleWrite::Ledger, HoldPoint::Request));
    }
    for name in ["db", "web"] {
        vpa(&bed, &namespace, name, "InPlaceOrRecreate", "250m").await;
    }
    let one = fixture::start(first.client(), &namespace, &flags).await;
    let two = fixture::start(second.client(), &namespace, &flags).await;
    for way in [&first, &second] {
        way.wait_until_held().await;
        way.release();
    }
    for name in ["db", "web"] {
        wait_until_blocked_by(&bed, &namespace, name, "NamespaceBudget").await;
    }
    wait_for_passes(&one, 3).await;
    wait_for_passes(&two, 3).await;
    one.stop().await;
    two.stop().await;
    let third = fixture::start(bed.client(), &namespace, &flags).await;
    wait_for_passes(&third, 3).await;
    let told = fixture::metrics(&third).await;
    third.stop().await;
    let resized: usize = referees.iter().map(|referee| referee.count_with_cpu("250m")).sum();
    let charged = recorded_disruptions(&bed, &namespace, BudgetKind::Resize).await;
    assert_eq!(charged, 5);
    assert!((1..=5).contains(&resized), "{resized} of 12, with five booked");
    let tried = first.attempted_paths(RoleWrite::Resize).len()
        + second.attempted_paths(RoleWrite::Resize).len();
    assert!(tried >= resized, "{tried} went these ways, and the third one made none");
    for name in ["db", "web"] {
        let labels =
            [r#"reason="namespace_budget""#, &format!(r#"name="{name}""#)].map(str::to_owned);
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let is = fixture::metric_sum(&told, "plimsoll_restricted_scaling", &labels);
        assert_eq!(is, 1.0, "{told}");
    }
}
