//! The horizontal controller beside kube-controller-manager's, which scales the same objects.

mod adopted;
mod deep;
mod hold_while;
mod in_memory;
mod metric_faults;
mod query_tenants;
mod replace;
mod slow_usage;
mod stepped_day;
mod takeover;
mod with_vpa;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{Api, api::ListParams};
use plimsoll::{
    cli::horizontal_config,
    cluster::clock::Clock,
    controllers::{self, horizontal::HorizontalHandle},
};

use crate::support::{
    MetricsServer, Testbed,
    api_proxy::{ApiProxy, pass_through},
    hollow_nodes::is_ready,
    http_get::http_get,
    manifests,
    metrics_server::UsageValue,
    skipped::report_skipped,
    wait,
};

const MEBIBYTE: u64 = 1 << 20;

/// The metrics of an object, as YAML.
const MEMORY: &str = "{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}";
const CONTAINER: &str = "{type: ContainerResource, containerResource: {name: memory, container: main, \
                         target: {type: AverageValue, averageValue: 200Mi}}}";
const VALUE: &str = "{type: External, external: {metric: {name: jobs, selector: {matchLabels: {queue: a}}}, target: {type: Value, value: '10'}}}";
const AVERAGE: &str = "{type: External, external: {metric: {name: jobs, selector: {matchLabels: {queue: a}}}, \
                       target: {type: AverageValue, averageValue: '7'}}}";
const MISSING: &str =
    "{type: External, external: {metric: {name: unknown}, target: {type: Value, value: '10'}}}";

/// A workload of each of these names, and its metrics.
const WORKLOADS: [(&str, &[&str]); 5] = [
    ("memory", &[MEMORY]),
    ("container", &[CONTAINER]),
    ("value", &[VALUE]),
    ("average", &[AVERAGE, MEMORY]),
    ("missing", &[MISSING, MEMORY]),
];

/// An object for a workload of the same name, as YAML.
fn hpa(name: &str, metrics: &[&str], behavior: &str, annotations: &str) -> String {
    format!(
        "{{metadata: {{name: {name}, annotations: {annotations}}}, spec: {{minReplicas: 2, maxReplicas: 6, metrics: [{}], \
         behavior: {behavior}, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}}}",
        metrics.join(", ")
    )
}

async fn start(proxy: &ApiProxy, namespace: &str, mode: &str) -> HorizontalHandle {
    let flags = ["--horizontal-pod-autoscaler-sync-period=1s", &format!("--mode={mode}")];
    start_with(proxy, namespace, &flags).await
}

async fn start_with(proxy: &ApiProxy, namespace: &str, flags: &[&str]) -> HorizontalHandle {
    let of_namespace = [
        "--address=127.0.0.1:0",
        &format!("--namespaces={namespace}"),
        &format!("--leader-elect-resource-namespace={namespace}"),
    ];
    let config = horizontal_config(&[&of_namespace, flags].concat()).expect("valid flags");
    let role = controllers::start(config, proxy.client.clone(), Clock::wall()).await;
    role.expect("starts")
}

/// A controller beside that of kube-controller-manager.
struct Fixture {
    bed: Testbed,
    namespace: String,
    usage: MetricsServer,
    proxy: ApiProxy,
    role: HorizontalHandle,
}

impl Fixture {
    async fn new(name: &str, mode: &str) -> Option<Self> {
        let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
            report_skipped("a whole control plane");
            return None;
        };
        let namespace = bed.namespace(name).await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
        let role = start(&proxy, &namespace, mode).await;
        Some(Self { bed, namespace, usage, proxy, role })
    }

    /// Creates a workload with two pods, and an object for it.
    async fn create(&self, name: &str, metrics: &[&str]) {
        let workload = manifests::deployment(name, 2, "100m", "256Mi");
        manifests::create::<Deployment>(self.bed.client(), &self.namespace, &workload).await;
        let prefix = format!("{name}-");
        self.bed.nodes().pods(&self.namespace, &prefix, 2, "are ready", is_ready).await;
        let hpa = hpa(name, metrics, "null", "{}");
        manifests::create::<HorizontalPodAutoscaler>(self.bed.client(), &self.namespace, &hpa)
            .await;
    }

    /// Sets memory and jobs of all workloads.
    fn load(&self, mebibytes: u64, jobs: f64) {
        for (name, _) in WORKLOADS {
            let usage = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
            self.usage.set_all(&self.namespace, &format!("{name}-"), "main", usage);
        }
        self.usage.set_external(&self.namespace, "jobs", &[("queue", "a")], jobs);
    }

    async fn series(&self, family: &str, label: &str) -> BTreeMap<String, f64> {
        exported_series(&self.role, family, label).await
    }

    async fn comparisons(&self) -> BTreeMap<String, f64> {
        comparisons(&self.role).await
    }

    /// The desired replicas by object, according to kube-controller-manager.
    async fn desired(&self) -> BTreeMap<String, i32> {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let objects = api.list(&ListParams::default()).await.expect("a list");
        let desired = objects
            .into_iter()
            .filter_map(|object| Some((object.metadata.name?, object.status?.desired_replicas)));
        desired.collect()
    }

    /// Waits until kube-controller-manager wants these replicas, and every decision since is the same.
    async fn wait_until_both_decide(&self, expected: [(&str, i32); 5]) {
        let expected: BTreeMap<String, i32> =
            expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        wait::until_ok("kube-controller-manager and the role decide", || async {
            let (theirs, ours) =
                (self.desired().await, self.series("plimsoll_effective", "name").await);
            let ours: BTreeMap<String, i32> =
                ours.into_iter().map(|(name, count)| (name, count as i32)).collect();
            let is_done = theirs == expected && ours == expected;
            if is_done { Ok(()) } else { Err(format!("theirs {theirs:?}, ours {ours:?}")) }
        })
        .await;
    }
}

/// The values of a family that the role exports, by the value of a label; without a label, the only one.
async fn exported_series(
    role: &HorizontalHandle,
    family: &str,
    label: &str,
) -> BTreeMap<String, f64> {
    let text = http_get(&format!("http://{}/metrics", role.address())).await;
    let text = String::from_utf8_lossy(&text.expect("metrics")).into_owned();
    let series = text.lines().filter_map(|line| {
        let labels = line.strip_prefix(family)?;
        if label.is_empty() {
            return Some((String::new(), labels.strip_prefix(' ')?.parse().ok()?));
        }
        let labels = labels.strip_prefix('{')?;
        let (_, value) = labels.split_once(&format!("{label}=\""))?;
        let (value, _) = value.split_once('"')?;
        Some((value.to_owned(), line.rsplit_once(' ')?.1.parse().ok()?))
    });
    series.collect()
}

/// The number of comparisons by result.
async fn comparisons(role: &HorizontalHandle) -> BTreeMap<String, f64> {
    exported_series(role, "plimsoll_shadow_passes_total", "result").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_agree_with_the_hpa_controller_and_nothing_but_the_lease_is_written() {
    let Some(fixture) = Fixture::new("horizontal", "shadow").await else { return };
    fixture.load(200, 10.0);
    for (name, metrics) in WORKLOADS {
        fixture.create(name, metrics).await;
    }
    // 200 of 256 MiB are 78 %, and 10 jobs the target; with an average of 7 for each pod they are 0.71 of it, and memory
    // decides. An unknown metric removes nothing.
    fixture.wait_until_both_decide(WORKLOADS.map(|(name, _)| (name, 2))).await;
    fixture.load(400, 20.0);
    // Each goes to twice its pods with every pass, up to the maximum.
    fixture.wait_until_both_decide(WORKLOADS.map(|(name, _)| (name, 6))).await;
    let reasons = fixture.series("plimsoll_restricted_scaling", "reason").await;
    assert_eq!(reasons.get("max"), Some(&1.0), "{reasons:?}");

    let before = fixture.comparisons().await;
    wait::until_ok("ten more decisions of each object are compared", || async {
        let now = fixture.comparisons().await;
        if now["same"] >= before["same"] + 50.0 { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    let results = fixture.comparisons().await;
    assert_eq!(results["unexplained"], 0.0, "{results:?}");
    let written = fixture.proxy.written_objects("/");
    let lease = format!(
        "apis/coordination.k8s.io/v1/namespaces/{}/leases/plimsoll-horizontal",
        fixture.namespace
    );
    let others = written.iter().filter(|path| **path != lease && !path.contains("authorization"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
    // Usage is read once for all objects of the namespace.
    let queries = fixture.proxy.requests().into_iter();
    let usage = queries.filter(|(_, path)| path.contains("metrics.k8s.io")).count();
    let passes = fixture.role.reconciles();
    assert!(usage as u64 * 3 < passes, "{usage} requests for the usage in {passes} reconciles");
    tokio::time::timeout(Duration::from_mins(1), fixture.role.stop()).await.expect("it stops");
}
