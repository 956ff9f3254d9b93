//! A watermark controller that dies, freezes, or is isolated between persisting its intent, scaling, and reporting it: no
//! scale update is lost, and none is made twice.
//!
//! The metric asks for far more replicas than there are, and one step doubles them: a scale update made twice results in
//! eight replicas, a lost one in two. After a scale update the cooldown is one hour.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::json;
use tokio::task::JoinHandle;

use super::fixture::{METRIC, object, wait_for_deployment};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed, http_get::http_get, manifests, metrics_server::MetricsServer,
        skipped::report_skipped, wait,
    },
    updater::{
        fixture::deployment,
        proxy::{
            HeldMoment, HoldPoint, HoldingProxy,
            RoleWrite::{Scale, WpaStatus},
        },
        role_process::{LONG_LEASE_FLAGS, RoleProcess, SHORT_LEASE_FLAGS, expire_lease},
    },
};

/// Reconciles as often as possible.
const FAST_FLAGS: &[&str] = &["--period=500ms", "--health-port=0", "--client-qps=0"];
const LEASE: &str = "watermarkpodautoscaler-lock";

/// The values of a workload's `spec.replicas`, in order.
struct ReplicasLog {
    values: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl ReplicasLog {
    fn start(bed: &Testbed, namespace: &str) -> Self {
        let api = Api::<Deployment>::namespaced(bed.client(), namespace);
        let values: Arc<Mutex<Vec<i32>>> = Arc::default();
        let recorded = Arc::clone(&values);
        let task = tokio::spawn(async move {
            let watch =
                watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            // The watch returns errors while the server is away.
            let each = watch.for_each(|deployment| {
                if let Ok(deployment) = deployment {
                    let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                    let mut recorded = recorded.lock().expect("no panic");
                    if recorded.last() != Some(&replicas) {
                        recorded.push(replicas);
                    }
                }
                std::future::ready(())
            });
            each.await;
        });
        Self { values, task }
    }

    fn values(&self) -> MutexGuard<'_, Vec<i32>> {
        self.values.lock().expect("no panic")
    }

    /// Waits until `spec.replicas` has this value.
    async fn wait_for_replicas(&self, replicas: i32) {
        let description = format!("spec.replicas is {replicas}");
        wait::until(&description, || async {
            (self.values().last() == Some(&replicas)).then_some(())
        })
        .await;
    }
}

impl Drop for ReplicasLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A workload with two replicas whose metric asks for many.
struct Fixture {
    bed: Testbed,
    namespace: String,
    _usage: MetricsServer,
    replicas_log: ReplicasLog,
}

impl Fixture {
    async fn new(name: &str) -> Option<Self> {
        Self::on(Testbed::shared().await, name).await
    }

    /// Like [`new`](Self::new), on a private testbed, for tests that stop the API server.
    async fn private(name: &str) -> Option<Self> {
        let bed = Testbed::private().await;
        if let Some(bed) = &bed {
            bed.nodes().add("node", "64", "256Gi").await;
        }
        Self::on(bed, name).await
    }

    async fn on(bed: Option<Testbed>, name: &str) -> Option<Self> {
        let Some(bed) = bed.filter(Testbed::has_controllers) else {
            report_skipped("a whole control plane");
            return None;
        };
        create_definitions(&bed).await;
        let namespace = bed.namespace(name).await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        usage.set_external(&namespace, METRIC, &[("app", "web")], 10_000.0);
        deployment(&bed, &namespace, "web", 2).await;
        // A concurrent status write would cause a conflict and a retry of the scale update.
        wait_for_deployment(&bed, &namespace, "web", 2).await;
        let wanted = object(
            "web",
            json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600}),
        );
        let yaml = serde_json::to_string(&wanted).expect("JSON is YAML");
        manifests::create::<WatermarkPodAutoscaler>(bed.client(), &namespace, &yaml).await;
        let journal = ReplicasLog::start(&bed, &namespace);
        journal.wait_for_replicas(2).await;
        Some(Self { bed, namespace, _usage: usage, replicas_log: journal })
    }

    async fn proxy(&self, name: &str) -> HoldingProxy {
        HoldingProxy::start(&self.bed, &format!("{name}-of-{}", self.namespace)).await
    }

    fn start(&self, name: &str, proxy: &HoldingProxy, more: &[&str]) -> RoleProcess {
        let environment = [("WATCH_NAMESPACE", &*self.namespace)];
        // Processes of other tests share the testbed.
        let name = format!("{name}-{}", self.namespace);
        RoleProcess::start_role(&self.bed, &name, &environment, |port| {
            let lease = format!("--leader-elect-resource-namespace={}", self.namespace);
            let kubeconfig = format!("--kubeconfig={}", proxy.kubeconfig().display());
            let flags = [FAST_FLAGS, more].concat();
            let mut arguments = vec!["watermark".to_owned()];
            arguments.extend(flags.into_iter().map(ToOwned::to_owned));
            arguments.extend([lease, kubeconfig, format!("--metrics-addr=127.0.0.1:{port}")]);
            arguments
        })
    }

    /// Waits until it has reconciled the object this many more times.
    async fn wait_for_reconciles(&self, process: &RoleProcess, more: u32) {
        let reconciles = || process.metric("plimsoll_watermark_reconciles_total", &[]);
        let before = wait::until("it responds", reconciles).await;
        wait::until_ok("it reconciles", || async {
            let now = reconciles().await.ok_or_else(|| process.log())?;
            if now >= before + f64::from(more) { Ok(()) } else { Err(process.log()) }
        })
        .await;
    }

    async fn get(&self) -> WatermarkPodAutoscaler {
        let api = Api::<WatermarkPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        api.get("web").await.expect("exists")
    }

    async fn holder(&self) -> String {
        use k8s_openapi::api::coordination::v1::Lease;
        let leases = Api::<Lease>::namespaced(self.bed.client(), &self.namespace);
        wait::until("a replica leads", || async {
            let lease = leases.get(LEASE).await.ok()?;
            lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
        })
        .await
    }

    async fn wait_for_other_holder(&self, before: &str) -> String {
        wait::until("another replica leads", || async {
            let now = self.holder().await;
            (now != before).then_some(now)
        })
        .await
    }

    /// Waits until its metrics contain the object, or no longer do.
    async fn wait_for_metrics(&self, process: &RoleProcess, wanted: bool) {
        wait::until("only the leader exports objects", || async {
            let most = process.metric("plimsoll_max_replicas", &[]).await?;
            ((most > 0.0) == wanted).then_some(())
        })
        .await;
    }

    /// Asserts that the scale was updated once, and that everything reports it.
    async fn assert_changed_once(&self, process: &RoleProcess) {
        self.replicas_log.wait_for_replicas(4).await;
        self.wait_for_reconciles(process, 4).await;
        assert_eq!(*self.replicas_log.values(), [2, 4]);
        let object = self.get().await;
        let status = object.status.clone().expect("valid status");
        assert_eq!((status.desired_replicas, status.scaling_events_count), (4, 1), "{status:#?}");
        assert!(status.last_scale_time.is_some(), "{}", object.name_any());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_step_of_a_scale_neither_loses_nor_repeats_it() {
    let Some(fixture) = Fixture::new("kill-scale").await else { return };
    let proxy = fixture.proxy("way").await;
    let moments: [HeldMoment; 4] = [
        (WpaStatus, HoldPoint::Request),
        // From here on it is persisted, and not made.
        (WpaStatus, HoldPoint::Answer),
        (Scale, HoldPoint::Request),
        // From here on it is made, and not reported.
        (Scale, HoldPoint::Answer),
    ];
    for moment in moments {
        proxy.hold(moment);
        let process = fixture.start("one", &proxy, &["--enable-leader-election=false"]);
        proxy.wait_until_held().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    proxy.open();
    let process = fixture.start("one", &proxy, &["--enable-leader-election=false"]);
    fixture.assert_changed_once(&process).await;
    assert_eq!(proxy.attempted_paths(Scale).len(), 2, "one was never forwarded");
    assert_eq!(process.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_knows_the_scale_of_a_crashed_leader() {
    let Some(fixture) = Fixture::new("failover").await else { return };
    let (proxy, other) = (fixture.proxy("first").await, fixture.proxy("second").await);
    proxy.hold((Scale, HoldPoint::Answer));
    let first = fixture.start("first", &proxy, LONG_LEASE_FLAGS);
    proxy.wait_until_held().await;
    let leader = fixture.holder().await;
    let second = fixture.start("second", &other, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    assert_eq!(other.attempted_writes(), [""; 0], "a standby writes nothing");
    assert_eq!(first.end("KILL").await, 137);
    expire_lease(&fixture.bed, &fixture.namespace, LEASE).await;
    fixture.wait_for_other_holder(&leader).await;
    fixture.assert_changed_once(&second).await;
    assert_eq!(other.attempted_paths(Scale), [""; 0]);
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_frozen_before_a_scale_does_nothing_after_another_made_it() {
    let Some(fixture) = Fixture::new("frozen").await else { return };
    let (proxy, other) = (fixture.proxy("first").await, fixture.proxy("second").await);
    proxy.hold((Scale, HoldPoint::Request));
    let first = fixture.start("first", &proxy, SHORT_LEASE_FLAGS);
    proxy.wait_until_held().await;
    let leader = fixture.holder().await;
    // It stays the leader until the end, even if the machine stalls.
    let second = fixture.start("second", &other, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    first.signal("STOP");
    let next = fixture.wait_for_other_holder(&leader).await;
    fixture.assert_changed_once(&second).await;
    let writes = proxy.attempted_writes();

    first.signal("CONT");
    proxy.release();
    first.wait_for_log(&["new leader elected", &next]).await;
    fixture.wait_for_metrics(&first, false).await;
    fixture.wait_for_metrics(&second, true).await;
    fixture.wait_for_reconciles(&second, 4).await;
    fixture.assert_changed_once(&second).await;
    assert_eq!(
        proxy.attempted_writes(),
        writes,
        "the request in flight is rejected, and no other one sent"
    );
    assert_eq!(proxy.completed_paths(Scale), [""; 0]);
    assert_eq!(other.completed_paths(Scale).len(), 1);
    let metric = "wpa_controller_max_replicas";
    assert!(second.metric(metric, &[]).await.is_some_and(|most| most > 0.0));
    wait::until("it no longer exports what it observed as leader", || async {
        (first.metric(metric, &[]).await? == 0.0).then_some(())
    })
    .await;

    // It is a standby, and takes over when the other one stops.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(fixture.wait_for_other_holder(&next).await, leader, "the released holder name");
    fixture.assert_changed_once(&first).await;
    fixture.wait_for_metrics(&first, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_outage_loses_no_scale_and_repeats_none() {
    let Some(fixture) = Fixture::private("outage").await else { return };
    let proxy = fixture.proxy("way").await;
    proxy.hold((Scale, HoldPoint::Request));
    let process = fixture.start("one", &proxy, SHORT_LEASE_FLAGS);
    proxy.wait_until_held().await;
    fixture.bed.control_plane().kill_api_server().await;
    proxy.release();
    process.wait_for_log(&["leader Lease"]).await;
    let alive = http_get(&format!("http://{}/livez", process.address())).await.expect("response");
    assert_eq!(&*alive, b"ok\n");
    fixture.bed.control_plane().restart_api_server().await;
    fixture.assert_changed_once(&process).await;
    assert_eq!(proxy.completed_paths(Scale).len(), 1);
    assert_eq!(process.end("TERM").await, 0);
}
