//! An updater that is killed between what it books, what it does, and what it says of it.

use plimsoll_core::updater::guard::Charge;

use crate::support::Bed;
use crate::updater::{
    process::Process,
    referee::Referee,
    stage::{self, booked, deployment, pods, uids, vpa},
    way::{
        Moment, Side, Way,
        What::{Eviction, Ledger, Note, PodNote, Resize},
    },
    webhook::Webhook,
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
async fn killed_at(bed: &Bed, namespace: &str, way: &Way, moments: &[Moment]) -> Process {
    let start = || Process::start(bed, "updater", namespace, way.kubeconfig(), FLAGS);
    for moment in moments {
        way.hold(*moment);
        let process = start();
        way.reached().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    way.open();
    start()
}

#[tokio::test]
async fn a_kill_at_any_moment_of_an_eviction_evicts_nobody_twice_and_breaks_no_budget() {
    let Some((bed, namespace)) = stage::place("kill-evict").await else { return };
    deployment(&bed, &namespace, "web", 8).await;
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let _webhook = Webhook::start(&bed, &namespace, "web", "250m").await;
    stage::aged(&bed, &namespace, "web", 6).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let way = Way::to(&bed, &namespace).await;
    let moments = [
        (Ledger, Side::Request),
        (Ledger, Side::Answer),
        (Note, Side::Request),
        // From here on the eviction counts as made, though it is not.
        (Note, Side::Answer),
        (Eviction, Side::Request),
        (Eviction, Side::Answer),
    ];
    let process = killed_at(&bed, &namespace, &way, &moments).await;
    // Two were booked and never evicted: for ten minutes nobody knows that they will not go.
    referee.have(6, "250m").await;
    process.passes(3).await;
    referee.settled(8).await;
    assert_eq!(referee.with("250m"), 6);
    assert_eq!(referee.ever(), 14, "none went twice: {:?}", referee.lives());
    let mut tried = way.tried(Eviction);
    assert_eq!(tried.len(), 7, "one was never sent on");
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 7, "each is another pod");
    assert!(referee.least() >= 4, "{} of 8 were up", referee.least());
    let charged = booked(&bed, &namespace, Charge::Disruption).await;
    assert!((6..=10).contains(&charged), "{charged} booked for 6 evictions and 4 deaths");
}

#[tokio::test]
async fn a_kill_at_any_moment_of_a_resize_resizes_nobody_twice_and_evicts_nobody() {
    let Some((bed, namespace)) = stage::place("kill-resize").await else { return };
    deployment(&bed, &namespace, "web", 8).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    let way = Way::to(&bed, &namespace).await;
    let moments = [
        (Note, Side::Answer),
        (Resize, Side::Request),
        (Resize, Side::Answer),
        (PodNote, Side::Request),
        (PodNote, Side::Answer),
    ];
    let process = killed_at(&bed, &namespace, &way, &moments).await;
    referee.have(6, "250m").await;
    process.passes(3).await;
    let now = pods(&bed.client(), &namespace, "web").await;
    assert_eq!(uids(&now), before, "none was replaced");
    let twice = |life: &&Vec<String>| life.len() > 2;
    assert_eq!(referee.lives().values().find(twice), None);
    let mut tried = way.tried(Resize);
    assert_eq!(tried.len(), 7, "one was never sent on");
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 7, "each is another pod");
    assert_eq!(way.tried(Eviction), [""; 0]);
    assert_eq!(referee.least(), 8);
    let charged = booked(&bed, &namespace, Charge::Resize).await;
    assert!((6..=8).contains(&charged), "{charged} booked for 6 resizes and two that died");
}
