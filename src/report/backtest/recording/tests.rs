//! Recordings from a server in memory: values on the grid, requests as steps, and no recording if a query fails.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use plimsoll_core::{
    recommender::HistoryWeighting,
    rightsizing::survey::{Amounts, Container},
    types::units::{Bytes, MilliCpu},
};
use plimsoll_storage::prometheus::{
    detect::SchemaOverrides,
    transport::{Response, Transport, TransportConfig, TransportError},
};

use super::*;
use crate::{
    controllers::runtime::prometheus::PrometheusConfig,
    report::recommend::{query_tally::QueryTally, server::ConnectedServer},
};

/// A whole number of five minutes.
const UNTIL: Time = Time::from_secs(1_790_000_100);
const DAY: Duration = Duration::from_hours(24);
const POD: &str = "web-7d5f9c4b6d-x2x4z";

/// Whether a query fails: its text and the end of its time range.
type Failure = dyn Fn(&str, f64) -> bool + Send + Sync;

/// A server with one pod, which is resized in the middle of the evaluation and throttled for a minute.
struct FakePrometheus {
    failure: Box<Failure>,
    /// Queries with this text find nothing.
    absent: Option<&'static str>,
}

impl std::fmt::Debug for FakePrometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakePrometheus")
    }
}

struct FakeQuery<'a> {
    text: &'a str,
    start: f64,
    end: f64,
    step: f64,
}

fn series(metric: &str, more: &str, values: &[(f64, f64)]) -> String {
    let values: Vec<String> =
        values.iter().map(|(at, value)| format!(r#"[{at},"{value}"]"#)).collect();
    let values = values.join(",");
    format!(
        r#"{{"metric":{{"__name__":"{metric}","namespace":"shop","pod":"{POD}","container":"main"{more}}},"values":[{values}]}}"#
    )
}

/// The time of the resize.
fn resized() -> f64 {
    (UNTIL.as_secs() - 2 * 86_400) as f64
}

impl FakeQuery<'_> {
    fn instant(&self) -> String {
        let Self { text, end, .. } = *self;
        let at = |metric: &str, more: &str, value: f64| {
            series(metric, more, &[(end, value)])
                .replace("values\":[[", "value\":[")
                .replace("]]}", "]}")
        };
        let usage = "container_memory_working_set_bytes";
        if text.contains("kube_replicaset_owner|") || text.contains("[30s]") {
            return vector("");
        }
        if text.starts_with("topk") && text.contains(usage) {
            return vector(&at(usage, r#","job":"kubelet""#, 1.0));
        }
        if text.contains("[20m]") {
            let points: Vec<(f64, f64)> =
                (0..20).map(|minute| (end - 60.0 * f64::from(19 - minute), 1.0)).collect();
            return matrix(&series(usage, r#","job":"kubelet""#, &points));
        }
        if text.starts_with("count") && text.contains(usage) {
            return vector(&format!(r#"{{"metric":{{"job":"kubelet"}},"value":[{end},"2"]}}"#));
        }
        if text.contains("__name__=~")
            && text.contains("kube_pod_owner")
            && !text.contains("exported_pod")
        {
            return vector(&at("kube_pod_container_resource_requests", r#","job":"ksm""#, 1.0));
        }
        if text.contains("max_over_time(kube_pod_start_time") {
            // A day before the first sample.
            return vector(&at("", "", (UNTIL.as_secs() - 30 * 86_400) as f64));
        }
        if text.starts_with("max by") && text.contains("(kube_pod_container_resource_requests") {
            let cpu = at("", r#","resource":"cpu""#, 0.5);
            let memory = at("", r#","resource":"memory""#, f64::from(1 << 30));
            return vector(&format!("{cpu},{memory}"));
        }
        if text.starts_with("max by") && text.contains("(kube_pod_container_resource_limits") {
            return vector(&at("", r#","resource":"memory""#, f64::from(1 << 30)));
        }
        vector("")
    }

    fn range(&self) -> String {
        let Self { text, start, end, step } = *self;
        let times = || (0..=((end - start) / step) as u64).map(|index| start + step * index as f64);
        let of = |value: &dyn Fn(f64) -> Option<f64>, more: &str| {
            let points: Vec<(f64, f64)> = times().filter_map(|at| Some((at, value(at)?))).collect();
            if points.is_empty() { String::new() } else { series("", more, &points) }
        };
        if text.contains("unless") && text.contains("resource_requests") {
            let change = |at: f64| (at == resized()).then_some(0.75);
            return matrix(&of(&change, r#","resource":"cpu""#));
        }
        if text.contains("throttled_periods") {
            let throttled = |at: f64| (at == resized() + 120.0).then_some(0.5);
            return matrix(&of(&throttled, ""));
        }
        if text.contains("irate") {
            // One hour is missing.
            let gap = resized() + 3_600.0..resized() + 7_200.0;
            let usage = |at: f64| (!gap.contains(&at)).then_some(0.25);
            return matrix(&of(&usage, ""));
        }
        if text.contains("max_over_time(container_memory") {
            return matrix(&of(&|_| Some(2e8), ""));
        }
        matrix("")
    }
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
        let is_absent = self.absent.is_some_and(|part| query.text.contains(part));
        let (mut status, mut body) = match path {
            "/api/v1/query" if is_absent => (200, vector("")),
            "/api/v1/query_range" if is_absent => (200, matrix("")),
            "/api/v1/query" => (200, query.instant()),
            "/api/v1/query_range" => (200, query.range()),
            _ => (200, r#"{"status":"success","data":[]}"#.to_owned()),
        };
        let is_other_dialect = query.text.starts_with("vector(1) default");
        if is_other_dialect || (self.failure)(query.text, end) {
            status = 422;
            body = r#"{"status":"error","errorType":"execution","error":"no"}"#.to_owned();
        }
        let response = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(body)
            .expect("a response");
        Ok(response.into())
    }
}

fn evaluation() -> Evaluation {
    let from = UNTIL.earlier(4 * DAY);
    Evaluation { warm_up_from: from.earlier(2 * DAY), from, until: UNTIL }
}

fn workload() -> Workload {
    let container = |name: &str, role| Container {
        name: name.into(),
        role,
        requests: Amounts { cpu: Some(MilliCpu(900)), memory: None },
        ..Container::default()
    };
    Workload {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        pods: vec![POD.into()],
        containers: [
            container("main", ContainerRole::Main),
            container("setup", ContainerRole::Init),
        ]
        .into(),
        ..Workload::default()
    }
}

async fn recorded(
    failure: impl Fn(&str, f64) -> bool + Send + Sync + 'static,
    max_bytes: u64,
) -> Result<Vec<WorkloadRecording>, RecordingError> {
    recorded_from(FakePrometheus { failure: Box::new(failure), absent: None }, max_bytes).await
}

async fn recorded_from(
    server: FakePrometheus,
    max_bytes: u64,
) -> Result<Vec<WorkloadRecording>, RecordingError> {
    let prometheus = PrometheusConfig {
        transport: TransportConfig::default(),
        series_options: SchemaOverrides::default(),
        pod_labels: None,
        history_length: 8 * DAY,
        resolution: None,
        query_timeout: Duration::from_mins(1),
        max_concurrent_queries: 2,
        buffer_bytes: 24 << 20,
        has_fallback: false,
    };
    let server: Arc<dyn Transport> = Arc::new(server);
    let server = ConnectedServer::new(server, "fake");
    let tally = Arc::<QueryTally>::default();
    let history = server.history(&prometheus, HistoryWeighting::Duration, UNTIL, tally);
    record(&history, &[&workload()], evaluation(), max_bytes).await
}

#[tokio::test(start_paused = true)]
async fn a_recording_has_usage_on_the_grid_and_what_was_requested_then() {
    let recordings = recorded(|_, _| false, 96 << 20).await.expect("a recording");
    let [recording] = &recordings[..] else { panic!("one workload") };
    let Evaluation { warm_up_from, .. } = evaluation();
    assert_eq!((&*recording.kind, recording.from), ("Deployment", warm_up_from));
    let names: Vec<&str> = recording.containers.iter().map(|of| &*of.name).collect();
    assert_eq!(names, ["main"], "init containers do not count");
    let [pod] = &recording.pods[..] else { panic!("one pod") };
    assert_eq!(pod.born, UNTIL.earlier(30 * DAY), "it started before the backtest");
    let [main] = &pod.containers[..] else { panic!("one container") };
    assert_eq!((main.first_minute, main.cpu.len()), (1, 6 * 1_440 - 1));
    assert_eq!((main.first_window, main.memory.len()), (0, 6 * 288));
    let missing: Vec<usize> = (0..main.cpu.len()).filter(|at| main.cpu[*at].is_nan()).collect();
    // The first column is the second minute.
    let first = 4 * 1_440 + 60 - 1;
    assert_eq!(missing, (first..first + 60).collect::<Vec<_>>());
    assert!(main.cpu.iter().all(|cores| cores.is_nan() || *cores == 0.25));
    assert!(main.memory.iter().all(|bytes| *bytes == 2e8));
    assert_eq!(main.throttled_minutes, [4 * 1_440 + 2]);
    let container = &recording.containers[0];
    assert!(!container.assumes_current_requests);
    let amounts = |cpu: i64| Amounts { cpu: Some(MilliCpu(cpu)), memory: Some(Bytes(1 << 30)) };
    let steps: Vec<(i64, Amounts)> = container
        .requests
        .iter()
        .map(|step| (step.at.nanos_since(warm_up_from) / 1_000_000_000, step.amounts))
        .collect();
    assert_eq!(steps, [(0, amounts(500)), (4 * 86_400, amounts(750))]);
    let limits: Vec<Option<Bytes>> =
        container.limits.iter().map(|step| step.amounts.memory).collect();
    assert_eq!(limits, [Some(Bytes(1 << 30))]);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_fails_in_the_middle_leaves_no_recording() {
    let middle = UNTIL.earlier(3 * DAY).as_secs() as f64;
    for text in
        ["irate", "max_over_time(container_memory", "unless", "kube_pod_start_time", "throttled"]
    {
        let is_hit = move |query: &str, end: f64| query.contains(text) && end > middle;
        let error = recorded(is_hit, 96 << 20).await.expect_err("no recording");
        let RecordingError::Query { workload, .. } = &error else { panic!("{text}: {error}") };
        assert_eq!(workload, "shop/Deployment/web", "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_today_are_assumed_without_kube_state_metrics() {
    let server = FakePrometheus { failure: Box::new(|_, _| false), absent: Some("kube_") };
    let recordings = recorded_from(server, 96 << 20).await.expect("a recording");
    let container = &recordings[0].containers[0];
    assert!(container.assumes_current_requests);
    assert_eq!(container.requests[0].amounts.cpu, Some(MilliCpu(900)));
    assert_eq!(recordings[0].pods[0].born, evaluation().warm_up_from, "its first sample");
}

#[tokio::test(start_paused = true)]
async fn more_than_the_memory_is_an_error() {
    let error = recorded(|_, _| false, 10_000).await.expect_err("too large");
    assert!(matches!(error, RecordingError::TooLarge(_)), "{error}");
}
