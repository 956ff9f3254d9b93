//! Two roles and a third party write conditions of one VPA at the same time.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::TryStreamExt as _;
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher::{self, Event, watcher},
};
use plimsoll::controllers;
use plimsoll::{cli::recommender_config, cluster::clock::Clock};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use super::fixture;
use crate::{
    recommender::in_process::{wait_for_passes, wait_until_written},
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed,
        api_proxy::{ApiProxy, Interception, pass_through},
        clock::wall_now,
        hollow_nodes::is_ready,
        manifests,
        metrics_server::UsageValue,
        tier, wait,
    },
};

/// In every third pass both roles write at the same moment; in the others their writes are not synchronized.
const PASSES_PER_COLLISION: u64 = 3;
const MINUTE: Duration = Duration::from_mins(1);
const ALL_CONDITIONS: [&str; 3] = ["Foreign", "RecommendationProvided", "UpdatesHeldBack"];

/// Follows every version of a VPA.
struct VpaFollower {
    observed: Arc<Mutex<ObservedVersions>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct ObservedVersions {
    versions: usize,
    /// The conditions of each version that lacked one, after all three had existed.
    lost: Vec<BTreeSet<String>>,
    is_whole: bool,
    /// How often the recommendation changed, and the message of the updater's condition.
    recommended: ConditionChanges,
    held: ConditionChanges,
}

#[derive(Default)]
struct ConditionChanges {
    last: String,
    count: usize,
}

impl ConditionChanges {
    fn record(&mut self, now: String) {
        if now != self.last {
            self.last = now;
            self.count += 1;
        }
    }
}

impl ObservedVersions {
    fn record(&mut self, vpa: &VerticalPodAutoscaler) {
        let status = vpa.status.clone().unwrap_or_default();
        let kinds: BTreeSet<String> =
            status.conditions.iter().map(|condition| condition.kind.clone()).collect();
        let is_whole = ALL_CONDITIONS.iter().all(|kind| kinds.contains(*kind));
        if self.is_whole && !is_whole {
            self.lost.push(kinds);
        }
        self.is_whole |= is_whole;
        self.versions += 1;
        self.recommended.record(serde_json::to_string(&status.recommendation).expect("JSON"));
        let held = status.conditions.iter().find(|condition| condition.kind == "UpdatesHeldBack");
        self.held.record(held.map(|condition| condition.message.clone()).unwrap_or_default());
    }
}

impl VpaFollower {
    fn follow(client: Client, namespace: &str) -> Self {
        let vpas = Api::<VerticalPodAutoscaler>::namespaced(client, namespace);
        let observed: Arc<Mutex<ObservedVersions>> = Arc::default();
        let task = tokio::spawn({
            let observed = Arc::clone(&observed);
            async move {
                let mut events = pin!(watcher(vpas, watcher::Config::default()));
                while let Ok(Some(event)) = events.try_next().await {
                    if let Event::Apply(vpa) | Event::InitApply(vpa) = event {
                        observed.lock().expect("no panic").record(&vpa);
                    }
                }
            }
        });
        Self { observed, task }
    }

    fn inspect<T>(&self, at: impl FnOnce(&ObservedVersions) -> T) -> T {
        assert!(!self.task.is_finished(), "the watch has ended");
        at(&self.observed.lock().expect("no panic"))
    }
}

/// A gate between two roles and the API server. While it is closed it delays their status writes. All writes that arrive
/// meanwhile are based on versions from before any of them is stored, so all but one conflict.
#[derive(Clone, Default)]
struct Gate(Arc<watch::Sender<GateState>>);

#[derive(Default)]
struct GateState {
    is_closed: bool,
    /// Whether each role has a status write waiting.
    arrived: [bool; 2],
}

impl Gate {
    /// Starts a proxy for one of the two roles.
    async fn proxy_through_gate(&self, behind: Client, side: usize) -> ApiProxy {
        let gate = Arc::clone(&self.0);
        let intercept = move |method: &Method, path: &str| -> Interception {
            let is_status = path.contains("/verticalpodautoscalers/") && path.ends_with("/status");
            if *method != Method::PATCH || !is_status {
                return pass_through();
            }
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                gate.send_if_modified(|held| {
                    held.arrived[side] |= held.is_closed;
                    held.is_closed
                });
                // An error means that the test has ended.
                let _ = gate.subscribe().wait_for(|held| !held.is_closed).await;
                None
            })
        };
        ApiProxy::start(behind, intercept).await
    }

    fn close(&self) {
        self.0.send_replace(GateState { is_closed: true, ..GateState::default() });
    }

    fn open(&self) {
        self.0.send_replace(GateState::default());
    }

    /// Whether both roles have a write waiting, or do so within a second.
    async fn wait_for_both(&self) -> bool {
        let mut held = self.0.subscribe();
        let met = held.wait_for(|held| held.arrived == [true, true]);
        tokio::time::timeout(Duration::from_secs(1), met).await.is_ok()
    }
}

/// Creates a workload whose pods need more resources, with a third-party condition. Updates are paused every other minute by
/// a maintenance window, and otherwise by the disruption budget.
async fn create_blocked_workload(bed: &Testbed, namespace: &str) -> Api<VerticalPodAutoscaler> {
    let yaml = manifests::deployment("web", 2, "10m", "16Mi");
    manifests::create::<Deployment>(bed.client(), namespace, &yaml).await;
    bed.nodes().pods(namespace, "web-", 2, "are ready", is_ready).await;
    fixture::vpa(bed, namespace, "web", "Recreate", "1").await;
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let foreign = json!([{"type": "Foreign", "status": "True", "reason": "Test"}]);
    let foreign = json!({"status": {"conditions": foreign}});
    let parameters = PatchParams::default();
    vpas.patch_status("web", &parameters, &Patch::Merge(&foreign)).await.expect("valid status");
    let window = json!({"metadata": {"annotations": {
        "plimsoll.dev/change-window": "*/2 * * * * for 1m",
    }}});
    vpas.patch("web", &parameters, &Patch::Merge(&window)).await.expect("valid annotation");
    vpas
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
async fn concurrent_condition_writes_of_recommender_and_updater_are_all_kept() {
    let wanted = tier::cases(120, 5_000);
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bed.nodes().add("node", "16", "64Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let vpas = create_blocked_workload(&bed, &namespace).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.7, memory: 900 << 20 });
    let follower = VpaFollower::follow(bed.client(), &namespace);

    let now = wall_now();
    usage.at(now);
    let clock = Clock::fake(now.into());
    let fast = ["--kube-api-qps=1000", "--kube-api-burst=2000"];
    let flags = [&fast[..], &["--bounds-dead-band=0", "--checkpoint-interval=48h"]].concat();
    let gate = Gate::default();
    let proxies = [
        gate.proxy_through_gate(bed.client(), 0).await,
        gate.proxy_through_gate(bed.client(), 1).await,
    ];
    let flags = [&["--address=127.0.0.1:0", "--leader-elect=false"], &*flags].concat();
    let config = recommender_config(&flags).expect("valid flags");
    let recommender = controllers::start(config, proxies[0].client.clone(), clock.clone()).await;
    let recommender = recommender.expect("starts");
    let flags = [
        &fast[..],
        &[
            "--updater-interval=1m",
            "--recommender-heartbeat=ignore",
            "--max-disruptions-per-hour=0",
            "--leader-elect=false",
        ],
    ]
    .concat();
    let client = proxies[1].client.clone();
    let updater = fixture::start_with(client, &namespace, &flags, clock.clone(), |_| {}).await;
    wait_for_passes(&recommender, 1).await;
    let mut passes = updater.passes();
    let mut passes_before = passes.borrow_and_update().0;
    let (mut pass, mut collisions, mut is_awaited) = (1, 0, false);
    while pass < wanted || is_awaited {
        if pass % PASSES_PER_COLLISION == 0 && !is_awaited {
            gate.close();
            is_awaited = true;
        }
        usage.at(clock.now().later(MINUTE).into());
        clock.step(MINUTE);
        // Both decide at the same time, and neither waits for the other's write.
        wait_for_passes(&recommender, 1 + pass).await;
        let next_pass = passes.wait_for(|(count, _)| *count > passes_before);
        passes_before = tokio::time::timeout(wait::PATIENCE, next_pass)
            .await
            .expect("pass finishes in time")
            .expect("running")
            .0;
        // A role without anything to write may have something in the next minute.
        if is_awaited && gate.wait_for_both().await {
            gate.open();
            (collisions, is_awaited) = (collisions + 1, false);
        }
        pass += 1;
        assert!(pass < 2 * wanted, "{collisions} collisions in {pass} passes");
    }
    wait_until_written(&recommender).await;
    let pages = [
        String::from_utf8_lossy(
            &crate::support::http_get::http_get(&format!(
                "http://{}/metrics",
                recommender.address()
            ))
            .await
            .expect("served"),
        )
        .into_owned(),
        fixture::metrics(&updater).await,
    ];
    let count = |outcome: &str| {
        let labels = [r#"kind="status""#, outcome];
        pages.each_ref().map(|page| fixture::metric_sum(page, "plimsoll_writes_total", &labels))
    };
    let (stored, conflicts) = (count(r#"outcome="200""#), count(r#"outcome="409""#));
    updater.stop().await;
    recommender.stop().await;

    let last = vpas.get("web").await.expect("exists");
    let conditions = last.status.clone().expect("valid status").conditions;
    for kind in ALL_CONDITIONS {
        let found = conditions.iter().find(|condition| condition.kind == kind);
        assert!(
            found.is_some_and(|condition| condition.status == "True"),
            "{kind}: {conditions:?}"
        );
    }
    let text = serde_json::to_string(&last.status).expect("JSON");
    wait::until("the last version was observed", || async {
        let last = follower
            .inspect(|observed| (observed.recommended.last.clone(), observed.held.last.clone()));
        let held = serde_json::to_string(&last.1).expect("JSON");
        (text.contains(&last.0) && text.contains(&held)).then_some(())
    })
    .await;
    follower.inspect(|observed| {
        let (targets, held) = (observed.recommended.count as u64, observed.held.count as u64);
        let summary = format!(
            "{} versions, {targets} recommendations, {held} reasons, {stored:?} stored, {conflicts:?} conflicts",
            observed.versions
        );
        assert_eq!(observed.lost, Vec::<BTreeSet<String>>::new(), "{summary}");
        // In each collision both write a status. Which one loses is random, and the loser may have nothing left to write.
        assert!(stored.iter().all(|count| *count > 0.0), "{collisions} collisions: {summary}");
        // A status write that is delayed beyond the request timeout is abandoned, without a conflict.
        let conflicts = conflicts.iter().sum::<f64>();
        assert!(conflicts >= f64::from(collisions) / 2.0, "{collisions} collisions: {summary}");
    });
}
