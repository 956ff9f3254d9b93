//! A recommender that is killed, and one that is shut down.

use std::pin::pin;
use std::time::Duration;

use http::Method;
use jiff::SignedDuration;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;

use super::fixture::{Fixture, MINUTE, targets};
use super::recommender_process::{RecommenderProcesses, wait_for_passes};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;
use crate::support::clock::wall_now;
use crate::support::random::{self, Random};
use crate::support::wait;

const ROUNDS: u64 = 5;
const NAMES: &[&str] = &["api", "cache", "front", "worker"];

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn a_crash_at_any_time_restores_the_last_save_and_visible_oom_kills() {
    let seed = random::seed(9);
    println!("{}={seed}", random::SEED);
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let processes =
        RecommenderProcesses::new(&fixture, wall_now() - SignedDuration::from_hours(72));
    let mut process = processes.start("recommender", &["--leader-elect=false"]);
    process
        .wait_for_metric("plimsoll_checkpoints_total", &["\"written\""], |saved| saved >= 4.0)
        .await;
    let (mut first_sight, mut before) = (0.0, fixture.samples().await);
    for round in 0..ROUNDS {
        let mut noise = Random::derive(seed, &[round]);
        processes.advance(noise.between(2, 4) as usize).await;
        let name = noise.pick(NAMES);
        if noise.chance(50) {
            fixture.oom_kill(name).await;
        }
        // At any moment: in a pass, in a save, or between them.
        tokio::time::sleep(Duration::from_millis(noise.below(700))).await;
        assert_eq!(process.end("KILL").await, 137);

        processes.start_without_usage();
        if round % 2 == 0 {
            let victim = noise.pick(NAMES);
            fixture.oom_kill(victim).await;
        }
        let (wanted, kills) = fixture.expected_from_checkpoints(wall_now().into()).await;
        assert!(targets(&wanted).len() == NAMES.len(), "round {round}: all have a target");
        let stored = fixture.samples().await;
        assert!(before.iter().all(|(name, count)| stored[name] >= *count), "a shorter history");

        process = processes.start("recommender", &["--leader-elect=false"]);
        wait_for_passes(&process, 2).await;
        fixture.wait_for_recommendations(&format!("round {round} of seed {seed}"), &wanted).await;
        let labels = ["source=\"pod_first_sight\"", "outcome=\"counted\""];
        let counted = process.metric("plimsoll_oom_kills_total", &labels).await;
        assert_eq!(counted, Some(kills), "{round}");
        if kills > 0.0 {
            process.assert_line(&["counted OOM kill", "pod_first_sight"]);
        }
        process.assert_line(&["loaded history", "vpas=4"]);
        first_sight += kills;
        before = stored;
        processes.serve_usage();
    }
    assert!(first_sight >= 3.0, "kills during downtime: {first_sight}");

    // One that dies before it has read anything.
    process.end("KILL").await;
    processes.start_without_usage();
    let (wanted, _) = fixture.expected_from_checkpoints(wall_now().into()).await;
    for _ in 0..3 {
        process = processes.start("recommender", &["--leader-elect=false"]);
        assert_eq!(process.end("KILL").await, 137);
    }
    process = processes.start("recommender", &["--leader-elect=false"]);
    wait_for_passes(&process, 2).await;
    fixture.wait_for_recommendations("after deaths at birth", &wanted).await;
    process.end("KILL").await;
}

#[tokio::test]
async fn a_graceful_stop_loses_nothing() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let processes =
        RecommenderProcesses::new(&fixture, wall_now() - SignedDuration::from_hours(72));
    // After the first save, only the save at shutdown can store anything.
    let flags = ["--checkpoint-interval=1h", "--leader-elect=false"];
    let process = processes.start("recommender", &flags);
    process
        .wait_for_metric("plimsoll_checkpoints_total", &["\"written\""], |saved| saved >= 4.0)
        .await;
    processes.advance(6).await;
    processes.start_without_usage();
    wait_for_passes(&process, 2).await;
    let (before, first_save) = (fixture.recommendations().await, fixture.samples().await);
    assert_eq!(targets(&before).len(), NAMES.len());
    assert_eq!(process.end("TERM").await, 0);
    process.assert_line(&["saved history"]);
    process.assert_line(&["stopped"]);
    let stored = fixture.samples().await;
    for name in NAMES {
        // Two pods, one CPU sample per pass.
        assert!(stored[*name] >= first_save[*name] + 10, "{name}: {first_save:?} {stored:?}");
    }
    let (remembered, _) = fixture.expected_from_checkpoints(wall_now().into()).await;
    assert_eq!(remembered, before, "the checkpoints give the published recommendation");
    let versions = |fixture: Vec<_>| -> Vec<_> {
        fixture.into_iter().map(|one: Checkpoint| one.metadata.resource_version).collect()
    };
    let (vpas, checkpoints) = (fixture.vpas().await, versions(fixture.checkpoints().await));

    let process = processes.start("recommender", &flags);
    wait_for_passes(&process, 2).await;
    let loaded = process.metric("plimsoll_checkpoints_total", &["\"loaded\""]).await;
    assert_eq!(loaded, Some(4.0));
    assert_eq!(process.end("TERM").await, 0);
    process.assert_line(&["saved history"]);
    assert_eq!(fixture.recommendations().await, before);
    // There was nothing to write, so nothing was written.
    assert_eq!(fixture.vpas().await, vpas);
    assert_eq!(versions(fixture.checkpoints().await), checkpoints);

    // It continues from there.
    processes.serve_usage();
    let process = processes.start("recommender", &flags);
    processes.advance(3).await;
    process.end("TERM").await;
    let after = fixture.samples().await;
    assert!(NAMES.iter().all(|name| after[*name] > stored[*name]), "{stored:?} {after:?}");
}

#[tokio::test]
async fn a_stop_during_a_save_saves_again() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let (gate, open) = tokio::sync::watch::channel(true);
    let is_save = |method: &Method, path: &str| {
        *method == Method::PATCH && path.contains("/verticalpodautoscalercheckpoints/")
    };
    let proxy = ApiProxy::start(fixture.client(), move |method, path| {
        let mut open = open.clone();
        if !is_save(method, path) {
            return api_proxy::pass_through();
        }
        Box::pin(async move {
            let _ = open.wait_for(|open| *open).await;
            None
        })
    })
    .await;
    let clock = fixture.clock();
    let flags = ["--checkpoint-interval=0s"];
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &flags).await;
    fixture.advance(&running, &clock, 3, MINUTE).await;
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let before = fixture.samples().await;

    gate.send_replace(false);
    let saves = || proxy.arrival_times(&Method::PATCH, "-main").len();
    let begun = saves();
    fixture.advance(&running, &clock, 1, MINUTE).await;
    wait::until("a save is in progress", || async { (saves() >= begun + 4).then_some(()) }).await;
    let begun = saves();
    let mut stop = pin!(running.stop());
    let again =
        wait::until("checkpoints are saved again", || async { (saves() > begun).then_some(()) });
    let stopped = tokio::select! {
        () = &mut stop => true,
        () = again => false,
    };
    gate.send_replace(true);
    if !stopped {
        stop.await;
    }
    log.assert_line(&["saved history"]);
    let after = fixture.samples().await;
    for name in NAMES {
        assert!(after[*name] > before[*name], "{name}: {before:?} {after:?}");
    }
}
