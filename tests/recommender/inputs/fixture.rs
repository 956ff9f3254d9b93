//! The fixture of the input tests: a testbed with usage, workloads, and recommenders for one namespace.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use plimsoll::{
    cluster::clock::Clock,
    controllers::recommender::{PassSummary, RecommenderHandle},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::Time;
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;

use super::super::in_process::{step, wait_for_passes};
use super::super::recorded_writes::{read, start_with, with_recorded_writes, writes};
use super::super::reference_model::{ReferenceContainer, memory_text, time_text};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::api_proxy::ApiProxy;
use crate::support::bulk_objects::{self, ApiWrite, collection};
use crate::support::captured_log::{self, CapturedLog};
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::http_get::http_get;
use crate::support::metrics_server::UsageValue;
use crate::support::{MetricsServer, Testbed, manifests, wait};

pub const MEBIBYTE: u64 = 1 << 20;
pub const MINUTE: Duration = Duration::from_mins(1);
/// Memory request of each container.
pub const REQUEST: u64 = 512 * MEBIBYTE;
const VPAS: &str = "verticalpodautoscalers";
const CHECKPOINTS: &str = "verticalpodautoscalercheckpoints";

/// A testbed with usage.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    /// One server for each namespace on a shared testbed; `None` on a private one.
    namespace_usage: Option<RefCell<Vec<MetricsServer>>>,
    log: CapturedLog,
    _listening: DefaultGuard,
}

/// A running recommender with its own stepped clock.
pub struct SteppedRecommender {
    pub running: RecommenderHandle,
    clock: Clock,
    proxy: ApiProxy,
}

// === impl Stage ===

impl Fixture {
    /// Returns `None` after reporting what is missing on this machine.
    pub async fn private() -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        create_definitions(&bed).await;
        bed.nodes().add("node", "8", "16Gi").await;
        let usage = MetricsServer::serve(&bed).await;
        let (words, listening) = captured_log::capture();
        Some(Self { bed, usage, namespace_usage: None, log: words, _listening: listening })
    }

    /// The same on the shared testbed, for recommenders of one namespace each.
    pub async fn shared() -> Option<Self> {
        let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
        create_definitions(&bed).await;
        let usage = MetricsServer::shared(&bed, &bed.namespace("feeds").await).await;
        let apart = Some(RefCell::default());
        let (words, listening) = captured_log::capture();
        Some(Self { bed, usage, namespace_usage: apart, log: words, _listening: listening })
    }

    /// Creates a namespace for a case.
    pub async fn namespace(&self, name: &str) -> String {
        let namespace = self.bed.namespace(name).await;
        if let Some(apart) = &self.namespace_usage {
            let usage = MetricsServer::shared(&self.bed, &namespace).await;
            apart.borrow_mut().push(usage);
        }
        namespace
    }

    /// Serves usage with this timestamp.
    fn serve_usage_at(&self, time: Time) {
        self.usage.at(time.into());
        if let Some(apart) = &self.namespace_usage {
            apart.borrow().iter().for_each(|usage| usage.at(time.into()));
        }
    }

    pub fn client(&self) -> Client {
        self.bed.client()
    }

    /// Creates a Deployment with one pod, whose container is `main`, and a VPA of the same name. Returns the pod once
    /// it is ready.
    pub async fn deploy(&self, namespace: &str, name: &str) -> String {
        let request = (REQUEST / MEBIBYTE).to_string() + "Mi";
        let yaml = manifests::deployment(name, 1, "10m", &request);
        manifests::create::<Deployment>(self.client(), namespace, &yaml).await;
        self.pod(namespace, &format!("{name}-")).await
    }

    /// The only pod with this prefix, once it is ready.
    pub async fn pod(&self, namespace: &str, prefix: &str) -> String {
        let pods = self.bed.nodes().pods(namespace, prefix, 1, "is ready", is_ready).await;
        pods[0].metadata.name.clone().expect("pods have names")
    }

    /// Creates a VPA for a Deployment.
    pub async fn create_vpa(&self, namespace: &str, name: &str, deployment: &str) {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment });
        self.create_vpa_with(namespace, name, &json!({ "targetRef": target })).await;
    }

    /// Creates a VPA with this spec.
    pub async fn create_vpa_with(&self, namespace: &str, name: &str, spec: &Value) {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let yaml = object.to_string();
        manifests::create::<VerticalPodAutoscaler>(self.client(), namespace, &yaml).await;
    }

    /// Sets the usage of `main` in all pods with this prefix.
    pub fn set_usage(&self, namespace: &str, prefix: &str, cpu: f64, mebibytes: u64) {
        let used = UsageValue { cpu, memory: mebibytes * MEBIBYTE };
        self.usage.set_all(namespace, prefix, "main", used);
    }

    /// A recommender for one namespace that has finished its first pass.
    pub async fn start_recommender(&self, namespace: &str, flags: &[&str]) -> SteppedRecommender {
        let only = format!("--vpa-object-namespace={namespace}");
        let mut all = vec![&*only];
        all.extend(flags);
        self.start_recommender_at(wall_now().into(), &all).await
    }

    /// A recommender whose clock starts at `now`.
    pub async fn start_recommender_at(&self, now: Time, flags: &[&str]) -> SteppedRecommender {
        let clock = Clock::fake(now);
        self.serve_usage_at(now);
        let mut all = vec!["--leader-elect=false", "--checkpoint-interval=0s"];
        all.extend(flags);
        let proxy = with_recorded_writes(self.client()).await;
        let running = start_with(proxy.client.clone(), &clock, &all).await;
        wait_for_passes(&running, 1).await;
        SteppedRecommender { running, clock, proxy }
    }

    /// Waits until a container's target is this quantity.
    pub async fn wait_for_target(
        &self,
        namespace: &str,
        vpa: &str,
        container: &str,
        resource: &str,
        amount: &str,
    ) {
        let description = format!("{resource} of {container} by {vpa} in {namespace} is {amount}");
        wait::until_ok(&description, || async {
            let found = self.vpa(namespace, vpa).await;
            let last = target(&found, container, resource);
            let differs = || format!("it is {last:?}\n{found}\n{}", self.log.tail());
            if last.as_deref() == Some(amount) { Ok(()) } else { Err(differs()) }
        })
        .await;
    }

    pub async fn vpa(&self, namespace: &str, name: &str) -> Value {
        named(read(&self.client(), namespace, VPAS).await, name)
    }

    /// A checkpoint, or null if there is none.
    pub async fn checkpoint(&self, namespace: &str, name: &str) -> Value {
        named(read(&self.client(), namespace, CHECKPOINTS).await, name)
    }

    pub async fn checkpoints(&self, namespace: &str) -> Vec<String> {
        let all = read(&self.client(), namespace, CHECKPOINTS).await;
        all.iter().filter_map(|it| Some(it["metadata"]["name"].as_str()?.to_owned())).collect()
    }

    /// Waits until a checkpoint has at least `least` samples and returns the number.
    pub async fn wait_for_samples(&self, namespace: &str, checkpoint: &str, least: u64) -> u64 {
        wait::until(&format!("{checkpoint} has {least} samples"), || async {
            let found = self.checkpoint(namespace, checkpoint).await;
            found["status"]["totalSamplesCount"].as_u64().filter(|count| *count >= least)
        })
        .await
    }

    /// Writes a checkpoint as another program would: a week of one core and 4 GiB.
    pub async fn write_checkpoint(&self, namespace: &str, vpa: &str, now: i64) {
        let histogram = |bucket: &str| {
            json!({
                "referenceTimestamp": time_text(now / 86_400 * 86_400),
                "bucketWeights": { bucket: 10_000 }, "totalWeight": 1000.0,
            })
        };
        let object = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": { "name": format!("{vpa}-main"), "namespace": namespace },
            "spec": { "vpaObjectName": vpa, "containerName": "main" },
            "status": {
                "version": "v3", "lastUpdateTime": time_text(now - 60),
                "firstSampleStart": time_text(now - 7 * 86_400), "lastSampleStart": time_text(now - 60),
                "totalSamplesCount": 10_080, "cpuHistogram": histogram("36"), "memoryHistogram": histogram("63"),
            },
        });
        let checkpoints = collection("autoscaling.k8s.io/v1", namespace, CHECKPOINTS);
        self.send(ApiWrite::create(checkpoints, &object)).await;
    }

    pub async fn send(&self, write: ApiWrite) {
        bulk_objects::send(&self.client(), [write]).await;
    }

    /// The path of a VPA.
    pub fn path(namespace: &str, vpa: &str) -> String {
        format!("{}/{vpa}", collection("autoscaling.k8s.io/v1", namespace, VPAS))
    }
}

// === impl Play ===

impl SteppedRecommender {
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Runs a pass a minute later, with new samples.
    pub async fn step(&self, fixture: &Fixture) -> PassSummary {
        self.step_by(fixture, MINUTE).await
    }

    /// Runs a pass that much later, with new samples.
    pub async fn step_by(&self, fixture: &Fixture, by: Duration) -> PassSummary {
        fixture.serve_usage_at(self.clock.now().later(by));
        step(&self.running, &self.clock, by).await
    }

    /// The summary of the last pass.
    pub fn last_summary(&self) -> PassSummary {
        self.running.passes().borrow().1
    }

    /// Runs passes a minute apart until this many kills are counted, including those of the last pass.
    pub async fn step_until_oom_kills(&self, fixture: &Fixture, kills: u64) {
        let counted = Cell::new(self.last_summary().kills);
        wait::until(&format!("{kills} kills have counted"), || async {
            if counted.get() < kills {
                counted.set(counted.get() + self.step(fixture).await.kills);
            }
            (counted.get() >= kills).then_some(())
        })
        .await;
        assert_eq!(counted.get(), kills, "counted kills");
    }

    /// Waits until the metrics contain a line.
    pub async fn wait_for_metric_line(&self, line: &str) {
        let address = format!("http://{}/metrics", self.running.address());
        wait::until(&format!("metrics contain {line}"), || async {
            let text = String::from_utf8(http_get(&address).await?.to_vec()).ok()?;
            text.lines().any(|known| known == line).then_some(())
        })
        .await;
    }

    /// The objects that it has written.
    pub fn writes(&self) -> Vec<String> {
        let kind = |path: &str| path.split('/').skip(2).collect::<Vec<_>>().join("/");
        writes(&self.proxy).iter().map(|path| kind(path)).collect()
    }

    pub async fn stop(self) {
        self.running.stop().await;
    }
}

/// A container's target.
pub fn target(vpa: &Value, container: &str, resource: &str) -> Option<String> {
    let all = vpa["status"]["recommendation"]["containerRecommendations"].as_array()?;
    let one = all.iter().find(|one| one["containerName"] == container)?;
    Some(one["target"][resource].as_str()?.to_owned())
}

/// The target of a container after an OOM kill, with usage at its request.
pub fn target_after_oom_kill(used: u64) -> String {
    let mut container = ReferenceContainer::new(None);
    container.kill("pod", 0, used as i64);
    memory_text(container.memory(1, None)[1])
}

/// The target of a container with constant usage.
pub fn target_for_usage(mebibytes: u64) -> String {
    let mut container = ReferenceContainer::new(None);
    container.take("pod", 0, 1, (mebibytes * MEBIBYTE) as i64);
    memory_text(container.memory(1, None)[1])
}

fn named(all: Vec<Value>, name: &str) -> Value {
    all.into_iter().find(|object| object["metadata"]["name"] == name).unwrap_or_default()
}
