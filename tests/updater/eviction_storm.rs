//! Many pods need an update at once: how many of them are updated, and whether each is updated once. The default run has 40
//! pods, a deep run 500.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::cluster::clock::Clock;

use super::{availability_watch::AvailabilityWatch, fixture, sizing_webhook::SizingWebhook};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        holding_proxy::{HoldingProxy, RoleWrite},
        hollow_nodes::is_ready,
        manifests, wait,
    },
};

const SMALL: StormSize = StormSize { workloads: 5, replicas: 8 };
const MINUTE: Duration = Duration::from_mins(1);
/// 500 pods take minutes on two cores.
const PATIENCE: Duration = Duration::from_mins(6);

/// Number of workloads, and pods of each workload.
#[derive(Clone, Copy)]
struct StormSize {
    workloads: usize,
    replicas: usize,
}

impl StormSize {
    fn total_pods(self) -> usize {
        self.workloads * self.replicas
    }
}

/// Workloads whose pods are ready and request 100m, each with a VPA that recommends 250m.
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
            let replicas = u32::try_from(size.replicas).expect("fits");
            let yaml = manifests::deployment(&name, replicas, "100m", "64Mi");
            manifests::create::<Deployment>(client.clone(), &namespace, &yaml).await;
        }
        let mut availability = Vec::new();
        for number in 0..size.workloads {
            let name = format!("web{number}");
            wait::within(PATIENCE, "its pods are up", || async {
                let pods = fixture::pods(&client, &namespace, &name).await;
                let up = pods.iter().filter(|pod| is_ready(pod));
                (up.count() == size.replicas).then_some(())
            })
            .await;
            availability.push(AvailabilityWatch::watch(client.clone(), &namespace, &name).await);
            fixture::vpa(&bed, &namespace, &name, mode, "250m").await;
        }
        Some(Self { bed, namespace, availability })
    }

    fn with(&self, cpu: &str) -> usize {
        self.availability.iter().map(|watch| watch.count_with_cpu(cpu)).sum()
    }

    fn pods_so_far(&self) -> usize {
        self.availability.iter().map(AvailabilityWatch::total_pods).sum()
    }

    fn up(&self) -> usize {
        self.availability.iter().map(AvailabilityWatch::up).sum()
    }
}

#[tokio::test]
async fn with_compat_upstream_one_pod_of_each_workload_is_first_and_each_is_replaced_once() {
    evict_all(SMALL).await;
}

#[tokio::test]
async fn with_all_guards_pods_are_resized_within_hourly_budgets_one_of_each_workload_first() {
    resize_all(SMALL, 12).await;
}

mod deep {
    use super::{StormSize, evict_all, resize_all};

    const LARGE: StormSize = StormSize { workloads: 10, replicas: 50 };

    #[tokio::test]
    async fn with_compat_upstream_500_pods_are_replaced_once_one_of_each_workload_first() {
        evict_all(LARGE).await;
    }

    #[tokio::test]
    async fn with_all_guards_500_pods_are_resized_within_hourly_budgets() {
        resize_all(LARGE, 150).await;
    }
}

/// Evicts all pods: first with all guards, then with upstream's behaviour.
async fn evict_all(size: StormSize) {
    let Some(fixture) = Fixture::new("storm", "Recreate", size).await else { return };
    let (workloads, replicas, total) = (size.workloads, size.replicas, size.total_pods());
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    let _webhook = SizingWebhook::start(bed, namespace, "web0", "250m").await;

    // With all guards: one pod of each workload is the canary, watched for two minutes.
    let guarded = HoldingProxy::start(bed, "guarded").await;
    let running = fixture::start(guarded.client(), namespace, &[]).await;
    wait::within(PATIENCE, "one pod of each workload was evicted", || async {
        (guarded.completed_paths(RoleWrite::Eviction).len() >= workloads).then_some(())
    })
    .await;
    fixture::wait_for_passes(&running, 10).await;
    assert_eq!(guarded.completed_paths(RoleWrite::Eviction).len(), workloads, "and no other pod");
    running.stop().await;
    wait::within(PATIENCE, "all pods are ready again", || async {
        (fixture.up() == total).then_some(())
    })
    .await;
    let first = fixture.pods_so_far() - total;
    assert_eq!(first, workloads);
    for watch in &fixture.availability {
        assert!(
            watch.min_available() >= replicas - 1,
            "only {} of {replicas} were ready",
            watch.min_available()
        );
    }

    // Without guards: half of each workload may be unavailable, and no pod is evicted twice.
    let proxy = HoldingProxy::start(bed, "upstream").await;
    let flags = ["--compat=upstream", "--eviction-tolerance=0.5", "--updater-interval=2s"];
    let running = fixture::start(proxy.client(), namespace, &flags).await;
    wait::within(PATIENCE, "all pods have more CPU and are ready", || async {
        (fixture.with("250m") == total && fixture.up() == total).then_some(())
    })
    .await;
    fixture::wait_for_passes(&running, 5).await;
    running.stop().await;
    // The next pass may evict the last pod of this one again if its watch is behind: without guards the updater does not
    // remember the eviction. The second eviction replaces no pod.
    let evicted: BTreeSet<String> =
        proxy.completed_paths(RoleWrite::Eviction).into_iter().collect();
    assert_eq!(evicted.len(), total - first, "all others were evicted");
    assert_eq!(fixture.pods_so_far(), 2 * total, "and each was replaced once");
    for watch in &fixture.availability {
        assert!(
            watch.min_available() >= replicas / 2,
            "only {} of {replicas} were ready",
            watch.min_available()
        );
    }
}

/// Resizes all pods, limited by an hourly budget. Takes more than three hours of fake time.
async fn resize_all(size: StormSize, an_hour: usize) {
    let Some(fixture) = Fixture::new("tide", "InPlaceOrRecreate", size).await else { return };
    let (workloads, total) = (size.workloads, size.total_pods());
    let proxy = HoldingProxy::start(&fixture.bed, "tide").await;
    let clock = Clock::fake(Clock::wall().now().later(MINUTE * 5));
    let budget = format!("--max-namespace-resizes-per-hour={an_hour}");
    let more = [
        "--updater-interval=1s",
        "--leader-elect=false",
        // Kubelets use a different clock here.
        "--resize-timeout=48h",
        &*budget,
    ];
    let running =
        fixture::start_with(proxy.client(), &fixture.namespace, &more, clock.clone(), |_| {}).await;
    // Number of pods resized by each minute.
    let mut resized = Vec::new();
    let mut passes = running.passes();
    while resized.last() != Some(&total) {
        assert!(resized.len() < 10 * 60, "not done after ten hours: {resized:?}");
        let before = passes.borrow_and_update().0;
        clock.step(MINUTE);
        let pass = passes.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(PATIENCE, pass)
            .await
            .expect("pass finishes in time")
            .expect("running");
        resized.push(proxy.completed_paths(RoleWrite::Resize).len());
    }
    let resize_paths = proxy.completed_paths(RoleWrite::Resize);
    // `/api/v1/namespaces/NAMESPACE/pods/WORKLOAD-…`
    let workload = |path: &String| path.split('/').nth(6)?.split('-').next().map(str::to_owned);
    let first: BTreeSet<String> =
        resize_paths.iter().take(workloads).filter_map(workload).collect();
    assert_eq!(first.len(), workloads, "one pod of each workload first: {resize_paths:?}");
    for (minute, count) in resized.iter().enumerate() {
        let hour_ago = minute.checked_sub(60).map_or(0, |minute| resized[minute]);
        assert!(count - hour_ago <= an_hour, "until minute {minute}: {resized:?}");
    }
    assert!(
        resized.len() > 3 * 60,
        "{total} at {an_hour} an hour take more than three: {resized:?}"
    );
    wait::within(PATIENCE, "all pods are resized", || async {
        (fixture.with("250m") == total).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction), Vec::<String>::new());
    assert_eq!(fixture.pods_so_far(), total, "none was replaced");
}
