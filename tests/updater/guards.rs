//! What keeps surprises away, on a real cluster: each guard by its word, in the condition and in the series, and what
//! goes on once it lets go.

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

/// An updater whose time a test steps, one pass a step, and the workload `web` that it looks after.
struct Fixture {
    bed: Testbed,
    namespace: String,
    clock: Clock,
    running: UpdaterHandle,
    availability: AvailabilityWatch,
}

impl Fixture {
    /// Its pods are some minutes old.
    async fn new(name: &str, replicas: u32, window: Option<&str>, flags: &[&str]) -> Option<Self> {
        let (bed, namespace) = fixture::testbed_and_namespace(name).await?;
        deployment(&bed, &namespace, "web", replicas).await;
        let referee = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
        vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
        annotate(&bed, &namespace, window).await;
        let clock = Clock::fake(Clock::wall().now().later(MINUTE * 5));
        let flags = [flags, &["--updater-interval=1s", "--leader-elect=false"]].concat();
        let (client, its) = (bed.client(), clock.clone());
        let running = fixture::start_with(client, &namespace, &flags, its, |_| {}).await;
        Some(Self { bed, namespace, clock, running, availability: referee })
    }

    /// Lets time go by, and waits for the pass that this leads to.
    async fn step(&self, by: Duration) {
        let mut made = self.running.passes();
        let before = made.borrow_and_update().0;
        self.clock.step(by);
        let made = made.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(wait::PATIENCE, made).await.expect("a pass").expect("it runs");
    }

    /// Lets seconds go by until so many pods have that much.
    async fn step_until(&self, count: usize, cpu: &str) {
        wait::until_ok(&format!("{count} have {cpu}"), || async {
            self.step(SECOND).await;
            let found = self.availability.count_with_cpu(cpu);
            if found == count { Ok(()) } else { Err(format!("{found}")) }
        })
        .await;
    }

    /// Waits until the condition says this reason, and looks whether the series do.
    async fn wait_until_blocked_by(&self, reason: &str, word: &str) {
        let looks = Cell::new(0_u32);
        wait::until_ok(&format!("updates are held back: {reason}"), || async {
            // It is written without another pass, and what holds them back is over some time.
            if looks.replace(looks.get() + 1).is_multiple_of(20) {
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
async fn a_window_a_canary_and_a_rest_hold_a_workload_one_after_the_other_and_say_so() {
    let window = "0 0 29 2 * for 1m";
    let Some(scene) = Fixture::new("guards", 4, Some(window), &[]).await else { return };
    scene.wait_until_blocked_by("OutsideWindow", "outside_window").await;
    assert_eq!(scene.availability.count_with_cpu("100m"), 4);

    annotate(&scene.bed, &scene.namespace, None).await;
    scene.step_until(1, "250m").await;
    scene.wait_until_blocked_by("Canary", "canary").await;
    assert_eq!(restricted_count(&scene.running, "outside_window").await, 0.0);
    for _ in 0..4 {
        scene.step(SECOND * 10).await;
    }
    assert_eq!(scene.availability.count_with_cpu("250m"), 1, "two minutes are not over");
    scene.step(MINUTE * 2).await;
    scene.step_until(4, "250m").await;

    // Another wish right after it: the workload rests first, and then one goes first again.
    recommend(&scene.bed, &scene.namespace, "web", "400m").await;
    scene.wait_until_blocked_by("CoolDown", "cool_down").await;
    for _ in 0..5 {
        scene.step(MINUTE).await;
    }
    assert_eq!(scene.availability.count_with_cpu("250m"), 4, "ten minutes are not over");
    scene.step(MINUTE * 6).await;
    scene.step_until(1, "400m").await;
    scene.wait_until_blocked_by("Canary", "canary").await;
    assert_eq!(
        (scene.availability.count_with_cpu("250m"), scene.availability.count_with_cpu("400m")),
        (3, 1)
    );
    scene.running.stop().await;
}

#[tokio::test]
async fn a_namespace_that_had_its_changes_waits_for_an_hour_and_then_goes_on() {
    let flags = [
        "--max-namespace-resizes-per-hour=3",
        "--cool-down=0",
        "--canary-watch=0",
        // Kubelets are on another clock here.
        "--resize-timeout=48h",
    ];
    let Some(scene) = Fixture::new("guards-budget", 6, None, &flags).await else { return };
    scene.step_until(3, "250m").await;
    scene.wait_until_blocked_by("NamespaceBudget", "namespace_budget").await;
    for _ in 0..5 {
        scene.step(MINUTE * 10).await;
    }
    assert_eq!(scene.availability.count_with_cpu("250m"), 3, "an hour is not over");
    // Changes are counted by five minutes.
    for _ in 0..2 {
        scene.step(MINUTE * 10).await;
    }
    scene.step_until(6, "250m").await;
    wait::until("nothing holds it back any more", || async {
        scene.step(SECOND).await;
        let vpa = fixture::read(&scene.bed, &scene.namespace, "web").await;
        blocked_condition(&vpa)
            .filter(|(status, reason)| status == "False" && reason == "NothingHoldsBack")
    })
    .await;
    assert_eq!(restricted_count(&scene.running, "namespace_budget").await, 0.0);
    assert_eq!(scene.availability.total_pods(), 6);
    scene.running.stop().await;
}

/// Pods of a rollout are distinguished from those before it by their age, with a minute for wrong clocks. So pods are created by the
/// clock that the updater goes by, and it steps over that minute.
#[tokio::test]
async fn the_first_pod_that_is_evicted_has_to_serve_again_before_others_follow() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("canary").await else { return };
    deployment(&bed, &namespace, "web", 4).await;
    let referee = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "Initial", "250m").await;
    let _webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
    let held = Behaviour { start: StartBehaviour::Held, ..Behaviour::default() };
    bed.nodes().set_behaviour(&namespace, "web-", held);
    let clock = Clock::fake(Clock::wall().now());
    let (_advice, at_once) = watch::channel(false);
    let client = with_clock_timestamps(bed.client(), clock.clone(), at_once);
    let flags = ["--updater-interval=1s", "--canary-watch=1s", "--leader-elect=false"];
    let its = clock.clone();
    let running = fixture::start_with(client, &namespace, &flags, its, |_| {}).await;
    let scene = Fixture { bed, namespace, clock, running, availability: referee };
    wait::until_ok("it has seen the pods", || async {
        scene.step(SECOND).await;
        let page = metrics(&scene.running).await;
        let synced = metric_sum(&page, "plimsoll_feed_synced", &["feed=\"pods\""]);
        if synced >= 1.0 { Ok(()) } else { Err(page) }
    })
    .await;
    scene.step(MINUTE + SECOND * 2).await;
    fixture::set_mode(&scene.bed, &scene.namespace, "web", "Recreate").await;
    scene.wait_until_blocked_by("Canary", "canary").await;
    let is_replaced = || (scene.availability.total_pods(), scene.availability.up()) == (5, 3);
    wait::until("another one came", || async { is_replaced().then_some(()) }).await;
    // The second that it is watched for is over, and more.
    for _ in 0..10 {
        scene.step(SECOND).await;
    }
    assert!(is_replaced(), "{:?}", scene.availability.requests_over_time());
    scene.bed.nodes().set_behaviour(&scene.namespace, "web-", Behaviour::default());
    scene.step_until(4, "250m").await;
    scene.availability.wait_until_available(4).await;
    for _ in 0..3 {
        scene.step(SECOND).await;
    }
    assert_eq!(
        scene.availability.total_pods(),
        8,
        "each went once: {:?}",
        scene.availability.requests_over_time()
    );
    assert!(
        scene.availability.min_available() >= 2,
        "{} of 4 were up",
        scene.availability.min_available()
    );
    scene.running.stop().await;
}
