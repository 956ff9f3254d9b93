//! Guards against surprising updates, on a real cluster: each guard's reason in the condition and the metrics, and how
//! updates resume afterwards.

use std::{cell::Cell, time::Duration};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use plimsoll::{cluster::clock::Clock, controllers::updater::UpdaterHandle};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;
use tokio::sync::watch;

use super::{
    availability_watch::AvailabilityWatch,
    fixture::{self, blocked_condition, deployment, metric_sum, metrics, recommend, vpa},
    sizing_webhook::SizingWebhook,
};
use crate::scripted_day::creation_timestamps::with_clock_timestamps;
use crate::support::{
    Testbed,
    hollow_nodes::{Behaviour, StartBehaviour},
    wait,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// An updater whose clock the test steps, one pass per step, and the workload `web`.
struct Fixture {
    bed: Testbed,
    namespace: String,
    clock: Clock,
    running: UpdaterHandle,
    availability: AvailabilityWatch,
}

impl Fixture {
    /// Creates pods that are some minutes old.
    async fn new(name: &str, replicas: u32, window: Option<&str>, flags: &[&str]) -> Option<Self> {
        let (bed, namespace) = fixture::testbed_and_namespace(name).await?;
        deployment(&bed, &namespace, "web", replicas).await;
        let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
        vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
        annotate(&bed, &namespace, window).await;
        let clock = Clock::fake(Clock::wall().now().later(MINUTE * 5));
        let flags = [flags, &["--updater-interval=1s", "--leader-elect=false"]].concat();
        let (client, its) = (bed.client(), clock.clone());
        let running = fixture::start_with(client, &namespace, &flags, its, |_| {}).await;
        Some(Self { bed, namespace, clock, running, availability })
    }

    /// Advances the clock, and waits for the resulting pass.
    async fn step(&self, by: Duration) {
        let mut passes = self.running.passes();
        let before = passes.borrow_and_update().0;
        self.clock.step(by);
        let passes = passes.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(wait::PATIENCE, passes)
            .await
            .expect("pass finishes in time")
            .expect("running");
    }

    /// Advances the clock by seconds until this many pods have this much CPU.
    async fn step_until(&self, count: usize, cpu: &str) {
        wait::until_ok(&format!("{count} have {cpu}"), || async {
            self.step(SECOND).await;
            let found = self.availability.count_with_cpu(cpu);
            if found == count { Ok(()) } else { Err(format!("{found}")) }
        })
        .await;
    }

    /// Waits until the condition has this reason, and checks that the metrics do too.
    async fn wait_until_blocked_by(&self, reason: &str, word: &str) {
        let polls = Cell::new(0_u32);
        wait::until_ok(&format!("updates are paused: {reason}"), || async {
            // The condition is written outside of a pass, and what pauses updates ends after some time.
            if polls.replace(polls.get() + 1).is_multiple_of(20) {
                self.step(SECOND).await;
            }
            let vpa = fixture::read(&self.bed, &self.namespace, "web").await;
            let found = blocked_condition(&vpa);
            let is_so =
                found.as_ref().is_some_and(|(status, found)| status == "True" && found == reason);
            if is_so { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        assert_eq!(restricted_count(&self.running, word).await, 1.0, "{word}");
    }
}

async fn restricted_count(running: &UpdaterHandle, word: &str) -> f64 {
    let labels = [r#"name="web""#.to_owned(), format!(r#"reason="{word}""#)];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    metric_sum(&metrics(running).await, "plimsoll_restricted_scaling", &labels)
}

async fn annotate(bed: &Testbed, namespace: &str, window: Option<&str>) {
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patch = json!({"metadata": {"annotations": {"plimsoll.dev/change-window": window}}});
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("annotated");
}

#[tokio::test]
async fn a_maintenance_window_a_canary_and_a_cooldown_pause_a_workload_in_turn() {
    let window = "0 0 29 2 * for 1m";
    let Some(fixture) = Fixture::new("guards", 4, Some(window), &[]).await else { return };
    fixture.wait_until_blocked_by("OutsideWindow", "outside_window").await;
    assert_eq!(fixture.availability.count_with_cpu("100m"), 4);

    annotate(&fixture.bed, &fixture.namespace, None).await;
    fixture.step_until(1, "250m").await;
    fixture.wait_until_blocked_by("Canary", "canary").await;
    assert_eq!(restricted_count(&fixture.running, "outside_window").await, 0.0);
    for _ in 0..4 {
        fixture.step(SECOND * 10).await;
    }
    assert_eq!(fixture.availability.count_with_cpu("250m"), 1, "two minutes are not over");
    fixture.step(MINUTE * 2).await;
    fixture.step_until(4, "250m").await;

    // A new recommendation right after it: first the workload cools down, then a canary goes first again.
    recommend(&fixture.bed, &fixture.namespace, "web", "400m").await;
    fixture.wait_until_blocked_by("CoolDown", "cool_down").await;
    for _ in 0..5 {
        fixture.step(MINUTE).await;
    }
    assert_eq!(fixture.availability.count_with_cpu("250m"), 4, "ten minutes are not over");
    fixture.step(MINUTE * 6).await;
    fixture.step_until(1, "400m").await;
    fixture.wait_until_blocked_by("Canary", "canary").await;
    assert_eq!(
        (fixture.availability.count_with_cpu("250m"), fixture.availability.count_with_cpu("400m")),
        (3, 1)
    );
    fixture.running.stop().await;
}

#[tokio::test]
async fn a_namespace_that_used_its_budget_waits_an_hour_and_continues() {
    let flags = [
        "--max-namespace-resizes-per-hour=3",
        "--cool-down=0",
        "--canary-watch=0",
        // Kubelets use a different clock here.
        "--resize-timeout=48h",
    ];
    let Some(fixture) = Fixture::new("guards-budget", 6, None, &flags).await else { return };
    fixture.step_until(3, "250m").await;
    fixture.wait_until_blocked_by("NamespaceBudget", "namespace_budget").await;
    for _ in 0..5 {
        fixture.step(MINUTE * 10).await;
    }
    assert_eq!(fixture.availability.count_with_cpu("250m"), 3, "an hour is not over");
    // Disruptions are counted in buckets of five minutes.
    for _ in 0..2 {
        fixture.step(MINUTE * 10).await;
    }
    fixture.step_until(6, "250m").await;
    wait::until("updates are not paused any more", || async {
        fixture.step(SECOND).await;
        let vpa = fixture::read(&fixture.bed, &fixture.namespace, "web").await;
        blocked_condition(&vpa)
            .filter(|(status, reason)| status == "False" && reason == "NothingHoldsBack")
    })
    .await;
    assert_eq!(restricted_count(&fixture.running, "namespace_budget").await, 0.0);
    assert_eq!(fixture.availability.total_pods(), 6);
    fixture.running.stop().await;
}

/// The age of pods distinguishes those of the rollout from older ones, with a minute for clock skew. So the test creates
/// pods by the updater's clock and steps over that minute.
#[tokio::test]
async fn other_pods_are_evicted_only_after_the_replacement_of_the_first_is_ready() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("canary").await else { return };
    deployment(&bed, &namespace, "web", 4).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "Initial", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    let held = Behaviour { start: StartBehaviour::Held, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "web-", held);
    let clock = Clock::fake(Clock::wall().now());
    let (_advice, at_once) = watch::channel(false);
    let client =
        with_clock_timestamps(bed.client(), clock.clone(), at_once, std::sync::Arc::default());
    let flags = ["--updater-interval=1s", "--canary-watch=1s", "--leader-elect=false"];
    let its = clock.clone();
    let running = fixture::start_with(client, &namespace, &flags, its, |_| {}).await;
    let fixture = Fixture { bed, namespace, clock, running, availability };
    wait::until_ok("it has observed the pods", || async {
        fixture.step(SECOND).await;
        let page = metrics(&fixture.running).await;
        let synced = metric_sum(&page, "plimsoll_feed_synced", &["feed=\"pods\""]);
        if synced >= 1.0 { Ok(()) } else { Err(page) }
    })
    .await;
    fixture.step(MINUTE + SECOND * 2).await;
    fixture::set_mode(&fixture.bed, &fixture.namespace, "web", "Recreate").await;
    fixture.wait_until_blocked_by("Canary", "canary").await;
    let is_replaced = || (fixture.availability.total_pods(), fixture.availability.up()) == (5, 3);
    wait::until("a replacement pod exists", || async { is_replaced().then_some(()) }).await;
    // The second for which the canary is watched has passed, and more.
    for _ in 0..10 {
        fixture.step(SECOND).await;
    }
    assert!(is_replaced(), "{:?}", fixture.availability.requests_over_time());
    fixture.bed.nodes().set_behaviour(&fixture.namespace, "web-", Behaviour::default());
    fixture.step_until(4, "250m").await;
    fixture.availability.wait_until_available(4).await;
    for _ in 0..3 {
        fixture.step(SECOND).await;
    }
    assert_eq!(
        fixture.availability.total_pods(),
        8,
        "each was evicted once: {:?}",
        fixture.availability.requests_over_time()
    );
    assert!(
        fixture.availability.min_available() >= 2,
        "only {} of 4 were ready",
        fixture.availability.min_available()
    );
    fixture.running.stop().await;
}
