//! Upstream's real recommender reads the history of the same server as ours.

use jiff::Timestamp;
use plimsoll_core::types::Time;

use super::{FLAGS, GeneratedCluster, RECORDED, Recording, SEED};
use crate::prometheus::proxy::FaultyProxy;
use crate::recommender_differential::compare;
use crate::support::clock::wall_now;
use crate::support::upstream_process::{Role, UpstreamProcesses};
use crate::support::{Testbed, random, tier, upstream_recording, wait};

#[tokio::test]
async fn the_first_recommendation_equals_upstreams() {
    if upstream_recording::is_recording() {
        return;
    }
    let world = GeneratedCluster::draw(random::seed(SEED + 1_000), tier::cases(200, 400));
    run(&world).await;
}

#[tokio::test]
async fn upstreams_first_recommendation_is_the_recorded_one() {
    let world = GeneratedCluster::draw(SEED, RECORDED);
    let recording = world.recording();
    let Some(found) = run(&world).await else { return };
    if upstream_recording::is_recording() {
        return recording.write(&found);
    }
    // At another hour of the day upstream's weights differ, so only the presence of targets is compared.
    let recorded: Recording = recording.read();
    let targets = |recording: &Recording| {
        let fields = recording.statuses.iter().flat_map(|(object, fields)| {
            fields.keys().map(move |field| (object.clone(), field.clone()))
        });
        fields.collect::<Vec<_>>()
    };
    assert_eq!(targets(&found), targets(&recorded));
}

/// Compares both on one control plane. Returns upstream's statuses.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn run(world: &GeneratedCluster) -> Option<Recording> {
    println!("{}={}", random::SEED, world.seed);
    let bed = Testbed::private().await?;
    let upstream = UpstreamProcesses::new(&bed).await?;
    let client = bed.client();
    world.create(&bed, &["left", "right"]).await;

    // Both read full hours before their own start time. Samples lie just before the hour, and pods start and end far
    // from it, so that a small difference in start time does not change the result: a percentile can depend on a
    // single sample.
    let end = Timestamp::from_second(wall_now().as_second() / 60 * 60).expect("a minute");
    let server = world.server(end).await?;
    let proxy = FaultyProxy::start(&server.url()).await;
    let address = format!("--prometheus-address={}", proxy.url());
    let mut flags = FLAGS.to_vec();
    flags.extend([&*address, "--recommender-name=left"]);
    upstream.start_as("upstream", Role::Recommender, &flags);
    wait::until("upstream has recommendations for all", || async {
        upstream.assert_running("upstream");
        let found = compare::statuses(&client).await;
        (found.recommended() == world.workloads.len()).then_some(())
    })
    .await;
    let now =
        proxy.take_requests().iter().map(String::as_str).find_map(end_of).expect("upstream's end");
    let same =
        world.compare(&bed, proxy.url(), now, async || compare::statuses(&client).await).await;
    let (end, now) = (end.as_second(), now.as_nanos() / 1_000_000);
    Some(Recording { end, now, statuses: same.left })
}

/// The end of a requested range.
fn end_of(form: &str) -> Option<Time> {
    let (_, rest) = form.split_once("query_range")?.1.split_once("end=")?;
    let text = rest.split('&').next()?;
    let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
    // Servers ignore digits beyond milliseconds.
    let millis: i64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let seconds: i64 = seconds.parse().ok()?;
    Some(Time::from_nanos(seconds * 1_000_000_000 + millis * 1_000_000))
}
