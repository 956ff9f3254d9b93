//! Owns what every fault happens on: a bed with workloads, their usage over days, and what is said about them.

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
use plimsoll::cluster::watch::partial_objects::PartialPod;
use plimsoll::controllers;
use plimsoll::controllers::recommender::{PassSummary, RecommenderHandle};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use plimsoll_core::api::vpa::Recommendation;
use plimsoll_core::recommender::registry::OomResult;
use plimsoll_core::recommender::{NamespaceScope, VpaRegistry, VpaSettings, status};
use plimsoll_core::types::compat::Compat;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::checkpoint::CheckpointOptions;
use plimsoll_storage::{CheckpointStorage, LoadRequest};

pub use crate::recommender::in_process::wait_until_written;
use crate::recommender::in_process::{step, wait_for_passes};
use crate::storage::checkpoint_objects::{create_definitions, load};
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::http_get::http_get;
use crate::support::metrics_server::{UsageCurve, UsageValue};
use crate::support::random::Random;
use crate::support::{MetricsServer, Testbed, manifests, wait};

/// From one sample to the next, in days that pass in seconds.
pub const HOUR: SignedDuration = SignedDuration::from_hours(1);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const MEBIBYTE: u64 = 1 << 20;

/// What is said of all workloads, by name.
pub type Recommendations = BTreeMap<String, Recommendation>;

/// A namespace of a bed with workloads, of two pods each.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    pub namespace: String,
    pub names: &'static [&'static str],
    /// What limits a recommender to the namespace, and keeps its Lease there.
    flags: Vec<String>,
}

impl Fixture {
    /// Everything runs, and a VPA is about each. `None` after noting what is missing.
    pub async fn new(names: &'static [&'static str]) -> Option<Self> {
        let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
        let namespace = bed.namespace("web").await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let flags = ["vpa-object-namespace", "leader-elect-resource-namespace"]
            .map(|name| format!("--{name}={namespace}"));
        let stage = Self { bed, usage, namespace, names, flags: flags.into() };
        Some(stage.prepare().await)
    }

    /// The same on a bed of the test's own, for what stops the API server or changes what is registered with it. A
    /// recommender works on all namespaces of it.
    pub async fn private(names: &'static [&'static str]) -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        bed.nodes().add("node", "64", "256Gi").await;
        let usage = MetricsServer::serve(&bed).await;
        let namespace = bed.namespace("web").await;
        let stage = Self { bed, usage, namespace, names, flags: Vec::new() };
        Some(stage.prepare().await)
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

    /// These flags, and those that every recommender of this stage needs.
    pub fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.flags.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    /// The Deployment of a workload.
    pub async fn deploy(&self, name: &str) {
        let yaml = manifests::deployment(name, 2, "100m", "64Mi");
        manifests::create::<Deployment>(self.client(), &self.namespace, &yaml).await;
    }

    /// What the pods of a workload use.
    pub fn set_usage(&self, name: &str, curve: impl Into<UsageCurve>) {
        self.usage.set_all(&self.namespace, &format!("{name}-"), "main", curve);
    }

    /// What all pods use, whenever.
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

    /// Kills the first pod of a workload for its memory, and waits until its status shows it.
    pub async fn oom_kill(&self, name: &str) {
        let pod = self.pods(name).await.remove(0).name_any();
        let api = Api::<Pod>::namespaced(self.client(), &self.namespace);
        let restarts = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter());
            statuses.flatten().map(|status| status.restart_count).sum::<i32>()
        };
        let before = restarts(&api.get(&pod).await.expect("it is there"));
        self.bed.nodes().oom_kill(&self.namespace, &pod, "main").await;
        wait::until("the kill shows", || async {
            api.get(&pod).await.ok().filter(|pod| restarts(pod) > before)
        })
        .await;
    }

    /// What the statuses say.
    pub async fn recommendations(&self) -> Recommendations {
        let said = |vpa: VerticalPodAutoscaler| {
            let name = vpa.name_any();
            (name, vpa.status.and_then(|status| status.recommendation).unwrap_or_default())
        };
        self.vpas().await.into_iter().map(said).collect()
    }

    /// All VPAs, by name.
    pub async fn vpas(&self) -> Vec<VerticalPodAutoscaler> {
        let api = Api::<VerticalPodAutoscaler>::namespaced(self.client(), &self.namespace);
        wait::until("the VPAs are listed", || async {
            Some(api.list(&ListParams::default()).await.ok()?.items)
        })
        .await
    }

    /// Waits until the statuses say this.
    pub async fn wait_for_recommendations(&self, what: &str, wanted: &Recommendations) {
        let told = |said: &Recommendations| serde_json::to_string_pretty(said).expect("JSON");
        wait::until_ok(what, || async {
            let said = self.recommendations().await;
            let differs = || format!("wanted\n{}\nbut it is\n{}", told(wanted), told(&said));
            if said == *wanted { Ok(()) } else { Err(differs()) }
        })
        .await;
    }

    /// The stored histories, by name.
    pub async fn checkpoints(&self) -> Vec<Checkpoint> {
        let api = Api::<Checkpoint>::namespaced(self.client(), &self.namespace);
        wait::until("the checkpoints are listed", || async {
            Some(api.list(&ListParams::default()).await.ok()?.items)
        })
        .await
    }

    /// The number of samples of CPU in each stored history.
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

    /// What a recommender that begins now has to say: what the stored histories hold, and every kill that a pod still
    /// shows. And how many kills the histories did not know.
    pub async fn expected_from_checkpoints(&self, now: Time) -> (Recommendations, f64) {
        let config = recommender_config(&[]).expect("no flags make sense");
        let mut fleet = VpaRegistry::new(config.settings, Compat::Plimsoll);
        let key = |name: &str| ObjectKey::new(self.namespace.as_str(), name);
        for name in self.names {
            let directives = VpaSettings::new(Vec::new(), &BTreeMap::new());
            fleet.track(&key(name), directives, now);
            let sighting = fleet.load_generation(&key(name)).expect("is tracked");
            fleet.mark_loaded(&key(name), sighting);
        }
        let options = CheckpointOptions {
            namespace: Some(self.namespace.clone()),
            ..CheckpointOptions::default()
        };
        let stored = CheckpointStorage::new(self.client(), move || now, options);
        for (key, snapshot) in load(&stored, &LoadRequest::All).await.snapshots {
            fleet.restore(&key, &snapshot, now).expect("what was stored is whole");
        }
        let mut index = VpaIndex::new(NamespaceScope::default(), "default");
        let pods = Api::<Pod>::namespaced(self.client(), &self.namespace);
        for pod in pods.list(&ListParams::default()).await.expect("pods") {
            let json = serde_json::to_value(&pod).expect("JSON");
            let slim: PartialPod = serde_json::from_value(json).expect("a pod");
            index.put_pod(&slim);
            for name in self.names {
                if pod.name_any().starts_with(&format!("{name}-")) {
                    fleet.register_container(&key(name), "main", now);
                }
            }
        }
        let mut counted = 0.0;
        for kill in index.take_oom_kills() {
            for name in self.names {
                if kill.pod.starts_with(&format!("{name}-")) {
                    let place = (&*kill.pod, &*kill.container);
                    let outcome = fleet.add_oom(&key(name), place, (kill.at, kill.kill), true, now);
                    counted += f64::from(u8::from(matches!(outcome, OomResult::Counted(_))));
                }
            }
        }
        let said = |name: &&str| {
            let said = fleet.recommend(&key(name), now).expect("its history is loaded");
            ((*name).to_owned(), status::to_object(&said))
        };
        (self.names.iter().map(said).collect(), counted)
    }

    /// Starts a recommender in this process, whose requests go this way.
    pub async fn start_with_client(
        &self,
        client: Client,
        clock: &Clock,
        flags: &[&str],
    ) -> RecommenderHandle {
        let mut all = vec!["--address=127.0.0.1:0", "--leader-elect=false", "--bounds-dead-band=0"];
        all.extend(flags);
        let config = recommender_config(&self.flags(&all)).expect("flags that make sense");
        let running = controllers::start(config, client, clock.clone()).await.expect("starts");
        wait_for_passes(&running, 1).await;
        running
    }

    /// Starts one in this process.
    pub async fn start(&self, clock: &Clock, flags: &[&str]) -> RecommenderHandle {
        self.start_with_client(self.client(), clock, flags).await
    }

    /// A clock, and usage of the same time.
    pub fn clock(&self) -> Clock {
        let now = wall_now();
        self.usage.at(now);
        Clock::fake(now.into())
    }

    /// Lets time go by, with samples of each step, until everything is written.
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

/// The sum of the series of a metric with all of these labels; `None` while nobody answers.
pub async fn read_metric(address: impl Display, name: &str, labels: &[&str]) -> Option<f64> {
    let text = http_get(&format!("http://{address}/metrics")).await?;
    let text = String::from_utf8_lossy(&text);
    let of_name = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let fits = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    Some(fits.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// The same, once somebody answers.
pub async fn metric(address: impl Display + Copy, name: &str, labels: &[&str]) -> f64 {
    wait::until("metrics are served", || read_metric(address, name, labels)).await
}

/// Waits until a metric is as wanted.
pub async fn wait_for_metric(
    address: impl Display + Copy,
    name: &str,
    labels: &[&str],
    is: impl Fn(f64) -> bool,
) -> f64 {
    wait::until(&format!("{name} {labels:?} is as wanted"), || async {
        read_metric(address, name, labels).await.filter(|value| is(*value))
    })
    .await
}

/// Fails unless the process says that it is alive.
pub async fn assert_alive(address: impl Display) {
    let answer = http_get(&format!("http://{address}/livez")).await.expect("it answers");
    assert_eq!(&*answer, b"ok\n");
}

/// Waits until the process says that it is ready.
pub async fn wait_until_ready(address: impl Display + Copy) {
    wait::until("it is ready", || async {
        let answer = http_get(&format!("http://{address}/readyz")).await?;
        (&*answer == b"ok\n").then_some(())
    })
    .await;
}

/// Usage that goes up and down from hour to hour, and otherwise for each workload.
pub fn daily_curve(number: u64) -> UsageCurve {
    UsageCurve::new(move |time: Timestamp| {
        let hour = (time.as_second() / 60) as u64;
        let mut noise = Random::derive(7, &[number, hour]);
        let cpu = noise.between(50, 900 + 100 * number) as f64 / 1000.0;
        UsageValue { cpu, memory: noise.between(100, 900) * MEBIBYTE }
    })
}

/// A VPA about the Deployment of the same name.
pub fn autoscaler(name: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}
"
    )
}

/// The target of the first container of each.
pub fn targets(said: &Recommendations) -> BTreeMap<&str, (String, String)> {
    let target = |said: &Recommendation| {
        let target = &said.container_recommendations.first()?.target;
        Some((target.cpu()?.to_string(), target.memory()?.to_string()))
    };
    said.iter().filter_map(|(name, said)| Some((name.as_str(), target(said)?))).collect()
}
