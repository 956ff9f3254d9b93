//! The web page, served by its real server from a made-up cluster: in a browser, and with its schema.

use std::{net::SocketAddr, sync::Arc, thread};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use plimsoll::{
    cluster::server::{Listener, serve_pages},
    ui::{
        access::{AuthMode, Peer, User},
        list_query::Span,
        pages::WorkloadDetails,
        replica_timeline::ReplicaTimeline,
        server::{AccessReviewer, PageSource, UiServer, UiServerConfig},
        snapshot::Snapshot,
        timeline_reader::{ReplicaSubject, TimelineSubject},
    },
};
use serde_json::{Value, json};
use xtask::test_programs;

use super::{LOW_CONTRAST, large_snapshot, nameless, pictures, sample_snapshot};
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
    ("w/shop/Deployment/checkout", "workload"),
    ("w/data/StatefulSet/kafka", "workload-without-vpa"),
    ("a", "autoscalers"),
    ("a/shop/checkout", "autoscaler"),
    ("held", "held-back"),
    ("preview", "preview"),
    ("status", "status"),
];

/// Color schemes and widths.
pub(super) const FORMS: [(&str, u32); 4] =
    [("light", 1280), ("dark", 1280), ("light", 320), ("dark", 320)];

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
        if subject.name.starts_with("checkout") {
            let details = sample_snapshot::details(self.0.parts.at);
            // That of the sample is an error with a hostile name.
            let explanation = details.explanation.filter(|_| !pictures::is_presentable(&self.0));
            WorkloadDetails { explanation, ..details }
        } else {
            WorkloadDetails::default()
        }
    }

    async fn replica_timeline(
        &self,
        subject: &ReplicaSubject,
        _: Span,
    ) -> Option<Result<ReplicaTimeline, String>> {
        let mut timeline = sample_snapshot::replica_timeline(subject, self.0.parts.at);
        if pictures::is_presentable(&self.0) {
            pictures::present(&mut timeline);
        }
        Some(Ok(timeline))
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

pub(super) fn handler(snapshot: Snapshot, auth: AuthMode) -> UiServer {
    let config = UiServerConfig {
        auth,
        base_path: "/tools/plimsoll".to_owned(),
        requests_per_second: 1e9,
        burst: 1e9,
        ..UiServerConfig::default()
    };
    UiServer::new(config, Arc::new(Sample(Arc::new(snapshot))), Arc::new(Rights))
}

/// Serves a snapshot on a free port until the process ends.
pub(super) fn serve(snapshot: Snapshot) -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let server = Listener::bind("127.0.0.1:0", "--address").await.expect("a free port");
            sender.send(server.address).expect("the test waits");
            let handler = Arc::new(handler(snapshot, AuthMode::None));
            serve_pages(server, None, handler, std::future::pending()).await;
        });
    });
    receiver.recv().expect("the server starts")
}

/// Messages in the console, exceptions, violations of the policy, and requests to other origins.
pub(super) fn complaints(events: &[Value], origin: &str) -> Vec<String> {
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

/// Checks what all pages have in common, in one form.
pub(super) fn check_page(
    browser: &mut Browser,
    page: (&str, &str),
    form: (&str, u32),
    origin: &str,
) {
    let ((url, name), (scheme, width)) = (page, form);
    browser.set(width, scheme, true);
    browser.open(url);
    // Tables behind charts are part of the page.
    browser.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true), 1");
    assert_eq!(browser.evaluate(LOW_CONTRAST), json!([]), "{name} {scheme}");
    let fits = "document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.evaluate(fits), true, "{name}: {width} pixels");
    assert_eq!(nameless(browser, 9), [""; 0], "{name}");
    browser.evaluate("document.querySelectorAll('details').forEach((one) => one.open = false), 1");
    let headings = "[...document.querySelectorAll('h1, h2, h3, h4')]\
                    .map((one) => Number(one.tagName[1]))";
    let headings = browser.evaluate(headings);
    let levels = headings.as_array().expect("headings").iter();
    let mut before = 0;
    for level in levels.map(|one| one.as_u64().unwrap_or(9)) {
        assert!(level <= before + 1, "{name}: headings step by one: {headings}");
        before = level;
    }
    keep_picture(browser, &format!("{name}-{scheme}-{width}"));
    assert_eq!(complaints(browser.events(), origin), [""; 0], "{name} {scheme} {width}");
}

#[test]
fn the_web_page_works_in_a_browser() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let origin = format!("http://{}/", serve(sample_snapshot::snapshot()));
    let mut browser = Browser::start(chromium);
    // Once below its base path, as a proxy that does not remove it would ask.
    let base = format!("{origin}tools/plimsoll/");
    for (path, name) in PAGES {
        let url = format!("{base}{path}");
        let mut texts = Vec::new();
        for form in FORMS {
            check_page(&mut browser, (&url, name), form, &origin);
            texts.push(browser.evaluate(TEXTS));
        }
        browser.set(1280, "light", false);
        browser.open(&url);
        assert_eq!(browser.evaluate(TEXTS), texts[0], "{name}: the same texts without scripts");
    }
    controls(&mut browser, &base);
    assert_eq!(complaints(browser.events(), &origin), [""; 0]);
}

/// In the deep tier, the cluster of docs/ui.md: 1,000 VPAs, 200 HPAs and 200 WPAs.
#[test]
fn the_pages_of_a_large_cluster_work_in_a_browser() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let (vpas, replicas) = tier::cases((100, 20), (1_000, 200));
    let snapshot = large_snapshot::large(vpas, replicas, replicas);
    let origin = format!("http://{}/", serve(snapshot));
    let mut browser = Browser::start(chromium);
    for (path, name) in [
        ("", "large-overview"),
        ("workloads", "large-workloads"),
        ("workloads?page=2&sort=memory", "large-workloads-2"),
        ("n/team-01", "large-namespace"),
        ("w/team-00/Deployment/checkout-0000", "large-workload"),
        ("a", "large-autoscalers"),
        ("a/team-00/checkout-0001", "large-autoscaler"),
        ("held", "large-held-back"),
        ("preview", "large-preview"),
        ("status", "large-status"),
    ] {
        let url = format!("{origin}{path}");
        for form in FORMS {
            check_page(&mut browser, (&url, name), form, &origin);
        }
    }
    browser.open(&format!("{origin}workloads"));
    let rows = browser.evaluate("document.querySelectorAll('main tbody tr').length");
    assert_eq!(rows, vpas.min(100), "a page of the list");
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

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(super) async fn ask(
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
