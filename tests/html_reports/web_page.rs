//! The web page, served by its real server from a made-up cluster: in a browser, with its schema, and with odd requests.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, OnceLock},
    thread,
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use plimsoll::{
    cluster::server::WebServer,
    ui::{
        access::{AuthMode, Peer, User},
        list_query::Span,
        pages::WorkloadDetails,
        server::{AccessReviewer, PageSource, UiServer, UiServerConfig},
        snapshot::Snapshot,
        timeline_reader::TimelineSubject,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};
use xtask::test_programs;

use super::{LOW_CONTRAST, nameless, sample_snapshot};
use crate::{
    schema,
    support::{browser::Browser, skipped::report_skipped, tier},
};

/// All pages, with the name of their picture.
const PAGES: [(&str, &str); 11] = [
    ("", "overview"),
    ("workloads", "workloads"),
    ("workloads?q=shop&risk=low&sort=memory", "workloads-filtered"),
    ("n/shop", "namespace"),
    ("w/shop/Deployment/checkout?range=7d", "workload"),
    ("w/data/StatefulSet/kafka", "workload-without-vpa"),
    ("a", "autoscalers"),
    ("a/shop/checkout", "autoscaler"),
    ("held", "held-back"),
    ("preview", "preview"),
    ("status", "status"),
];

/// Tables and lists, whatever scripts add to headings.
const TEXTS: &str =
    "[...document.querySelectorAll('tbody, dl, footer')].map((part) => part.innerText)";

struct Sample(Arc<Snapshot>);

#[async_trait]
impl PageSource for Sample {
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        Some(Arc::clone(&self.0))
    }

    async fn details(&self, subject: &TimelineSubject, _: Span) -> WorkloadDetails {
        if subject.name == "checkout" {
            sample_snapshot::details(self.0.parts.at)
        } else {
            WorkloadDetails::default()
        }
    }
}

/// `ann` may see namespace shop.
struct Rights;

#[async_trait]
impl AccessReviewer for Rights {
    async fn user_of_token(&self, token: &str) -> Result<Option<User>, String> {
        let user = User { name: token.to_owned(), ..User::default() };
        Ok((token == "ann").then_some(user))
    }

    async fn may_list(&self, _: &User, namespace: Option<&str>) -> Result<bool, String> {
        Ok(namespace == Some("shop"))
    }
}

fn handler(snapshot: Snapshot, auth: AuthMode) -> UiServer {
    let config = UiServerConfig {
        auth,
        base_path: "/tools/plimsoll".to_owned(),
        requests_per_second: 1e9,
        burst: 1e9,
        ..UiServerConfig::default()
    };
    UiServer::new(config, Arc::new(Sample(Arc::new(snapshot))), Arc::new(Rights))
}

/// Serves the sample on a free port until the process ends.
fn serve() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let server = WebServer::bind("127.0.0.1:0").await.expect("a free port");
            sender.send(server.address()).expect("the test waits");
            let handler = Arc::new(handler(sample_snapshot::snapshot(), AuthMode::None));
            server.serve(None, handler, std::future::pending()).await;
        });
    });
    receiver.recv().expect("the server starts")
}

/// Messages in the console, exceptions, violations of the policy, and requests to other origins.
fn complaints(events: &[Value], origin: &str) -> Vec<String> {
    let is_complaint = |event: &&Value| match event["method"].as_str() {
        Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
        Some("Network.requestWillBeSent") => {
            let requested = event["params"]["request"]["url"].as_str().unwrap_or_default();
            !requested.starts_with(origin)
        }
        _ => false,
    };
    events.iter().filter(is_complaint).map(ToString::to_string).collect()
}

fn keep_picture(browser: &mut Browser, name: &str) {
    let picture = browser.screenshot();
    if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
        let path = std::path::Path::new(&folder).join(format!("ui-{name}.png"));
        std::fs::write(path, picture).expect("a writable folder");
    }
}

#[test]
fn the_web_page_works_in_a_browser() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let origin = format!("http://{}/", serve());
    let mut browser = Browser::start(chromium);
    // Once below its base path, as a proxy that does not remove it would ask.
    let base = format!("{origin}tools/plimsoll/");
    for (path, name) in PAGES {
        let url = format!("{base}{path}");
        let mut texts = Vec::new();
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 320)] {
            browser.set(width, scheme, true);
            browser.open(&url);
            assert_eq!(browser.evaluate(LOW_CONTRAST), json!([]), "{name} {scheme}");
            let fits = "document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.evaluate(fits), true, "{name}: {width} pixels");
            assert_eq!(nameless(&mut browser, 9), [""; 0], "{name}");
            let headings =
                "[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))";
            let headings = browser.evaluate(headings);
            let levels =
                headings.as_array().expect("headings").iter().map(|one| one.as_u64().unwrap_or(9));
            let mut before = 0;
            for level in levels {
                assert!(level <= before + 1, "{name}: headings step by one: {headings}");
                before = level;
            }
            keep_picture(&mut browser, &format!("{name}-{scheme}-{width}"));
            assert_eq!(complaints(browser.events(), &origin), [""; 0], "{name} {scheme} {width}");
            texts.push(browser.evaluate(TEXTS));
        }
        browser.set(1280, "light", false);
        browser.open(&url);
        assert_eq!(browser.evaluate(TEXTS), texts[0], "{name}: the same texts without scripts");
    }
    controls(&mut browser, &base);
    assert_eq!(complaints(browser.events(), &origin), [""; 0]);
}

/// The theme is remembered, lists are sorted and filtered, and links lead to the other pages.
fn controls(browser: &mut Browser, base: &str) {
    browser.set(1280, "light", true);
    browser.open(&format!("{base}held"));
    let background = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.evaluate(background), "rgb(255, 255, 255)");
    browser.evaluate(
        "{ const theme = document.getElementById('theme'); theme.value = 'dark'; theme.dispatchEvent(new Event('change')); }",
    );
    assert_eq!(browser.evaluate(background), "rgb(20, 24, 29)");
    browser.open(&format!("{base}held"));
    assert_eq!(browser.evaluate(background), "rgb(20, 24, 29)", "the theme is remembered");
    let reasons = "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).map((row) => row.cells[0].textContent)";
    assert_eq!(browser.evaluate(reasons), json!(["cool_down", "forbidden_window"]));
    browser.evaluate("document.querySelectorAll('thead button')[0].click()");
    browser.evaluate("document.querySelectorAll('thead button')[0].click()");
    assert_eq!(browser.evaluate(reasons), json!(["forbidden_window", "cool_down"]));
    browser.evaluate(
        "{ const filter = document.getElementById('filter'); filter.value = 'WPA forbidden'; filter.value = 'watermark'; filter.dispatchEvent(new Event('input')); }",
    );
    assert_eq!(browser.evaluate(reasons), json!(["forbidden_window"]));
    let links = browser.evaluate("[...document.links].map((link) => link.href)");
    for link in links.as_array().expect("links") {
        let link = link.as_str().expect("text");
        assert!(link.starts_with(base), "{link} leads out of the base path");
    }
    assert!(links.to_string().contains("/w/shop/Deployment/checkout"), "{links}");
}

/// Sends bytes, and returns the status line.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn odd_bytes_and_long_requests_are_refused_and_the_server_goes_on() {
    let address = serve();
    let get =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let long = "a".repeat(10 << 20);
    for (request, statuses) in [
        (get("/").into_bytes(), &["200"][..]),
        (get("/../../etc/passwd").into_bytes(), &["400"]),
        (get("/%2e%2e/%2e%2e/etc/passwd").into_bytes(), &["400"]),
        (get("/n/%ff%fe").into_bytes(), &["400"]),
        (get(&format!("/n/{}", &long[..9_000])).into_bytes(), &["414"]),
        (get(&format!("/{long}")).into_bytes(), &["414", "431", ""]),
        (b"GET /\x00\xff HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), &["400", ""]),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".to_vec(), &["405"]),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(), &["421"]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), &["400", ""]),
        (get("/livez").into_bytes(), &["200"]),
    ] {
        let status = exchange(address, &request);
        let code = status.split(' ').nth(1).unwrap_or_default();
        let start = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert!(statuses.contains(&code), "{start}: {status:?}");
    }
}

#[test]
fn the_json_forms_follow_their_schema() {
    let handler = handler(sample_snapshot::snapshot(), AuthMode::None);
    let runtime = runtime();
    let schema = schema::schema("ui.v1.json");
    for path in [
        "overview",
        "workloads",
        "n/shop",
        "w/shop/Deployment/checkout",
        "w/data/StatefulSet/kafka",
        "a",
        "a/shop/checkout",
        "held",
        "preview",
        "backtest",
        "status",
    ] {
        let (status, body) =
            runtime.block_on(ask(&handler, &Method::GET, &format!("/{path}.json"), &[]));
        assert_eq!(status, 200, "{path}");
        let page: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(schema::faults(&schema, &page), [""; 0], "{path}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn ask(
    handler: &UiServer,
    method: &Method,
    path: &str,
    headers: &[(HeaderName, HeaderValue)],
) -> (u16, Vec<u8>) {
    use http_body_util::BodyExt as _;
    let Ok(uri) = path.parse::<Uri>() else { return (400, Vec::new()) };
    let mut map = HeaderMap::new();
    map.insert(http::header::HOST, HeaderValue::from_static("127.0.0.1:1"));
    map.extend(headers.iter().map(|(name, value)| (Some(name.clone()), value.clone())));
    let peer = Peer { address: [127, 0, 0, 1].into(), has_proxy_certificate: false };
    let response = handler.respond(method, &uri, &map, peer).await;
    assert!(response.headers().contains_key("content-security-policy"), "{path}");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, body.to_vec())
}

/// A server whose users may see namespace shop.
fn fuzzed() -> &'static (UiServer, tokio::runtime::Runtime) {
    static SERVER: OnceLock<(UiServer, tokio::runtime::Runtime)> = OnceLock::new();
    SERVER.get_or_init(|| (handler(sample_snapshot::snapshot(), AuthMode::Token), runtime()))
}

/// Parts of paths, those of pages more often than others.
fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        prop::sample::select(vec![
            "w",
            "n",
            "a",
            "shop",
            "data",
            "Deployment",
            "checkout",
            "kafka",
            "workloads",
            "held",
            "preview",
            "backtest",
            "status",
            "..",
            ".",
            "%2e%2e",
            "%00",
            "%ff",
            "x.html",
            ".json",
            "workloads.csv",
            "tools",
            "plimsoll",
            "assets",
        ])
        .prop_map(ToOwned::to_owned),
        "[ -~]{0,12}".prop_map(|text| text.replace([' ', '#', '?'], "")),
    ];
    let query = prop_oneof![
        Just(String::new()),
        "[ -~]{0,60}".prop_map(|text| format!("?{}", text.replace([' ', '#'], ""))),
        "(q|risk|sort|page|vpa|range|namespace)=[%a-z0-9-]{0,20}"
            .prop_map(|text| format!("?{text}")),
    ];
    (prop::collection::vec(part, 0..6), query)
        .prop_map(|(parts, query)| format!("/{}{query}", parts.join("/")))
}

proptest! {
    #![proptest_config(tier::properties(400, 100_000))]

    #[test]
    fn no_request_breaks_the_server_or_shows_what_is_forbidden(
        path in path(),
        method in prop::sample::select(vec!["GET", "GET", "GET", "HEAD", "POST", "X"]),
        token in prop::option::of(prop::sample::select(vec!["ann", "ann", "eve"])),
        header in ("[a-z-]{1,20}", prop::collection::vec(32..=126_u8, 0..40)),
    ) {
        let (server, runtime) = fuzzed();
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut headers = Vec::new();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(header.0.as_bytes()), HeaderValue::from_bytes(&header.1))
            && !["host", "authorization"].contains(&name.as_str())
        {
            headers.push((name, value));
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a value");
            headers.push((http::header::AUTHORIZATION, value));
        }
        let (status, body) = runtime.block_on(ask(server, &method, &path, &headers));
        prop_assert!([200, 308, 400, 401, 404, 405, 414].contains(&status), "{} {}: {}", method, path, status);
        if status == 200 && token != Some("ann") {
            let is_public = ["/assets/", "livez", "readyz"].iter().any(|part| path.contains(part));
            prop_assert!(is_public, "{} {}", method, path);
        }
        let text = String::from_utf8_lossy(&body);
        let shows = |word: &str| text.contains(word) && !path.contains("kafka");
        prop_assert!(!shows("kafka") && !text.contains("kube-system"), "{} {}", method, path);
    }
}
