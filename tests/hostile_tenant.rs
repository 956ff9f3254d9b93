//! A tenant who may do everything in one namespace, and nothing elsewhere, writes the largest and ugliest objects
//! that the API server accepts. Meanwhile the controllers must keep working for another namespace, and keep their
//! Leases.

use std::{
    cell::RefCell, collections::BTreeSet, fs, io::Write as _, net::Ipv4Addr, time::Duration,
};

use http::Request;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment,
    coordination::v1::Lease, core::v1::Pod,
};
use kube::{Api, Client, api::PostParams};
use plimsoll::cluster::server::certificate::CaBundle;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, task::JoinSet, time::interval};

use crate::{
    cluster_writes::access_review::grant,
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed, hollow_nodes::is_ready, http_get::http_get, manifests,
        metrics_server::UsageValue, plimsoll_process::PlimsollProcesses, ports::Port,
        process_guard::ProcessState, tier, wait,
    },
    watermark_controller::fixture::{METRIC, object},
    webhook::{
        cluster::{pod, recommended, wait_until_called},
        endless_requests::send_endless_requests,
        webhook_client::connect_as,
    },
};

const NAME: &str = "plimsoll";
/// The host at which the API server calls the webhook.
const HOST: &str = "127.0.0.1";
const VPAS: &str = "/apis/autoscaling.k8s.io/v1/namespaces/NS/verticalpodautoscalers";
const WPAS: &str = "/apis/datadoghq.com/v1alpha1/namespaces/NS/watermarkpodautoscalers";
const PODS: &str = "/api/v1/namespaces/NS/pods";
/// Excludes a VPA from the recommender, so that its recommendations stay as written.
const FOREIGN_CONDITION: &str = ", recommenders: [{name: foreign}]";
/// How often the updater's Lease has to be renewed while the objects exist.
const RENEWALS: usize = 4;
/// Streams of one connection that never end, and connections of one address that never send a request.
const STREAMS: usize = 63;
const CONNECTIONS: usize = 64;
/// Pause between two connection attempts of an address.
const RECONNECT: Duration = Duration::from_millis(100);

/// A user with all permissions in one namespace.
struct Tenant {
    client: Client,
    namespace: String,
}

impl Tenant {
    async fn new(bed: &Testbed) -> Self {
        let namespace = bed.namespace("tenant").await;
        let account = bed.service_account(&namespace, "anybody").await;
        let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        grant(bed, &namespace, "anybody", &[everything]).await;
        Self { client: account.client.clone(), namespace }
    }

    /// Sends an object and returns whether it was accepted. A rejection is fine, because the object then has no
    /// effect.
    async fn send(&self, method: &str, path: &str, body: &Value, kind: &str) -> bool {
        let path = path.replace("NS", &self.namespace);
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        match self.client.request::<Value>(request).await {
            Ok(_) => true,
            Err(kube::Error::Api(_)) => false,
            Err(why) => panic!("the API server does not respond: {why}"),
        }
    }

    async fn create(&self, path: &str, body: &Value) -> bool {
        self.send("POST", path, body, "application/json").await
    }

    /// Writes a recommendation for the containers of a VPA.
    async fn recommend(&self, name: &str, containers: impl Iterator<Item = String>) -> bool {
        let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "64Mi"});
        let recommendations = containers.map(|container| {
            json!({
                "containerName": container, "target": amounts("250m"),
                "lowerBound": amounts("200m"), "upperBound": amounts("1"),
            })
        });
        let recommendations: Vec<Value> = recommendations.collect();
        let status =
            json!({"status": {"recommendation": {"containerRecommendations": recommendations}}});
        let path = format!("{VPAS}/{name}/status");
        self.send("PATCH", &path, &status, "application/merge-patch+json").await
    }
}

fn vpa(name: &str, target: &str, spec: &Value, annotations: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
    });
    let fields = spec.as_object().expect("fields").clone();
    object["spec"].as_object_mut().expect("fields").extend(fields);
    object
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("c{number}"))
}

/// Writes all objects, and returns how many were accepted.
async fn write_everything(tenant: &Tenant) -> usize {
    let none = json!({});
    let mut taken = 0;
    let mut count = |was_taken: bool| taken += usize::from(was_taken);

    // As many policies as fit into an object, and into a request.
    let policies = |count: usize| -> Value {
        let policies = names(count).map(|name| json!({"containerName": name, "mode": "Off"}));
        json!({"resourcePolicy": {"containerPolicies": policies.collect::<Vec<_>>()}})
    };
    let many = policies(tier::cases(2_000, 45_000));
    count(tenant.create(VPAS, &vpa("policies", "crowd", &many, &none)).await);
    let more = policies(tier::cases(4_000, 90_000));
    let dry = format!("{VPAS}?dryRun=All");
    count(tenant.create(&dry, &vpa("dry", "crowd", &more, &none)).await);

    // Windows that never open, for a workload whose pods are all outside of the bounds.
    let windows = "0 0 31 2 * for 1h;".repeat(tier::cases(300, 14_500));
    let windows = json!({"plimsoll.dev/change-window": windows});
    let foreign = json!({"recommenders": [{"name": "foreign"}]});
    count(tenant.create(VPAS, &vpa("windows", "crowd", &foreign, &windows)).await);
    count(tenant.recommend("windows", ["main".to_owned()].into_iter()).await);

    // More recommendations than any pod has containers.
    count(tenant.create(VPAS, &vpa("said", "none", &foreign, &none)).await);
    count(tenant.recommend("said", names(tier::cases(1_000, 8_000))).await);

    // Names that are paths and queries, and invalid annotations.
    let garbage = "[{\"".repeat(tier::cases(5_000, 60_000));
    for (number, target) in
        ["../../kube-system/x", "a/status?b=c#d", "%2e%2e%2f"].iter().enumerate()
    {
        let annotations =
            json!({"plimsoll.dev/updates": garbage, "plimsoll.dev/percentile": garbage});
        count(
            tenant.create(VPAS, &vpa(&format!("name-{number}"), target, &none, &annotations)).await,
        );
    }
    for number in 0..tier::cases(50, 2_000) {
        count(tenant.create(VPAS, &vpa(&format!("one-{number}"), "crowd", &none, &none)).await);
    }

    // Huge numbers of metrics and endless queries.
    let metric = |name: String| {
        json!({"type": "External", "external": {
            "metricName": name, "metricSelector": {"matchLabels": {"app": METRIC}},
            "lowWatermark": "50", "highWatermark": "100",
        }})
    };
    let metrics: Vec<Value> = names(tier::cases(200, 5_000)).map(metric).collect();
    let mut wide = object("wide", json!({"metrics": metrics}));
    let deep = format!("{}up{}", "(".repeat(tier::cases(5_000, 100_000)), ")".repeat(10));
    wide["metadata"]["annotations"] = json!({"query.plimsoll.dev/c0": deep});
    wide["apiVersion"] = json!("datadoghq.com/v1alpha1");
    wide["kind"] = json!("WatermarkPodAutoscaler");
    count(tenant.create(WPAS, &wide).await);

    // A pod with more containers than any node can run.
    let containers: Vec<Value> = names(tier::cases(500, 10_000))
        .map(|name| json!({"name": name, "image": "x", "resources": {"requests": {"cpu": "1m"}}}))
        .collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "wide", "labels": {"app": "crowd"}, "annotations": {"plimsoll.dev/updates": garbage}},
        "spec": {"nodeSelector": {"no": "where"}, "containers": containers},
    });
    count(tenant.create(PODS, &pod).await);
    taken
}

/// The CA bundle of the registered webhooks.
async fn ca_bundle(bed: &Testbed) -> CaBundle {
    let configurations = Api::<MutatingWebhookConfiguration>::all(bed.client());
    let all = configurations.list(&kube::api::ListParams::default()).await.expect("they are there");
    let pems = all.items.into_iter().flat_map(|one| one.webhooks.unwrap_or_default());
    let pems = pems.filter_map(|webhook| webhook.client_config.ca_bundle);
    pems.fold(CaBundle::default(), |all, pem| all.union(&CaBundle::parse(&pem.0)))
}

/// Opens HTTP/2 streams whose bodies never end and connections that send no request, from addresses other than the
/// API server's, and reopens them when they are closed, until dropped.
fn open_slow_connections(port: u16, trusts: &CaBundle) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    for number in 0..tier::cases(1, 4) {
        let (from, trusts) = (Ipv4Addr::new(127, 0, 0, 2 + number), trusts.clone());
        connections.spawn(async move {
            let mut pause = interval(RECONNECT);
            loop {
                pause.tick().await;
                let Ok(mut streams) =
                    send_endless_requests(HOST, from, port, &trusts, STREAMS).await
                else {
                    continue;
                };
                while streams.join_next().await.is_some() {}
            }
        });
    }
    for number in 0..tier::cases(1, 8) {
        for _ in 0..CONNECTIONS {
            let (from, trusts) = (Ipv4Addr::new(127, 0, 1, 1 + number), trusts.clone());
            connections.spawn(async move {
                let mut pause = interval(RECONNECT);
                loop {
                    pause.tick().await;
                    let stream =
                        connect_as(HOST, from, port, &trusts, &[], rustls::ALL_VERSIONS).await;
                    let Ok(mut stream) = stream else { continue };
                    // Until it is closed.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    }
    connections
}

/// The 99th percentile of admission review durations in seconds, as measured by the API server, and their number.
async fn admission_p99(bed: &Testbed) -> (f64, f64) {
    let request = Request::get("/metrics").body(Vec::new()).expect("a request");
    let page = bed.client().request_text(request).await.expect("metrics");
    let buckets: Vec<(f64, f64)> = page
        .lines()
        .filter(|line| {
            line.starts_with("apiserver_admission_webhook_admission_duration_seconds_bucket")
        })
        .filter(|line| line.contains("operation=\"CREATE\"") && line.contains("vpa.k8s.io"))
        .filter_map(|line| {
            let (_, most) = line.split_once("le=\"")?;
            let most = most.split('"').next()?.parse().unwrap_or(f64::INFINITY);
            Some((most, line.rsplit(' ').next()?.parse().ok()?))
        })
        .collect();
    let count = buckets.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    let within = buckets.iter().find(|(_, below)| *below >= 0.99 * count);
    (within.map_or(f64::NAN, |(most, _)| *most), count)
}

/// CPU time of the process.
fn cpu_time(bed: &Testbed) -> Duration {
    let Some(ProcessState::Running(id)) = bed.process_guard().state(NAME) else {
        panic!("it has ended\n{}", bed.process_guard().log_tail(NAME, 30));
    };
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<u32>().expect("a number");
    Duration::from_millis(10) * (ticks(11) + ticks(12))
}

/// Waits until a Lease was renewed this often, always by the same holder.
async fn lease_renewals(bed: &Testbed, name: &str, times: usize) {
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    let observed = RefCell::new((BTreeSet::new(), BTreeSet::new()));
    wait::until(&format!("{name} is renewed {times} times"), || async {
        let spec = leases.get(name).await.ok()?.spec?;
        let mut observed = observed.borrow_mut();
        observed.0.insert(spec.renew_time?.0);
        observed.1.insert((spec.holder_identity, spec.lease_transitions));
        (observed.0.len() > times).then_some(())
    })
    .await;
    let holders = &observed.borrow().1;
    assert_eq!(holders.len(), 1, "the holder of {name} changed: {holders:?}");
}

#[tokio::test]
async fn a_hostile_tenant_does_not_affect_other_namespaces() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bed.nodes().add("node", "64", "256Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let (calm, tenant) = (bed.namespace("calm").await, Tenant::new(&bed).await);
    let crowd = manifests::deployment("crowd", tier::cases(10, 50), "10m", "16Mi");
    manifests::create::<Deployment>(bed.client(), &tenant.namespace, &crowd).await;
    let web = manifests::deployment("web", 0, "100m", "64Mi");
    let owner = recommended(&bed, &calm, &web, FOREIGN_CONDITION, &["main"]).await;

    let (ours, webhook) = (PlimsollProcesses::new(&bed), Port::claim());
    let ports = [format!("--port={webhook}"), format!("--webhook-port={webhook}")];
    let port = ours.all_in_one(
        NAME,
        "recommender,updater,admission-controller,watermark",
        &[
            &ports[0],
            &ports[1],
            "--register-by-url",
            "--webhook-address=https://127.0.0.1",
            "--certificates=self-signed",
            "--status-lease-update-interval=1s",
            "--shutdown-delay=0",
            "--leader-elect-resource-namespace=kube-system",
            "--recommender-interval=1s",
            "--updater-interval=1s",
            "--watermark.period=1s",
        ],
    );
    wait_until_called(&bed, &calm).await;
    lease_renewals(&bed, "vpa-updater", 1).await;
    let before = cpu_time(&bed);

    assert!(write_everything(&tenant).await > 10, "the API server accepts hardly anything");

    let _connections = open_slow_connections(webhook.number(), &ca_bundle(&bed).await);

    // The updater keeps its Lease, and the process answers its probes.
    for lease in ["vpa-updater", "vpa-recommender-lease"] {
        lease_renewals(&bed, lease, RENEWALS).await;
    }
    let livez = format!("http://127.0.0.1:{port}/livez");
    let live = wait::until("the liveness probe is answered", || http_get(&livez)).await;
    assert_eq!(live, "ok\n");

    // Pods are admitted with the recommended requests.
    let pods = Api::<Pod>::namespaced(bed.client(), &calm);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for number in 0..tier::cases(10, 1_000) {
        let made = pods.create(&dry, &pod(&owner, &format!("web-{number}"))).await.expect("made");
        let resources = made.spec.expect("a spec").containers.remove(0).resources;
        let requests = resources.and_then(|resources| resources.requests).unwrap_or_default();
        assert_eq!(requests.get("cpu").map(|cpu| &*cpu.0), Some("250m"), "pod {number}");
    }
    // Printed but not asserted, because it depends on the machine. A review that timed out would have left a pod
    // unchanged.
    let (p99, count) = admission_p99(&bed).await;
    let mut stderr = std::io::stderr();
    writeln!(stderr, "admission p99 of {count} reviews: at most {p99} s").expect("stderr");

    // The recommender writes the first status of a VPA.
    let later = manifests::deployment("later", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &calm, &later).await;
    bed.nodes().pods(&calm, "later-", 1, "is ready", is_ready).await;
    usage.set_all(&calm, "later-", "main", UsageValue { cpu: 0.25, memory: 100 << 20 });
    let body = vpa("later", "later", &json!({"updatePolicy": {"updateMode": "Off"}}), &json!({}));
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &calm, &body.to_string()).await;
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &calm);
    wait::until("there is a recommendation", || async {
        let status = vpas.get("later").await.ok()?.status?;
        status.recommendation.filter(|it| !it.container_recommendations.is_empty())
    })
    .await;

    let spent = cpu_time(&bed).saturating_sub(before);
    let most = tier::cases(Duration::from_mins(1), Duration::from_mins(10));
    assert!(spent < most, "{spent:?} of CPU for the objects of one tenant");
    let log = fs::read_to_string(bed.process_guard().log(NAME)).expect("a log");
    for words in ["stopped leading", "no longer leading", "panicked"] {
        assert!(!log.contains(words), "{words}\n{}", bed.process_guard().log_tail(NAME, 30));
    }
}
