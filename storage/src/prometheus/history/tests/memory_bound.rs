//! Tests that memory stays within the budget however many pods a workload has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;

use super::super::{
    batch_load::{BatchLoad, LoadContext},
    load::HistoryLoad,
    load::LoadStats,
    query_plan::{QueryPlan, Weighting},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::{PrometheusClient, QueryLimits},
    schema::{KubeStateMetrics, Schema, tests::schema},
    transport::{Response, Transport, TransportError},
};
use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};

const CONTAINERS: [&str; 3] = ["main", "proxy", "log"];

/// A fake server whose number of pods changes at one time.
#[derive(Debug)]
struct Crowd {
    before: usize,
    since: usize,
    change_at: i64,
    /// The scrape times of pods that belong to another workload, although their names do not indicate it.
    strangers: Vec<i64>,
    /// Number of queries about owners.
    owner_queries: AtomicUsize,
}

#[async_trait]
impl Transport for Crowd {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        _: Duration,
    ) -> Result<Response, TransportError> {
        let body = if path == "/api/v1/series" { self.owners(form) } else { self.usage(form) };
        Ok(http::Response::new(body).into())
    }
}

impl Crowd {
    fn usage(&self, form: &[(&str, String)]) -> String {
        let (start, end, step) = (number(form, "start"), number(form, "end"), number(form, "step"));
        let mut series = Vec::new();
        for pod in 0..self.since.max(self.before) {
            let start = if pod < self.before { start } else { start.max(self.change_at) };
            let end = if pod < self.since { end } else { end.min(self.change_at - 60) };
            let points = (start..=end).step_by(step as usize);
            let points: Vec<_> = points.map(|at| format!("[{at},\"1\"]")).collect();
            for container in CONTAINERS.iter().filter(|_| !points.is_empty()) {
                let values = points.join(",");
                series.push(format!(
                    r#"{{"metric":{{"namespace":"shop","pod":"web-{pod}","container":"{container}"}},"values":[{values}]}}"#
                ));
            }
        }
        let series = series.join(",");
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
    }

    fn owners(&self, form: &[(&str, String)]) -> String {
        if !form.iter().any(|(_, text)| text.contains("kube_pod_owner")) {
            return r#"{"status":"success","data":[]}"#.to_owned();
        }
        self.owner_queries.fetch_add(1, Relaxed);
        let span = number(form, "start")..=number(form, "end");
        let strangers = self.strangers.iter().enumerate().filter(|(_, at)| span.contains(*at));
        let series: Vec<_> = strangers
            .map(|(pod, _)| {
                let pod = 1000 + pod;
                format!(
                    r#"{{"pod":"web-{pod}","owner_kind":"StatefulSet","owner_name":"web-else"}}"#
                )
            })
            .collect();
        format!(r#"{{"status":"success","data":[{}]}}"#, series.join(","))
    }
}

fn number(form: &[(&str, String)], name: &str) -> i64 {
    let of = form.iter().find(|(known, _)| *known == name).expect("the parameter is set");
    of.1.parse::<f64>().expect("seconds") as i64
}

/// A load of this many seconds of a StatefulSet.
fn load_of_web(
    crowd: Arc<Crowd>,
    schema: Schema,
    budget: u64,
    seconds: i64,
) -> (LoadContext, BatchLoad) {
    let wanted = [(ObjectKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let plan = QueryPlan::new(Weighting::default(), &schema);
    let limits = QueryLimits { max_attempts: 1, ..QueryLimits::default() };
    let client = PrometheusClient::new(crowd, limits);
    let context = LoadContext::new(client, Arc::new(schema), plan, budget);
    let (mut batches, _) = WorkloadBatch::all(&wanted);
    let span = (Time::from_secs(0), Time::from_secs(seconds));
    (context, BatchLoad::new(batches.remove(0), span))
}

/// A server with this many pods before and since a time, and no owners.
fn crowd(before: usize, since: usize, change_at: i64) -> Crowd {
    Crowd { before, since, change_at, strangers: Vec::new(), owner_queries: AtomicUsize::new(0) }
}

/// Adds a kube-state-metrics with owners of pods.
fn with_owners(schema: Schema) -> Schema {
    let states = KubeStateMetrics {
        namespace: "namespace".to_owned(),
        pod: "pod".to_owned(),
        families: ["kube_pod_owner".to_owned()].into(),
        ..KubeStateMetrics::default()
    };
    Schema { kube_state_metrics: Some(states), ..schema }
}

/// Counts samples, and records the count whenever a VPA is complete.
#[derive(Default)]
struct Count(u64, Vec<u64>);

impl Sink for Count {
    fn snapshot(&mut self, _: ContainerKey, _: Snapshot) {}

    fn sample(&mut self, _: &ContainerKey, _: Sample) {
        self.0 += 1;
    }

    fn complete(&mut self, _: &ObjectKey) {
        self.1.push(self.0);
    }
}

#[tokio::test]
async fn a_time_slice_stays_within_its_limit_for_any_number_of_pods() {
    const DAY: i64 = 86_400;
    let budget = 6_000;
    for (before, since) in [(40, 40), (1, 40), (40, 1), (4, 6)] {
        let crowd = Arc::new(crowd(before, since, DAY / 2 + 60));
        let (context, mut batch_load) = load_of_web(crowd, schema(60, 60), budget, DAY);
        let (mut count, mut report) = (Count::default(), LoadStats::default());
        while !batch_load.is_done() {
            let slice = batch_load.next(&context).await.expect("the query succeeds");
            assert!(
                slice.size_in_points() <= budget,
                "{} for {before} and {since}",
                slice.size_in_points()
            );
            batch_load.emit(slice, &context, &mut count, &mut report);
        }
        // CPU by the minute, memory each five.
        let samples = (before + since) * CONTAINERS.len() * (720 + 144);
        assert_eq!(count.0, samples as u64, "{before} and {since}: nothing twice, nothing lost");
        assert!(report.reads.halvings < 10, "{report:?}");
    }
}

#[tokio::test]
async fn few_batches_are_in_progress_and_the_last_ones_end_together() {
    let vpa = |index: u64| ObjectKey::new(format!("shop-{index}"), "web");
    let wanted = (0..20).map(|index| (vpa(index), Some("apps/StatefulSet/web".into())));
    let (context, _) = load_of_web(Arc::new(crowd(2, 2, 0)), schema(60, 60), 1_000, 0);
    let (batches, _) = WorkloadBatch::all(&wanted.collect());
    let span = (Time::from_secs(0), Time::from_secs(86_400));
    let mut loading = HistoryLoad::new(context, batches, span);
    let mut count = Count::default();
    loading.advance(&mut count).await.expect("the query succeeds");
    let Count(total, complete) = count;
    let share = |samples: u64| samples as f64 * 20.0 / total as f64;
    assert!(
        share(complete[0]) < 5.0,
        "{:.1} batches until the first is complete",
        share(complete[0])
    );
    // One of the last six may have been nearly complete when there were six.
    let last = share(total - complete[15]);
    assert!(last < 1.0, "{last:.1} batches were left when four were incomplete");
    assert_eq!(complete.len(), 20);
}

#[tokio::test]
async fn a_single_step_is_always_read() {
    let (context, mut batch_load) = load_of_web(Arc::new(crowd(10, 10, 0)), schema(60, 60), 1, 600);
    let slice = batch_load.next(&context).await.expect("the query succeeds");
    assert!(slice.size_in_points() > 10 * 3 * 6, "{}", slice.size_in_points());
}

/// Reads a day of a workload with two pods. Returns the number of samples, the statistics and the number of owner
/// queries.
async fn read_beside(strangers: Vec<i64>, budget: u64) -> (u64, LoadStats, usize) {
    let crowd = Arc::new(Crowd { strangers, ..crowd(2, 2, 0) });
    let (context, mut batch_load) =
        load_of_web(Arc::clone(&crowd), with_owners(schema(60, 60)), budget, 86_400);
    let (mut count, mut report) = (Count::default(), LoadStats::default());
    while !batch_load.is_done() {
        let slice = batch_load.next(&context).await.expect("the query succeeds");
        let owner_points = batch_load.batch.proof.size_in_points;
        assert!(owner_points <= budget / 2, "{owner_points} of {budget}");
        assert!(
            owner_points + slice.size_in_points() <= budget,
            "{owner_points} and {} of {budget}",
            slice.size_in_points()
        );
        batch_load.emit(slice, &context, &mut count, &mut report);
    }
    (count.0, report, crowd.owner_queries.load(Relaxed))
}

#[tokio::test]
async fn owner_series_count_against_the_budget_and_are_read_in_time_slices() {
    let budget = 20_000;
    let samples = 2 * CONTAINERS.len() as u64 * (1440 + 288);
    // A few fit at once.
    let (count, report, owner_queries) =
        read_beside((0..100).map(|pod| pod * 800).collect(), budget).await;
    assert_eq!((count, report.without_owner_info, owner_queries), (samples, 0, 1));
    // Of many, only some hours fit at once.
    let (count, report, owner_queries) =
        read_beside((0..5000).map(|pod| pod * 17).collect(), budget).await;
    assert_eq!((count, report.without_owner_info), (samples, 0));
    assert!((5..100).contains(&owner_queries), "{owner_queries} owner queries");
    // If too many share one time, names decide, as if the server had no owners.
    let (count, report, owner_queries) = read_beside(vec![40_000; 5000], budget).await;
    assert_eq!(count, samples);
    assert!(
        report.without_owner_info > 0 && owner_queries < 100,
        "{report:?}, {owner_queries} owner queries"
    );
}
