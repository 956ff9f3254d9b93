//! The web page of a large cluster: `cargo xtask bench ui`.
//!
//! First its server answers requests within this process, from a made-up cluster: lists, and the pages of one workload and
//! one autoscaler with their timelines. What Prometheus itself takes is not in these times. Then a real API server has as
//! many VPAs, each with a Deployment, a ReplicaSet and a pod of five containers, and the memory of `plimsoll ui` is that of
//! a process of its own. `--history-days` adds a real Prometheus, from which the page reads what history shows beside the
//! recommendations.
//!
//! ```text
//! cargo xtask bench ui
//! cargo xtask bench ui --vpas 1000 --requests 20
//! cargo xtask bench ui --skip-memory
//! cargo xtask bench ui --containers 1 --history-days 1
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "scale/cluster.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod cluster;
#[path = "recommend/kube_state.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod kube_state;
#[path = "../tests/html_reports/large_snapshot.rs"]
mod large_snapshot;
#[path = "scale/process.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod process;
#[path = "../tests/html_reports/sample_report.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod sample_report;
#[path = "../tests/html_reports/sample_snapshot.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod sample_snapshot;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "history/workload_mix.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod workload_mix;

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use clap::Parser;
use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::BodyExt as _;
use jiff::SignedDuration;
use plimsoll::ui::{
    access::{Peer, User},
    list_query::Span,
    pages::WorkloadDetails,
    replica_timeline::ReplicaTimeline,
    server::{AccessReviewer, PageSource, UiServer, UiServerConfig},
    snapshot::Snapshot,
    timeline_reader::{ReplicaSubject, TimelineSubject},
};
use serde_json::{Value, json};

use self::{
    cluster::{CONTAINERS, Cluster},
    support::{
        Testbed,
        bulk_objects::{self, ApiWrite},
        clock::wall_now,
        http_get::http_get,
        plimsoll_process::ENVIRONMENT,
        ports::Port,
        process_guard::ProcessState,
        prometheus_server::{PrometheusRelease, PrometheusServer},
        wait,
    },
    workload_mix::Pod,
};

/// HPAs, and as many WPAs, for each VPA.
const REPLICA_SHARE: f64 = 0.2;
/// The longest time for a list, and for a timeline.
const MAX_LIST: Duration = Duration::from_millis(50);
const MAX_TIMELINE: Duration = Duration::from_millis(300);
/// The largest list.
const MAX_LIST_BYTES: usize = 60_000;
/// The most memory at any time.
const MAX_MEBIBYTES: f64 = 64.0;
/// After the second time that everything is read.
const SETTLED: Duration = Duration::from_secs(90);
/// The page reads workloads and history each quarter of an hour.
const READ_PATIENCE: Duration = Duration::from_mins(40);
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Between two samples in the Prometheus.
const HISTORY_STEP: SignedDuration = SignedDuration::from_mins(2);

/// The web page of a large cluster.
#[derive(Debug, Parser)]
struct Arguments {
    /// VPAs, each of its own workload
    #[arg(long, default_value_t = 10_000)]
    vpas: usize,
    /// Requests for each page
    #[arg(long, default_value_t = 50)]
    requests: usize,
    /// Containers of each pod
    #[arg(long, default_value_t = CONTAINERS)]
    containers: usize,
    /// Days of usage in a real Prometheus; 0 for none
    #[arg(long, default_value_t = 0)]
    history_days: u32,
    /// Without an API server: only times and sizes
    #[arg(long)]
    skip_memory: bool,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

struct Source(Arc<Snapshot>);

#[async_trait]
impl PageSource for Source {
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        Some(Arc::clone(&self.0))
    }

    async fn details(&self, _: &TimelineSubject, _: Span) -> WorkloadDetails {
        sample_snapshot::details(self.0.parts.at)
    }

    async fn replica_timeline(
        &self,
        subject: &ReplicaSubject,
        _: Span,
    ) -> Option<Result<ReplicaTimeline, String>> {
        Some(Ok(sample_snapshot::replica_timeline(subject, self.0.parts.at)))
    }
}

/// Nobody is asked for a login on loopback.
struct NoReviews;

#[async_trait]
impl AccessReviewer for NoReviews {
    async fn user_of_token(&self, _: &str) -> Result<Option<User>, String> {
        Ok(None)
    }

    async fn may_list(&self, _: &User, _: Option<&str>) -> Result<bool, String> {
        Ok(false)
    }
}

/// The times and the size of the responses of a page.
struct PageFigures {
    median: Duration,
    largest: Duration,
    bytes: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (rows, is_good) = runtime.block_on(times(&arguments));
    let memory = (!arguments.skip_memory).then(|| runtime.block_on(memory(&arguments))).flatten();
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let profile = if cfg!(debug_assertions) { ", without optimization" } else { "" };
    println!("\n`cargo xtask bench ui {}`, {}{profile}\n", words.join(" "), process::machine());
    println!("| page | median | longest | size |\n|---|---|---|---|");
    for row in rows {
        println!("{row}");
    }
    let fits = match memory {
        None => true,
        Some((resident, peak)) => {
            println!(
                "\nmemory of `plimsoll ui`: {resident:.1} MiB resident, {peak:.1} MiB at most"
            );
            peak <= MAX_MEBIBYTES
        }
    };
    if is_good && fits { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A row for each page, and whether all of them are fast and small enough.
async fn times(arguments: &Arguments) -> (Vec<String>, bool) {
    let replicas = (arguments.vpas as f64 * REPLICA_SHARE) as usize;
    let snapshot = large_snapshot::large(arguments.vpas, replicas, replicas);
    let config =
        UiServerConfig { requests_per_second: 1e9, burst: 1e9, ..UiServerConfig::default() };
    let server = UiServer::new(config, Arc::new(Source(Arc::new(snapshot))), Arc::new(NoReviews));
    let (mut rows, mut is_good) = (Vec::new(), true);
    for (path, longest, most) in [
        ("/", MAX_LIST, Some(MAX_LIST_BYTES)),
        ("/workloads", MAX_LIST, Some(MAX_LIST_BYTES)),
        ("/workloads?page=50&sort=memory", MAX_LIST, Some(MAX_LIST_BYTES)),
        ("/workloads?q=checkout-00&risk=high", MAX_LIST, Some(MAX_LIST_BYTES)),
        ("/n/team-01", MAX_LIST, Some(MAX_LIST_BYTES)),
        ("/a", MAX_LIST, None),
        ("/held", MAX_LIST, None),
        ("/w/team-00/Deployment/checkout-0000", MAX_TIMELINE, None),
        ("/a/team-00/checkout-0001", MAX_TIMELINE, None),
    ] {
        let figures = page(&server, path, arguments.requests).await;
        let PageFigures { median, largest, bytes } = figures;
        is_good &= median <= longest && most.is_none_or(|most| bytes <= most);
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        rows.push(format!(
            "| `{path}` | {} | {} | {:.1} KB |",
            milliseconds(median),
            milliseconds(largest),
            bytes as f64 / 1e3
        ));
    }
    (rows, is_good)
}

async fn page(server: &UiServer, path: &str, requests: usize) -> PageFigures {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::HOST, HeaderValue::from_static("localhost"));
    let uri: Uri = path.parse().expect("a path");
    let peer = Peer { address: [127, 0, 0, 1].into(), has_proxy_certificate: false };
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..requests.max(1) {
        let begun = Instant::now();
        let response = server.respond(&Method::GET, &uri, &headers, peer).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        times.push(begun.elapsed());
        bytes = body.len();
    }
    times.sort_unstable();
    let largest = times.last().copied().unwrap_or_default();
    PageFigures { median: times[times.len() / 2], largest, bytes }
}

/// Resident and peak memory of the page in MiB.
async fn memory(arguments: &Arguments) -> Option<(f64, f64)> {
    let bed = Testbed::private().await?;
    let begun = Instant::now();
    define(&bed).await;
    let cluster = Cluster::create_with(&bed, arguments.vpas, arguments.containers).await;
    cluster.create_vpas(&bed).await;
    let recommended = status(arguments.containers);
    let statuses = cluster.vpas().map(|vpa| ApiWrite::patch(status_path(&vpa), &recommended));
    bulk_objects::send(&bed.client(), statuses).await;
    println!("{} VPAs with all that belongs to them: {:.0?}", arguments.vpas, begun.elapsed());
    let prometheus = match arguments.history_days {
        0 => None,
        days => Some(prometheus_of(&cluster, arguments.containers, days).await?),
    };
    // Nothing listens at the other address.
    let address =
        prometheus.as_ref().map_or("http://127.0.0.1:9".to_owned(), PrometheusServer::url);
    let port = Port::claim();
    let flags = [
        "ui".to_owned(),
        format!("--kubeconfig={}", bed.kubeconfig_path().display()),
        format!("--address=127.0.0.1:{port}"),
        format!("--prometheus-address={address}"),
    ];
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    bed.process_guard().start("ui", program, &flags, &ENVIRONMENT);
    let url = |path: &str| format!("http://127.0.0.1:{port}/{path}");
    let wanted = format!("\"total\": {}", arguments.vpas);
    wait::often(POLL_INTERVAL, READ_PATIENCE, "all workloads are listed", || async {
        let list = http_get(&url("workloads.json")).await.unwrap_or_default();
        let is_complete = String::from_utf8_lossy(&list).contains(&wanted);
        if is_complete { Ok(()) } else { Err(format!("{} bytes", list.len())) }
    })
    .await;
    // While workloads and history are read again, what was read before is there too.
    let overview = url("overview.json");
    let first = read_after(&overview, &Value::Null, prometheus.is_some()).await;
    read_after(&overview, &first, prometheus.is_some()).await;
    tokio::time::sleep(SETTLED).await;
    for path in ["workloads", "a", "held", "preview", "status", ""] {
        http_get(&url(path)).await;
    }
    let Some(ProcessState::Running(id)) = bed.process_guard().state("ui") else {
        panic!("the page has ended\n{}", bed.process_guard().log_tail("ui", 15));
    };
    let stats = process::read_stats(id);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Some((mebibytes(stats.resident), mebibytes(stats.peak)))
}

/// Waits until workloads and history are read at another time, and returns that.
async fn read_after(overview: &str, last: &Value, has_history: bool) -> Value {
    wait::often(POLL_INTERVAL, READ_PATIENCE, "everything is read", || async {
        let page = http_get(overview).await.ok_or_else(|| "no answer".to_owned())?;
        let page: Value = serde_json::from_slice(&page).map_err(|error| error.to_string())?;
        assert_eq!(page.get("historyError").is_none(), has_history, "{page}");
        let at = &page["historyAt"];
        if at.is_string() && at != last { Ok(at.clone()) } else { Err(format!("still {at}")) }
    })
    .await
}

/// A server with the history of all containers until now; `None` after reporting why there is none.
async fn prometheus_of(
    cluster: &Cluster,
    containers: usize,
    days: u32,
) -> Option<PrometheusServer> {
    let begun = Instant::now();
    let pods = cluster.workloads().iter().map(|workload| {
        let pod = Pod {
            deployment: workload.name.clone(),
            set: workload.intermediate_name(),
            name: workload.pod_name(0),
        };
        (workload.namespace.clone(), pod)
    });
    let names: Vec<String> = (0..containers).map(|number| format!("container-{number}")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let history = kube_state::history_of(pods, &names, wall_now(), (days, HISTORY_STEP));
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await;
    println!("history of {days} days: written in {:.0?}", begun.elapsed());
    server
}

async fn define(bed: &Testbed) {
    let definitions = plimsoll_core::api::crdgen::crds().expect("definitions");
    let writes = definitions.iter().map(|definition| {
        let definition = serde_json::to_value(definition).expect("plain data");
        ApiWrite::create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
    });
    bulk_objects::send(&bed.client(), writes).await;
}

fn status_path(vpa: &str) -> String {
    let (namespace, name) = vpa.split_once('/').expect("a namespace");
    let group = "/apis/autoscaling.k8s.io/v1";
    format!("{group}/namespaces/{namespace}/verticalpodautoscalers/{name}/status")
}

/// A recommendation for all containers, as a recommender writes it.
fn status(containers: usize) -> Value {
    let amounts = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let containers = (0..containers).map(|number| {
        json!({
            "containerName": format!("container-{number}"),
            "target": amounts("250m", "300Mi"), "uncappedTarget": amounts("250m", "300Mi"),
            "lowerBound": amounts("100m", "200Mi"), "upperBound": amounts("1", "1Gi"),
        })
    });
    let condition = json!({
        "type": "RecommendationProvided", "status": "True",
        "lastTransitionTime": "2026-11-29T00:00:00Z",
    });
    let recommendation = json!({"containerRecommendations": containers.collect::<Vec<_>>()});
    json!({"status": {"recommendation": recommendation, "conditions": [condition]}})
}
