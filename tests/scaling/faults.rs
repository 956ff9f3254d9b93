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

use super::stage::{METRIC, object, settled};
use crate::{
    storage::objects::defined,
    support::{Bed, fetch::fetch, not_run::not_run, objects, usage::Usage, wait},
    updater::{
        process::{BRIEF, LASTING, Process, expire},
        stage::deployment,
        way::{
            Moment, Side, Way,
            What::{Scale, Told},
        },
    },
};

/// Looks as often as may be.
const BRISK: &[&str] = &["--period=500ms", "--health-port=0", "--client-qps=0"];
const LEASE: &str = "watermarkpodautoscaler-lock";

/// The numbers of replicas that a workload was ever to have, one after the other.
struct Journal {
    told: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl Journal {
    fn keep(bed: &Bed, namespace: &str) -> Self {
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
    async fn reaches(&self, replicas: i32) {
        let what = format!("there are to be {replicas}");
        wait::until(&what, || async { (self.told().last() == Some(&replicas)).then_some(()) })
            .await;
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A workload of two replicas whose metric asks for many.
struct Scene {
    bed: Bed,
    namespace: String,
    _usage: Usage,
    journal: Journal,
}

impl Scene {
    async fn set(name: &str) -> Option<Self> {
        Self::on(Bed::shared().await, name).await
    }

    /// The same on a bed of the test's own, for what stops the API server.
    async fn private(name: &str) -> Option<Self> {
        let bed = Bed::private().await;
        if let Some(bed) = &bed {
            bed.nodes().add("node", "64", "256Gi").await;
        }
        Self::on(bed, name).await
    }

    async fn on(bed: Option<Bed>, name: &str) -> Option<Self> {
        let Some(bed) = bed.filter(Bed::is_complete) else {
            not_run("a whole control plane");
            return None;
        };
        defined(&bed).await;
        let namespace = bed.namespace(name).await;
        let usage = Usage::shared(&bed, &namespace).await;
        usage.set_external(&namespace, METRIC, &[("app", "web")], 10_000.0);
        deployment(&bed, &namespace, "web", 2).await;
        // A status that is written meanwhile makes a change of the scale one that is tried again.
        settled(&bed, &namespace, "web", 2).await;
        let wanted = object(
            "web",
            json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600}),
        );
        let yaml = serde_json::to_string(&wanted).expect("JSON is YAML");
        objects::create::<WatermarkPodAutoscaler>(bed.client(), &namespace, &yaml).await;
        let journal = Journal::keep(&bed, &namespace);
        journal.reaches(2).await;
        Some(Self { bed, namespace, _usage: usage, journal })
    }

    async fn way(&self, name: &str) -> Way {
        Way::to(&self.bed, &format!("{name}-of-{}", self.namespace)).await
    }

    fn start(&self, name: &str, way: &Way, more: &[&str]) -> Process {
        let environment = [("WATCH_NAMESPACE", &*self.namespace)];
        // Processes of other tests are on the same bed.
        let name = format!("{name}-{}", self.namespace);
        Process::start_role(&self.bed, &name, &environment, |port| {
            let lease = format!("--leader-elect-resource-namespace={}", self.namespace);
            let kubeconfig = format!("--kubeconfig={}", way.kubeconfig().display());
            let flags = [BRISK, more].concat();
            let mut arguments = vec!["watermark".to_owned()];
            arguments.extend(flags.into_iter().map(ToOwned::to_owned));
            arguments.extend([lease, kubeconfig, format!("--metrics-addr=127.0.0.1:{port}")]);
            arguments
        })
    }

    /// Looks at the object so many times more.
    async fn looks(&self, process: &Process, more: u32) {
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

    async fn other_than(&self, before: &str) -> String {
        wait::until("another one leads", || async {
            let now = self.holder().await;
            (now != before).then_some(now)
        })
        .await
    }

    /// Waits until its metrics tell of the object, or no more.
    async fn tells(&self, process: &Process, wanted: bool) {
        wait::until("only who leads tells of objects", || async {
            let most = process.metric("plimsoll_max_replicas", &[]).await?;
            ((most > 0.0) == wanted).then_some(())
        })
        .await;
    }

    /// One change was made, and all know of it.
    async fn changed_once(&self, process: &Process) {
        self.journal.reaches(4).await;
        self.looks(process, 4).await;
        assert_eq!(*self.journal.told(), [2, 4]);
        let object = self.get().await;
        let status = object.status.clone().expect("a status");
        assert_eq!((status.desired_replicas, status.scaling_events_count), (4, 1), "{status:#?}");
        assert!(status.last_scale_time.is_some(), "{}", object.name_any());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_of_a_change_neither_loses_nor_doubles_it() {
    let Some(scene) = Scene::set("kill-scale").await else { return };
    let way = scene.way("way").await;
    let moments: [Moment; 4] = [
        (Told, Side::Request),
        // From here on it is booked, and not made.
        (Told, Side::Answer),
        (Scale, Side::Request),
        // From here on it is made, and not told.
        (Scale, Side::Answer),
    ];
    for moment in moments {
        way.hold(moment);
        let process = scene.start("one", &way, &["--enable-leader-election=false"]);
        way.reached().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    way.open();
    let process = scene.start("one", &way, &["--enable-leader-election=false"]);
    scene.changed_once(&process).await;
    assert_eq!(way.tried(Scale).len(), 2, "one was never sent on");
    assert_eq!(process.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_right_after_a_change_is_followed_by_one_that_knows_of_it() {
    let Some(scene) = Scene::set("failover").await else { return };
    let (way, other) = (scene.way("first").await, scene.way("second").await);
    way.hold((Scale, Side::Answer));
    let first = scene.start("first", &way, LASTING);
    way.reached().await;
    let leader = scene.holder().await;
    let second = scene.start("second", &other, LASTING);
    second.ready().await;
    assert_eq!(other.writes(), [""; 0], "a standby writes nothing");
    assert_eq!(first.end("KILL").await, 137);
    expire(&scene.bed, &scene.namespace, LEASE).await;
    scene.other_than(&leader).await;
    scene.changed_once(&second).await;
    assert_eq!(other.tried(Scale), [""; 0]);
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_freezes_before_a_change_and_thaws_after_another_one_made_it_does_nothing() {
    let Some(scene) = Scene::set("frozen").await else { return };
    let (way, other) = (scene.way("first").await, scene.way("second").await);
    way.hold((Scale, Side::Request));
    let first = scene.start("first", &way, BRIEF);
    way.reached().await;
    let leader = scene.holder().await;
    // It leads to the end, whatever the machine does.
    let second = scene.start("second", &other, LASTING);
    second.ready().await;
    first.signal("STOP");
    let next = scene.other_than(&leader).await;
    scene.changed_once(&second).await;
    let writes = way.writes();

    first.signal("CONT");
    way.release();
    first.logs(&["new leader elected", &next]).await;
    scene.tells(&first, false).await;
    scene.tells(&second, true).await;
    scene.looks(&second, 4).await;
    scene.changed_once(&second).await;
    assert_eq!(way.writes(), writes, "what was under way is refused, and nothing else begun");
    assert_eq!(way.done(Scale), [""; 0]);
    assert_eq!(other.done(Scale).len(), 1);
    let told = "wpa_controller_max_replicas";
    assert!(second.metric(told, &[]).await.is_some_and(|most| most > 0.0));
    wait::until("it tells nothing any more of what it saw when it led", || async {
        (first.metric(told, &[]).await? == 0.0).then_some(())
    })
    .await;

    // It is a standby, and takes over when the other one goes.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(scene.other_than(&next).await, leader, "by the name that it had");
    scene.changed_once(&first).await;
    scene.tells(&first, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_for_a_while_costs_no_change_and_doubles_none() {
    let Some(scene) = Scene::private("outage").await else { return };
    let way = scene.way("way").await;
    way.hold((Scale, Side::Request));
    let process = scene.start("one", &way, BRIEF);
    way.reached().await;
    scene.bed.control_plane().kill_api_server().await;
    way.release();
    process.logs(&["the lease"]).await;
    let alive = fetch(&format!("http://{}/livez", process.address())).await.expect("it answers");
    assert_eq!(&*alive, b"ok\n");
    scene.bed.control_plane().restart_api_server().await;
    scene.changed_once(&process).await;
    assert_eq!(way.done(Scale).len(), 1);
    assert_eq!(process.end("TERM").await, 0);
}
