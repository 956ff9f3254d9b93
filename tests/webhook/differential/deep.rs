//! Runs both webhooks as processes on one control plane.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::Value;

use super::compare::{ComparisonCounts, WebhookResponse};
use super::recorded::RecordedCluster;
use super::scenario::Scenario;
use super::{
    DifferentialRun, RUNS, RecordedRun, ReviewedPod, WORKLOADS, WebhookUnderTest, recorded,
};
use crate::support::plimsoll_process::PlimsollProcesses;
use crate::support::skipped::report_skipped;
use crate::support::upstream_process::UpstreamProcesses;
use crate::support::{Testbed, bulk_objects, random, tier, upstream_recording, wait};

#[tokio::test]
async fn upstreams_webhook_and_plimsoll_respond_the_same_for_random_pods() {
    run_with_another_seed(RUNS[0]).await;
}

#[tokio::test]
async fn upstreams_webhook_and_plimsoll_respond_the_same_with_a_limit_on_boosts() {
    run_with_another_seed(RUNS[1]).await;
}

#[tokio::test]
async fn upstreams_webhook_and_plimsoll_respond_the_same_without_boosts() {
    run_with_another_seed(RUNS[2]).await;
}

#[tokio::test]
async fn upstreams_webhook_responds_as_recorded() {
    let (scenarios, recording) = recorded();
    let mut played = Vec::new();
    for (settings, scenario) in RUNS.iter().zip(&scenarios) {
        let Some(run) = run(settings, scenario).await else { return };
        played.push(run);
    }
    if upstream_recording::is_recording() {
        return recording.write(&played);
    }
    for (settings, (recorded, found)) in
        RUNS.iter().zip(recording.read::<Vec<RecordedRun>>().iter().zip(&played))
    {
        let seed = settings.seed;
        differing(seed, &recorded.objects, &found.objects);
        for (index, (recorded, found)) in recorded.answers.iter().zip(&found.answers).enumerate() {
            assert_eq!(recorded, found, "seed {seed}, question {index}");
        }
        assert_eq!(recorded.answers.len(), found.answers.len(), "seed {seed}");
    }
}

/// Returns the objects that differ between the recording and this API server.
fn differing(seed: u64, recorded: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) {
    assert!(recorded.keys().eq(found.keys()), "seed {seed}: other paths");
    for (path, recorded) in recorded {
        assert_eq!(recorded, &found[path], "seed {seed}: {path}");
    }
}

/// Runs with the seed in the environment, or one that is not recorded, with more workloads.
async fn run_with_another_seed(settings: DifferentialRun) {
    if upstream_recording::is_recording() {
        return;
    }
    let seed = random::seed(settings.seed + 1_000);
    let scenario = Scenario::draw(seed, tier::cases(WORKLOADS, 2 * WORKLOADS));
    run(&DifferentialRun { seed, ..settings }, &scenario).await;
}

/// Sends reviews to both until they agree. Returns upstream's responses.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn run(settings: &DifferentialRun, scenario: &Scenario) -> Option<RecordedRun> {
    let &DifferentialRun { seed, flags } = settings;
    println!("{}={seed}", random::SEED);
    let bed = Testbed::private().await?;
    let upstream = UpstreamProcesses::new(&bed).await?;
    let is_ours = std::env::var("PLIMSOLL_PEER").as_deref() != Ok("upstream");
    if is_ours && let Some(reason) = PlimsollProcesses::missing_role("admission-controller") {
        report_skipped(reason);
        return None;
    }
    let client = bed.client();
    bulk_objects::stop_controllers(&bed).await;
    bulk_objects::send(&client, scenario.create_namespaces()).await;
    bulk_objects::send(&client, [bulk_objects::create_definition()]).await;
    bulk_objects::send(&client, scenario.create_owners_and_ranges()).await;
    bulk_objects::send(&client, scenario.vpas()).await;
    bulk_objects::send(&client, scenario.recommendations()).await;
    let objects = RecordedCluster::read(&client, scenario).await;

    let first = upstream.webhook("upstream", flags);
    let ours = PlimsollProcesses::new(&bed);
    let second = if is_ours {
        ours.webhook("ours", &[flags, &["--compat=upstream"]].concat())
    } else {
        upstream.webhook("peer", flags)
    };
    let (first, second) = (
        WebhookUnderTest::at("upstream", first.0, &first.1),
        WebhookUnderTest::at("peer", second.0, &second.1),
    );
    let questions = ReviewedPod::all(scenario);
    let tally = RefCell::new(ComparisonCounts::default());
    let open: RefCell<Vec<usize>> = RefCell::new((0..questions.len()).collect());
    let answers: RefCell<Vec<_>> = RefCell::new(vec![WebhookResponse::Dropped; questions.len()]);
    // Retry until both have read all objects.
    wait::until_ok(&format!("both answer the same (seed {seed})"), || async {
        let mut left = Vec::new();
        let mut differences = Vec::new();
        for index in open.take() {
            let question = &questions[index];
            let (theirs, other) = (first.ask(question).await, second.ask(question).await);
            if let Some(difference) = tally.borrow_mut().compare(question, &theirs, &other) {
                differences.push(difference);
                left.push(index);
            }
            answers.borrow_mut()[index] = theirs;
        }
        let count = left.len();
        open.replace(left);
        differences.truncate(3);
        if count == 0 { Ok(()) } else { Err(format!("{count} differ\n{}", differences.join("\n"))) }
    })
    .await;
    let tally = tally.into_inner();
    println!("{tally:?}");
    tally.check();
    Some(RecordedRun { objects, answers: answers.into_inner() })
}
