//! Many pods that need an update at once: how many of them move, and whether each moves once. The gate has 40, deep 500.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::cluster::clock::Clock;

use super::{
    availability_watch::AvailabilityWatch,
    fixture,
    proxy::{HoldingProxy, RoleWrite},
    sizing_webhook::SizingWebhook,
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, hollow_nodes::is_ready, manifests, wait},
};

const SMALL: StormSize = StormSize { workloads: 5, replicas: 8 };
const MINUTE: Duration = Duration::from_mins(1);
/// 500 pods take a while on two cores.
const PATIENCE: Duration = Duration::from_mins(6);

/// How many workloads there are, and how many pods each of them has.
#[derive(Clone, Copy)]
struct StormSize {
    workloads: usize,
    replicas: usize,
}

impl StormSize {
    fn all(self) -> usize {
        self.workloads * self.replicas
    }
}

/// Workloads whose pods are up and ask for 100m, and a VPA of each that wants 250m.
struct Fixture {
    bed: Testbed,
    namespace: String,
    availability: Vec<AvailabilityWatch>,
}

impl Fixture {
    async fn new(name: &str, mode: &str, size: StormSize) -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        create_definitions(&bed).await;
        bed.nodes().add("node", "1000", "1000Gi").await;
        let namespace = bed.namespace(name).await;
        let client = bed.client();
        for number in 0..size.workloads {
            let name = format!("web{number}");
            let replicas = u32::try_from(size.replicas).expect("some");
            let yaml = manifests::deployment(&name, replicas, "100m", "64Mi");
            manifests::create::<Deployment>(client.clone(), &namespace, &yaml).await;
        }
        let mut referees = Vec::new();
        for number in 0..size.workloads {
            let name = format!("web{number}");
            wait::within(PATIENCE, "its pods are up", || async {
                let pods = fixture::pods(&client, &namespace, &name).await;
                let up = pods.iter().filter(|pod| is_ready(pod));
                (up.count() == size.replicas).then_some(())
            })
            .await;
            referees.push(AvailabilityWatch::watch(client.clone(), &namespace, &name).await);
            fixture::vpa(&bed, &namespace, &name, mode, "250m").await;
        }
        Some(Self { bed, namespace, availability: referees })
    }

    fn with(&self, cpu: &str) -> usize {
        self.availability.iter().map(|referee| referee.count_with_cpu(cpu)).sum()
    }

    fn ever(&self) -> usize {
        self.availability.iter().map(AvailabilityWatch::total_pods).sum()
    }

    fn up(&self) -> usize {
        self.availability.iter().map(AvailabilityWatch::up).sum()
    }
}

#[tokio::test]
async fn one_of_each_workload_goes_first_and_upstreams_way_replaces_each_once() {
    evict_all(SMALL).await;
}

#[tokio::test]
async fn with_all_guards_pods_are_resized_by_the_hour_and_one_of_each_workload_first() {
    resize_all(SMALL, 12).await;
}

mod deep {
    use super::{StormSize, evict_all, resize_all};

    const LARGE: StormSize = StormSize { workloads: 10, replicas: 50 };

    #[tokio::test]
    async fn of_500_pods_one_of_each_workload_goes_first_and_upstreams_way_replaces_each_once() {
        evict_all(LARGE).await;
    }

    #[tokio::test]
    async fn with_all_guards_500_pods_are_resized_by_the_hour_and_one_of_each_workload_first() {
        resize_all(LARGE, 150).await;
    }
}

/// Evictions of all pods: first with all guards, and then as upstream does it.
async fn evict_all(size: StormSize) {
    let Some(scene) = Fixture::new("storm", "Recreate", size).await else { return };
    let (workloads, replicas, all) = (size.workloads, size.replicas, size.all());
    let (bed, namespace) = (&scene.bed, &scene.namespace);
    let _webhook = SizingWebhook::start(bed, namespace, "web0", "250m").await;

    // With all guards: one of each is tried, and watched for two minutes.
    let guarded = HoldingProxy::start(bed, "guarded").await;
    let running = fixture::start(guarded.client(), namespace, &[]).await;
    wait::within(PATIENCE, "one of each has gone", || async {
        (guarded.completed_paths(RoleWrite::Eviction).len() >= workloads).then_some(())
    })
    .await;
    fixture::wait_for_passes(&running, 10).await;
    assert_eq!(guarded.completed_paths(RoleWrite::Eviction).len(), workloads, "and no other one");
    running.stop().await;
    wait::within(PATIENCE, "all are up again", || async { (scene.up() == all).then_some(()) })
        .await;
    let first = scene.ever() - all;
    assert_eq!(first, workloads);
    for referee in &scene.availability {
        assert!(
            referee.min_available() >= replicas - 1,
            "{} of {replicas} were up",
            referee.min_available()
        );
    }

    // Without: half of each workload may be away, and nobody goes twice.
    let way = HoldingProxy::start(bed, "upstream").await;
    let flags = ["--compat=upstream", "--eviction-tolerance=0.5", "--updater-interval=2s"];
    let running = fixture::start(way.client(), namespace, &flags).await;
    wait::within(PATIENCE, "all have more, and are up", || async {
        (scene.with("250m") == all && scene.up() == all).then_some(())
    })
    .await;
    fixture::wait_for_passes(&running, 5).await;
    running.stop().await;
    // The last one of a pass may be asked to go once more by the first look of the next, which is made while the watch has
    // not told of the first: without guards nobody remembers it. It replaces nothing.
    let gone: BTreeSet<String> = way.completed_paths(RoleWrite::Eviction).into_iter().collect();
    assert_eq!(gone.len(), all - first, "all of the others went");
    assert_eq!(scene.ever(), 2 * all, "and each was replaced once");
    for referee in &scene.availability {
        assert!(
            referee.min_available() >= replicas / 2,
            "{} of {replicas} were up",
            referee.min_available()
        );
    }
}

/// Resizes of all pods, of which the budget allows so many an hour. It takes more than three hours.
async fn resize_all(size: StormSize, an_hour: usize) {
    let Some(scene) = Fixture::new("tide", "InPlaceOrRecreate", size).await else { return };
    let (workloads, all) = (size.workloads, size.all());
    let way = HoldingProxy::start(&scene.bed, "tide").await;
    let clock = Clock::fake(Clock::wall().now().later(MINUTE * 5));
    let budget = format!("--max-namespace-resizes-per-hour={an_hour}");
    let more = [
        "--updater-interval=1s",
        "--leader-elect=false",
        // Kubelets are on another clock here.
        "--resize-timeout=48h",
        &*budget,
    ];
    let running =
        fixture::start_with(way.client(), &scene.namespace, &more, clock.clone(), |_| {}).await;
    // How many had been resized by each minute.
    let mut resized = Vec::new();
    let mut made = running.passes();
    while resized.last() != Some(&all) {
        assert!(resized.len() < 10 * 60, "not done after ten hours: {resized:?}");
        let before = made.borrow_and_update().0;
        clock.step(MINUTE);
        let pass = made.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(PATIENCE, pass).await.expect("a pass").expect("it runs");
        resized.push(way.completed_paths(RoleWrite::Resize).len());
    }
    let done = way.completed_paths(RoleWrite::Resize);
    // `/api/v1/namespaces/NAMESPACE/pods/WORKLOAD-…`
    let workload = |path: &String| path.split('/').nth(6)?.split('-').next().map(str::to_owned);
    let first: BTreeSet<String> = done.iter().take(workloads).filter_map(workload).collect();
    assert_eq!(first.len(), workloads, "one of each first: {done:?}");
    for (minute, count) in resized.iter().enumerate() {
        let hour_ago = minute.checked_sub(60).map_or(0, |minute| resized[minute]);
        assert!(count - hour_ago <= an_hour, "until minute {minute}: {resized:?}");
    }
    assert!(resized.len() > 3 * 60, "{all} at {an_hour} an hour take more than three: {resized:?}");
    wait::within(PATIENCE, "all have more", || async { (scene.with("250m") == all).then_some(()) })
        .await;
    running.stop().await;
    assert_eq!(way.attempted_paths(RoleWrite::Eviction), Vec::<String>::new());
    assert_eq!(scene.ever(), all, "none was replaced");
}
