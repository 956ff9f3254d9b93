//! Two updaters that both believe that they are alone.

use plimsoll_core::updater::guard::Charge;

use crate::support::{
    nodes::{Behaviour, Start},
    wait,
};
use crate::updater::{
    referee::Referee,
    stage::{self, booked, deployment, held_by, passes, set_mode, vpa},
    way::{Moment, Side, Way, What},
    webhook::Webhook,
};

const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

/// Two updaters decide at the same time about the same eight pods, of which four may be down. One makes its four
/// evictions, and then the other one, which sees nothing of that, is let on. New pods do not start before both have done
/// what they wanted to. Answers how many were up when the fewest were.
async fn least_up(name: &str, flags: &[&str], moment: Moment, wanted: usize) -> Option<usize> {
    let (bed, namespace) = stage::place(name).await?;
    deployment(&bed, &namespace, "web", 8).await;
    vpa(&bed, &namespace, "web", "Initial", "250m").await;
    let _webhook = Webhook::start(&bed, &namespace, "web", "250m").await;
    stage::aged(&bed, &namespace, "web", 6).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let first = Way::to(&bed, &format!("{namespace}-first")).await;
    let second = Way::to(&bed, &format!("{namespace}-second")).await;
    let one = stage::start(first.client(), &namespace, flags).await;
    let two = stage::start(second.client(), &namespace, flags).await;
    passes(&one, 1).await;
    passes(&two, 1).await;
    second.blind();
    first.hold(moment);
    second.hold(moment);
    bed.nodes().behave(
        &namespace,
        "web-",
        Behaviour { start: Start::Held, ..Behaviour::default() },
    );
    set_mode(&bed, &namespace, "web", "Recreate").await;
    first.reached().await;
    second.reached().await;
    first.release();
    wait::until("four are down", || async { (referee.up() == 4).then_some(()) }).await;
    second.release();
    // Pods start again only after both have done what they were about to do.
    wait::until("as many are down as there should be", || async {
        (referee.up() <= wanted).then_some(())
    })
    .await;
    passes(&two, 3).await;
    passes(&one, 3).await;
    bed.nodes().behave(&namespace, "web-", Behaviour::default());
    referee.have(8, "250m").await;
    referee.settled(8).await;
    passes(&one, 3).await;
    passes(&two, 3).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(referee.ever(), 16, "each went once: {:?}", referee.lives());
    if !flags.contains(&"--compat=upstream") {
        let charged = booked(&bed, &namespace, Charge::Disruption).await;
        assert!((8..=9).contains(&charged), "{charged} booked for 8 evictions");
    }
    Some(referee.least())
}

#[tokio::test]
async fn two_at_once_one_of_them_blind_never_take_down_more_than_the_budget() {
    let Some(least) = least_up("pair", FLAGS, (What::Ledger, Side::Request), 4).await else {
        return;
    };
    assert_eq!(least, 4);
}

/// Shows that the other one could fail.
#[tokio::test]
async fn two_at_once_without_notes_as_upstream_has_it_take_down_everything() {
    let mut flags = FLAGS.to_vec();
    flags.push("--compat=upstream");
    let moment = (What::Eviction, Side::Request);
    let Some(least) = least_up("pair-upstream", &flags, moment, 0).await else { return };
    assert_eq!(least, 0);
}

#[tokio::test]
async fn two_at_once_share_the_budget_of_a_namespace_and_a_third_one_knows_it_too() {
    let Some((bed, namespace)) = stage::place("pair-budget").await else { return };
    let mut referees = Vec::new();
    for name in ["db", "web"] {
        deployment(&bed, &namespace, name, 6).await;
        referees.push(Referee::watch(bed.client(), &namespace, name).await);
    }
    let mut flags = FLAGS.to_vec();
    flags.push("--max-namespace-resizes-per-hour=5");
    let (first, second) = (
        Way::to(&bed, &format!("{namespace}-1")).await,
        Way::to(&bed, &format!("{namespace}-2")).await,
    );
    for way in [&first, &second] {
        way.hold((What::Ledger, Side::Request));
    }
    for name in ["db", "web"] {
        vpa(&bed, &namespace, name, "InPlaceOrRecreate", "250m").await;
    }
    let one = stage::start(first.client(), &namespace, &flags).await;
    let two = stage::start(second.client(), &namespace, &flags).await;
    for way in [&first, &second] {
        way.reached().await;
        way.release();
    }
    for name in ["db", "web"] {
        held_by(&bed, &namespace, name, "NamespaceBudget").await;
    }
    passes(&one, 3).await;
    passes(&two, 3).await;
    one.stop().await;
    two.stop().await;
    let third = stage::start(bed.client(), &namespace, &flags).await;
    passes(&third, 3).await;
    let told = stage::metrics(&third).await;
    third.stop().await;
    let resized: usize = referees.iter().map(|referee| referee.with("250m")).sum();
    let charged = booked(&bed, &namespace, Charge::Resize).await;
    assert_eq!(charged, 5);
    assert!((1..=5).contains(&resized), "{resized} of 12, with five booked");
    let tried = first.tried(What::Resize).len() + second.tried(What::Resize).len();
    assert!(tried >= resized, "{tried} went these ways, and the third one made none");
    for name in ["db", "web"] {
        let labels =
            [r#"reason="namespace_budget""#, &format!(r#"name="{name}""#)].map(str::to_owned);
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let is = stage::of_metrics(&told, "plimsoll_restricted_scaling", &labels);
        assert_eq!(is, 1.0, "{told}");
    }
}
