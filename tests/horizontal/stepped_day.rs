//! An HPA and a VPA on CPU of one Deployment, while the load goes up and down in steps. Recommender, updater, admission
//! controller and horizontal controller act on what the others did, and the usage per pod is the load shared by the ready
//! pods. Hours pass on a stepped clock, which all of them but the admission controller have in common; metrics are of its
//! time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod,
};
use kube::Api;
use plimsoll::{
    cli::horizontal_config,
    cluster::clock::Clock,
    controllers::{
        self, horizontal::HorizontalHandle, recommender::RecommenderHandle, updater::UpdaterHandle,
    },
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    types::{Quantity, Time},
};
use serde_json::json;

use super::MEBIBYTE;
use crate::{
    recommender::in_process as recommender,
    support::{
        MetricsServer, Testbed,
        clock::wall_now,
        hollow_nodes::is_ready,
        http_get::http_get,
        manifests,
        metrics_server::{UsageCurve, UsageValue},
        wait,
    },
    updater::{fixture as updater, sizing_webhook::SizingWebhook},
};

const NAME: &str = "web";
/// The request in the pod template, in millicores.
pub const TEMPLATE: i64 = 400;
/// The target utilization in percent.
const TARGET: i64 = 50;
/// The usage per pod at which replicas are neither added nor removed.
pub const SCALE_POINT: i64 = TEMPLATE * TARGET / 100;
/// The lowest request by the rules: the scale point is at most 95 % of it.
const FLOOR: i64 = (SCALE_POINT * 100 + 94) / 95;
const MIN_REPLICAS: i64 = 2;
const MAX_REPLICAS: i64 = 40;
/// The time between two passes of the updater, and of the horizontal controller.
pub const TURN: Duration = Duration::from_secs(15);
/// The period of the horizontal controller. It reads usage again after this time by the wall clock.
const PERIOD: &str = "--horizontal-pod-autoscaler-sync-period=100ms";
/// Replicas and requests are settled if they stay the same for so many turns in which usage was read.
const SETTLED_TURNS: u32 = 3;
/// The most turns until they are settled.
const MAX_TURNS: u32 = 200;

/// Whose rules the roles follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// VPA and HPA know of each other.
    Ours,
    /// They do not.
    Upstream,
}

/// Who changes the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaler {
    /// The horizontal controller, in the mode `drive`.
    Plimsoll,
    /// The HPA controller of kube-controller-manager.
    BuiltIn,
}

/// What a step of the load has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// `spec.replicas`.
    pub replicas: i64,
    /// The CPU requests of the pods in millicores, in order.
    pub requests: Vec<i64>,
}

impl Settled {
    /// The mean request.
    pub fn mean_request(&self) -> i64 {
        self.requests.iter().sum::<i64>() / i64::try_from(self.requests.len()).expect("few")
    }
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}m", self.replicas, self.mean_request())
    }
}

/// The replicas that the scale point gives.
pub fn replicas_for(millicores: i64) -> i64 {
    ((millicores + SCALE_POINT - 1) / SCALE_POINT).clamp(MIN_REPLICAS, MAX_REPLICAS)
}

/// Whether replicas are those of the scale point, or so near that the tolerance leaves them as they are.
pub fn follows_scale_point(replicas: i64, millicores: i64) -> bool {
    let ratio = millicores as f64 / (replicas * SCALE_POINT) as f64;
    replicas == replicas_for(millicores) || (ratio - 1.0).abs() <= 0.1
}

/// The workload with its autoscalers.
pub struct Day {
    pub bed: Testbed,
    pub namespace: String,
    pub usage: MetricsServer,
    /// In millicores.
    load: Arc<AtomicU64>,
    pub clock: Clock,
    recommender: RecommenderHandle,
    updater: UpdaterHandle,
    /// `None` beside the HPA controller of kube-controller-manager.
    horizontal: Option<HorizontalHandle>,
    _webhook: SizingWebhook,
}

impl Day {
    /// Starts the day, with the load of the fewest pods. `hour` is the time between two recommendations.
    pub async fn new(rules: Rules, scaler: Scaler, hour: Duration) -> Option<Self> {
        let name = format!("day-{rules:?}-{scaler:?}").to_lowercase();
        let (bed, namespace) = updater::testbed_and_namespace(&name).await?;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        let load = Arc::new(AtomicU64::new((SCALE_POINT * MIN_REPLICAS) as u64));
        usage.set_all(&namespace, "web-", "main", shared_load(&bed, &namespace, Arc::clone(&load)));
        let workload =
            manifests::deployment(NAME, MIN_REPLICAS as u32, &format!("{TEMPLATE}m"), "64Mi");
        manifests::create::<Deployment>(bed.client(), &namespace, &workload).await;
        bed.nodes().pods(&namespace, "web-", MIN_REPLICAS as usize, "are ready", is_ready).await;
        create_autoscalers(&bed, &namespace, scaler).await;

        // Ahead of the wall clock, so that what the API server has written is in the past.
        let start = Time::from(wall_now()).later(Duration::from_hours(1));
        let clock = Clock::fake(start);
        usage.at(start.into());
        let compat: &[&str] = match rules {
            Rules::Ours => &[],
            Rules::Upstream => &["--compat=upstream"],
        };
        let (only, interval) = (
            format!("--vpa-object-namespace={namespace}"),
            format!("--recommender-interval={}s", hour.as_secs()),
        );
        let flags = [&[&*only, &*interval], compat].concat();
        let recommender = recommender::start(&bed, &clock, &flags).await;
        recommender::wait_for_passes(&recommender, 1).await;
        usage.at(clock.now().later(hour).into());
        recommender::step(&recommender, &clock, hour).await;
        recommender::wait_until_written(&recommender).await;
        let target = match (rules, scaler) {
            // It scales by the requests, so they stay as they are.
            (Rules::Ours, Scaler::BuiltIn) => format!("{TEMPLATE}m"),
            _ => recommended(&bed, &namespace).await,
        };
        let webhook = SizingWebhook::start_with(&bed, &namespace, NAME, &target, compat).await;
        let interval = format!("--updater-interval={}s", TURN.as_secs());
        let flags = [updater::FAST_FLAGS, &[&*interval], compat].concat();
        let updater =
            updater::start_with(bed.client(), &namespace, &flags, clock.clone(), |_| {}).await;
        let horizontal = match scaler {
            Scaler::Plimsoll => Some(start_horizontal(&bed, &namespace, &clock, compat).await),
            Scaler::BuiltIn => None,
        };
        wait_for_first_pass(&updater, &usage, &clock).await;
        let mut day = Self {
            bed,
            namespace,
            usage,
            load,
            clock,
            recommender,
            updater,
            horizontal,
            _webhook: webhook,
        };
        day.settle().await;
        Some(day)
    }

    /// Changes the load, lets the controllers respond, and then an hour pass, whose usage the recommender samples.
    pub async fn step(&mut self, millicores: u64, hour: Duration) -> Settled {
        self.load.store(millicores, Ordering::Relaxed);
        self.settle().await;
        let passes = self.recommender.passes().borrow().0;
        self.turn(hour).await;
        recommender::wait_for_passes(&self.recommender, passes + 1).await;
        recommender::wait_until_written(&self.recommender).await;
        self.settle().await
    }

    /// Takes one turn with this load, and returns the metrics of the horizontal controller.
    pub async fn page_after(&self, millicores: u64) -> String {
        self.load.store(millicores, Ordering::Relaxed);
        self.turn(TURN).await;
        self.quiescent().await;
        let role = self.horizontal.as_ref().expect("it scales");
        let page = http_get(&format!("http://{}/metrics", role.address())).await;
        String::from_utf8_lossy(&page.expect("metrics")).into_owned()
    }

    /// Takes turns until nothing changes.
    async fn settle(&mut self) -> Settled {
        let (mut last, mut unchanged) = (self.quiescent().await, 0);
        for _ in 0..MAX_TURNS {
            self.turn(TURN).await;
            let now = self.quiescent().await;
            unchanged = if now == last { unchanged + u32::from(self.usage_reads() > 0) } else { 0 };
            if unchanged == SETTLED_TURNS {
                return now;
            }
            last = now;
        }
        panic!("after {MAX_TURNS} turns, replicas and requests still change: {last}");
    }

    /// Lets this time pass, and waits for the pass of the updater, and for that of who changes the replicas.
    async fn turn(&self, time: Duration) {
        let mut passes = self.updater.passes();
        self.usage.at(self.clock.now().later(time).into());
        let before = (passes.borrow_and_update().0, self.reconciles());
        self.clock.step(time);
        let pass = passes.wait_for(|(count, _)| *count > before.0);
        let pass = tokio::time::timeout(wait::PATIENCE, pass).await;
        pass.expect("a pass in time").expect("it runs");
        let period = Duration::from_millis(10);
        wait::often(period, wait::PATIENCE, "the object is reconciled", || async {
            let count = self.reconciles();
            if count > before.1 { Ok(()) } else { Err(format!("{count} times")) }
        })
        .await;
    }

    /// How often the object was reconciled; since the last turn, if that is done by kube-controller-manager.
    fn reconciles(&self) -> u64 {
        match &self.horizontal {
            Some(role) => role.reconciles(),
            None => self.usage_reads(),
        }
    }

    /// How often the controller that changes the replicas has read usage since the last turn.
    fn usage_reads(&self) -> u64 {
        let agent = match &self.horizontal {
            Some(_) => "plimsoll-horizontal/",
            None => "kube-controller-manager/",
        };
        self.usage.read_count(agent) as u64
    }

    /// Waits until the pods are those that the Deployment asks for, and all are ready.
    async fn quiescent(&self) -> Settled {
        let deployments = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        let period = Duration::from_millis(20);
        wait::often(period, wait::PATIENCE, "the pods are as the Deployment says", || async {
            let workload = deployments.get(NAME).await.map_err(|why| why.to_string())?;
            let (generation, status) =
                (workload.metadata.generation, workload.status.unwrap_or_default());
            let replicas = workload.spec.and_then(|spec| spec.replicas);
            let pods = updater::pods(&self.bed.client(), &self.namespace, NAME).await;
            let is_done = status.observed_generation == generation
                && status.ready_replicas == replicas
                && i32::try_from(pods.len()).ok() == replicas
                && pods
                    .iter()
                    .all(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
            if !is_done {
                return Err(format!("{:?} of {replicas:?} ready", status.ready_replicas));
            }
            let mut requests: Vec<i64> = pods.iter().map(request).collect();
            requests.sort_unstable();
            Ok(Settled { replicas: i64::from(replicas.unwrap_or(1)), requests })
        })
        .await
    }

    pub async fn end(self) {
        if let Some(role) = self.horizontal {
            role.stop().await;
        }
        self.updater.stop().await;
        self.recommender.stop().await;
    }
}

/// With `--compat=upstream` the first pass comes a turn after the start, by a clock that stands still until it is stepped:
/// a step before the updater has read the time is lost.
async fn wait_for_first_pass(updater: &UpdaterHandle, usage: &MetricsServer, clock: &Clock) {
    let passes = updater.passes();
    wait::often(Duration::from_millis(500), wait::PATIENCE, "the first pass", || async {
        if passes.borrow().0 > 0 {
            return Ok(());
        }
        usage.at(clock.now().later(TURN).into());
        clock.step(TURN);
        Err("no pass".to_owned())
    })
    .await;
}

/// The usage of each pod: the ready ones share the load, and the others use nothing.
fn shared_load(bed: &Testbed, namespace: &str, load: Arc<AtomicU64>) -> UsageCurve {
    let (view, namespace) = (bed.nodes().view(), namespace.to_owned());
    UsageCurve::new(move |_| {
        let pods = view.pods_with_prefix(&namespace, "web-");
        let is_serving = |pod: &&Pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
        let serving = pods.iter().filter(is_serving).count().max(1);
        let cores = load.load(Ordering::Relaxed) as f64 / 1000.0;
        UsageValue { cpu: cores / serving as f64, memory: 32 * MEBIBYTE }
    })
}

async fn create_autoscalers(bed: &Testbed, namespace: &str, scaler: Scaler) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME});
    let at_once = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    // The default policy is four pods or 100 % in 15 s by the wall clock, so a fast machine would settle at its limit.
    let built_in = json!({
        "scaleDown": {"stabilizationWindowSeconds": 0},
        "scaleUp": {"policies": [{"type": "Pods", "value": MAX_REPLICAS, "periodSeconds": 1}]},
    });
    let disabled = json!({"selectPolicy": "Disabled"});
    let (annotations, behavior) = match scaler {
        Scaler::Plimsoll => (
            json!({"plimsoll.dev/hpa": "drive", "plimsoll.dev/behavior": at_once.to_string()}),
            json!({"scaleUp": disabled, "scaleDown": disabled}),
        ),
        Scaler::BuiltIn => (json!({}), built_in),
    };
    let hpa = json!({
        "metadata": {"name": NAME, "annotations": annotations},
        "spec": {
            "scaleTargetRef": target, "behavior": behavior,
            "minReplicas": MIN_REPLICAS, "maxReplicas": MAX_REPLICAS,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": TARGET}}}],
        },
    });
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), namespace, &hpa.to_string()).await;
    let vpa = json!({
        "metadata": {"name": NAME},
        "spec": {
            "targetRef": target, "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]},
        },
    });
    manifests::create::<VerticalPodAutoscaler>(bed.client(), namespace, &vpa.to_string()).await;
}

async fn start_horizontal(
    bed: &Testbed,
    namespace: &str,
    clock: &Clock,
    compat: &[&str],
) -> HorizontalHandle {
    let (only, leases) = (
        format!("--namespaces={namespace}"),
        format!("--leader-elect-resource-namespace={namespace}"),
    );
    let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig_path().display());
    let flags = ["--address=127.0.0.1:0", "--mode=adopted", &*kubeconfig, &*only, &*leases, PERIOD];
    let config = horizontal_config(&[&flags, compat].concat()).expect("valid flags");
    // The metrics API counts reads by user agent.
    let client = controllers::connect(&config).await.expect("a client");
    controllers::start(config, client, clock.clone()).await.expect("it starts")
}

/// The target of the recommendation.
async fn recommended(bed: &Testbed, namespace: &str) -> String {
    let is_given = |vpa: &VerticalPodAutoscaler| target(vpa).is_some();
    let vpa = recommender::wait_for_vpa(bed, namespace, NAME, "has a target", is_given).await;
    target(&vpa).expect("it was waited for")
}

fn target(vpa: &VerticalPodAutoscaler) -> Option<String> {
    let recommendation = vpa.status.as_ref()?.recommendation.as_ref()?;
    let container = recommendation.container_recommendations.first()?;
    Some(container.target.cpu()?.to_string())
}

/// The CPU request of a pod in millicores.
fn request(pod: &Pod) -> i64 {
    let text = updater::cpu(pod).expect("a request");
    text.parse::<Quantity>().expect("a quantity").milli_value()
}

/// The steps of the gate: two days of four.
const HOUR: Duration = Duration::from_hours(6);
/// Usage is rounded up to millicores: at an exact multiple, three pods would not become two.
const LOADS: [u64; 8] = [700, 1150, 1950, 1150, 700, 1150, 1950, 390];

/// Takes these steps, and returns what each has led to.
pub async fn run(
    rules: Rules,
    scaler: Scaler,
    loads: &[u64],
    hour: Duration,
) -> Option<Vec<Settled>> {
    let mut day = Day::new(rules, scaler, hour).await?;
    let mut results = Vec::new();
    for load in loads {
        let settled = day.step(*load, hour).await;
        results.push(settled);
    }
    day.end().await;
    Some(results)
}

/// Asserts that replicas are those of the scale point at the end of each step, and that the requests are not below the floor.
pub fn assert_follows(loads: &[u64], results: &[Settled]) {
    for (load, settled) in loads.iter().zip(results) {
        let is_followed = follows_scale_point(settled.replicas, *load as i64);
        assert!(is_followed, "{load}m: {}", summary(loads, results));
        assert!(settled.requests.iter().all(|request| *request >= FLOOR), "{load}m: {settled:?}");
    }
}

/// What was expected and found, for the message of an assertion.
pub fn summary(loads: &[u64], results: &[Settled]) -> String {
    let steps = loads.iter().zip(results);
    let steps = steps.map(|(load, settled)| format!("{}: {settled}", replicas_for(*load as i64)));
    steps.collect::<Vec<_>>().join(", ")
}

/// The most replicas in relation to those of the scale point.
pub fn drift(loads: &[u64], results: &[Settled]) -> f64 {
    let ratio = |(load, settled): (&u64, &Settled)| {
        settled.replicas as f64 / replicas_for(*load as i64) as f64
    };
    loads.iter().zip(results).map(ratio).fold(0.0, f64::max)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_the_scale_point_all_day_while_a_vpa_changes_requests() {
    let Some(results) = run(Rules::Ours, Scaler::Plimsoll, &LOADS, HOUR).await else { return };
    assert_follows(&LOADS, &results);
    let last = results.last().expect("steps");
    let is_lower = last.requests.iter().all(|request| *request < TEMPLATE);
    assert!(is_lower, "the VPA has no effect: {}", summary(&LOADS, &results));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rules_replicas_drift_away_from_what_the_load_needs() {
    let Some(results) = run(Rules::Upstream, Scaler::Plimsoll, &LOADS, HOUR).await else { return };
    let second_day = LOADS.len() / 2;
    let drift = drift(&LOADS[second_day..], &results[second_day..]);
    assert!(drift >= 1.5, "{drift}: {}", summary(&LOADS, &results));
}
