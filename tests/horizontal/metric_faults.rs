//! Metrics that are away, slow, half there, empty, not a number, stale, negative or of other pods remove no replicas in any
//! mode: of adopted objects, while kube-controller-manager reads the same and a second controller is in shadow mode, and of all
//! objects in place of the HPA controller.

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
use plimsoll::controllers::horizontal::HorizontalHandle;

use super::{
    Fixture, MEBIBYTE, MEMORY, VALUE, exported_series, hpa, in_memory::DISABLED, replace::OBJECT,
    start_with,
};
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

/// The name of an object, the mode that it is adopted in, its behavior, and its metric.
type Object = (&'static str, &'static str, &'static str, &'static str);

const ADOPTED: &[Object] = &[
    ("memory", "drive", DISABLED, MEMORY),
    ("value", "drive", DISABLED, VALUE),
    ("assist", "assist", "{scaleDown: {selectPolicy: Disabled}}", MEMORY),
];
const REPLACED: &[Object] = &[
    ("memory", "", OWN_BEHAVIOR, MEMORY),
    ("value", "", OWN_BEHAVIOR, VALUE),
    ("object", "", OWN_BEHAVIOR, OBJECT),
];
/// Removes all that it may at once.
const OWN_BEHAVIOR: &str = r#"{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}"#;
const FLAGS: [&str; 2] = ["--horizontal-pod-autoscaler-sync-period=250ms", "--request-timeout=1s"];

/// Workloads whose metrics have faults, and the controller that scales them.
struct FaultyMetrics {
    fixture: Fixture,
    objects: &'static [Object],
    /// Passes of each object with a fault.
    passes: u64,
    /// Whether the metrics API hangs for our controllers alone.
    hangs: Arc<AtomicBool>,
    /// A second controller, which decides about the same objects in shadow mode.
    shadow: Option<(ApiProxy, HorizontalHandle)>,
}

/// A proxy to the API server, behind which the metrics API can hang.
async fn proxy(bed: &Testbed, hangs: &Arc<AtomicBool>) -> ApiProxy {
    let hangs = Arc::clone(hangs);
    let interceptor = move |_: &Method, path: &str| {
        let is_usage = path.starts_with("/apis/metrics.k8s.io/");
        if is_usage && hangs.load(Ordering::Relaxed) { hang() } else { pass_through() }
    };
    ApiProxy::start(bed.client(), interceptor).await
}

impl FaultyMetrics {
    /// Beside kube-controller-manager.
    async fn of_adopted_objects() -> Option<Self> {
        let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
            report_skipped("a whole control plane");
            return None;
        };
        let namespace = bed.namespace("metric-faults").await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let hangs = Arc::default();
        let flags = [&["--mode=shadow", "--leader-elect-resource-name=shadow"], &FLAGS[..]];
        let shadow_proxy = proxy(&bed, &hangs).await;
        let shadow = start_with(&shadow_proxy, &namespace, &flags.concat()).await;
        let proxy = proxy(&bed, &hangs).await;
        let role =
            start_with(&proxy, &namespace, &[&["--mode=adopted"], &FLAGS[..]].concat()).await;
        let fixture = Fixture { bed, namespace, usage, proxy, role };
        Some(Self {
            fixture,
            objects: ADOPTED,
            passes: 8,
            hangs,
            shadow: Some((shadow_proxy, shadow)),
        })
    }

    /// In place of the HPA controller.
    async fn of_all_objects() -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        bed.control_plane().stop_hpa_controller().await;
        bed.nodes().add("node", "64", "256Gi").await;
        let namespace = bed.namespace("metric-faults").await;
        let usage = MetricsServer::serve(&bed).await;
        let hangs = Arc::default();
        let proxy = proxy(&bed, &hangs).await;
        let replace = ["--mode=replace", "--builtin-sync-period=1s", "--sentinel-proof=1s"];
        let role = start_with(&proxy, &namespace, &[&replace, &FLAGS[..]].concat()).await;
        let fixture = Fixture { bed, namespace, usage, proxy, role };
        Some(Self { fixture, objects: REPLACED, passes: 4, hangs, shadow: None })
    }

    fn names(&self) -> Vec<&'static str> {
        self.objects.iter().map(|(name, ..)| *name).collect()
    }

    /// The objects that scale by the usage of their pods.
    fn by_pods(&self) -> Vec<&'static str> {
        let by_memory = self.objects.iter().filter(|(.., metric)| *metric == MEMORY);
        by_memory.map(|(name, ..)| *name).collect()
    }

    async fn create_workloads(&self) {
        let Fixture { bed, namespace, .. } = &self.fixture;
        for (name, mode, behavior, metric) in self.objects {
            let workload = manifests::deployment(name, 2, "100m", "256Mi");
            manifests::create::<Deployment>(bed.client(), namespace, &workload).await;
            let prefix = format!("{name}-");
            bed.nodes().pods(namespace, &prefix, 2, "are ready", is_ready).await;
            let annotations = match *mode {
                "" => "{}".to_owned(),
                mode => {
                    format!("{{plimsoll.dev/hpa: {mode}, plimsoll.dev/behavior: '{OWN_BEHAVIOR}'}}")
                }
            };
            let hpa = hpa(name, &[metric], behavior, &annotations);
            manifests::create::<HorizontalPodAutoscaler>(bed.client(), namespace, &hpa).await;
        }
    }

    /// Sets the load of all workloads: the memory of each pod, and jobs.
    fn load_workloads(&self, mebibytes: u64, jobs: f64) {
        let Fixture { usage, namespace, .. } = &self.fixture;
        for name in self.names() {
            let used = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
            usage.set_all(namespace, &format!("{name}-"), "main", used);
        }
        usage.set_external(namespace, "jobs", &[("queue", "a")], jobs);
        usage.set_custom(namespace, "deployments.apps", "object", "backlog", jobs);
    }

    async fn workload_replicas(&self) -> BTreeMap<String, i32> {
        let Fixture { bed, namespace, .. } = &self.fixture;
        let api = Api::<Deployment>::namespaced(bed.client(), namespace);
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
            let url = format!("http://{}/metrics", self.fixture.role.address());
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

    /// Waits until each controller has reconciled each object some times more.
    async fn wait_for_passes(&self) {
        let more = self.passes * self.objects.len() as u64;
        let roles = self.shadow.iter().map(|(_, role)| role).chain([&self.fixture.role]);
        let expected: Vec<_> = roles.map(|role| (role, role.reconciles() + more)).collect();
        wait::until("each object is reconciled some times more", || async {
            expected.iter().all(|(role, count)| role.reconciles() >= *count).then_some(())
        })
        .await;
    }

    fn set_faults(&self, fault: Option<Fault>) {
        for api in [MetricsApi::Resource, MetricsApi::Custom, MetricsApi::External] {
            self.fixture.usage.set_fault(api, fault);
        }
    }

    /// How often the role has written the scale of a workload.
    fn scale_writes(&self) -> usize {
        let requests = self.fixture.proxy.requests().into_iter();
        requests.filter(|(method, path)| *method == Method::PUT && path.ends_with("/scale")).count()
    }

    /// Some passes later nothing was removed: neither by the controller, nor by the decisions of the one in shadow mode.
    async fn assert_nothing_is_removed(&self, scale_writes: usize, fault: &str) {
        self.wait_for_passes().await;
        assert_eq!(self.scale_writes(), scale_writes, "{fault}");
        let Some((proxy, role)) = &self.shadow else { return };
        let desired = exported_series(role, "plimsoll_effective", "name").await;
        let all = self.names().into_iter().map(|name| (name.to_owned(), 6.0));
        assert_eq!(desired, all.collect(), "{fault}, in shadow mode");
        let written = proxy.written_objects("/");
        let is_other =
            |path: &&String| !path.ends_with("/leases/shadow") && !path.contains("authorization");
        assert_eq!(written.iter().filter(is_other).collect::<Vec<_>>(), [""; 0], "{fault}");
    }

    async fn run(self) {
        let Fixture { bed, namespace, usage, .. } = &self.fixture;
        let (by_pods, all) = (self.by_pods(), self.names());
        // Twice the targets, up to the maximum.
        self.load_workloads(410, 20.0);
        self.create_workloads().await;
        self.wait_until_all_have(6).await;
        for name in &all {
            bed.nodes().pods(namespace, &format!("{name}-"), 6, "are ready", is_ready).await;
        }
        // At the targets.
        self.load_workloads(205, 10.0);
        self.wait_for_passes().await;
        let before = self.scale_writes();
        assert!(before >= 2, "{before} writes of scales");

        for fault in [
            Fault::Status(503),
            Fault::Status(404),
            Fault::Malformed,
            Fault::Truncated,
            Fault::NotANumber,
            Fault::Negative,
        ] {
            self.set_faults(Some(fault));
            self.wait_until_unknown(&all, true).await;
            self.assert_nothing_is_removed(before, &format!("{fault:?}")).await;
        }
        // Half of the pods is known to be at the target.
        self.set_faults(None);
        usage.set_fault(MetricsApi::Resource, Some(Fault::Partial));
        self.wait_until_unknown(&all, false).await;
        self.assert_nothing_is_removed(before, "half of the pods").await;
        usage.set_fault(MetricsApi::Resource, None);

        self.hangs.store(true, Ordering::Relaxed);
        self.wait_until_unknown(&by_pods, true).await;
        self.assert_nothing_is_removed(before, "no response").await;
        self.hangs.store(false, Ordering::Relaxed);
        self.wait_until_unknown(&by_pods, false).await;

        let now = wall_now();
        let sample = |pod| Sample { namespace, pod, container: "main", cpu: 1, memory: MEBIBYTE };
        for (what, samples) in
            [("nothing", Vec::new()), ("other pods", ["memory-0", "other"].map(sample).to_vec())]
        {
            usage.show(now, samples);
            self.wait_until_unknown(&by_pods, true).await;
            self.assert_nothing_is_removed(before, &format!("usage of {what}")).await;
        }
        // From ten minutes ago, when the workloads were idle.
        self.load_workloads(1, 10.0);
        usage.at(now - SignedDuration::from_mins(10));
        self.wait_for_passes().await;
        self.wait_until_unknown(&by_pods, true).await;
        self.assert_nothing_is_removed(before, "stale usage").await;
        self.wait_until_all_have(6).await;

        // Known and low, it removes what it may.
        self.load_workloads(1, 1.0);
        usage.at(wall_now());
        self.wait_until_all_have(2).await;
        assert!(self.scale_writes() >= before + all.len());
        let shadow = self.shadow.map(|(_, role)| role);
        for role in shadow.into_iter().chain([self.fixture.role]) {
            tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_metrics_remove_no_replicas_of_adopted_objects_and_none_in_shadow_mode() {
    let Some(faulty) = FaultyMetrics::of_adopted_objects().await else { return };
    faulty.run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_metrics_remove_no_replicas_in_place_of_the_hpa_controller() {
    let Some(faulty) = FaultyMetrics::of_all_objects().await else { return };
    faulty.run().await;
}
