//! The web page as a process beside a real API server with 1,000 VPAs, 200 HPAs and 200 WPAs, and a real Prometheus with a
//! day of history: every page in a browser, and its numbers against those of the commands.

mod commands;
mod large_cluster;
mod shown_numbers;

use std::time::Duration;

use serde_json::Value;
use xtask::test_programs;

use self::large_cluster::{LargeCluster, VPAS, name, namespace};
use super::web_page::{FORMS, check_page, complaints};
use crate::support::{
    browser::Browser, http_get::http_get, plimsoll_process::PlimsollProcesses, ports::Port,
    skipped::report_skipped, wait,
};

/// The web page of the cluster.
struct WebPage<'a> {
    cluster: &'a LargeCluster,
    processes: &'a PlimsollProcesses,
    origin: String,
}

impl WebPage<'_> {
    /// The JSON form of a page.
    async fn json(&self, path: &str) -> Value {
        self.processes.assert_running("page");
        let body = http_get(&format!("{}{path}", self.origin)).await;
        let body = body.unwrap_or_else(|| panic!("no answer: {path}"));
        serde_json::from_slice(&body)
            .unwrap_or_else(|error| panic!("{path}: {error}: {}", String::from_utf8_lossy(&body)))
    }

    /// Waits until everything that is read at intervals was read.
    async fn wait_until_read(&self) {
        wait::often(
            Duration::from_secs(1),
            wait::PATIENCE * 2,
            "the page has read everything",
            || async {
                self.processes.assert_running("page");
                let body = http_get(&format!("{}overview.json", self.origin)).await;
                let body = body.ok_or_else(|| "no answer yet".to_owned())?;
                // Before the cluster has been read, the answer says so and is no JSON.
                let overview: Value =
                    serde_json::from_slice(&body).map_err(|error| error.to_string())?;
                let is_read = overview["historyAt"].is_string()
                    && overview["historyError"].is_null()
                    && overview["withVpa"] == VPAS
                    && self.json("preview.json").await["decidedAt"].is_string()
                    && self.json("status.json").await["status"].is_object();
                if is_read { Ok(()) } else { Err(overview.to_string().chars().take(600).collect()) }
            },
        )
        .await;
    }
}

/// The pages with the names of their pictures.
fn pages() -> Vec<(String, &'static str)> {
    let [with_vpa, other] = [name(0), name(VPAS - 1)];
    let [hpa, wpa] = [0, 1].map(name);
    let (first, last) = (namespace(0), namespace(VPAS - 1));
    [
        (String::new(), "overview"),
        ("?by=app".to_owned(), "overview-by-label"),
        ("workloads".to_owned(), "workloads"),
        ("workloads?page=2&sort=memory".to_owned(), "workloads-2"),
        (format!("n/{first}"), "namespace"),
        (format!("w/{first}/Deployment/{with_vpa}"), "workload"),
        (format!("w/{last}/Deployment/{other}"), "workload-without-history"),
        ("a".to_owned(), "autoscalers"),
        (format!("a/{first}/{hpa}"), "autoscaler-hpa"),
        (format!("a/{first}/{wpa}"), "autoscaler-wpa"),
        ("held".to_owned(), "held-back"),
        ("preview".to_owned(), "preview"),
        ("backtest".to_owned(), "backtests"),
        ("status".to_owned(), "status"),
    ]
    .into_iter()
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_real_cluster_work_in_a_browser_and_show_the_numbers_of_the_commands() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let Some(cluster) = LargeCluster::start().await else { return };
    let processes = PlimsollProcesses::new(&cluster.bed);
    cluster.recommend(&processes).await;
    let port = Port::claim();
    let flags = [
        &*format!("--address=127.0.0.1:{port}"),
        &*format!("--prometheus-address={}", cluster.prometheus.url()),
        &*format!("--prices={}", cluster.prices().display()),
    ];
    processes.ui("page", &flags);
    let origin = format!("http://127.0.0.1:{port}/");
    let page = WebPage { cluster: &cluster, processes: &processes, origin: origin.clone() };
    page.wait_until_read().await;

    commands::compare(&page).await;
    let mut browser = Browser::start(chromium);
    shown_numbers::compare(&page, &mut browser).await;

    let is_timeline = |path: &str| path.starts_with("w/") || path.starts_with("a/");
    for (path, name) in pages() {
        let before = cluster.prometheus.query_log().lines().count();
        let (url, name) = (format!("{origin}{path}"), format!("real-{name}"));
        for form in FORMS {
            check_page(&mut browser, (&url, &name), form, &origin);
        }
        let after = cluster.prometheus.query_log().lines().count();
        assert!(is_timeline(&path) || after == before, "{path}: {} queries", after - before);
    }
    assert_eq!(complaints(browser.events(), &origin), [""; 0]);
    processes.assert_running("page");
}
