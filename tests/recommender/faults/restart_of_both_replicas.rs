//! Two replicas that are restarted at once.

use std::time::Duration;

use jiff::SignedDuration;

use super::fixture::{Fixture, targets};
use super::recommender_process::{RecommenderProcesses, wait_for_passes};
use crate::support::clock::wall_now;
use crate::support::role_process::{RoleProcess, SHORT_LEASE_FLAGS};
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];

#[tokio::test]
async fn after_a_restart_of_both_replicas_recommendations_are_the_same() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let processes =
        RecommenderProcesses::new(&fixture, wall_now() - SignedDuration::from_hours(72));
    let start = || {
        (processes.start("first", SHORT_LEASE_FLAGS), processes.start("second", SHORT_LEASE_FLAGS))
    };
    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    first.wait_until_ready().await;
    second.wait_until_ready().await;
    processes.advance(8).await;
    wait_for_passes(leader, 2).await;
    processes.start_without_usage();
    wait_for_passes(leader, 2).await;
    fixture.oom_kill("front").await;
    leader
        .wait_for_metric("plimsoll_oom_kills_total", &["\"counted\""], |kills| kills == 1.0)
        .await;
    wait_for_passes(leader, 2).await;
    // Changes are saved every half second.
    wait::within(Duration::from_mins(1), "everything is saved", || async {
        let left = leader.metric("plimsoll_write_queue", &["kind=\"checkpoint\""]).await?;
        (left == 0.0).then_some(())
    })
    .await;
    let (recommendations, samples) = (fixture.recommendations().await, fixture.samples().await);
    assert_eq!(targets(&recommendations).len(), NAMES.len());
    first.signal("KILL");
    second.signal("KILL");
    assert_eq!((first.end("KILL").await, second.end("KILL").await), (137, 137));

    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    first.wait_until_ready().await;
    second.wait_until_ready().await;
    wait_for_passes(leader, 3).await;
    fixture.wait_for_recommendations("as before", &recommendations).await;
    assert_eq!(fixture.samples().await, samples, "nothing was lost or overwritten");
    for process in [&first, &second] {
        process.assert_line(&["loaded history", "vpas=2"]);
        // A kill may be observed more than once, but must not count again.
        let kills = "plimsoll_oom_kills_total";
        let known = process.metric(kills, &["outcome=\"known\""]).await;
        let counted = process.metric(kills, &["\"counted\""]).await;
        assert!(known >= Some(1.0) && counted == Some(0.0), "{known:?} known, {counted:?} counted");
    }
    // They continue, and the stored history grows.
    processes.serve_usage();
    processes.advance(4).await;
    wait_for_passes(leader, 2).await;
    assert_eq!((first.end("TERM").await, second.end("TERM").await), (0, 0));
    let after = fixture.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] > *count), "{samples:?} {after:?}");
}

async fn wait_until_either_leads<'a>(
    one: &'a RoleProcess,
    other: &'a RoleProcess,
) -> &'a RoleProcess {
    wait::until("one of them leads", || async {
        for process in [one, other] {
            if process.metric("plimsoll_leader", &[]).await == Some(1.0) {
                return Some(process);
            }
        }
        None
    })
    .await
}
