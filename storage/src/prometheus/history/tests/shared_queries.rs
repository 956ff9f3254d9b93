//! Tests that workloads of many namespaces share queries, and that each value still belongs to the workload of its namespace.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;

use super::super::{
    batch_load::LoadContext,
    load::HistoryLoad,
    pod_values::PodQuery,
    query_plan::{QueryPlan, Weighting},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::{PrometheusClient, QueryLimits},
    schema::{KubeStateMetrics, Schema, tests::schema},
    transport::{Response, Transport, TransportError},
};
use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};

const DAY: i64 = 86_400;

/// A server with one pod for each workload of each namespace. The value of a series is the number of its namespace.
#[derive(Debug)]
struct Server {
    namespaces: usize,
    workloads: usize,
    /// Rejects queries about several namespaces with this text.
    rejected: Option<&'static str>,
    queries: Mutex<Vec<String>>,
}

fn namespace(number: usize) -> String {
    format!("team-{number:02}")
}

#[async_trait]
impl Transport for Server {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        _: Duration,
    ) -> Result<Response, TransportError> {
        let value =
            |name: &str| form.iter().find(|(known, _)| *known == name).map(|(_, text)| &**text);
        let text = value("query").or(value("match[]")).unwrap_or_default();
        self.queries.lock().expect("not poisoned").push(text.to_owned());
        if self.rejected.is_some_and(|part| text.contains(part) && text.contains("namespace=~")) {
            let error = r#"{"status":"error","errorType":"execution","error":"duplicate series"}"#;
            let response = http::Response::builder().status(422);
            let response = response.header("content-type", "application/json");
            return Ok(response.body(error).expect("a response").into());
        }
        let number = |name: &str| value(name).and_then(|text| text.parse::<f64>().ok());
        let end = number("end").or(number("time")).unwrap_or_default();
        let (start, step) = (number("start").unwrap_or(end), number("step").unwrap_or(60.0));
        let mut series = Vec::new();
        for place in 0..self.namespaces {
            let name = namespace(place);
            let is_selected = text.contains(&format!("namespace=\"{name}\""))
                || text.contains("namespace=~") && text.contains(&name);
            for workload in (0..self.workloads).filter(|_| is_selected) {
                let labels = format!(r#""namespace":"{name}","pod":"web-{workload}-0""#);
                series.push(match path {
                    "/api/v1/series" if text.contains("kube_pod_owner") => format!(
                        r#"{{{labels},"owner_kind":"StatefulSet","owner_name":"web-{workload}"}}"#
                    ),
                    "/api/v1/series" => continue,
                    "/api/v1/query" => {
                        format!(r#"{{"metric":{{{labels},"container":"main"}},"value":[{end},"{place}"]}}"#)
                    }
                    _ => {
                        let steps = ((end - start) / step) as u64;
                        let points = (0..=steps).map(|index| start + step * index as f64);
                        let points: Vec<String> =
                            points.map(|at| format!(r#"[{at},"{place}"]"#)).collect();
                        format!(
                            r#"{{"metric":{{{labels},"container":"main"}},"values":[{}]}}"#,
                            points.join(",")
                        )
                    }
                });
            }
        }
        let series = series.join(",");
        let body = match path {
            "/api/v1/series" => format!(r#"{{"status":"success","data":[{series}]}}"#),
            "/api/v1/query" => {
                format!(
                    r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#
                )
            }
            _ => format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#
            ),
        };
        Ok(http::Response::new(body).into())
    }
}

impl Server {
    fn new(namespaces: usize, workloads: usize, rejected: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self { namespaces, workloads, rejected, queries: Mutex::default() })
    }

    /// The number of queries so far, and of those with this text.
    fn count(&self, text: &str) -> (usize, usize) {
        let queries = self.queries.lock().expect("not poisoned");
        (queries.len(), queries.iter().filter(|query| query.contains(text)).count())
    }

    fn wanted(&self) -> HashMap<ObjectKey, Option<Box<str>>> {
        let vpas = (0..self.namespaces)
            .flat_map(|place| (0..self.workloads).map(move |workload| (place, workload)));
        let vpa = |(place, workload): (usize, usize)| {
            let name = format!("web-{workload}");
            let owner = format!("apps/StatefulSet/{name}");
            (ObjectKey::new(namespace(place), name), Some(owner.into()))
        };
        vpas.map(vpa).collect()
    }

    /// A load of some days of all workloads.
    fn load(self: &Arc<Self>, days: i64) -> HistoryLoad {
        let states = KubeStateMetrics {
            namespace: "namespace".to_owned(),
            pod: "pod".to_owned(),
            container: "container".to_owned(),
            families: ["kube_pod_owner".to_owned()].into(),
            ..KubeStateMetrics::default()
        };
        let mut schema = Schema { kube_state_metrics: Some(states), ..schema(60, 60) };
        schema.usage.containers = (self.namespaces * self.workloads) as u64;
        let limits = QueryLimits { max_attempts: 1, ..QueryLimits::default() };
        let client = PrometheusClient::new(Arc::<Self>::clone(self), limits);
        let plan = QueryPlan::new(Weighting::default(), &schema);
        let context = LoadContext::new(client, Arc::new(schema), plan, 262_144);
        let (batches, _) = WorkloadBatch::all(&self.wanted());
        HistoryLoad::new(context, batches, (Time::EPOCH, Time::from_secs(days * DAY)))
    }
}

/// The number of samples and the largest value of each VPA.
#[derive(Default)]
struct Values(BTreeMap<ObjectKey, (usize, f64)>);

impl Sink for Values {
    fn snapshot(&mut self, _: ContainerKey, _: Snapshot) {}

    fn sample(&mut self, _: &ContainerKey, _: Sample) {}

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        let known = self.0.entry(key.vpa.clone()).or_default();
        known.0 += batch.points.len();
        for (_, value) in batch.points {
            known.1 = known.1.max(*value);
        }
    }
}

/// The largest value of each VPA, and the number of values.
async fn peaks(load: &HistoryLoad) -> BTreeMap<ObjectKey, (usize, f64)> {
    let mut peaks: BTreeMap<ObjectKey, (usize, f64)> = BTreeMap::new();
    let queries = [PodQuery::MemoryPeak { step: Duration::from_hours(1) }];
    let report = load
        .pod_values(&queries, &|_| true, &mut |found| {
            let known = peaks.entry(found.vpa.clone()).or_default();
            known.0 += 1;
            known.1 = known.1.max(found.value);
        })
        .await;
    assert_eq!(report.failure, None);
    peaks
}

#[tokio::test]
async fn the_owners_of_all_pods_are_queried_once() {
    let server = Server::new(20, 50, None);
    let mut load = server.load(8);
    load.query_owners().await;
    // Owners of pods, and OOM-killed pods.
    assert_eq!(server.count("kube_pod_owner"), (2, 1));
    let throttling = load.throttling(Duration::from_hours(24), Time::from_secs(8 * DAY)).await;
    assert_eq!(throttling.failure, None);
    assert_eq!(server.count("kube_pod_owner"), (6, 1));
    let found = peaks(&load).await;
    assert_eq!(found.len(), 1_000);
    // 192 steps of 60 samples of 1,000 containers, at most 5 million samples at a time.
    assert_eq!(server.count("kube_pod_owner"), (9, 1));
    let (before, _) = server.count("");
    let mut values = Values::default();
    load.advance(&mut values).await.expect("all of it");
    let (after, owners) = server.count("kube_pod_owner");
    assert_eq!(owners, 1);
    // Three slices of CPU and memory for each batch; the first batches have a short first one.
    assert!(after - before <= 20 * 2 * 4, "{}", after - before);
    assert!(after <= 140, "{after}");
    assert_eq!(values.0.len(), 1_000);
    for (vpa, (samples, value)) in values.0 {
        assert_eq!(samples, 8 * (1_440 + 288), "{vpa}");
        assert_eq!(namespace(value as usize), *vpa.namespace, "its own samples");
    }
}

#[tokio::test]
async fn values_are_those_of_the_workload_in_its_namespace() {
    // Together, and each namespace by itself because queries about several are rejected.
    for rejected in [None, Some("max_over_time")] {
        let server = Server::new(4, 2, rejected);
        let mut load = server.load(2);
        load.query_owners().await;
        let found = peaks(&load).await;
        assert_eq!(found.len(), 8);
        for (vpa, (days, value)) in &found {
            // The end of the last day is the start of the next one.
            assert_eq!(*days, 3, "{vpa}");
            assert_eq!(namespace(*value as usize), *vpa.namespace);
        }
        let (_, peaks) = server.count("max_over_time");
        // All four, two halves, and four quarters.
        assert_eq!(peaks, if rejected.is_some() { 7 } else { 1 });
    }
}

#[tokio::test]
async fn throttling_that_is_rejected_for_several_namespaces_is_read_for_each() {
    let server = Server::new(3, 1, Some("cfs_throttled"));
    let mut load = server.load(1);
    load.query_owners().await;
    let report = load.throttling(Duration::from_hours(24), Time::from_secs(DAY)).await;
    assert_eq!(report.failure, None);
    let periods: BTreeMap<String, f64> = report
        .measured
        .iter()
        .map(|(key, throttling)| (key.vpa.namespace.to_string(), throttling.periods))
        .collect();
    // The first has no periods.
    assert_eq!(periods, BTreeMap::from([(namespace(1), 1.0), (namespace(2), 2.0)]));
}

#[tokio::test]
async fn batches_query_what_could_not_be_queried_together() {
    let server = Server::new(3, 1, Some("kube_pod_owner"));
    let mut load = server.load(1);
    load.query_owners().await;
    assert_eq!(server.count("kube_pod_owner").1, 1);
    let mut values = Values::default();
    load.advance(&mut values).await.expect("all of it");
    assert_eq!(server.count("kube_pod_owner").1, 4, "one for each batch");
    assert!(values.0.values().all(|(samples, _)| *samples == 1_440 + 288));
}
