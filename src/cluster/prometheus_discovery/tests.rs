//! Discovery in a cluster in memory: what is asked, which server is chosen, and what errors say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use http::{Method, Request, Response, Uri};
use kube::client::Body;
use parking_lot::Mutex;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    promql::Query,
    selector::Selector,
};
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

const NOW: i64 = 1_700_000_000;

/// What a server answers.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// A Prometheus with this many containers now and seven days ago.
    Prometheus(u64, u64),
    Html,
    Login,
    Silent,
    /// Build information, and no answer to queries.
    Slow,
    /// Nothing listens.
    Down,
    /// RBAC does not allow to reach it.
    Forbidden,
}

/// A cluster whose Services are listed in pages of two.
#[derive(Debug, Default)]
struct FakeCluster {
    services: Vec<(String, Value, Server)>,
    /// The API group of an operator, and the list of its kind.
    operator: Option<(&'static str, &'static str, Value)>,
    /// `METHOD PATH?QUERY` of each request.
    requests: Mutex<Vec<String>>,
    /// The number of requests to servers at once, and the largest.
    in_flight: Mutex<(BTreeMap<String, usize>, usize)>,
}

impl FakeCluster {
    /// Adds a Service: `NAMESPACE/NAME`, a label, a port, and what answers.
    fn with(mut self, name: &str, label: &str, port: &str, server: Server) -> Self {
        let (namespace, name) = name.split_once('/').expect("NAMESPACE/NAME");
        let (label, value) = label.split_once('=').expect("NAME=VALUE");
        let (port, number) = port.split_once(':').expect("NAME:NUMBER");
        let number: u16 = number.parse().expect("a number");
        let object = json!({
            "metadata": {"namespace": namespace, "name": name, "labels": {label: value}},
            "spec": {"ports": [{"name": port, "port": number}]},
        });
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}:{number}/proxy");
        self.services.push((path, object, server));
        self
    }

    fn start(self) -> (Client, Arc<Self>) {
        let cluster = Arc::new(self);
        let server = Arc::clone(&cluster);
        let service = service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            let (method, uri) = (request.method().clone(), request.uri().clone());
            async move { server.respond(&method, &uri).await }
        });
        (Client::new(service, "default"), cluster)
    }

    async fn respond(&self, method: &Method, uri: &Uri) -> http::Result<Response<Body>> {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        self.requests.lock().push(format!("{method} {path}?{query}"));
        if path == "/api/v1/services" {
            return answer(200, "application/json", &self.page(query).to_string());
        }
        if let Some(response) = self.respond_as_operator(path) {
            return response;
        }
        let Some((place, _, server)) =
            self.services.iter().find(|(place, ..)| path.starts_with(&format!("{place}/")))
        else {
            return status(404, "services \"x\" not found");
        };
        let rest = &path[place.len()..];
        {
            let mut in_flight = self.in_flight.lock();
            *in_flight.0.entry(place.clone()).or_default() += 1;
            in_flight.1 = in_flight.1.max(in_flight.0.len());
        }
        // Others are asked meanwhile.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let response = respond_as(*server, rest, query).await;
        let mut in_flight = self.in_flight.lock();
        if let Some(count) = in_flight.0.get_mut(place) {
            *count -= 1;
        }
        in_flight.0.retain(|_, count| *count > 0);
        response
    }

    fn respond_as_operator(&self, path: &str) -> Option<http::Result<Response<Body>>> {
        let (group, plural, list) = self.operator.as_ref()?;
        if path == "/apis" {
            let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
            let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": group, "versions": [version], "preferredVersion": version}]});
            return Some(answer(200, "application/json", &groups.to_string()));
        }
        if path != format!("/apis/{group}/v1/{plural}") {
            return None;
        }
        Some(match list {
            Value::Null => status(403, "prometheuses is forbidden"),
            list => answer(200, "application/json", &list.to_string()),
        })
    }

    fn page(&self, query: &str) -> Value {
        let continued = |part: &str| part.strip_prefix("continue=").map(str::to_owned);
        let start = query.split('&').find_map(continued);
        let start: usize = start.and_then(|start| start.parse().ok()).unwrap_or(0);
        let end = (start + 2).min(self.services.len());
        let next = if end < self.services.len() { end.to_string() } else { String::new() };
        let items: Vec<_> = self.services[start..end].iter().map(|(_, object, _)| object).collect();
        json!({"kind": "ServiceList", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": "1", "continue": next}})
    }

    /// The Services that were asked.
    fn asked(&self) -> BTreeSet<String> {
        let requests = self.requests.lock();
        let services = requests.iter().filter_map(|request| {
            let (_, rest) = request.split_once("/namespaces/")?;
            Some(rest.split_once("/proxy")?.0.replace("/services", ""))
        });
        services.collect()
    }
}

async fn respond_as(server: Server, path: &str, query: &str) -> http::Result<Response<Body>> {
    let path = path.strip_prefix("/select/0/prometheus").unwrap_or(path);
    let is_build = path == "/api/v1/status/buildinfo";
    let build = || {
        let data = json!({"version": "3.15.0", "revision": "abc", "goVersion": "go1.26"});
        answer(200, "application/json", &json!({"status": "success", "data": data}).to_string())
    };
    match server {
        Server::Prometheus(..) | Server::Slow if is_build => build(),
        Server::Prometheus(now, week_ago) => {
            let is_now = query.contains(&format!("time={NOW}&"));
            let count = if is_now { now } else { week_ago };
            let result = json!([{"metric": {}, "value": [NOW, count.to_string()]}]);
            let result = if count == 0 { json!([]) } else { result };
            let data = json!({"resultType": "vector", "result": result});
            answer(200, "application/json", &json!({"status": "success", "data": data}).to_string())
        }
        Server::Html => answer(200, "text/html", "<html><title>Grafana</title></html>"),
        Server::Login => answer(401, "text/plain", "Unauthorized"),
        Server::Silent | Server::Slow => std::future::pending().await,
        Server::Down => status(503, "no endpoints available for service \"x\""),
        Server::Forbidden => status(
            403,
            "services \"x\" is forbidden: User \"amy\" cannot get resource \"services/proxy\" in API group \"\"",
        ),
    }
}

fn answer(code: u16, kind: &str, body: &str) -> http::Result<Response<Body>> {
    Response::builder()
        .status(code)
        .header("content-type", kind)
        .body(body.as_bytes().to_vec().into())
}

fn status(code: u16, message: &str) -> http::Result<Response<Body>> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "", "code": code});
    answer(code, "application/json", &status.to_string())
}

fn options() -> DiscoveryOptions {
    DiscoveryOptions {
        service: None,
        via: Via::Auto,
        is_in_cluster: false,
        connection: TransportConfig::default(),
        matchers: LabelMatchers::default(),
        clock: Clock::fake(Time::from_secs(NOW)),
    }
}

const PROMETHEUS: &str = "app.kubernetes.io/name=prometheus";
const GOVERNING: &str = "operated-prometheus=true";

#[tokio::test(start_paused = true)]
async fn the_objects_of_an_operator_tell_paths_if_they_may_be_listed() {
    let list = json!({"kind": "PrometheusList", "apiVersion": "monitoring.coreos.com/v1", "metadata": {},
        "items": [{"metadata": {"namespace": "m", "name": "k8s"}, "spec": {"routePrefix": "/p"}}]});
    for (list, expected) in
        [(list, "m/prometheus-operated:9090/p"), (Value::Null, "m/prometheus-operated:9090")]
    {
        let mut cluster = FakeCluster::default().with(
            "m/prometheus-operated",
            GOVERNING,
            "web:9090",
            Server::Prometheus(1, 1),
        );
        cluster.operator = Some(("monitoring.coreos.com", "prometheuses", list));
        let (client, _) = cluster.start();
        let found = discover(&client, &options()).await;
        let asked = match &found {
            Ok(found) => &found.candidates,
            Err(error) => candidates_of(error),
        };
        let addresses: Vec<_> = asked.iter().map(|one| one.candidate.address.to_string()).collect();
        assert_eq!(addresses, [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_of_the_whole_cluster_is_found_among_others() {
    let (client, cluster) = FakeCluster::default()
        .with("shop/checkout", "app=checkout", "http:80", Server::Html)
        .with("dev/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(40, 40))
        .with("new/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(655, 0))
        .with("old/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(0, 900))
        .with("empty/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(0, 0))
        .with("html/prometheus", PROMETHEUS, "web:9090", Server::Html)
        .with("silent/prometheus", PROMETHEUS, "web:9090", Server::Silent)
        .with("slow/prometheus", PROMETHEUS, "web:9090", Server::Slow)
        .with(
            "monitoring/kps-prometheus",
            PROMETHEUS,
            "http-web:9090",
            Server::Prometheus(655, 640),
        )
        .with("monitoring/prometheus-operated", GOVERNING, "web:9090", Server::Prometheus(655, 640))
        .with("vm/vmselect-main", "app=vmselect", "http:8481", Server::Prometheus(654, 639))
        .start();
    let found = discover(&client, &options()).await.expect("there is one");
    assert_eq!(found.address.to_string(), "vm/vmselect-main:8481/select/0/prometheus");
    assert_eq!(found.flavor, ServerFlavor::Prometheus);
    assert_eq!((found.version.as_deref(), found.is_proxied), (Some("3.15.0"), true));
    let answer = found.candidates[0].answer.as_ref().expect("an answer");
    assert_eq!((&answer.containers_now, &answer.containers_week_ago), (&Ok(654), &Ok(639)));
    let lines: Vec<_> = found.candidates.iter().map(ToString::to_string).collect();
    let namespaces: Vec<_> =
        found.candidates.iter().map(|one| one.candidate.address.namespace()).collect();
    assert_eq!(
        namespaces,
        ["vm", "monitoring", "monitoring", "new", "dev", "slow", "old", "empty", "html", "silent"]
    );
    assert_eq!(
        lines[1],
        "monitoring/kps-prometheus:9090: Prometheus 3.15.0, 655 containers now, 640 containers 7 days ago"
    );
    let slow = "an unknown number of containers (slow/prometheus:9090 did not respond within 3s";
    assert!(lines[5].contains(slow), "{}", lines[5]);
    assert!(lines[8].contains("titled \"Grafana\""), "{}", lines[8]);
    // The transport is that of the server.
    let limits = QueryLimits { timeout: Duration::from_secs(3), ..QueryLimits::default() };
    let prometheus = PrometheusClient::new(found.transport, limits);
    let query = Query::from(Selector::metric("up"));
    assert_eq!(prometheus.count(&query, Time::from_secs(NOW)).await, Ok(654));
    let requests = cluster.requests.lock();
    let is_get = |request: &String| request.starts_with(Method::GET.as_str());
    assert!(requests.iter().all(is_get), "{requests:#?}");
    let lists = requests.iter().filter(|request| request.contains("/api/v1/services?"));
    assert_eq!(lists.count(), 6, "pages of two");
    // The first request asks for the kinds of operators.
    assert_eq!(requests[0], "GET /apis?");
    assert!(requests[1].contains("limit=500"), "{}", requests[1]);
    assert_eq!(cluster.in_flight.lock().1, MAX_CONCURRENT_PROBES);
}

#[tokio::test(start_paused = true)]
async fn never_more_than_twelve_servers_are_asked() {
    let mut cluster = FakeCluster::default();
    for index in 0..40 {
        let name = format!("n{index:02}/prometheus");
        cluster = cluster.with(&name, PROMETHEUS, "web:9090", Server::Prometheus(index, index));
    }
    let (client, cluster) = cluster.start();
    let found = discover(&client, &options()).await.expect("there is one");
    assert_eq!(cluster.asked().len(), candidates::MAX_PROBES);
    assert_eq!((found.candidates.len(), found.omitted), (12, 28));
    assert_eq!(found.address.namespace(), "n11");
}

#[tokio::test(start_paused = true)]
async fn a_named_service_is_asked_without_a_list() {
    let (client, cluster) = FakeCluster::default()
        .with("a/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(10, 10))
        .with("b/metrics", "app=x", "any:80", Server::Prometheus(0, 0))
        .start();
    let service = Some("b/metrics:80".parse().expect("an address"));
    let found = discover(&client, &DiscoveryOptions { service, ..options() }).await;
    let found = found.expect("it answers, even if it is empty");
    let answer = found.candidates[0].answer.as_ref().expect("an answer");
    assert_eq!((found.address.name(), &answer.containers_now), ("metrics", &Ok(0)));
    assert_eq!(cluster.asked(), BTreeSet::from(["b/metrics:80".to_owned()]));
    assert!(cluster.requests.lock().iter().all(|request| !request.contains("/api/v1/services?")));
    let service = Some("c/prometheus:9090".parse().expect("an address"));
    let error = discover(&client, &DiscoveryOptions { service, ..options() }).await;
    let error = error.expect_err("it does not exist").to_string();
    assert!(
        error.contains("c/prometheus:9090 does not exist, or has no endpoints (404"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_server_the_error_says_what_to_run() {
    let forward = |namespace: &str| {
        format!(
            "run `kubectl port-forward -n {namespace} service/prometheus 9090:9090` and pass \
             --prometheus-address=http://127.0.0.1:9090"
        )
    };
    for (servers, words) in [
        (
            vec![Server::Forbidden, Server::Forbidden, Server::Forbidden],
            vec![
                "found no Prometheus: a/prometheus:9090 cannot be reached",
                "grant `get` on `services/proxy` in the namespace a",
                "; 2 other candidates failed too",
            ],
        ),
        (vec![Server::Login], vec!["requires authentication (401)", "Authorization"]),
        (vec![Server::Html], vec!["titled \"Grafana\""]),
        (
            vec![Server::Down, Server::Html],
            vec!["no ready endpoints", "; another candidate failed too"],
        ),
        (vec![Server::Silent], vec!["a/prometheus:9090", "3s"]),
    ] {
        let mut cluster = FakeCluster::default();
        for (server, namespace) in servers.iter().zip(["a", "b", "c"]) {
            let name = format!("{namespace}/prometheus");
            cluster = cluster.with(&name, PROMETHEUS, "web:9090", *server);
        }
        let error = discover(&cluster.start().0, &options()).await.expect_err("there is none");
        assert_eq!(candidates_of(&error).len(), servers.len());
        let line = error.to_string();
        for word in words.into_iter().chain([&*forward("a")]) {
            assert!(line.contains(word), "{word:?} is missing: {line}");
        }
        assert_eq!(line.matches("kubectl port-forward").count(), 1, "{line}");
        assert!(!line.contains('\n') && !line.contains("will be retried"), "{line}");
    }
}

#[tokio::test]
async fn services_that_cannot_be_listed_or_are_no_candidates_have_their_own_errors() {
    let rbac = "services is forbidden: User \"amy\" cannot list resource \"services\" in API group \"\" at the cluster scope";
    for (code, message, words) in [
        (403, rbac, ["grant `list` on `services`", "kubectl port-forward -n NAMESPACE"]),
        (500, "etcd is gone", ["etcd is gone", "--prometheus-address"]),
    ] {
        let service = service_fn(move |_: Request<Body>| std::future::ready(status(code, message)));
        let client = Client::new(service, "default");
        let line = discover(&client, &options()).await.expect_err("no list").to_string();
        for word in words.into_iter().chain(["--prometheus-service=NAMESPACE/NAME:PORT", message]) {
            assert!(line.contains(word), "{word:?} is missing: {line}");
        }
    }
    let (client, _) =
        FakeCluster::default().with("shop/web", "app=web", "http:80", Server::Html).start();
    let line = discover(&client, &options()).await.expect_err("no candidate").to_string();
    assert!(line.contains("none of 1 Services") && line.contains("kubectl port-forward"), "{line}");
}

#[tokio::test]
async fn credentials_cannot_be_sent_through_the_proxy_and_the_tenant_can() {
    let (client, cluster) = FakeCluster::default().start();
    let auth = AuthConfig::Bearer(SecretSource::Literal("hunter2".into()));
    let header = |name: &str, value: SecretSource| Header { name: name.to_owned(), value };
    for connection in [
        TransportConfig { auth, ..TransportConfig::default() },
        TransportConfig {
            headers: vec![header("Authorization", SecretSource::Literal("hunter2".into()))],
            ..TransportConfig::default()
        },
        TransportConfig {
            headers: vec![header("x-key", SecretSource::File("/keys/key".into()))],
            ..TransportConfig::default()
        },
        TransportConfig {
            headers: vec![header("x key", SecretSource::Literal("a".into()))],
            ..TransportConfig::default()
        },
    ] {
        let options = DiscoveryOptions { connection, ..options() };
        let line = discover(&client, &options).await.expect_err("it is refused").to_string();
        assert!(line.contains("header") && !line.contains("hunter2"), "{line}");
    }
    assert!(cluster.requests.lock().is_empty());
    let connection = TransportConfig {
        headers: vec![header("x-team", SecretSource::Literal("a".into()))],
        tenant: Some("shop".to_owned()),
        ..TransportConfig::default()
    };
    let headers = headers(&connection).expect("valid");
    assert_eq!(
        (&headers["x-team"], &headers["x-scope-orgid"]),
        (&HeaderValue::from_static("a"), &HeaderValue::from_static("shop"))
    );
}

#[tokio::test]
async fn credentials_are_sent_to_a_named_service_alone() {
    let auth = AuthConfig::Bearer(SecretSource::Literal("hunter2".into()));
    let key = Header { name: "x-key".to_owned(), value: SecretSource::Literal("hunter2".into()) };
    for (connection, what) in [
        (TransportConfig { auth, ..TransportConfig::default() }, "the credentials"),
        (TransportConfig { headers: vec![key], ..TransportConfig::default() }, "the headers"),
    ] {
        let (client, cluster) = FakeCluster::default()
            .with("evil/prometheus", PROMETHEUS, "web:9090", Server::Prometheus(9_999_999, 1))
            .start();
        let options = DiscoveryOptions { connection, via: Via::Direct, ..options() };
        let line = discover(&client, &options).await.expect_err("it is refused").to_string();
        assert!(line.starts_with(what) && line.contains("--prometheus-service="), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
        assert!(cluster.requests.lock().is_empty(), "nothing is asked");
    }
}

#[tokio::test]
async fn in_the_cluster_servers_are_reached_directly() {
    let (client, _) = FakeCluster::default().start();
    for (via, is_in_cluster, is_proxied) in [
        (Via::Auto, false, true),
        (Via::Auto, true, false),
        (Via::Direct, false, false),
        (Via::Proxy, true, true),
    ] {
        let options = DiscoveryOptions { via, is_in_cluster, ..options() };
        let connector = Connector::new(&client, &options).expect("valid");
        let address = "m/https:prometheus:9090".parse().expect("an address");
        let transport = format!("{:?}", connector.connect(&address).expect("valid"));
        assert_eq!(transport.starts_with("ServiceProxy"), is_proxied, "{transport}");
        assert_eq!(transport.contains("https://prometheus.m.svc:9090"), !is_proxied, "{transport}");
    }
}

fn candidates_of(error: &DiscoveryError) -> &[ProbedCandidate] {
    match error {
        DiscoveryError::NoServer { candidates, .. } => candidates,
        _ => &[],
    }
}
