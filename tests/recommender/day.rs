//! A simulated day of a small cluster, in native and upstream mode, compared with an independent reference model.

mod recommenders;
mod workloads;

use jiff::Timestamp;

use crate::storage::checkpoint_objects::create_definitions;
use crate::support::bulk_objects::{self, stop_controllers};
use crate::support::{MetricsServer, Testbed, tier};
use recommenders::BothRecommenders;
use workloads::{DayWorkloads, MEBIBYTE};

/// Neither midnight nor a full hour.
const MORNING: i64 = 1_772_444_833;
const MINUTES: i64 = 60;

/// 26 hours, in steps of 10 minutes in the deep run and 30 minutes in the gate, so that memory windows roll over.
/// After each part, the statuses and checkpoints of all VPAs are compared digit by digit, for every kind of target and
/// policy.
#[tokio::test]
async fn recommendations_for_every_kind_of_target_are_exact_through_a_day() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("day").await;
    stop_controllers(&bed).await;
    let client = bed.client();
    let mut cast = DayWorkloads::new(&namespace);
    bulk_objects::send(&client, [bulk_objects::create_definition()]).await;
    cast.create(&client).await;
    // The first samples are a few seconds older than the first pass.
    usage.show(at(MORNING), cast.samples(MORNING).iter().map(workloads::ServedSample::sample));
    let mut sides = BothRecommenders::start(&bed, usage, MORNING).await;

    sides.begin(&cast).await;
    sides.compare(&cast, "after the first pass").await;
    run_day(&mut sides, &cast, 10).await;
    sides.compare(&cast, "after ten minutes").await;
    run_day(&mut sides, &cast, 350).await;
    sides.compare(&cast, "after six hours").await;

    let killed = sides.now() - 100;
    let pod = cast.kill(&client, "deployment", "main", killed).await;
    sides.expect_kill("deployment", &pod, "main", killed, workloads::REQUEST);
    sides.steps_until_kills(&cast).await;
    sides.compare(&cast, "after an OOM kill").await;
    run_day(&mut sides, &cast, 120).await;
    sides.compare(&cast, "two hours after the kill").await;

    let killed = sides.now() - 7;
    let pod = cast.kill(&client, "statefulset", "log", killed).await;
    sides.expect_kill("statefulset", &pod, "log", killed, workloads::REQUEST);
    sides.steps_until_kills(&cast).await;
    sides.compare(&cast, "after a kill where a policy says what it counts for").await;

    // A pod is replaced, and a workload loses all of its pods for two hours.
    let gone = cast.replace(&client, "replicaset").await;
    sides.pod_removed("replicaset", &gone);
    for gone in cast.remove_all(&client, "daemonset").await {
        sides.pod_removed("daemonset", &gone);
    }
    sides.wait_for_pods(cast.pods()).await;
    sides.steps(&cast, MINUTES, 3).await;
    sides.compare(&cast, "while a workload has no pods").await;
    run_day(&mut sides, &cast, 120).await;
    sides.compare(&cast, "after two hours without pods").await;
    cast.start_pods(&client, "daemonset").await;
    sides.wait_for_pods(cast.pods()).await;
    run_day(&mut sides, &cast, 10).await;
    sides.compare(&cast, "with pods again").await;

    sides.restart_ours().await;
    sides.compare(&cast, "after a graceful restart").await;
    run_day(&mut sides, &cast, 240).await;
    sides.compare(&cast, "four hours after the restart").await;

    let policy = workloads::ReferencePolicy {
        max: (Some(60), Some(300 * MEBIBYTE)),
        ..workloads::ReferencePolicy::of("*")
    };
    let generation = cast.change_policy(&client, "job", vec![policy]).await;
    sides.steps_until_generation(&cast, "job", generation).await;
    sides.compare(&cast, "under another policy").await;

    let left = (MORNING + 26 * 60 * MINUTES - sides.now()) / MINUTES;
    run_day(&mut sides, &cast, left).await;
    sides.compare(&cast, "at the end of the day").await;
    sides.stop().await;
}

/// Runs `minutes` minutes; the last step is shortened to fit.
async fn run_day(sides: &mut BothRecommenders, cast: &DayWorkloads, minutes: i64) {
    let step = tier::cases(30, 10);
    let mut left = minutes;
    while left > 0 {
        sides.steps(cast, left.min(step) * MINUTES, 1).await;
        left -= step;
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("valid timestamp")
}
