//! Runs a watermark controller in this process on its own namespace, with a metrics API and a fake clock.

use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Event, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use plimsoll::controllers;
use plimsoll::{
    cli::watermark_config, cluster::clock::Clock, controllers::watermark::WatermarkHandle,
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use plimsoll_core::types::Time;
use serde_json::{Value, json};

use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed, clock::wall_now, hollow_nodes::is_ready, http_get::http_get, manifests,
        metrics_server::MetricsServer, skipped::report_skipped, wait,
    },
    updater::fixture::pods,
};

/// The metric of all objects in these tests.
pub const METRIC: &str = "requests";
/// The role's reconcile period.
pub const PERIOD: Duration = Duration::from_secs(15);

/// A testbed with a running role.
pub struct Fixture {
    pub bed: Testbed,
    pub usage: MetricsServer,
    pub namespace: String,
    pub clock: Clock,
    pub role: WatermarkHandle,
}

/// Returns an object with watermarks 50 and 100, without cooldown, with these fields.
pub fn object(name: &str, fields: Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1, "maxReplicas": 50, "algorithm": "absolute", "tolerance": "1m",
        "scaleUpLimitFactor": "100", "scaleDownLimitFactor": "50",
        "upscaleForbiddenWindowSeconds": 60, "downscaleForbiddenWindowSeconds": 300,
        "replicaScalingAbsoluteModulo": 1,
        "metrics": [{"type": "External", "external": {
            "metricName": METRIC, "metricSelector": {"matchLabels": {"app": name}},
            "lowWatermark": "50", "highWatermark": "100",
        }}],
    });
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    spec.as_object_mut().expect("an object").extend(fields);
    json!({"metadata": {"name": name}, "spec": spec})
}

impl Fixture {
    /// Starts a role with these flags. `None` after logging why the testbed is not available.
    pub async fn new(name: &str, flags: &[&str]) -> Option<Self> {
        Self::on(Testbed::shared().await, name, flags).await
    }

    /// Like [`new`](Self::new), on a private testbed, for tests that change or remove CRDs.
    pub async fn private(name: &str, flags: &[&str]) -> Option<Self> {
        let bed = Testbed::private().await;
        if let Some(bed) = &bed {
            bed.nodes().add("node", "64", "256Gi").await;
        }
        Self::on(bed, name, flags).await
    }

    async fn on(bed: Option<Testbed>, name: &str, flags: &[&str]) -> Option<Self> {
        let Some(bed) = bed.filter(Testbed::has_controllers) else {
            report_skipped("a whole control plane");
            return None;
        };
        create_definitions(&bed).await;
        let namespace = bed.namespace(name).await;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        // Ahead of the wall clock: timestamps of the testbed are in the past, and no pod seems too young.
        let start = Time::from_secs(wall_now().as_second() + 3_600);
        let clock = Clock::fake(start);
        let role = start_role(bed.client(), &namespace, &clock, flags).await;
        Some(Self { bed, usage, namespace, clock, role })
    }

    /// Stops the role and starts another one in its place.
    pub async fn restart_as(self, client: Client, flags: &[&str]) -> Self {
        let Self { bed, usage, namespace, clock, role } = self;
        role.stop().await;
        let role = start_role(client, &namespace, &clock, flags).await;
        Self { bed, usage, namespace, clock, role }
    }

    /// Creates a Deployment and waits until its pods are ready.
    pub async fn deployment(&self, name: &str, replicas: u32) {
        let yaml = manifests::deployment(name, replicas, "10m", "16Mi");
        manifests::create::<Deployment>(self.bed.client(), &self.namespace, &yaml).await;
        self.wait_for_ready_pods(name, replicas as usize).await;
    }

    /// Waits until a workload has exactly this many pods, all ready, its status has settled, and the role has seen them.
    pub async fn wait_for_ready_pods(&self, name: &str, replicas: usize) {
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        wait::until(&format!("{name} has {replicas} ready pods"), || async {
            let pods = pods(&self.bed.client(), &self.namespace, name).await;
            let status = api.get(name).await.ok()?.status?;
            let reported = usize::try_from(status.replicas.unwrap_or(0)).ok()?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            (ready == replicas && pods.len() == replicas && reported == replicas).then_some(())
        })
        .await;
        wait_for_deployment(&self.bed, &self.namespace, name, replicas).await;
        let pods = Api::<Pod>::namespaced(self.bed.client(), &self.namespace);
        wait::until_ok("the role has observed all ready pods", || async {
            let ready = pods.list(&ListParams::default()).await.map_err(|why| why.to_string())?;
            let ready = ready.iter().filter(|pod| is_ready(pod)).count();
            let observed = self.role.ready_pods(&self.namespace);
            if observed == ready { Ok(()) } else { Err(format!("{observed} of {ready}")) }
        })
        .await;
    }

    /// Sets the metric of a workload.
    pub fn metric(&self, name: &str, value: f64) {
        self.usage.set_external(&self.namespace, METRIC, &[("app", name)], value);
    }

    /// Creates an object, and waits until it was reconciled.
    pub async fn create(&self, object: &Value) {
        let yaml = serde_json::to_string(object).expect("JSON is YAML");
        let before = self.role.reconciles();
        manifests::create::<WatermarkPodAutoscaler>(self.bed.client(), &self.namespace, &yaml)
            .await;
        wait::until("it is reconciled", || async {
            (self.role.reconciles() > before && self.role.is_idle()).then_some(())
        })
        .await;
    }

    /// Advances the clock by one period, and waits until all objects were reconciled.
    pub async fn advance_period(&self) {
        self.clock.step(PERIOD);
        self.wait_until_idle().await;
    }

    /// Advances the clock by this many seconds, one period at a time.
    pub async fn advance_seconds(&self, seconds: u64) {
        for _ in 0..seconds.div_ceil(PERIOD.as_secs()) {
            self.advance_period().await;
        }
    }

    pub async fn wait_until_idle(&self) {
        let pause = Duration::from_millis(3);
        wait::often(pause, wait::PATIENCE, "all objects are reconciled", || async {
            if self.role.is_idle() { Ok(()) } else { Err("some objects are due".to_owned()) }
        })
        .await;
    }

    /// Returns `spec.replicas` of a workload.
    pub async fn replicas(&self, name: &str) -> i32 {
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        let scale = api.get_scale(name).await.expect("has a scale");
        scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Waits until the role has set the replicas to this number, and the pods exist.
    pub async fn wait_until_scaled(&self, name: &str, replicas: i32) {
        assert_eq!(self.replicas(name).await, replicas, "{:#?}", self.status(name).await);
        self.wait_for_ready_pods(name, usize::try_from(replicas).expect("not negative")).await;
    }

    pub async fn get(&self, name: &str) -> WatermarkPodAutoscaler {
        self.api().get(name).await.expect("an object")
    }

    pub fn api(&self) -> Api<WatermarkPodAutoscaler> {
        Api::namespaced(self.bed.client(), &self.namespace)
    }

    /// Returns the status of an object, as JSON.
    pub async fn status(&self, name: &str) -> Value {
        serde_json::to_value(self.get(name).await.status).expect("JSON")
    }

    /// Returns status and reason of one of its conditions.
    pub async fn condition(&self, name: &str, kind: &str) -> Option<(String, String)> {
        let status = self.get(name).await.status?;
        let found = status.conditions.into_iter().find(|condition| condition.kind == kind)?;
        Some((found.status, found.reason))
    }

    /// Patches an object, and waits until it was reconciled.
    pub async fn patch_and_reconcile(&self, name: &str, patch: Value) {
        let before = self.role.reconciles();
        let parameters = PatchParams::default();
        self.api().patch(name, &parameters, &Patch::Merge(patch)).await.expect("changed");
        wait::until("it is reconciled again", || async {
            (self.role.reconciles() > before && self.role.is_idle()).then_some(())
        })
        .await;
    }

    /// Returns the reasons of an object's events, in order.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let api = Api::<Event>::namespaced(self.bed.client(), &self.namespace);
        let events = api.list(&ListParams::default()).await.expect("a list").items;
        // Events are created in sequence and never updated, so resource versions give their order.
        let version = |event: &Event| event.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        let mut events: Vec<(Option<u64>, String)> = events
            .into_iter()
            .filter(|event| {
                let of = &event.involved_object;
                of.name.as_deref() == Some(name)
                    && of.kind.as_deref() == Some("WatermarkPodAutoscaler")
            })
            .map(|event| (version(&event), event.reason.unwrap_or_default()))
            .collect();
        events.sort();
        events.into_iter().map(|(_, reason)| reason).collect()
    }

    /// Returns the values of all series of a family whose labels contain all of these strings.
    pub async fn series(&self, family: &str, labels: &[&str]) -> Vec<f64> {
        let address = format!("http://{}/metrics", self.role.address());
        let text = http_get(&address).await.expect("valid metrics");
        let text = String::from_utf8_lossy(&text).into_owned();
        let of = |line: &&str| {
            line.strip_prefix(family).is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
        text.lines().filter(of).filter_map(value).collect()
    }
}

/// Creates a CRD, unless another test on the same testbed has done so.
pub async fn create_definition(bed: &Testbed, definition: &CustomResourceDefinition) {
    let api = Api::<CustomResourceDefinition>::all(bed.client());
    match api.create(&PostParams::default(), definition).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(why) => panic!("{why}"),
    }
}

/// Waits until a Deployment reports this many ready pods: from then on its controller writes no more status updates.
pub async fn wait_for_deployment(bed: &Testbed, namespace: &str, name: &str, replicas: usize) {
    let api = Api::<Deployment>::namespaced(bed.client(), namespace);
    wait::until_ok("the status is settled", || async {
        let found = api.get(name).await.map_err(|why| why.to_string())?;
        let status = found.status.unwrap_or_default();
        let reported = usize::try_from(status.ready_replicas.unwrap_or(0)).unwrap_or(0);
        let is_so = reported == replicas && status.observed_generation == found.metadata.generation;
        if is_so { Ok(()) } else { Err(format!("{reported} of {replicas}")) }
    })
    .await;
}

/// Starts a role on a namespace, with its own client.
async fn start_role(
    client: Client,
    namespace: &str,
    clock: &Clock,
    more: &[&str],
) -> WatermarkHandle {
    let lease = format!("--leader-elect-resource-namespace={namespace}");
    let mut flags = vec!["--metrics-addr=127.0.0.1:0", "--health-port=0", "--client-qps=0", &lease];
    flags.extend(more);
    let watched = namespace.to_owned();
    let variable = move |name: &str| match name {
        "WATCH_NAMESPACE" => watched.clone(),
        _ => String::new(),
    };
    let mut config = watermark_config(&flags, variable).expect("valid flags");
    // Upstream's default would give all of them the same port.
    config.settings.process.addresses[0] = "127.0.0.1:0".parse().expect("valid address");
    controllers::start(config, client, clock.clone()).await.expect("starts")
}
