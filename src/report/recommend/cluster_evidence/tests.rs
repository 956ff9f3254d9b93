//! Evidence from a server in memory: a query that fails gives no number, and nothing is asked about the time after `--until`.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use plimsoll_core::{
    recommender::{HistoryWeighting, Settings},
    rightsizing::{
        evidence::EvidenceGap,
        survey::{Container, RuntimeHint},
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::{
    detect::SchemaOverrides,
    transport::{Response, Transport, TransportConfig, TransportError},
};

use super::*;
use crate::{
    controllers::runtime::prometheus::PrometheusConfig,
    report::recommend::{query_tally::QueryTally, server::ConnectedServer, strategy::Strategy},
};

const NOW: Time = Time::from_secs(1_790_000_100);
/// The namespaces with a pod each.
const NAMESPACES: [&str; 2] = ["broken", "shop"];

/// The status and message of the response to a query, if it fails.
type Failure = dyn Fn(&FakeQuery<'_>) -> Option<(u16, &'static str)> + Send + Sync;

/// A server with a container in each namespace, all of the same usage.
struct FakePrometheus {
    failure: Box<Failure>,
    /// The latest time of each query.
    times: Mutex<Vec<f64>>,
    /// The text of each query.
    texts: Mutex<Vec<String>>,
    /// Families besides usage.
    families: Vec<&'static str>,
}

/// A query with its time range.
struct FakeQuery<'a> {
    text: &'a str,
    start: f64,
    end: f64,
    step: f64,
}

impl std::fmt::Debug for FakePrometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakePrometheus")
    }
}

impl FakePrometheus {
    fn new(
        failure: impl Fn(&FakeQuery<'_>) -> Option<(u16, &'static str)> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (times, texts, families) = (Mutex::default(), Mutex::default(), Vec::new());
        Arc::new(Self { failure: Box::new(failure), times, texts, families })
    }

    /// A server that has these families too.
    fn with_families(families: &[&'static str]) -> Arc<Self> {
        let (times, texts) = (Mutex::default(), Mutex::default());
        Arc::new(Self { failure: Box::new(|_| None), times, texts, families: families.to_vec() })
    }

    fn instant(&self, query: &FakeQuery<'_>) -> String {
        let FakeQuery { text, end, .. } = query;
        if text.starts_with("vector(1) default") {
            return String::new();
        }
        let is_usage = text.contains("container_memory_working_set_bytes");
        if text.starts_with("topk") && is_usage {
            let series = labels("shop");
            return vector(&format!(r#"{{"metric":{series},"value":[{end},"1"]}}"#));
        }
        if text.contains("[20m]") {
            let points: Vec<String> = (0..20)
                .map(|minute| format!(r#"[{},"1"]"#, end - 60.0 * f64::from(minute)))
                .collect();
            let points: Vec<String> = points.into_iter().rev().collect();
            let series = labels("shop");
            return matrix(&format!(r#"{{"metric":{series},"values":[{}]}}"#, points.join(",")));
        }
        if text.starts_with("count") && is_usage {
            return vector(&format!(r#"{{"metric":{{"job":"kubelet"}},"value":[{end},"2"]}}"#));
        }
        if text.contains("by (__name__)") {
            let names =
                self.families.iter().filter(|name| text.contains(**name)).map(|name| {
                    format!(r#"{{"metric":{{"__name__":"{name}"}},"value":[{end},"1"]}}"#)
                });
            return vector(&names.collect::<Vec<_>>().join(","));
        }
        vector("")
    }

    fn range(query: &FakeQuery<'_>) -> String {
        let FakeQuery { text, start, end, step } = query;
        let value = |at: f64| {
            let wave = 1.0 + (at / 5_000.0).sin();
            if text.contains("irate") { 0.1 + 0.2 * wave } else { 2e8 + 1e8 * wave }
        };
        let steps = ((end - start) / step) as u64;
        let is_selected = |name: &str| {
            let is_one_of = text.contains("namespace=~") && text.contains(name);
            is_one_of || text.contains(&format!("namespace=\"{name}\""))
        };
        let series = NAMESPACES.iter().filter(|name| is_selected(name));
        let series: Vec<String> = series
            .map(|namespace| {
                let points: Vec<String> = (0..=steps)
                    .map(|index| start + step * index as f64)
                    .map(|at| format!(r#"[{at},"{}"]"#, value(at)))
                    .collect();
                let labels = labels(namespace);
                format!(r#"{{"metric":{labels},"values":[{}]}}"#, points.join(","))
            })
            .collect();
        matrix(&series.join(","))
    }
}

fn labels(namespace: &str) -> String {
    format!(
        r#"{{"__name__":"container_memory_working_set_bytes","job":"kubelet","namespace":"{namespace}","pod":"web-7d5f9c4b6d-x2x4z","container":"main"}}"#
    )
}

fn vector(series: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#)
}

fn matrix(series: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
}

#[async_trait]
impl Transport for FakePrometheus {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        _: Duration,
    ) -> Result<Response, TransportError> {
        let value =
            |name: &str| form.iter().find(|(known, _)| *known == name).map(|(_, text)| &**text);
        let number = |name: &str| value(name).and_then(|text| text.parse::<f64>().ok());
        let end = number("end").or(number("time")).unwrap_or_default();
        let query = FakeQuery {
            text: value("query").or(value("match[]")).unwrap_or_default(),
            start: number("start").unwrap_or(end),
            end,
            step: number("step").unwrap_or(60.0),
        };
        self.times.lock().push(end);
        self.texts.lock().push(query.text.to_owned());
        let (mut status, mut body) = match path {
            "/api/v1/query" => (200, self.instant(&query)),
            "/api/v1/query_range" => (200, Self::range(&query)),
            _ => (200, r#"{"status":"success","data":[]}"#.to_owned()),
        };
        if body.is_empty() {
            (status, body) =
                (400, r#"{"status":"error","errorType":"bad_data","error":"no"}"#.to_owned());
        }
        if let Some((code, message)) = (self.failure)(&query) {
            status = code;
            body = format!(r#"{{"status":"error","errorType":"execution","error":"{message}"}}"#);
        }
        let response = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(body)
            .expect("a response");
        Ok(response.into())
    }
}

fn workload(namespace: &str) -> Workload {
    let mut main = Container { name: "main".into(), ..Container::default() };
    main.requests.cpu = Some(MilliCpu(300));
    Workload {
        namespace: namespace.into(),
        kind: "Deployment".into(),
        name: "web".into(),
        pods: vec!["web-7d5f9c4b6d-x2x4z".into()],
        containers: [main].into(),
        ..Workload::default()
    }
}

/// A workload with a Java virtual machine.
fn java_workload(namespace: &str) -> Workload {
    let mut workload = workload(namespace);
    Arc::make_mut(&mut workload.containers)[0].runtime = Some(Box::new(RuntimeHint::Jvm {
        known_by: "-Xmx1g".to_owned(),
        max_heap: Some(Bytes(1 << 30)),
        max_heap_percent: None,
    }));
    workload
}

/// Keeps the evidence of all workloads.
#[derive(Default)]
struct KeptEvidence(Vec<WorkloadEvidence>);

impl EvidenceProgress for KeptEvidence {
    fn histories(&mut self, _: usize) {}

    fn evidence(&mut self, _: &[&Workload], evidence: Vec<WorkloadEvidence>) {
        self.0.extend(evidence);
    }
}

/// What is known of a cluster, and the evidence of its workloads.
type Read = (ClusterEvidence, Vec<WorkloadEvidence>);

async fn read(server: &Arc<FakePrometheus>) -> Result<Read, DetectError> {
    read_workloads(server, &NAMESPACES.map(workload)).await
}

async fn read_workloads(
    server: &Arc<FakePrometheus>,
    workloads: &[Workload],
) -> Result<Read, DetectError> {
    let prometheus = PrometheusConfig {
        transport: TransportConfig::default(),
        series_options: SchemaOverrides::default(),
        pod_labels: None,
        history_length: Duration::from_hours(8 * 24),
        resolution: None,
        query_timeout: Duration::from_mins(1),
        max_concurrent_queries: 2,
        buffer_bytes: 24 << 20,
        has_fallback: false,
    };
    let transport: Arc<dyn Transport> = Arc::<FakePrometheus>::clone(server);
    let connected = ConnectedServer::new(transport, "fake");
    let tally = Arc::<QueryTally>::default();
    let weighting = HistoryWeighting::Duration;
    let history = connected.history(&prometheus, weighting, NOW, Arc::clone(&tally));
    let settings = Settings::default();
    let model = HistoryModel {
        settings: &settings,
        compat: Compat::Plimsoll,
        strategy: Strategy::Plimsoll,
        replaced: &HashMap::new(),
        now: NOW,
    };
    let thresholds = UnsaidThresholds::default();
    let options = EvidenceOptions {
        model,
        peak_length: Duration::from_hours(30 * 24),
        node_group_label: None,
        thresholds: &thresholds,
    };
    let workloads: Vec<&Workload> = workloads.iter().collect();
    let nodes = BTreeMap::new();
    let mut kept = KeptEvidence::default();
    let result = read_cluster_evidence(&history, (&workloads, &nodes), options, &mut kept).await;
    assert!(tally.totals().queries > 0);
    result.map(|found| (found, kept.0))
}

#[test]
fn parts_have_whole_namespaces_and_each_workload_once() {
    let in_namespace =
        |namespace: &str| Workload { namespace: namespace.into(), ..Workload::default() };
    let workloads = ["b", "a", "c", "b", "d", "d", "d", "a"].map(in_namespace);
    let workloads: Vec<&Workload> = workloads.iter().collect();
    assert_eq!(parts(&workloads, 4), [vec![1, 7, 0, 3], vec![2, 4, 5, 6]]);
    assert_eq!(parts(&workloads, 2), [vec![1, 7], vec![0, 3], vec![2], vec![4, 5, 6]]);
    assert!(parts(&[], 2).is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_after_the_time_of_the_report_is_queried() {
    let server = FakePrometheus::new(|_| None);
    let (found, workloads) = read(&server).await.expect("evidence");
    assert_eq!(found.unread, []);
    assert_eq!(found.remarks, [""; 0]);
    for evidence in &workloads {
        let main = &evidence["main"];
        assert_eq!(main.gap, None);
        let target = main.recommendation.as_ref().and_then(|known| known.target.cpu);
        let target = target.expect("a target").milli_value();
        assert!((500..650).contains(&target), "{target}");
        let above = main.cpu_above_request.expect("a request and samples");
        assert!((0.4..0.6).contains(&above), "{above}");
        let (peak, rare) = (main.memory_peak.expect("a peak"), main.rare_memory_peak.expect("one"));
        assert!(rare.bytes >= peak.bytes && peak.at >= NOW.earlier(Duration::from_hours(8 * 24)));
    }
    let (from, until) = found.span.expect("a span");
    assert_eq!(until, Time::from_secs(NOW.as_secs() / 300 * 300));
    assert_eq!(until.nanos_since(from), 8 * 86_400 * 1_000_000_000);
    let latest = server.times.lock().iter().copied().fold(0.0, f64::max);
    // Lists of series include the last second.
    assert!(latest <= NOW.as_secs() as f64 + 1.0, "{latest}");
}

#[tokio::test(start_paused = true)]
async fn a_query_that_fails_in_the_middle_gives_no_number_and_is_named() {
    let middle = NOW.earlier(Duration::from_hours(4 * 24)).as_secs() as f64;
    for (status, message) in [
        (422, "query processing would load too many samples into memory in query execution"),
        (422, "found duplicate series for the match group"),
        (500, "block is gone"),
        (503, "too many outstanding requests"),
    ] {
        let server = FakePrometheus::new(move |query| {
            let is_hit = query.text.contains("irate")
                && query.text.contains("\"broken\"")
                && query.end > middle;
            is_hit.then_some((status, message))
        });
        let (found, workloads) = read(&server).await.expect("evidence of the other");
        let [broken, shop] = &workloads[..] else { panic!("two workloads") };
        assert_eq!(broken["main"].gap, Some(EvidenceGap::Unread), "{message}");
        assert_eq!(broken["main"].recommendation, None, "{message}: half a history is no number");
        assert!(shop["main"].recommendation.is_some(), "{message}");
        let named: Vec<&str> = found.unread.iter().map(|unread| &*unread.what).collect();
        assert_eq!(named, ["history of 1 workload in namespace broken"], "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_evidence_that_fails_is_unknown_and_does_not_hide_the_recommendation() {
    for (text, what, is_unknown) in [
        ("cfs_periods", "CPU throttling of", true),
        ("[3599999ms]", "earlier peaks of memory of", false),
    ] {
        let server = FakePrometheus::new(move |query| {
            query.text.contains(text).then_some((422, "found duplicate series"))
        });
        let (found, workloads) = read(&server).await.expect("evidence");
        let main = &workloads[1]["main"];
        assert!(main.recommendation.is_some() && main.gap.is_none(), "{text}");
        let named: BTreeSet<&str> = found
            .unread
            .iter()
            .map(|unread| unread.what.split(" 2 ").next().unwrap_or_default())
            .collect();
        assert_eq!(named, BTreeSet::from([what]), "{:?}", found.unread);
        assert!(!is_unknown || main.throttled_share.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_series_is_an_error() {
    let server = FakePrometheus::new(|query| {
        query.text.starts_with("topk").then_some((503, "TSDB not ready"))
    });
    assert!(read(&server).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_history_is_queried_once_for_all_namespaces() {
    let server = FakePrometheus::new(|_| None);
    read(&server).await.expect("evidence");
    let queries = server.texts.lock();
    let count = |parts: &[&str]| {
        queries.iter().filter(|text| parts.iter().all(|part| text.contains(part))).count()
    };
    for family in ["increase(container_cpu_cfs_periods", "increase(container_cpu_cfs_throttled"] {
        assert_eq!(count(&[family]), 1, "{family}");
    }
    assert_eq!(count(&["__name__", "container_memory_rss"]), 1, "one query for rare families");
    assert_eq!(count(&["max_over_time(container_memory_rss"]), 0, "there is no such series");
    assert_eq!(count(&["jvm_"]), 0, "no workload is Java");
    assert_eq!(count(&["[3599999ms]"]), 1, "earlier peaks");
    // CPU and memory of each namespace, in slices.
    let slices = count(&["irate("]);
    assert!(slices <= 2 * NAMESPACES.len(), "{slices}");
    assert!(queries.len() <= 40, "{queries:#?}");
}

#[tokio::test(start_paused = true)]
async fn page_cache_and_java_memory_are_read_if_there_are_series() {
    let server = FakePrometheus::with_families(&[
        "container_memory_rss",
        "container_memory_mapped_file",
        "container_memory_total_active_file_bytes",
        "jvm_memory_committed_bytes",
        "jvm_threads_current",
        "jvm_gc_live_data_size_bytes",
    ]);
    let read = read_workloads(&server, &NAMESPACES.map(java_workload)).await;
    let (found, workloads) = read.expect("evidence");
    assert_eq!(found.unread, []);
    for evidence in &workloads {
        let main = &evidence["main"];
        let needed = main.needed_memory.as_ref().expect("there are series");
        assert!((8..=9).contains(&needed.needed.iter().len()), "one for each day");
        assert_eq!(main.needed_memory_peak, needed.needed.largest());
        let active = needed.active_file.expect("there are series");
        assert!((200_000_000..=400_000_000).contains(&active.0), "{active:?}");
        let days = main.daily_memory_peaks.iter().len();
        assert!((8..=9).contains(&days), "{days}: earlier days are not above the target");
        let jvm = main.jvm_memory.as_deref().expect("there are series");
        assert!(jvm.non_heap.0 >= 200_000_000 && jvm.live_data.is_some(), "{jvm:?}");
        assert_eq!((jvm.direct_buffers, jvm.collection_share), (None, None), "no such series");
    }
    let queries = server.texts.lock();
    let count = |part: &str| queries.iter().filter(|text| text.contains(part)).count();
    assert_eq!(count("max_over_time(container_memory_rss"), 1);
    // In the query for families, and with its own.
    assert_eq!(count("jvm_gc_live_data_size_bytes"), 2);
    assert_eq!(count("jvm_gc_pause_seconds_sum"), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_of_the_same_name_in_several_api_groups_share_a_history() {
    let server = FakePrometheus::new(|_| None);
    let of_group = |group: &str| Workload {
        api_version: Some(format!("{group}/v1").into()),
        ..workload("shop")
    };
    let found = read_workloads(&server, &[of_group("apps"), of_group("extensions")]).await;
    let (_, workloads) = found.expect("evidence");
    assert!(workloads[0]["main"].recommendation.is_some());
    assert_eq!(workloads[0], workloads[1]);
}
