//! A command finds the Prometheus of a cluster among other servers and reads it through the API server's proxy, with two
//! permissions.

mod shop;

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use plimsoll::cluster::{
    clock::Clock as CommandClock,
    prometheus_discovery::{DiscoveryOptions, Via, discover},
};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryRange},
    promql::Query,
    selector::{LabelMatchers, Pattern, Selector},
    server_flavor::ServerFlavor,
    transport::TransportConfig,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};

use self::shop::{SHOP, create_shop, pods, shop_history};
use super::{recommend::process::recommend, series_collector::SeriesCollector};
use crate::{
    deploy::audit_log::AuditLog,
    support::{
        Account, Clock, Testbed,
        clock::wall_now,
        prometheus_server::{History, PrometheusRelease, PrometheusServer},
        service_network::{LOCAL_PODS, ServiceNetwork},
    },
};

const USAGE: &str = "container_cpu_usage_seconds_total";
const CONTAINERS: i64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prometheus_of_a_cluster_is_found_and_read_with_two_permissions() {
    let now = wall_now();
    let Some(servers) = Servers::start(now).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let network = ServiceNetwork::start();
    let mut flags = AuditLog::flags(folder.path());
    flags.push(network.egress_selector_flag());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(bed) = Testbed::private_with(&flags, Clock::wall()).await else { return };
    let namespace = bed.namespace("monitoring").await;
    create_services(&bed, &namespace, &servers).await;
    let reader = account(
        &bed,
        &namespace,
        "reader",
        &json!([
            {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]},
        ]),
    )
    .await;

    let found = discover(&reader.client, &options()).await.expect("there is one");
    let lines: Vec<_> = found.candidates.iter().map(ToString::to_string).collect();
    let answer = |name: &str| {
        let start = format!("{namespace}/{name}");
        lines
            .iter()
            .find(|line| line.contains(&start))
            .unwrap_or_else(|| panic!("{name}: {lines:#?}"))
    };
    assert_eq!(found.address.to_string(), format!("{namespace}/thanos-query:9090"), "{lines:#?}");
    assert_eq!(found.flavor, ServerFlavor::Prometheus);
    assert!(found.version.as_deref().is_some_and(|version| version.starts_with("3.")));
    let containers = CONTAINERS as u64;
    let best = found.candidates[0].answer.as_ref().expect("an answer");
    let counts = (&best.containers_now, &best.containers_week_ago);
    assert_eq!(counts, (&Ok(containers), &Ok(containers)), "{lines:#?}");
    assert_eq!((found.is_proxied, found.omitted), (true, 0));
    assert_eq!(found.candidates.len(), 8, "{lines:#?}");
    assert!(answer("kps-kube-prometheus-stack-prometheus:9090").contains("40 containers now"));
    assert!(answer("prometheus-operated:9090").contains("40 containers now"));
    assert!(answer("prometheus-server:80").contains(", 0 containers now, 3 containers 7 days ago"));
    assert!(answer("prometheus-k8s:9090").contains(", 0 containers now, 0 containers 7 days ago"));
    assert!(answer("prometheus-page:9090").contains("titled \"Sign in\""));
    assert!(answer("https:prometheus-tls:443").contains("403"));
    let gone = answer("prometheus-gone:9090");
    assert!(gone.contains("has no endpoints") || gone.contains("has no ready endpoints"), "{gone}");

    // History arrives whole, although the response is compressed.
    let limits = QueryLimits { timeout: Duration::from_secs(30), ..QueryLimits::default() };
    let prometheus = PrometheusClient::new(found.transport, limits);
    let names = SHOP.iter().flat_map(|(kind, name, replicas, ..)| pods(kind, name, *replicas));
    let names = Pattern::any_of(names.map(|name| Pattern::literal(&name)));
    let usage = Query::from(Selector::metric(USAGE).matches("pod", names));
    let minute = Duration::from_mins(1);
    let start = (now - SignedDuration::from_hours(24)).into();
    let range = QueryRange::new(start, now.into(), minute).expect("a range");
    let mut history = SeriesCollector::default();
    prometheus.range(&usage, range, &mut history).await.expect("is read");
    assert_eq!(history.complete.len(), CONTAINERS as usize);
    assert!(history.complete.values().all(|points| points.len() > 1_400));

    // Nothing else was requested.
    let requests = AuditLog::of(bed.process_guard().folder()).requests();
    let name = format!("{namespace}/reader");
    let requests = requests.iter().filter(|request| request.account == name);
    let verbs: BTreeSet<_> = requests.map(|request| (&*request.verb, &*request.resource)).collect();
    // The kinds of operators are listed only if they exist, which every user may ask.
    let expected = [("list", "services"), ("get", "services/proxy"), ("get", "")];
    assert_eq!(verbs, BTreeSet::from(expected));

    missing_permissions_are_named(&bed, &namespace).await;
    a_kubeconfig_is_enough_for_a_report(&bed, &namespace).await;
}

/// The first run of a user with the right to read workloads and to reach Services, on a cluster without VPAs.
async fn a_kubeconfig_is_enough_for_a_report(bed: &Testbed, namespace: &str) {
    let services = Api::<Service>::namespaced(bed.client(), namespace);
    services.delete("thanos-query", &DeleteParams::default()).await.expect("deleted");
    create_shop(bed).await;
    let rules = json!([
        {"apiGroups": ["", "apps", "batch", "autoscaling"], "verbs": ["list"], "resources": [
            "services", "pods", "replicationcontrollers", "limitranges", "nodes", "deployments",
            "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "horizontalpodautoscalers"]},
        {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]},
    ]);
    let viewer = account(bed, namespace, "viewer", &rules).await;
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, &viewer.kubeconfig).expect("a file");
    let run = recommend(&kubeconfig, &[]).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let server =
        format!("8 d of {namespace}/kps-kube-prometheus-stack-prometheus:9090 (Prometheus 3.");
    for part in [
        &*server,
        "through the API server",
        "AT RISK",
        "shop/Deployment/checkout",
        "OVERPROVISIONED",
        "shop/Deployment/search",
        "shop/StatefulSet/orders-db",
    ] {
        assert!(text.contains(part), "no {part}: {}", run.stdout);
    }
    assert!(!text.contains("NOTES"), "there is nothing to remark: {}", run.stdout);
}

async fn missing_permissions_are_named(bed: &Testbed, namespace: &str) {
    let nobody = account(bed, namespace, "nobody", &json!([])).await;
    let line = discover(&nobody.client, &options()).await.expect_err("no list").to_string();
    assert!(line.contains("grant `list` on `services`"), "{line}");
    assert!(line.contains("kubectl port-forward"), "{line}");
    let lister = json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]);
    let lister = account(bed, namespace, "lister", &lister).await;
    let line = discover(&lister.client, &options()).await.expect_err("no proxy").to_string();
    let rule = format!("grant `get` on `services/proxy` in the namespace {namespace}");
    assert!(line.contains(&rule), "{line}");
    assert!(line.contains(&format!("kubectl port-forward -n {namespace} service/")), "{line}");
}

fn options() -> DiscoveryOptions {
    DiscoveryOptions {
        service: None,
        via: Via::Auto,
        is_in_cluster: false,
        connection: TransportConfig::default(),
        matchers: LabelMatchers::default(),
        clock: CommandClock::wall(),
    }
}

/// The servers behind the Services.
struct Servers {
    /// Eight days of history.
    whole: PrometheusServer,
    /// History that ended three days ago.
    old: PrometheusServer,
    empty: PrometheusServer,
    page: u16,
    _page: JoinHandle<()>,
}

impl Servers {
    async fn start(now: Timestamp) -> Option<Self> {
        let release = PrometheusRelease::V3;
        let hours = SignedDuration::from_hours;
        let history = |containers: i64, end: Timestamp| {
            let history = History::new(now - hours(8 * 24), end, SignedDuration::from_mins(1));
            (0..containers).fold(history, |history, index| {
                let pod = format!("web-{index}");
                let labels = [("namespace", "shop"), ("pod", &*pod), ("container", "main")];
                history.series(USAGE, &labels, |at| Some(at.as_second() as f64))
            })
        };
        let start = now - hours(8 * 24 + 1);
        let whole = History::new(start, now, SignedDuration::from_mins(1));
        let whole = PrometheusServer::with_history(release, shop_history(whole, now)).await?;
        let old = history(3, now - hours(3 * 24));
        let old = PrometheusServer::with_history(release, old).await?;
        let empty = PrometheusServer::start(release, None, &[]).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let page = listener.local_addr().expect("bound").port();
        Some(Self { whole, old, empty, page, _page: tokio::spawn(serve_page(listener)) })
    }
}

/// Answers every request with a login page.
async fn serve_page(listener: TcpListener) {
    const PAGE: &str = "<html><head><title>Sign in</title></head></html>";
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = stream.read(&mut [0; 4096]).await;
        let length = PAGE.len();
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{PAGE}"
        );
        let _ = stream.write_all(response.as_bytes()).await;
    }
}

fn port_of(url: &str) -> u16 {
    url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}

/// Services as charts create them, and others that look like them.
async fn create_services(bed: &Testbed, namespace: &str, servers: &Servers) {
    let whole = Some(port_of(&servers.whole.url()));
    let (old, empty) = (Some(port_of(&servers.old.url())), Some(port_of(&servers.empty.url())));
    let api_server = Some(port_of(&bed.address()));
    let rows: [(&str, Value, &str, u16, Option<u16>); 11] = [
        (
            "kps-kube-prometheus-stack-prometheus",
            json!({"app": "kube-prometheus-stack-prometheus", "self-monitor": "true"}),
            "http-web",
            9090,
            whole,
        ),
        ("prometheus-operated", json!({"operated-prometheus": "true"}), "http-web", 9090, whole),
        (
            "thanos-query",
            json!({"app.kubernetes.io/name": "thanos-query", "app.kubernetes.io/component": "query-layer"}),
            "http",
            9090,
            whole,
        ),
        (
            "prometheus-server",
            json!({"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "server"}),
            "http",
            80,
            old,
        ),
        (
            "prometheus-k8s",
            json!({"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "prometheus"}),
            "web",
            9090,
            empty,
        ),
        ("prometheus-page", json!({}), "web", 9090, Some(servers.page)),
        ("prometheus-tls", json!({}), "https", 443, api_server),
        ("prometheus-gone", json!({}), "web", 9090, None),
        ("prometheus-alertmanager", json!({}), "http", 9093, whole),
        (
            "kps-kube-prometheus-stack-alertmanager",
            json!({"app": "kube-prometheus-stack-alertmanager", "self-monitor": "true"}),
            "http-web",
            9093,
            whole,
        ),
        (
            "alertmanager-operated",
            json!({"operated-alertmanager": "true"}),
            "http-web",
            9093,
            whole,
        ),
    ];
    for (index, (name, labels, port, number, backend)) in rows.into_iter().enumerate() {
        let mut ports = vec![json!({"name": port, "port": number})];
        if name.starts_with("kps-") {
            ports.push(json!({"name": "reloader-web", "port": 8080}));
        }
        let service = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"ports": ports,
                "clusterIP": if name.ends_with("-operated") { "None" } else { "" }},
        });
        create::<Service>(bed.client(), namespace, &service).await;
        let Some(backend) = backend else { continue };
        let address = format!("{LOCAL_PODS}0.{}", index + 1);
        create_pod(bed.client(), namespace, name, &address).await;
        let endpoints = json!({
            "metadata": {"name": name},
            "subsets": [{
                "addresses": [{
                    "ip": address,
                    "targetRef": {"kind": "Pod", "namespace": namespace, "name": name},
                }],
                "ports": [{"name": port, "port": backend}],
            }],
        });
        create::<Endpoints>(bed.client(), namespace, &endpoints).await;
    }
}

/// A pod with this address: the API server's proxy only connects to addresses of pods.
async fn create_pod(client: Client, namespace: &str, name: &str, address: &str) {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
    });
    create::<Pod>(client.clone(), namespace, &pod).await;
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    Api::<Pod>::namespaced(client, namespace)
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("has a status");
}

async fn create<K>(client: Client, namespace: &str, object: &Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let parsed: K = serde_json::from_value(object.clone()).expect("an object");
    let api = Api::<K>::namespaced(client, namespace);
    api.create(&PostParams::default(), &parsed)
        .await
        .unwrap_or_else(|why| panic!("{why}: {object}"));
}

/// A service account with these cluster-wide rules.
async fn account(bed: &Testbed, namespace: &str, name: &str, rules: &Value) -> Account {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let role: ClusterRole = serde_json::from_value(role).expect("a role");
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a binding");
    let parameters = PostParams::default();
    Api::all(bed.client()).create(&parameters, &role).await.expect("a new role");
    Api::all(bed.client()).create(&parameters, &binding).await.expect("a new binding");
    bed.service_account(namespace, name).await
}
