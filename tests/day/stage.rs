//! Owns the cluster of the day: all roles in one process, a metrics API, a Prometheus that is asked, and one clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::{
    api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler},
    cli::several_config,
    clock::Clock,
    run::several::{self, Running},
};
use plimsoll_storage::Time;
use serde_json::{Value, json};
use xtask::parts::Release;

use super::Day;
use crate::{
    scaling::stage::METRIC,
    storage::objects::defined,
    support::{
        Bed, Usage,
        clock::wall_now,
        fetch::fetch,
        nodes::is_ready,
        objects,
        prometheus::{History, Prometheus},
        usage::Use,
        wait,
    },
};

/// Between two scrapes.
pub const STEP: SignedDuration = SignedDuration::from_mins(2);

/// The cluster.
pub struct Stage {
    pub bed: Bed,
    pub usage: Usage,
    pub namespace: String,
    pub prometheus: Prometheus,
    clock: Clock,
    running: Running,
    day: Day,
}

impl Stage {
    /// With all roles, and nothing to look after.
    pub async fn new() -> Option<Self> {
        let bed = Bed::private().await.filter(Bed::is_complete)?;
        defined(&bed).await;
        bed.nodes().add("node", "64", "256Gi").await;
        let namespace = bed.namespace("shop").await;
        let usage = Usage::serve(&bed).await;
        // Ahead of the wall's: whatever the bed stamps is of the past.
        let start = Timestamp::from_second(wall_now().as_second() + 3_600).expect("in range");
        let day = SignedDuration::from_hours(26);
        let history = History::new(start - STEP, start + day, STEP).series(
            "queue_length",
            &[("app", "queried")],
            |_| Some(75.0),
        );
        let prometheus = Prometheus::with_history(Release::Three, history).await?;
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
            "--port=0".to_owned(),
            "--register-by-url".to_owned(),
            "--webhook-address=https://127.0.0.1".to_owned(),
            "--certificates=self-signed".to_owned(),
            format!("--watermark.prometheus-address={}", prometheus.url()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = several_config(&flags, |_| String::new()).expect("flags that make sense");
        let clock = Clock::stepped(Time::from_secs(start.as_second()));
        usage.at(start);
        let running = several::start(config, bed.client(), clock.clone()).await.expect("it starts");
        let day = Day::new(start, STEP);
        Some(Self { bed, usage, namespace, prometheus, clock, running, day })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.clock.now().as_nanos().into()).expect("in range")
    }

    /// A Deployment whose pods are ready.
    pub async fn deployment(&self, name: &str, replicas: u32) {
        let yaml = objects::deployment(name, replicas, "100m", "64Mi");
        objects::create::<Deployment>(self.bed.client(), &self.namespace, &yaml).await;
        self.bed
            .nodes()
            .pods(&self.namespace, name, replicas as usize, "are ready", is_ready)
            .await;
    }

    /// A VPA of the Deployment of that name.
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
        objects::create::<VerticalPodAutoscaler>(client, &self.namespace, &object.to_string())
            .await;
    }

    /// A WatermarkPodAutoscaler.
    pub async fn wpa(&self, object: &Value) {
        let client = self.bed.client();
        objects::create::<WatermarkPodAutoscaler>(client, &self.namespace, &object.to_string())
            .await;
    }

    /// What each container of a workload uses from now on.
    pub fn uses(&self, name: &str, cpu: f64, memory: u64) {
        self.usage.set_all(&self.namespace, name, "main", Use { cpu, memory });
    }

    /// What the metric of a workload is from now on.
    pub fn metric(&self, name: &str, value: f64) {
        self.usage.set_external(&self.namespace, METRIC, &[("app", name)], value);
    }

    /// Lets some scrapes go by.
    pub async fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Everybody does what is due, and is scraped.
    async fn step(&mut self) {
        let recommender = self.running.recommender().expect("it runs");
        let updater = self.running.updater().expect("it runs");
        let (mut advice, mut evictions) = (recommender.passes(), updater.passes());
        let before = (advice.borrow_and_update().0, evictions.borrow_and_update().0);
        self.usage.at(self.now() + STEP);
        self.clock.step(Duration::try_from(STEP).expect("forward"));
        let done = async {
            advice.wait_for(|(count, _)| *count > before.0).await.expect("it runs");
            evictions.wait_for(|(count, _)| *count > before.1).await.expect("it runs");
        };
        tokio::time::timeout(wait::PATIENCE, done).await.expect("passes in time");
        let watermark = self.running.watermark().expect("it runs");
        let patience = Duration::from_mins(1);
        wait::often(Duration::from_millis(3), patience, "all is done", || async {
            let is_done = watermark.is_idle() && recommender.waiting_statuses() == 0;
            if is_done { Ok(()) } else { Err("somebody waits".to_owned()) }
        })
        .await;
        let address = self.running.addresses()[0];
        let page = fetch(&format!("http://{address}/metrics")).await.expect("it is served");
        self.day.take(&String::from_utf8_lossy(&page));
    }

    /// Ends the day.
    pub async fn end(self) -> Day {
        self.running.stop().await;
        self.day
    }
}
