//! Real Prometheus servers, releases 2 and 3, with history that is written as TSDB blocks.

mod sample_history;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;
pub use xtask::test_programs::PrometheusRelease;
use xtask::test_programs::{self, Prometheus as Programs};

pub use sample_history::History;

use super::http_get::http_get;
use super::metrics_server::MetricsServer;
use super::ports::Port;
use super::process_guard::{ProcessGuard, ProcessState};
use super::skipped::report_skipped;
use super::wait;

/// File of the query log.
const QUERY_LOG: &str = "queries.log";

/// A private Prometheus server.
#[derive(Debug)]
pub struct PrometheusServer {
    keeper: ProcessGuard,
    port: Port,
    programs: Programs,
    arguments: Vec<String>,
}

/// A scrape target, scraped each second.
#[derive(Clone, Debug)]
pub struct ScrapeTarget {
    /// Value of the label `job`.
    pub job: String,
    /// `http` or `https`; certificates are not verified.
    pub scheme: &'static str,
    /// `HOST:PORT`.
    pub address: String,
    /// Path of the metrics.
    pub path: String,
    /// Labels added to all series, as the operator's monitors do: `namespace`, `pod`, ...
    pub labels: Vec<(&'static str, String)>,
    /// Whether a series keeps its own label if the target has one with the same name.
    pub honor_labels: bool,
}

// === impl ScrapeTarget ===

impl ScrapeTarget {
    /// Targets for a kubelet (with this job name) and kube-state-metrics.
    pub fn for_usage(usage: &MetricsServer, kubelet: &str) -> [Self; 2] {
        [(kubelet, "/metrics/cadvisor"), ("kube-state", "/metrics/kube-state")].map(
            |(job, path)| Self {
                job: job.to_owned(),
                scheme: "https",
                address: usage.address(),
                path: path.to_owned(),
                labels: Vec::new(),
                honor_labels: true,
            },
        )
    }
}

// === impl PrometheusServer ===

impl PrometheusServer {
    /// Starts a server with this history and without targets. Returns `None` after reporting why it is not available.
    pub async fn with_history(release: PrometheusRelease, history: History) -> Option<Self> {
        Self::start(release, Some(history), &[]).await
    }

    /// Like [`Self::with_history`], with additional flags.
    pub async fn with_flags(
        release: PrometheusRelease,
        history: History,
        flags: &[&str],
    ) -> Option<Self> {
        Self::launch(release, Some(history), &[], flags).await
    }

    /// Like [`Self::with_history`], with a query log.
    pub async fn with_query_log(release: PrometheusRelease, history: History) -> Option<Self> {
        Self::launch_with(release, Some(history), &[], &[], true).await
    }

    /// The query log, one JSON object per line.
    pub fn query_log(&self) -> String {
        fs::read_to_string(self.keeper.folder().join(QUERY_LOG)).unwrap_or_default()
    }

    /// Starts a server and waits until it is ready.
    pub async fn start(
        release: PrometheusRelease,
        history: Option<History>,
        targets: &[ScrapeTarget],
    ) -> Option<Self> {
        Self::launch(release, history, targets, &[]).await
    }

    async fn launch(
        release: PrometheusRelease,
        history: Option<History>,
        targets: &[ScrapeTarget],
        flags: &[&str],
    ) -> Option<Self> {
        Self::launch_with(release, history, targets, flags, false).await
    }

    async fn launch_with(
        release: PrometheusRelease,
        history: Option<History>,
        targets: &[ScrapeTarget],
        flags: &[&str],
        notes: bool,
    ) -> Option<Self> {
        let programs = available(move || test_programs::prometheus(release)).await?;
        let keeper = ProcessGuard::new("prometheus");
        let data = keeper.folder().join("data");
        if let Some(history) = history {
            let writer = available(test_programs::history).await?;
            history.write(&writer, &data).await;
        }
        let configuration = keeper.folder().join("prometheus.yml");
        let mut text = scrape_configuration(targets);
        if notes {
            let file = keeper.folder().join(QUERY_LOG);
            text = text.replacen('}', &format!(", query_log_file: '{}'}}", file.display()), 1);
        }
        fs::write(&configuration, text).expect("the folder is writable");
        let port = Port::claim();
        let mut arguments = vec![
            format!("--config.file={}", configuration.display()),
            format!("--storage.tsdb.path={}", data.display()),
            // History may be older than the default retention of 15 days.
            "--storage.tsdb.retention.time=10y".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-admin-api".to_owned(),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        keeper.start("prometheus", &programs.server, &arguments, &[]);
        let server = Self { keeper, port, programs, arguments };
        server.ready().await;
        Some(server)
    }

    /// Folder of its blocks. New blocks are loaded on a restart.
    pub fn data_folder(&self) -> PathBuf {
        self.keeper.folder().join("data")
    }

    /// Stops the server and starts it again.
    pub async fn restart(&self) {
        self.stop().await;
        self.start_again().await;
    }

    /// Stops the server.
    pub async fn stop(&self) {
        self.keeper.signal("prometheus", "TERM");
        let ended = || async {
            matches!(self.keeper.state("prometheus"), Some(ProcessState::Exited(_))).then_some(())
        };
        wait::until("Prometheus ended", ended).await;
    }

    /// Starts a stopped server.
    pub async fn start_again(&self) {
        self.keeper.start("prometheus", &self.programs.server, &self.arguments, &[]);
        self.ready().await;
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The server and promtool.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The guard of the process `prometheus`, with its log.
    pub fn process_guard(&self) -> &ProcessGuard {
        &self.keeper
    }

    /// Runs an instant query; returns the `result` of its data.
    pub async fn query(&self, expression: &str, at: Timestamp) -> Value {
        let query = escape(expression);
        let answer =
            self.get(&format!("/api/v1/query?query={query}&time={}", at.as_second())).await;
        let answer = answer.expect("the server answers");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].clone()
    }

    /// The value of an instant query, if it has one.
    pub async fn value(&self, expression: &str, at: Timestamp) -> Option<f64> {
        let result = self.query(expression, at).await;
        result[0]["value"][1].as_str()?.parse().ok()
    }

    async fn ready(&self) {
        wait::until("Prometheus is ready", || async {
            if let Some(ProcessState::Exited(code)) = self.keeper.state("prometheus") {
                panic!("Prometheus ended with {code}\n{}", self.keeper.log_tail("prometheus", 15));
            }
            self.get("/api/v1/status/buildinfo").await
        })
        .await;
    }

    async fn get(&self, path: &str) -> Option<Value> {
        serde_json::from_slice(&http_get(&format!("{}{path}", self.url())).await?).ok()
    }
}

async fn available<T: Send + 'static>(
    find: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(find).await.expect("no panic").map_err(report_skipped).ok()
}

fn scrape_configuration(targets: &[ScrapeTarget]) -> String {
    let mut text =
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n".to_owned();
    if targets.is_empty() {
        return text.replace("scrape_configs:", "scrape_configs: []");
    }
    // Several targets may have the same job, but job names must be unique in a configuration.
    for (place, target) in targets.iter().enumerate() {
        let ScrapeTarget { job, scheme, address, path, labels, honor_labels } = target;
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}: '{value}'")).collect();
        let labels = [&[format!("job: '{job}'")], &*labels].concat().join(", ");
        let _ = write!(
            text,
            "- job_name: '{place}'\n  scheme: {scheme}\n  metrics_path: '{path}'\n  honor_labels: {honor_labels}\n  \
             tls_config: {{insecure_skip_verify: true}}\n  static_configs: [{{targets: ['{address}'], labels: {{{labels}}}}}]\n"
        );
    }
    text
}

/// Escapes a text for a query.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
