//! Pages of a made-up cluster: hostile names, sizes, limits, and who sees what.

mod access;
mod content;
#[path = "../../tests/html_reports/sample_snapshot.rs"]
mod sample_snapshot;

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use plimsoll_core::rightsizing::report::{Totals, WorkloadReport};
use serde_json::Value;

use super::{
    access::{AuthMode, Peer, User},
    list_query::Span,
    pages::WorkloadDetails,
    replica_timeline::ReplicaTimeline,
    server::{AccessReviewer, PageSource, UiServer, UiServerConfig},
    snapshot::Snapshot,
    timeline_reader::{ReplicaSubject, TimelineSubject},
};
use crate::report::recommend::html::sample_report::{self, HOSTILE};

/// All pages of the sample.
const PAGES: [&str; 13] = [
    "/",
    "/workloads",
    "/workloads?q=shop&sort=money",
    "/n/shop",
    "/w/shop/Deployment/checkout",
    "/w/shop/Deployment/search",
    "/w/data/StatefulSet/kafka",
    "/a",
    "/a/shop/checkout",
    "/held",
    "/preview",
    "/backtest",
    "/status",
];

#[derive(Default)]
struct Sample {
    snapshot: Option<Arc<Snapshot>>,
    /// What was read for pages, besides the snapshot.
    reads: Mutex<Vec<String>>,
}

#[async_trait]
impl PageSource for Sample {
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    async fn details(&self, subject: &TimelineSubject, span: Span) -> WorkloadDetails {
        let span = <&str>::from(span);
        self.reads.lock().push(format!("{}/{} {span}", subject.namespace, subject.name));
        match (&self.snapshot, &*subject.name) {
            (Some(snapshot), "checkout" | "old-checkout") => {
                sample_snapshot::details(snapshot.parts.at)
            }
            _ => WorkloadDetails::default(),
        }
    }

    async fn replica_timeline(
        &self,
        subject: &ReplicaSubject,
        span: Span,
    ) -> Option<Result<ReplicaTimeline, String>> {
        let span = <&str>::from(span);
        self.reads.lock().push(format!("{}/{} {span}", subject.namespace, subject.name));
        let at = self.snapshot.as_ref()?.parts.at;
        Some(Ok(sample_snapshot::replica_timeline(subject, at)))
    }
}

/// `admin` may see everything, `ann` namespace shop, `bob` nothing. The token of a user is the name.
struct Rights;

#[async_trait]
impl AccessReviewer for Rights {
    async fn user_of_token(&self, token: &str) -> Result<Option<User>, String> {
        if token == "broken" {
            return Err("the API server is away".to_owned());
        }
        let is_known = ["admin", "ann", "bob"].contains(&token);
        Ok(is_known.then(|| User { name: token.to_owned(), ..User::default() }))
    }

    async fn may_list(&self, user: &User, namespace: Option<&str>) -> Result<bool, String> {
        Ok(match &*user.name {
            "admin" => true,
            "ann" => namespace == Some("shop"),
            _ => user.groups.iter().any(|group| Some(&**group) == namespace),
        })
    }
}

fn server(snapshot: Option<Snapshot>, config: UiServerConfig) -> UiServer {
    let source = Arc::new(Sample { snapshot: snapshot.map(Arc::new), ..Sample::default() });
    let config = UiServerConfig { burst: 100_000.0, ..config };
    UiServer::new(config, source, Arc::new(Rights))
}

/// A cluster of many workloads in 100 namespaces, all with names of this length.
fn large(count: usize, name_length: usize) -> Snapshot {
    let mut parts = sample_snapshot::all_parts();
    let report = &mut parts.report;
    let template = report.workloads.iter().find(|one| one.name == "checkout");
    let template = template.expect("the workload").clone();
    let filler = "x".repeat(name_length.saturating_sub(16));
    report.workloads = (0..count)
        .map(|index| WorkloadReport {
            namespace: format!("namespace-{:03}{filler}", index % 100),
            name: format!("workload-{index:05}{filler}"),
            ..template.clone()
        })
        .collect();
    let of_each = Totals { workloads: count / 100, ..Totals::default() };
    let namespaces = report.workloads.iter();
    report.namespaces = namespaces.map(|one| (one.namespace.clone(), of_each.clone())).collect();
    Snapshot::new(parts)
}

fn local() -> UiServer {
    server(Some(sample_snapshot::snapshot()), UiServerConfig::default())
}

fn with_auth(auth: AuthMode) -> UiServer {
    let config = UiServerConfig { auth, is_loopback: false, ..UiServerConfig::default() };
    server(Some(sample_snapshot::snapshot()), config)
}

async fn ask(
    server: &UiServer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Full<bytes::Bytes>> {
    let mut map = HeaderMap::new();
    map.insert(http::header::HOST, HeaderValue::from_static("localhost:8950"));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        map.insert(name, HeaderValue::from_str(value).expect("a value"));
    }
    let address: IpAddr = [127, 0, 0, 1].into();
    let peer = Peer { address, has_proxy_certificate: false };
    let uri: Uri = path.parse().expect("a path");
    server.respond(&method, &uri, &map, peer).await
}

async fn body(response: Response<Full<bytes::Bytes>>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

async fn get(server: &UiServer, path: &str) -> String {
    let response = ask(server, Method::GET, path, &[]).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    body(response).await
}

/// The path of another form of a page.
fn form(path: &str, form: &str) -> String {
    match (path, path.split_once('?')) {
        ("/", _) => format!("/overview.{form}"),
        (_, Some((path, query))) => format!("{path}.{form}?{query}"),
        _ => format!("{path}.{form}"),
    }
}

#[tokio::test]
async fn hostile_names_are_text_on_every_page() {
    let server = local();
    let mut seen = 0;
    for path in PAGES {
        let html = get(&server, path).await;
        assert!(!html.contains(HOSTILE) && !html.contains("<script>"), "{path}");
        assert!(!html.contains("<img") && !html.contains(" style="), "{path}");
        for control in ['\u{202e}', '\u{2066}', '\0'] {
            assert!(!html.contains(control), "{path}");
        }
        assert_eq!(html.matches("<script").count(), 1, "{path}: only the file of the script");
        seen += html.matches("&lt;script&gt;").count();
        let json: Value =
            serde_json::from_str(&get(&server, &form(path, "json")).await).expect("JSON");
        assert_eq!(json["schemaVersion"], 1, "{path}");
    }
    assert!(seen > 10, "the hostile name is on {seen} places");
}

#[tokio::test]
async fn a_page_of_a_large_list_is_small() {
    for (length, limit) in [(16, 60_000), (60, 90_000)] {
        let server = server(Some(large(10_000, length)), UiServerConfig::default());
        for path in ["/workloads", "/workloads?page=100&sort=cpu", "/", "/workloads?q=workload-0"] {
            let html = get(&server, path).await;
            assert!(html.len() <= limit, "{path}: {} bytes", html.len());
        }
        let html = get(&server, "/workloads").await;
        assert!(html.contains("1–100 of 10,000") && html.contains("page 1 of 100"));
        assert_eq!(html.matches("<tr>").count(), 101);
    }
}

#[tokio::test]
async fn the_json_form_has_the_numbers_of_the_page_and_csv_has_all_rows() {
    let server = local();
    let json: Value = serde_json::from_str(&get(&server, "/workloads.json").await).expect("JSON");
    let html = get(&server, "/workloads").await;
    assert_eq!(json["total"], 10);
    assert!(html.contains("10 workloads"));
    let rows = json["workloads"].as_array().expect("rows");
    assert_eq!(rows[0]["name"], "checkout", "the highest risk first");
    assert_eq!(rows[0]["memory"]["target"], (844 + 128) << 20);
    assert!(html.contains("640Mi → 972Mi ▲"), "{html}");
    let csv = get(&server, "/workloads.csv?risk=high").await;
    assert_eq!(csv.lines().count(), 4, "{csv}");
    for path in ["/n/shop.csv", "/a.csv", "/held.csv", "/preview.csv"] {
        let csv = get(&server, path).await;
        assert!(csv.lines().count() > 1 && csv.ends_with("\r\n"), "{path}: {csv}");
    }
    let searched = get(&server, "/workloads.json?q=kafka%20throttled").await;
    let searched: Value = serde_json::from_str(&searched).expect("JSON");
    assert_eq!(searched["matching"], 1, "{searched}");
}

#[tokio::test]
async fn every_response_has_the_headers_that_protect_pages() {
    let server = local();
    let mut paths: Vec<String> = PAGES.map(ToOwned::to_owned).to_vec();
    let html = get(&server, "/held").await;
    let assets = html.split("./assets/").skip(1).filter_map(|rest| rest.split('"').next());
    paths.extend(assets.map(|name| format!("/assets/{name}")));
    assert_eq!(paths.len(), PAGES.len() + 3);
    paths.extend(["/none", "/n/..", "/livez", "/w/shop/Deployment/none"].map(ToOwned::to_owned));
    for path in paths {
        let response = ask(&server, Method::GET, &path, &[]).await;
        let header = |name: &str| -> String {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin", "{path}");
        let is_asset = path.starts_with("/assets/");
        let cache = if is_asset { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(header("cache-control"), cache, "{path}");
    }
}

#[tokio::test]
async fn pages_are_only_read_and_only_from_loopback_hosts() {
    let server = local();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let response = ask(&server, method, "/", &[]).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()["allow"], "GET, HEAD");
    }
    let head = ask(&server, Method::HEAD, "/overview.json", &[]).await;
    assert_eq!(head.status(), StatusCode::OK);
    assert!(head.headers().contains_key("x-plimsoll-version"));
    let response = ask(&server, Method::GET, "/", &[("host", "evil.example")]).await;
    assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
    let long = format!("/n/{}", "a".repeat(9_000));
    assert_eq!(ask(&server, Method::GET, &long, &[]).await.status(), StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn a_flood_is_slowed_down_and_before_the_first_read_pages_say_so() {
    let config =
        UiServerConfig { requests_per_second: 0.0, burst: 3.0, ..UiServerConfig::default() };
    let slow = UiServer::new(config, Arc::new(Sample::default()), Arc::new(Rights));
    let mut statuses = Vec::new();
    for path in ["/livez", "/readyz", "/", "/"] {
        let response = ask(&slow, Method::GET, path, &[]).await;
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 503, 503, 429]);
}

#[tokio::test]
async fn reports_are_files_of_the_folder_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let outside = folder.path().join("secret.html");
    let reports = folder.path().join("reports");
    std::fs::create_dir(&reports).expect("a folder");
    std::fs::write(&outside, "secret").expect("a file");
    std::fs::write(reports.join("week.html"), "<p>a report</p>").expect("a file");
    std::fs::write(reports.join("notes.txt"), "no").expect("a file");
    std::os::unix::fs::symlink(&outside, reports.join("link.html")).expect("a link");
    let config = UiServerConfig { reports: Some(reports), ..UiServerConfig::default() };
    let server = server(Some(sample_snapshot::snapshot()), config);
    let list = get(&server, "/backtest").await;
    assert!(list.contains("backtest/week.html") && !list.contains("notes.txt"), "{list}");
    let response = ask(&server, Method::GET, "/backtest/week.html", &[]).await;
    let policy = response.headers()["content-security-policy"].to_str().expect("text").to_owned();
    assert!(policy.starts_with("sandbox allow-scripts; default-src 'none'"), "{policy}");
    assert_eq!(body(response).await, "<p>a report</p>");
    for path in [
        "/backtest/link.html",
        "/backtest/none.html",
        "/backtest/notes.txt",
        "/backtest/secret.html",
    ] {
        let status = ask(&server, Method::GET, path, &[]).await.status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}
