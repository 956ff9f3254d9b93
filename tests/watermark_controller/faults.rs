//! A watermark controller that dies, freezes, or stands alone between what it books, what it does, and what it says of it: no
//! change is lost, and none is made twice.
//!
//! The metric asks for far more than there are, and one step doubles them: who makes a change twice has eight replicas, and
//! who loses it two. After a change there is none for an hour.

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

/// Looks as often as may be.
const FAST_FLAGS: &[&str] = &["--period=500ms", "--health-port=0", "--client-qps=0"];
const LEASE: &str = "watermarkpodautoscaler-lock";

/// The numbers of replicas that a workload was ever to have, one after the other.
struct ReplicasLog {
    told: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl ReplicasLog {
    fn start(bed: &Testbed, namespace: &str) -> Self {
        let api = Api::<Deployment>::namespaced(bed.client(), namespace);
        let told: Arc<Mutex<Vec<i32>>> = Arc::default();
        let noted = Arc::clone(&told);
        let task = tokio::spawn(async move {
            let watch =
                watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            // Of a server that is away there are errors, until it is back.
            let each = watch.for_each(|one| {
                if let Ok(one) = one {
                    let replicas = one.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                    let mut noted = noted.lock().expect("no panic");
                    if noted.last() != Some(&replicas) {
                        noted.push(replicas);
                    }
                }
                std::future::ready(())
            });
            each.await;
        });
        Self { told, task }
    }

    fn told(&self) -> MutexGuard<'_, Vec<i32>> {
        self.told.lock().expect("no panic")
    }

    /// Waits until there are to be so many.
    async fn wait_for_replicas(&self, replicas: i32) {
        let what = format!("there are to be {replicas}");
        wait::until(&what, || async { (self.told().last() == Some(&replicas)).then_some(()) })
            .await;
    }
}

impl Drop for ReplicasLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A workload of two replicas whose metric asks for many.
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

    /// The same on a bed of the test's own, for what stops the API server.
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
        // A status that is written meanwhile makes a change of the scale one that is tried again.
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

    fn start(&self, name: &str, way: &HoldingProxy, more: &[&str]) -> RoleProcess {
        let environment = [("WATCH_NAMESPACE", &*self.namespace)];
        // Processes of other tests are on the same bed.
        let name = format!("{name}-{}", self.namespace);
        RoleProcess::start_role(&self.bed, &name, &environment, |port| {
            let lease = format!("--leader-elect-resource-namespace={}", self.namespace);
            let kubeconfig = format!("--kubeconfig={}", way.kubeconfig().display());
            let flags = [FAST_FLAGS, more].concat();
            let mut arguments = vec!["watermark".to_owned()];
            arguments.extend(flags.into_iter().map(ToOwned::to_owned));
            arguments.extend([lease, kubeconfig, format!("--metrics-addr=127.0.0.1:{port}")]);
            arguments
        })
    }

    /// Looks at the object so many times more.
    async fn wait_for_reconciles(&self, process: &RoleProcess, more: u32) {
        let made = || process.metric("plimsoll_watermark_reconciles_total", &[]);
        let before = wait::until("it answers", made).await;
        wait::until_ok("it looks", || async {
            let now = made().await.ok_or_else(|| process.log())?;
            if now >= before + f64::from(more) { Ok(()) } else { Err(process.log()) }
        })
        .await;
    }

    async fn get(&self) -> WatermarkPodAutoscaler {
        let api = Api::<WatermarkPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        api.get("web").await.expect("it is there")
    }

    async fn holder(&self) -> String {
        use k8s_openapi::api::coordination::v1::Lease;
        let leases = Api::<Lease>::namespaced(self.bed.client(), &self.namespace);
        wait::until("somebody leads", || async {
            let lease = leases.get(LEASE).await.ok()?;
            lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
        })
        .await
    }

    async fn wait_for_other_holder(&self, before: &str) -> String {
        wait::until("another one leads", || async {
            let now = self.holder().await;
            (now != before).then_some(now)
        })
        .await
    }

    /// Waits until its metrics tell of the object, or no more.
    async fn wait_for_metrics(&self, process: &RoleProcess, wanted: bool) {
        wait::until("only who leads tells of objects", || async {
            let most = process.metric("plimsoll_max_replicas", &[]).await?;
            ((most > 0.0) == wanted).then_some(())
        })
        .await;
    }

    /// One change was made, and all know of it.
    async fn assert_changed_once(&self, process: &RoleProcess) {
        self.replicas_log.wait_for_replicas(4).await;
        self.wait_for_reconciles(process, 4).await;
        assert_eq!(*self.replicas_log.told(), [2, 4]);
        let object = self.get().await;
        let status = object.status.clone().expect("a status");
        assert_eq!((status.desired_replicas, status.scaling_events_count), (4, 1), "{status:#?}");
        assert!(status.last_scale_time.is_some(), "{}", object.name_any());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_of_a_change_neither_loses_nor_doubles_it() {
    let Some(scene) = Fixture::new("kill-scale").await else { return };
    let way = scene.proxy("way").await;
    let moments: [HeldMoment; 4] = [
        (WpaStatus, HoldPoint::Request),
        // From here on it is booked, and not made.
        (WpaStatus, HoldPoint::Answer),
        (Scale, HoldPoint::Request),
        // From here on it is made, and not told.
        (Scale, HoldPoint::Answer),
    ];
    for moment in moments {
        way.hold(moment);
        let process = scene.start("one", &way, &["--enable-leader-election=false"]);
        way.wait_until_held().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    way.open();
    let process = scene.start("one", &way, &["--enable-leader-election=false"]);
    scene.assert_changed_once(&process).await;
    assert_eq!(way.attempted_paths(Scale).len(), 2, "one was never sent on");
    assert_eq!(process.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_right_after_a_change_is_followed_by_one_that_knows_of_it() {
    let Some(scene) = Fixture::new("failover").await else { return };
    let (way, other) = (scene.proxy("first").await, scene.proxy("second").await);
    way.hold((Scale, HoldPoint::Answer));
    let first = scene.start("first", &way, LONG_LEASE_FLAGS);
    way.wait_until_held().await;
    let leader = scene.holder().await;
    let second = scene.start("second", &other, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    assert_eq!(other.attempted_writes(), [""; 0], "a standby writes nothing");
    assert_eq!(first.end("KILL").await, 137);
    expire_lease(&scene.bed, &scene.namespace, LEASE).await;
    scene.wait_for_other_holder(&leader).await;
    scene.assert_changed_once(&second).await;
    assert_eq!(other.attempted_paths(Scale), [""; 0]);
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_freezes_before_a_change_and_thaws_after_another_one_made_it_does_nothing() {
    let Some(scene) = Fixture::new("frozen").await else { return };
    let (way, other) = (scene.proxy("first").await, scene.proxy("second").await);
    way.hold((Scale, HoldPoint::Request));
    let first = scene.start("first", &way, SHORT_LEASE_FLAGS);
    way.wait_until_held().await;
    let leader = scene.holder().await;
    // It leads to the end, whatever the machine does.
    let second = scene.start("second", &other, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    first.signal("STOP");
    let next = scene.wait_for_other_holder(&leader).await;
    scene.assert_changed_once(&second).await;
    let writes = way.attempted_writes();

    first.signal("CONT");
    way.release();
    first.wait_for_log(&["new leader elected", &next]).await;
    scene.wait_for_metrics(&first, false).await;
    scene.wait_for_metrics(&second, true).await;
    scene.wait_for_reconciles(&second, 4).await;
    scene.assert_changed_once(&second).await;
    assert_eq!(
        way.attempted_writes(),
        writes,
        "what was under way is refused, and nothing else begun"
    );
    assert_eq!(way.completed_paths(Scale), [""; 0]);
    assert_eq!(other.completed_paths(Scale).len(), 1);
    let told = "wpa_controller_max_replicas";
    assert!(second.metric(told, &[]).await.is_some_and(|most| most > 0.0));
    wait::until("it tells nothing any more of what it saw when it led", || async {
        (first.metric(told, &[]).await? == 0.0).then_some(())
    })
    .await;

    // It is a standby, and takes over when the other one goes.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(scene.wait_for_other_holder(&next).await, leader, "by the name that it had");
    scene.assert_changed_once(&first).await;
    scene.wait_for_metrics(&first, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_for_a_while_costs_no_change_and_doubles_none() {
    let Some(scene) = Fixture::private("outage").await else { return };
    let way = scene.proxy("way").await;
    way.hold((Scale, HoldPoint::Request));
    let process = scene.start("one", &way, SHORT_LEASE_FLAGS);
    way.wait_until_held().await;
    scene.bed.control_plane().kill_api_server().await;
    way.release();
    process.wait_for_log(&["the lease"]).await;
    let alive = http_get(&format!("http://{}/livez", process.address())).await.expect("it answers");
    assert_eq!(&*alive, b"ok\n");
    scene.bed.control_plane().restart_api_server().await;
    scene.assert_changed_once(&process).await;
    assert_eq!(way.completed_paths(Scale).len(), 1);
    assert_eq!(process.end("TERM").await, 0);
}
