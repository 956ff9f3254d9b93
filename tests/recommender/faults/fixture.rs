//! The fixture of the fault tests: a testbed with workloads, their usage over days, and their recommendations.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use plimsoll::cli::recommender_config;
use plimsoll::cluster::cache::vpa_index::VpaIndex;
use plimsoll::cluster::clock::Clock;
use plimsoll::cluster::watch::PartialPod;
use plimsoll::controllers;
use plimsoll::controllers::recommender::{PassSummary, RecommenderHandle};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use plimsoll_core::api::vpa::Recommendation;
use plimsoll_core::recommender::registry::OomResult;
use plimsoll_core::recommender::{NamespaceScope, VpaRegistry, VpaSettings, published_status};
use plimsoll_core::types::compat::Compat;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::checkpoint::CheckpointOptions;
use plimsoll_storage::{CheckpointStorage, LoadRequest};

pub use crate::recommender::in_process::wait_until_written;
use crate::recommender::in_process::{step, wait_for_passes};
use crate::storage::checkpoint_objects::{create_definitions, load};
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::http_get::{http_get, metric_sum};
use crate::support::metrics_server::{UsageCurve, UsageValue};
use crate::support::random::Random;
use crate::support::{MetricsServer, Testbed, manifests, wait};

/// Interval between samples, in days that pass in seconds.
pub const HOUR: SignedDuration = SignedDuration::from_hours(1);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const MEBIBYTE: u64 = 1 << 20;

/// Recommendations of all workloads, by name.
pub type Recommendations = BTreeMap<String, Recommendation>;

/// A namespace of a testbed with workloads of two pods each.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    pub namespace: String,
    pub names: &'static [&'static str],
    /// Flags that limit a recommender to the namespace and keep its Lease there.
    flags: Vec<String>,
}

impl Fixture {
    /// Creates all workloads, each with a VPA. Returns `None` after reporting what is missing on this machine.
    pub async fn new(names: &'static [&'static str]) -> Option<Self> {
        let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
        let namespace = bed.namespace("web").await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let flags = ["vpa-object-namespace", "leader-elect-resource-namespace"]
            .map(|name| format!("--{name}={namespace}"));
        let fixture = Self { bed, usage, namespace, names, flags: flags.into() };
        Some(fixture.prepare().await)
    }

    /// The same on a private testbed, for tests that stop the API server or change its API registrations. A
    /// recommender covers all of its namespaces.
    pub async fn private(names: &'static [&'static str]) -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        bed.nodes().add("node", "64", "256Gi").await;
        let usage = MetricsServer::serve(&bed).await;
        let namespace = bed.namespace("web").await;
        let fixture = Self { bed, usage, namespace, names, flags: Vec::new() };
        Some(fixture.prepare().await)
    }

    async fn prepare(self) -> Self {
        create_definitions(&self.bed).await;
        for (number, name) in self.names.iter().enumerate() {
            self.set_usage(name, daily_curve(number as u64));
            let yaml = autoscaler(name);
            manifests::create::<VerticalPodAutoscaler>(self.client(), &self.namespace, &yaml).await;
            self.deploy(name).await;
        }
        for name in self.names {
            let prefix = format!("{name}-");
            self.bed.nodes().pods(&self.namespace, &prefix, 2, "are ready", is_ready).await;
        }
        self
    }

    pub fn client(&self) -> Client {
        self.bed.client()
    }

    /// `more`, plus the flags that every recommender of this fixture needs.
    pub fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.flags.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    /// Creates the Deployment of a workload.
    pub async fn deploy(&self, name: &str) {
        let yaml = manifests::deployment(name, 2, "100m", "64Mi");
        manifests::create::<Deployment>(self.client(), &self.namespace, &yaml).await;
    }

    /// Sets the usage of a workload's pods.
    pub fn set_usage(&self, name: &str, curve: impl Into<UsageCurve>) {
        self.usage.set_all(&self.namespace, &format!("{name}-"), "main", curve);
    }

    /// Sets constant usage for all pods.
    pub fn set_constant_usage(&self, cpu: f64, mebibytes: u64) {
        for name in self.names {
            self.set_usage(name, UsageValue { cpu, memory: mebibytes * MEBIBYTE });
        }
    }

    /// The pods of a workload.
    pub async fn pods(&self, name: &str) -> Vec<Pod> {
        let prefix = format!("{name}-");
        self.bed.nodes().pods(&self.namespace, &prefix, 2, "are ready", is_ready).await
    }

    /// OOM-kills the first pod of a workload and waits until its status shows it.
    pub async fn oom_kill(&self, name: &str) {
        let pod = self.pods(name).await.remove(0).name_any();
        let api = Api::<Pod>::namespaced(self.client(), &self.namespace);
        let restarts = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter());
            statuses.flatten().map(|status| status.restart_count).sum::<i32>()
        };
        let before = restarts(&api.get(&pod).await.expect("exists"));
        self.bed.nodes().oom_kill(&self.namespace, &pod, "main").await;
        wait::until("the status shows the kill", || async {
            api.get(&pod).await.ok().filter(|pod| restarts(pod) > before)
        })
        .await;
    }

    /// The recommendations in the statuses.
    pub async fn recommendations(&self) -> Recommendations {
        let recommendation_of = |vpa: VerticalPodAutoscaler| {
            let name = vpa.name_any();
            (name, vpa.status.and_then(|status| status.recommendation).unwrap_or_default())
        };
        self.vpas().await.into_iter().map(recommendation_of).collect()
    }

    /// All VPAs, ordered by name.
    pub async fn vpas(&self) -> Vec<VerticalPodAutoscaler> {
        let api = Api::<VerticalPodAutoscaler>::namespaced(self.client(), &self.namespace);
        wait::until("the VPAs are listed", || async {
            Some(api.list(&ListParams::default()).await.ok()?.items)
        })
        .await
    }

    /// Waits until the statuses have these recommendations.
    pub async fn wait_for_recommendations(&self, what: &str, wanted: &Recommendations) {
        let pretty = |recommendations: &Recommendations| {
            serde_json::to_string_pretty(recommendations).expect("JSON")
        };
        wait::until_ok(what, || async {
            let recommendations = self.recommendations().await;
            let differs =
                || format!("wanted\n{}\nbut it is\n{}", pretty(wanted), pretty(&recommendations));
            if recommendations == *wanted { Ok(()) } else { Err(differs()) }
        })
        .await;
    }

    /// The checkpoints, ordered by name.
    pub async fn checkpoints(&self) -> Vec<Checkpoint> {
        let api = Api::<Checkpoint>::namespaced(self.client(), &self.namespace);
        wait::until("the checkpoints are listed", || async {
            Some(api.list(&ListParams::default()).await.ok()?.items)
        })
        .await
    }

    /// The number of CPU samples in each checkpoint.
    pub async fn samples(&self) -> BTreeMap<String, u64> {
        let options = CheckpointOptions {
            namespace: Some(self.namespace.clone()),
            ..CheckpointOptions::default()
        };
        let now: Time = wall_now().into();
        let stored = CheckpointStorage::new(self.client(), move || now, options);
        let loaded = load(&stored, &LoadRequest::All).await;
        let count = |(key, snapshot): (
            plimsoll_core::types::ContainerKey,
            plimsoll_core::history::Snapshot,
        )| { (key.vpa.name.to_string(), snapshot.cpu_seen.count) };
        loaded.snapshots.into_iter().map(count).collect()
    }

    /// The expected recommendations of a recommender that starts now, from the checkpoints and every kill that a pod
    /// status still shows. Also returns how many kills the checkpoints did not include.
    pub async fn expected_from_checkpoints(&self, now: Time) -> (Recommendations, f64) {
        let config = recommender_config(&[]).expect("default flags are valid");
        let mut registry = VpaRegistry::new(config.settings, Compat::Plimsoll);
        let key = |name: &str| ObjectKey::new(self.namespace.as_str(), name);
        for name in self.names {
            let vpa_settings = VpaSettings::new(Vec::new(), &BTreeMap::new());
            registry.track(&key(name), vpa_settings, now);
            let generation = registry.load_generation(&key(name)).expect("container is tracked");
            registry.mark_loaded(&key(name), generation);
        }
        let options = CheckpointOptions {
            namespace: Some(self.namespace.clone()),
            ..CheckpointOptions::default()
        };
        let stored = CheckpointStorage::new(self.client(), move || now, options);
        for (key, snapshot) in load(&stored, &LoadRequest::All).await.snapshots {
            registry.restore(&key, &snapshot, now, false).expect("stored history is complete");
        }
        let mut index = VpaIndex::new(NamespaceScope::default(), "default");
        let pods = Api::<Pod>::namespaced(self.client(), &self.namespace);
        for pod in pods.list(&ListParams::default()).await.expect("pods") {
            let json = serde_json::to_value(&pod).expect("JSON");
            let slim: PartialPod = serde_json::from_value(json).expect("a pod");
            index.put_pod(&slim);
            for name in self.names {
                if pod.name_any().starts_with(&format!("{name}-")) {
                    registry.ingest().register_container(&key(name), "main", now);
                }
            }
        }
        let mut counted = 0.0;
        for kill in index.take_oom_kills() {
            for name in self.names {
                if kill.pod.starts_with(&format!("{name}-")) {
                    let place = (&*kill.pod, &*kill.container);
                    let outcome = registry.ingest().add_oom(
                        &key(name),
                        place,
                        (kill.at, kill.kill),
                        true,
                        now,
                    );
                    counted += f64::from(u8::from(matches!(outcome, OomResult::Counted(_))));
                }
            }
        }
        let expected_of = |name: &&str| {
            let recommendation =
                registry.recommend(&key(name), now).expect("its history is loaded");
            ((*name).to_owned(), published_status::to_object(&recommendation))
        };
        (self.names.iter().map(expected_of).collect(), counted)
    }

    /// Starts a recommender in this process that uses this client.
    pub async fn start_with_client(
        &self,
        client: Client,
        clock: &Clock,
        flags: &[&str],
    ) -> RecommenderHandle {
        let mut all = vec!["--address=127.0.0.1:0", "--leader-elect=false", "--bounds-dead-band=0"];
        all.extend(flags);
        let config = recommender_config(&self.flags(&all)).expect("valid flags");
        let running = controllers::start(config, client, clock.clone()).await.expect("starts");
        wait_for_passes(&running, 1).await;
        running
    }

    /// Starts a recommender in this process.
    pub async fn start(&self, clock: &Clock, flags: &[&str]) -> RecommenderHandle {
        self.start_with_client(self.client(), clock, flags).await
    }

    /// A clock that is in step with the metrics server.
    pub fn clock(&self) -> Clock {
        let now = wall_now();
        self.usage.at(now);
        Clock::fake(now.into())
    }

    /// Advances time, with samples at each step, until everything is written.
    pub async fn advance(
        &self,
        running: &RecommenderHandle,
        clock: &Clock,
        steps: usize,
        by: Duration,
    ) -> PassSummary {
        let mut summary = PassSummary::default();
        for _ in 0..steps {
            self.usage.at(clock.now().later(by).into());
            summary = step(running, clock, by).await;
        }
        wait_until_written(running).await;
        summary
    }
}

/// The sum of all series of a metric with these labels; `None` if the server does not respond.
pub async fn read_metric(address: impl Display, name: &str, labels: &[&str]) -> Option<f64> {
    let text = http_get(&format!("http://{address}/metrics")).await?;
    Some(metric_sum(&String::from_utf8_lossy(&text), name, labels))
}

/// Like [`read_metric`], waiting until the server responds.
pub async fn metric(address: impl Display + Copy, name: &str, labels: &[&str]) -> f64 {
    wait::until("metrics are served", || read_metric(address, name, labels)).await
}

/// Waits until a metric satisfies a condition.
pub async fn wait_for_metric(
    address: impl Display + Copy,
    name: &str,
    labels: &[&str],
    is: impl Fn(f64) -> bool,
) -> f64 {
    wait::until(&format!("{name} {labels:?} has the expected value"), || async {
        read_metric(address, name, labels).await.filter(|value| is(*value))
    })
    .await
}

/// Asserts that `/livez` succeeds.
pub async fn assert_alive(address: impl Display) {
    let answer = http_get(&format!("http://{address}/livez")).await.expect("responds");
    assert_eq!(&*answer, b"ok\n");
}

/// Waits until `/readyz` succeeds.
pub async fn wait_until_ready(address: impl Display + Copy) {
    wait::until("the recommender is ready", || async {
        let answer = http_get(&format!("http://{address}/readyz")).await?;
        (&*answer == b"ok\n").then_some(())
    })
    .await;
}

/// Usage that rises and falls from hour to hour, different for each workload.
pub fn daily_curve(number: u64) -> UsageCurve {
    UsageCurve::new(move |time: Timestamp| {
        let hour = (time.as_second() / 60) as u64;
        let mut noise = Random::derive(7, &[number, hour]);
        let cpu = noise.between(50, 900 + 100 * number) as f64 / 1000.0;
        UsageValue { cpu, memory: noise.between(100, 900) * MEBIBYTE }
    })
}

/// A VPA for the Deployment of the same name.
pub fn autoscaler(name: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}
"
    )
}

/// The target of the first container of each.
pub fn targets(recommendations: &Recommendations) -> BTreeMap<&str, (String, String)> {
    let target_of = |recommendation: &Recommendation| {
        let target = &recommendation.container_recommendations.first()?.target;
        Some((target.cpu()?.to_string(), target.memory()?.to_string()))
    };
    recommendations
        .iter()
        .filter_map(|(name, recommendation)| Some((name.as_str(), target_of(recommendation)?)))
        .collect()
}
