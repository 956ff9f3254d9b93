//! Both webhooks as processes on one control plane.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::Value;

use super::compare::{Answer, Tally};
use super::recorded::Cluster;
use super::scenario::Scenario;
use super::{PLAYS, Play, Played, Question, WORKLOADS, Webhook, recorded};
use crate::support::not_run::not_run;
use crate::support::ours::Ours;
use crate::support::upstream::Upstream;
use crate::support::{Bed, fleet, golden, noise, tier, wait};

#[tokio::test]
async fn upstreams_webhook_and_ours_answer_the_same_about_random_pods() {
    play_with_another_seed(PLAYS[0]).await;
}

#[tokio::test]
async fn upstreams_webhook_and_ours_answer_the_same_with_a_cap_on_boosts() {
    play_with_another_seed(PLAYS[1]).await;
}

#[tokio::test]
async fn upstreams_webhook_and_ours_answer_the_same_without_boosts() {
    play_with_another_seed(PLAYS[2]).await;
}

#[tokio::test]
async fn upstreams_webhook_answers_what_was_recorded() {
    let (scenarios, recording) = recorded();
    let mut played = Vec::new();
    for (play, scenario) in PLAYS.iter().zip(&scenarios) {
        let Some(one) = run(play, scenario).await else { return };
        played.push(one);
    }
    if golden::is_recording() {
        return recording.write(&played);
    }
    for (play, (recorded, found)) in
        PLAYS.iter().zip(recording.read::<Vec<Played>>().iter().zip(&played))
    {
        let seed = play.seed;
        differing(seed, &recorded.objects, &found.objects);
        for (index, (recorded, found)) in recorded.answers.iter().zip(&found.answers).enumerate() {
            assert_eq!(recorded, found, "seed {seed}, question {index}");
        }
        assert_eq!(recorded.answers.len(), found.answers.len(), "seed {seed}");
    }
}

/// Objects that the API server shows otherwise than it did.
fn differing(seed: u64, recorded: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) {
    assert!(recorded.keys().eq(found.keys()), "seed {seed}: other paths");
    for (path, recorded) in recorded {
        assert_eq!(recorded, &found[path], "seed {seed}: {path}");
    }
}

/// Plays with the seed that the environment names, or one that is not recorded, about more workloads.
async fn play_with_another_seed(play: Play) {
    if golden::is_recording() {
        return;
    }
    let seed = noise::seed(play.seed + 1_000);
    let scenario = Scenario::draw(seed, tier::cases(WORKLOADS, 2 * WORKLOADS));
    run(&Play { seed, ..play }, &scenario).await;
}

/// Asks both until they agree. Returns what upstream answered.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn run(play: &Play, scenario: &Scenario) -> Option<Played> {
    let &Play { seed, flags } = play;
    println!("{}={seed}", noise::SEED);
    let bed = Bed::private().await?;
    let upstream = Upstream::on(&bed).await?;
    let is_ours = std::env::var("PLIMSOLL_PEER").as_deref() != Ok("upstream");
    if is_ours && let Some(reason) = Ours::lacks("admission-controller") {
        not_run(reason);
        return None;
    }
    let client = bed.client();
    fleet::end_controllers(&bed).await;
    fleet::send(&client, scenario.homes()).await;
    fleet::send(&client, [fleet::create_definition()]).await;
    fleet::send(&client, scenario.surroundings()).await;
    fleet::send(&client, scenario.vpas()).await;
    fleet::send(&client, scenario.recommendations()).await;
    let objects = Cluster::read(&client, scenario).await;

    let first = upstream.webhook("upstream", flags);
    let ours = Ours::on(&bed);
    let second = if is_ours {
        ours.webhook("ours", &[flags, &["--compat=upstream"]].concat())
    } else {
        upstream.webhook("peer", flags)
    };
    let (first, second) =
        (Webhook::at("upstream", first.0, &first.1), Webhook::at("peer", second.0, &second.1));
    let questions = Question::all(scenario);
    let tally = RefCell::new(Tally::default());
    let open: RefCell<Vec<usize>> = RefCell::new((0..questions.len()).collect());
    let answers: RefCell<Vec<_>> = RefCell::new(vec![Answer::Dropped; questions.len()]);
    // Until both have read everything.
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
    Some(Played { objects, answers: answers.into_inner() })
}
