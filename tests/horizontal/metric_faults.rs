//! Metrics that are away, slow, half there, empty, not a number, stale, negative or of other pods remove no replicas of adopted
//! objects, while kube-controller-manager reads the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use jiff::SignedDuration;
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{Fixture, MEBIBYTE, MEMORY, VALUE, hpa, in_memory::DISABLED, start_with};
use crate::support::{
    MetricsServer, Testbed,
    api_proxy::{ApiProxy, hang, pass_through},
    clock::wall_now,
    hollow_nodes::is_ready,
    http_get::http_get,
    manifests,
    metrics_server::{Fault, MetricsApi, Sample, UsageValue},
    skipped::report_skipped,
    wait,
};

/// The name of each object, its mode, the behavior that the HPA controller sees, and its metric.
const OBJECTS: [(&str, &str, &str, &str); 3] = [
    ("memory", "drive", DISABLED, MEMORY),
    ("value", "drive", DISABLED, VALUE),
    ("assist", "assist", "{scaleDown: {selectPolicy: Disabled}}", MEMORY),
];
/// Removes all that it may at once.
const OWN_BEHAVIOR: &str = r#"{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}"#;
/// Passes of each object with a fault.
const PASSES: u64 = 8;

/// The fixture, and whether the metrics API hangs for the role alone.
async fn fixture() -> Option<(Fixture, Arc<AtomicBool>)> {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
        report_skipped("a whole control plane");
        return None;
    };
    let namespace = bed.namespace("metric-faults").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    let hangs = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(bed.client(), {
        let hangs = Arc::clone(&hangs);
        move |_, path| {
            let is_usage = path.starts_with("/apis/metrics.k8s.io/");
            if is_usage && hangs.load(Ordering::Relaxed) { hang() } else { pass_through() }
        }
    });
    let proxy = proxy.await;
    let flags =
        ["--mode=adopted", "--horizontal-pod-autoscaler-sync-period=250ms", "--request-timeout=1s"];
    let role = start_with(&proxy, &namespace, &flags).await;
    Some((Fixture { bed, namespace, usage, proxy, role }, hangs))
}

impl Fixture {
    async fn create_workloads(&self) {
        for (name, mode, behavior, metric) in OBJECTS {
            let workload = manifests::deployment(name, 2, "100m", "256Mi");
            manifests::create::<Deployment>(self.bed.client(), &self.namespace, &workload).await;
            let prefix = format!("{name}-");
            self.bed.nodes().pods(&self.namespace, &prefix, 2, "are ready", is_ready).await;
            let annotations =
                format!("{{plimsoll.dev/hpa: {mode}, plimsoll.dev/behavior: '{OWN_BEHAVIOR}'}}");
            let hpa = hpa(name, &[metric], behavior, &annotations);
            manifests::create::<HorizontalPodAutoscaler>(self.bed.client(), &self.namespace, &hpa)
                .await;
        }
    }

    /// Sets the load of all workloads: the memory of each pod, and jobs.
    fn load_workloads(&self, mebibytes: u64, jobs: f64) {
        for (name, ..) in OBJECTS {
            let usage = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
            self.usage.set_all(&self.namespace, &format!("{name}-"), "main", usage);
        }
        self.usage.set_external(&self.namespace, "jobs", &[("queue", "a")], jobs);
    }

    async fn workload_replicas(&self) -> BTreeMap<String, i32> {
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        let found = api.list(&ListParams::default()).await.expect("a list").into_iter();
        let replicas = |one: &Deployment| one.spec.as_ref().and_then(|spec| spec.replicas);
        found.map(|one| (one.name_any(), replicas(&one).unwrap_or(1))).collect()
    }

    async fn wait_until_all_have(&self, replicas: i32) {
        wait::until_ok(&format!("each workload has {replicas} replicas"), || async {
            let found = self.workload_replicas().await;
            if found.values().all(|count| *count == replicas) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Waits until the metric of each of these objects is unknown, or known again.
    async fn wait_until_unknown(&self, objects: &[&str], is_unknown: bool) {
        let what = if is_unknown { "unknown" } else { "known" };
        wait::until_ok(&format!("the metrics of {objects:?} are {what}"), || async {
            let url = format!("http://{}/metrics", self.role.address());
            let page = http_get(&url).await.ok_or("no response")?;
            let page = String::from_utf8_lossy(&page).into_owned();
            let restrictions = page.lines().filter(|line| {
                line.starts_with("plimsoll_restricted_scaling")
                    && line.contains("metric_unknown")
                    && line.ends_with(" 1")
            });
            let lines: Vec<&str> = restrictions.collect();
            let is_listed =
                |name: &&&str| lines.iter().any(|line| line.contains(&format!("name=\"{name}\"")));
            let others: Vec<_> =
                objects.iter().filter(|name| is_listed(name) != is_unknown).collect();
            if others.is_empty() { Ok(()) } else { Err(format!("not yet: {others:?}")) }
        })
        .await;
    }

    async fn wait_for_passes(&self) {
        let expected = self.role.reconciles() + PASSES * OBJECTS.len() as u64;
        wait::until("each object is reconciled some times more", || async {
            (self.role.reconciles() >= expected).then_some(())
        })
        .await;
    }

    fn set_faults(&self, fault: Option<Fault>) {
        self.usage.set_fault(MetricsApi::Resource, fault);
        self.usage.set_fault(MetricsApi::External, fault);
    }

    /// How often the role has written the scale of a workload.
    fn scale_writes(&self) -> usize {
        let requests = self.proxy.requests().into_iter();
        requests.filter(|(method, path)| *method == Method::PUT && path.ends_with("/scale")).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_metrics_remove_no_replicas_of_adopted_objects() {
    let Some((fixture, hangs)) = fixture().await else { return };
    let (usage, namespace) = (&fixture.usage, &fixture.namespace);
    let (by_pods, all) = (["memory", "assist"], OBJECTS.map(|(name, ..)| name));
    // Twice the targets, up to the maximum.
    fixture.load_workloads(410, 20.0);
    fixture.create_workloads().await;
    fixture.wait_until_all_have(6).await;
    for (name, ..) in OBJECTS {
        let prefix = format!("{name}-");
        fixture.bed.nodes().pods(namespace, &prefix, 6, "are ready", is_ready).await;
    }
    // At the targets.
    fixture.load_workloads(205, 10.0);
    fixture.wait_for_passes().await;
    let before = fixture.scale_writes();
    assert!(before >= 2, "{before} writes of scales");

    for fault in [
        Fault::Status(503),
        Fault::Status(404),
        Fault::Malformed,
        Fault::Truncated,
        Fault::NotANumber,
        Fault::Negative,
    ] {
        fixture.set_faults(Some(fault));
        fixture.wait_until_unknown(&all, true).await;
        fixture.wait_for_passes().await;
        assert_eq!(fixture.scale_writes(), before, "{fault:?}");
    }
    // Half of the pods is known to be at the target.
    usage.set_fault(MetricsApi::External, None);
    usage.set_fault(MetricsApi::Resource, Some(Fault::Partial));
    fixture.wait_until_unknown(&all, false).await;
    fixture.wait_for_passes().await;
    assert_eq!(fixture.scale_writes(), before, "half of the pods");
    usage.set_fault(MetricsApi::Resource, None);

    hangs.store(true, Ordering::Relaxed);
    fixture.wait_until_unknown(&by_pods, true).await;
    fixture.wait_for_passes().await;
    assert_eq!(fixture.scale_writes(), before, "no response");
    hangs.store(false, Ordering::Relaxed);
    fixture.wait_until_unknown(&by_pods, false).await;

    let now = wall_now();
    let sample = |pod| Sample { namespace, pod, container: "main", cpu: 1, memory: MEBIBYTE };
    for (what, samples) in
        [("nothing", Vec::new()), ("other pods", ["memory-0", "other"].map(sample).to_vec())]
    {
        usage.show(now, samples);
        fixture.wait_until_unknown(&by_pods, true).await;
        fixture.wait_for_passes().await;
        assert_eq!(fixture.scale_writes(), before, "usage of {what}");
    }
    // From ten minutes ago, when the workloads were idle.
    fixture.load_workloads(1, 10.0);
    usage.at(now - SignedDuration::from_mins(10));
    fixture.wait_for_passes().await;
    fixture.wait_until_unknown(&by_pods, true).await;
    fixture.wait_for_passes().await;
    assert_eq!(fixture.scale_writes(), before, "stale usage");
    fixture.wait_until_all_have(6).await;

    // Known and low, it removes what it may.
    fixture.load_workloads(1, 1.0);
    usage.at(wall_now());
    fixture.wait_until_all_have(2).await;
    assert!(fixture.scale_writes() >= before + OBJECTS.len());
    tokio::time::timeout(Duration::from_mins(1), fixture.role.stop()).await.expect("it stops");
}
