//! The cluster of the day: all controllers in one process, a metrics API, a Prometheus for queries, and one clock.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, api::ListParams};
use plimsoll::{
    cli::all_in_one_config,
    cluster::clock::Clock,
    controllers::all_in_one::{self, AllInOneHandle},
};
use plimsoll_core::api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler};
use plimsoll_core::types::Time;
use serde_json::{Value, json};
use tokio::sync::watch;
use xtask::test_programs::PrometheusRelease;

use super::{
    creation_timestamps::{LeaseLists, with_clock_timestamps},
    scrape_record::ScrapeRecord,
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed,
        clock::{Clock as Standing, wall_now},
        hollow_nodes::is_ready,
        http_get::http_get,
        manifests,
        metrics_server::UsageValue,
        ports::Port,
        prometheus_server::{History, PrometheusServer},
        upstream_process::write_certificates,
        wait,
    },
    watermark_controller::fixture::METRIC,
};

/// Interval between passes.
pub const STEP: SignedDuration = SignedDuration::from_mins(2);
/// Interval between scrapes, at most what the boards assume.
pub const SCRAPE: SignedDuration = SignedDuration::from_mins(1);

/// The cluster of the day.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    pub namespace: String,
    pub prometheus: PrometheusServer,
    clock: Clock,
    running: AllInOneHandle,
    hold_recommendations: watch::Sender<bool>,
    lease_lists: Arc<LeaseLists>,
    day: ScrapeRecord,
    nodes: Standing,
    _port: Port,
}

impl Fixture {
    /// With all controllers and no objects.
    pub async fn new() -> Option<Self> {
        // Ahead of the wall clock, so that all timestamps of the API server except creation timestamps of pods are in
        // the past.
        let start = Timestamp::from_second(wall_now().as_second() + 3_600).expect("in range");
        let nodes = Standing::frozen_at(start);
        let bed =
            Testbed::private_with(&[], nodes.clone()).await.filter(Testbed::has_controllers)?;
        create_definitions(&bed).await;
        bed.nodes().add("node", "64", "256Gi").await;
        let namespace = bed.namespace("shop").await;
        let usage = MetricsServer::serve(&bed).await;
        let day = SignedDuration::from_hours(26);
        let history = History::new(start - STEP, start + day, STEP).series(
            "queue_length",
            &[("app", "queried")],
            |_| Some(150.0),
        );
        let prometheus = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
        let port = Port::claim();
        // The API server uses the wall clock, by which a certificate issued with this clock would not be valid yet.
        let certificate = write_certificates(&bed, "webhook");
        let flags = [
            "--roles=recommender,updater,admission-controller,watermark".to_owned(),
            "--address=127.0.0.1:0".to_owned(),
            "--leader-elect-resource-namespace=kube-system".to_owned(),
            "--recommender-interval=2m".to_owned(),
            "--updater-interval=2m".to_owned(),
            "--watermark.period=2m".to_owned(),
            "--updater.use-admission-controller-status=false".to_owned(),
            "--updater.max-disruptions-per-hour=2".to_owned(),
            "--updater.canary-watch=0s".to_owned(),
            format!("--port={port}"),
            format!("--webhook-port={port}"),
            "--register-by-url".to_owned(),
            "--webhook-address=https://127.0.0.1".to_owned(),
            format!("--admission-controller.client-ca-file={}", certificate("ca.crt")),
            format!("--admission-controller.tls-cert-file={}", certificate("tls.crt")),
            format!("--admission-controller.tls-private-key={}", certificate("tls.key")),
            format!("--watermark.prometheus-address={}", prometheus.url()),
            // The history is older than the namespace of the day.
            "--watermark.prometheus-unrestricted-namespaces=*".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = all_in_one_config(&flags, |_| String::new()).expect("valid flags");
        let clock = Clock::fake(Time::from_secs(start.as_second()));
        usage.at(start);
        let (advice_waits, held) = watch::channel(false);
        let lease_lists = Arc::<LeaseLists>::default();
        let client =
            with_clock_timestamps(bed.client(), clock.clone(), held, Arc::clone(&lease_lists));
        // The future is large.
        let running = Box::pin(all_in_one::start(config, client, clock.clone()));
        let running = running.await.expect("starts");
        let day = ScrapeRecord::new(start + SCRAPE, SCRAPE);
        Some(Self {
            bed,
            usage,
            namespace,
            prometheus,
            clock,
            running,
            hold_recommendations: advice_waits,
            lease_lists,
            day,
            nodes,
            _port: port,
        })
    }

    /// The current time of the clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.clock.now().as_nanos().into()).expect("in range")
    }

    /// Creates a Deployment and waits until its pods are ready.
    pub async fn deployment(&self, name: &str, replicas: u32) {
        let yaml = manifests::deployment(name, replicas, "100m", "64Mi");
        manifests::create::<Deployment>(self.bed.client(), &self.namespace, &yaml).await;
        self.bed
            .nodes()
            .pods(&self.namespace, name, replicas as usize, "are ready", is_ready)
            .await;
    }

    /// Creates a VPA for the Deployment of that name.
    pub async fn vpa(&self, name: &str, mode: &str, policy: Value) {
        let object = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "updatePolicy": {"updateMode": mode},
                "resourcePolicy": {"containerPolicies": [policy]},
            },
        });
        let client = self.bed.client();
        manifests::create::<VerticalPodAutoscaler>(client, &self.namespace, &object.to_string())
            .await;
    }

    /// Creates a WatermarkPodAutoscaler.
    pub async fn wpa(&self, object: &Value) {
        let client = self.bed.client();
        manifests::create::<WatermarkPodAutoscaler>(client, &self.namespace, &object.to_string())
            .await;
    }

    /// Sets the usage of each container of a workload.
    pub fn uses(&self, name: &str, cpu: f64, memory: u64) {
        self.usage.set_all(&self.namespace, name, "main", UsageValue { cpu, memory });
    }

    /// Sets the metric of a workload.
    pub fn metric(&self, name: &str, value: f64) {
        self.usage.set_external(&self.namespace, METRIC, &[("app", name)], value);
    }

    /// Runs some steps of one scrape each.
    pub async fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Waits until the updater has observed the recommender's heartbeat: it lists Leases every ten seconds of real
    /// time and has to observe a change.
    pub async fn wait_for_recommender_lease(&mut self) {
        // Certificates are issued, and watches start, in real time.
        wait::until("the webhook is registered, and watches are synced", || async {
            let page = self.page().await;
            let is_registered = page.contains("\nplimsoll_webhook_registered 1\n");
            let mut feeds = page.lines().filter(|line| line.starts_with("plimsoll_feed_synced{"));
            (is_registered && feeds.all(|line| line.ends_with(" 1"))).then_some(())
        })
        .await;
        for _ in 0..2 {
            self.step().await;
            let before = self.lease_lists.begun();
            wait::until("the Leases are listed", || async {
                self.lease_lists.answered_after(before).then_some(())
            })
            .await;
        }
    }

    /// Runs what is due, and scrapes.
    async fn step(&mut self) {
        let recommender = self.running.recommender.as_ref().expect("running");
        let updater = self.running.updater.as_ref().expect("running");
        let (mut advice, mut evictions) = (recommender.passes(), updater.passes());
        let before = (advice.borrow_and_update().0, evictions.borrow_and_update().0);
        // No pass is due in between, but replicas are still reconciled.
        self.advance_clocks(SCRAPE);
        self.scrape().await;
        self.hold_recommendations.send_replace(true);
        self.advance_clocks(STEP - SCRAPE);
        let done = async {
            evictions.wait_for(|(count, _)| *count > before.1).await.expect("running");
            self.hold_recommendations.send_replace(false);
            advice.wait_for(|(count, _)| *count > before.0).await.expect("running");
        };
        tokio::time::timeout(wait::PATIENCE, done).await.expect("passes finish in time");
        self.scrape().await;
    }

    fn advance_clocks(&self, time: SignedDuration) {
        self.usage.at(self.now() + time);
        self.nodes.step(time);
        self.clock.step(Duration::try_from(time).expect("a positive duration"));
    }

    /// Waits until all changes have taken effect: all expected pods are ready, no others exist, and watches have
    /// delivered this. The next pass then finds the same state on any machine.
    async fn wait_until_quiescent(&self) {
        let deployments = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        let pods = Api::<Pod>::all(self.bed.client());
        let all = ListParams::default();
        wait::often(Duration::from_millis(20), wait::PATIENCE, "all pods exist", || async {
            let found = deployments.list(&all).await.map_err(|error| error.to_string())?;
            let mut wanted = 0;
            for one in found {
                let (spec, status) = (one.spec.unwrap_or_default(), one.status.unwrap_or_default());
                let replicas = spec.replicas;
                let is_observed = status.observed_generation == one.metadata.generation;
                if !is_observed
                    || status.replicas.or(Some(0)) != replicas
                    || status.ready_replicas != replicas
                {
                    return Err(format!("{:?} of {replicas:?} are ready", status.ready_replicas));
                }
                wanted += replicas.unwrap_or_default();
            }
            let found = pods.list(&all).await.map_err(|error| error.to_string())?.items.len();
            let page = self.page().await;
            let observed_counts = page
                .lines()
                .filter(|line| line.starts_with("plimsoll_feed_objects{feed=\"pods\""))
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<i32>().ok());
            let observed_counts: Vec<i32> = observed_counts.collect();
            let has_expected_counts =
                !observed_counts.is_empty() && observed_counts.iter().all(|count| *count == wanted);
            let mut feeds = page.lines().filter(|line| line.starts_with("plimsoll_feed_synced{"));
            let is_synced = feeds.all(|line| line.ends_with(" 1"));
            if usize::try_from(wanted) == Ok(found) && has_expected_counts && is_synced {
                return Ok(());
            }
            Err(format!("want {wanted} pods, found {found}, watches report {observed_counts:?}"))
        })
        .await;
    }

    /// The exported metrics.
    async fn page(&self) -> String {
        let address = self.running.addresses[0];
        let page = http_get(&format!("http://{address}/metrics")).await.expect("served");
        String::from_utf8_lossy(&page).into_owned()
    }

    /// Scrapes once nothing is in progress.
    async fn scrape(&mut self) {
        let recommender = self.running.recommender.as_ref().expect("running");
        let watermark = self.running.watermark.as_ref().expect("running");
        let patience = Duration::from_mins(1);
        wait::often(Duration::from_millis(3), patience, "nothing is in progress", || async {
            let is_done = watermark.is_idle() && recommender.pending_statuses() == 0;
            if is_done { Ok(()) } else { Err("a task is pending".to_owned()) }
        })
        .await;
        self.wait_until_quiescent().await;
        let page = self.page().await;
        self.day.add_scrape(&page);
    }

    /// Ends the day.
    pub async fn end(self) -> ScrapeRecord {
        self.running.stop().await;
        self.day
    }
}
