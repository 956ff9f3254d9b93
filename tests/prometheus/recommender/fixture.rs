//! A cluster with a workload, and a Prometheus with its history behind a faulty proxy.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use plimsoll::cluster::clock::Clock;
use plimsoll::controllers::recommender::RecommenderHandle;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use plimsoll_core::api::vpa::ContainerRecommendation;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC, THROTTLED_PERIODS_METRIC};

use crate::prometheus::label_flavors::OPERATOR;
use crate::prometheus::proxy::FaultyProxy;
use crate::recommender::in_process;
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::UsageValue;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};
use crate::support::{MetricsServer, Testbed, http_get::http_get, manifests, wait};

pub const MINUTE: Duration = Duration::from_mins(1);
pub const MEBIBYTE: u64 = 1 << 20;

/// Constant usage of each workload.
pub const CORES: f64 = 0.5;
pub const BYTES: u64 = 500 * MEBIBYTE;

/// The fixture of these tests.
pub struct Fixture {
    pub bed: Testbed,
    pub namespace: String,
    pub usage: MetricsServer,
    pub clock: Clock,
    pub proxy: FaultyProxy,
    _server: PrometheusServer,
}

// === impl Stage ===

impl Fixture {
    /// With that many hours of history for `web`, which has a VPA, up to now.
    pub async fn new(hours: i64) -> Option<Self> {
        Self::with_past(hours, |history, _, _| history).await
    }

    /// The same with more history of the namespace up to `end`.
    pub async fn with_past(
        hours: i64,
        more: impl FnOnce(History, &str, Timestamp) -> History,
    ) -> Option<Self> {
        Self::build(crate::prometheus::history::collecting_sink::hours(hours), more).await
    }

    /// The same up to some minutes from now, so that the pods created here are that old by then.
    pub async fn ending_later(
        minutes: i64,
        more: impl FnOnce(History, &str, Timestamp) -> History,
    ) -> Option<Self> {
        let end = wall_now() + SignedDuration::from_mins(minutes);
        let end = Timestamp::from_second(end.as_second() / 60 * 60).expect("a minute");
        let begin = end - SignedDuration::from_hours(4 * 24);
        let history = History::new(begin, end, SignedDuration::from_mins(1));
        Self::build((history, end), more).await
    }

    async fn build(
        (history, end): (History, Timestamp),
        more: impl FnOnce(History, &str, Timestamp) -> History,
    ) -> Option<Self> {
        let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
        create_definitions(&bed).await;
        let namespace = bed.namespace("shop").await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let history = ["web", "later"].into_iter().fold(history, |history, name| {
            let pod = format!("{name}-7d5f9c4b6d-x2x4z");
            with_usage(history, &namespace, &pod, CORES, end)
        });
        let history = more(history, &namespace, end);
        let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
        let proxy = FaultyProxy::start(&server.url()).await;
        let clock = Clock::fake(Time::from(end));
        let fixture = Self { bed, namespace, usage, clock, proxy, _server: server };
        fixture.deploy("web").await;
        fixture.usage.at(end);
        fixture.create_vpa("web").await;
        Some(fixture)
    }

    /// Creates a workload.
    pub async fn deploy(&self, name: &str) {
        let object = manifests::deployment(name, 1, "100m", "64Mi");
        manifests::create::<Deployment>(self.bed.client(), &self.namespace, &object).await;
        let prefix = format!("{name}-");
        self.bed.nodes().pods(&self.namespace, &prefix, 1, "are ready", is_ready).await;
        let used = UsageValue { cpu: CORES, memory: BYTES };
        self.usage.set_all(&self.namespace, &prefix, "main", used);
    }

    /// Creates its VPA.
    pub async fn create_vpa(&self, name: &str) {
        let yaml = format!(
            "
metadata: {{name: {name}}}
spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}
"
        );
        let client = self.bed.client();
        manifests::create::<VerticalPodAutoscaler>(client, &self.namespace, &yaml).await;
    }

    /// Starts a recommender that reads its history there, with more flags.
    pub async fn start(&self, flags: &[&str]) -> RecommenderHandle {
        let address = format!("--prometheus-address={}", self.proxy.url());
        let only = format!("--vpa-object-namespace={}", self.namespace);
        let mut all = vec!["--storage=prometheus", &*address, &*only];
        all.push("--prometheus-query-timeout=10s");
        all.extend(flags);
        in_process::start(&self.bed, &self.clock, &all).await
    }

    /// Runs a pass a minute later, with usage.
    pub async fn step(&self, running: &RecommenderHandle) {
        self.usage.at(self.clock.now().later(MINUTE).into());
        in_process::step(running, &self.clock, MINUTE).await;
    }

    /// Waits until the history is loaded, and runs a pass with it: the first pass waits only for a limited time.
    pub async fn wait_for_history(&self, running: &RecommenderHandle) {
        in_process::wait_for_passes(running, 1).await;
        self.wait_for_readiness(running, true).await;
        self.step(running).await;
    }

    /// Waits until a VPA satisfies a condition.
    pub async fn vpa(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&VerticalPodAutoscaler) -> bool,
    ) -> VerticalPodAutoscaler {
        in_process::wait_for_vpa(&self.bed, &self.namespace, name, what, is).await
    }

    /// All checkpoints, by VPA.
    pub async fn checkpoints(&self) -> Vec<Checkpoint> {
        let api = Api::<Checkpoint>::namespaced(self.bed.client(), &self.namespace);
        api.list(&ListParams::default()).await.expect("a list").items
    }

    /// Waits until `/readyz` reports the expected readiness.
    pub async fn wait_for_readiness(&self, running: &RecommenderHandle, expected: bool) {
        let address = format!("http://{}/readyz", running.address());
        wait::until(&format!("ready: {expected}"), || async {
            let text = String::from_utf8(http_get(&address).await?.to_vec()).ok()?;
            (text.contains("not loaded yet") != expected).then_some(())
        })
        .await;
    }
}

/// Waits until the history is in this state.
pub async fn wait_for_history_state(running: &RecommenderHandle, state: &str) {
    let address = format!("http://{}/metrics", running.address());
    let line = format!("plimsoll_history_state{{state=\"{state}\"}} 1");
    wait::until(&line, || async {
        let text = String::from_utf8(http_get(&address).await?.to_vec()).ok()?;
        text.lines().any(|known| known == line).then_some(())
    })
    .await;
}

/// Adds usage of a pod's container `main`.
pub fn with_usage(
    history: History,
    namespace: &str,
    pod: &str,
    cores: f64,
    end: Timestamp,
) -> History {
    // Label names live as long as the test.
    let names = [namespace, pod, "main"];
    let cores = move |at: Timestamp| {
        Some((end.as_second() - at.as_second()) as f64).map(|left| cores * (1e7 - left))
    };
    let history = OPERATOR.usage(history, CPU_METRIC, names, cores);
    // Ten CFS periods per second, half of them throttled.
    let periods =
        move |rate: f64| move |at: Timestamp| Some((at.as_second() - 1_700_000_000) as f64 * rate);
    let history = OPERATOR.usage(history, "container_cpu_cfs_periods_total", names, periods(10.0));
    let history = OPERATOR.usage(history, THROTTLED_PERIODS_METRIC, names, periods(5.0));
    OPERATOR.usage(history, MEMORY_METRIC, names, |_| Some(BYTES as f64))
}

/// The recommendation for the only container.
pub fn recommendation(vpa: &VerticalPodAutoscaler) -> Option<&ContainerRecommendation> {
    vpa.status.as_ref()?.recommendation.as_ref()?.container_recommendations.first()
}

/// Cores of lower bound, target and upper bound.
pub fn cores(recommended: &ContainerRecommendation) -> [f64; 3] {
    [&recommended.lower_bound, &recommended.target, &recommended.upper_bound].map(|amounts| {
        amounts.cpu().map_or(f64::NAN, plimsoll_core::types::quantity::Quantity::as_f64)
    })
}

/// Whether a VPA has a condition with status `True`.
pub fn has_condition(vpa: &VerticalPodAutoscaler, kind: &str) -> bool {
    let conditions = vpa.status.as_ref().map(|status| &status.conditions[..]);
    conditions.unwrap_or_default().iter().any(|one| one.kind == kind && one.status == "True")
}
