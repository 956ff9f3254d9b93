//! Tests that memory stays within the budget however many pods a workload has, and that lists of pods that exceed the
//! budget can be read.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;

use super::{
    batch_load::{BatchLoad, LoadContext},
    load::HistoryLoad,
    load::LoadStats,
    owner_series::OwnerSeries,
    pod_name_rules::OwnerRef,
    query_plan::{QueryPlan, Weighting, tests::schema},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::{PrometheusClient, QueryLimits},
    schema::{KubeStateMetrics, Schema},
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
    /// Pods with known owners.
    owned: Owned,
    /// Number of queries about owners.
    owner_queries: AtomicUsize,
}

/// The pods whose owners the server knows.
#[derive(Debug)]
enum Owned {
    None,
    /// Pods of Jobs, with matching names.
    Jobs(usize),
    /// Pods of another owner with misleading names, one at each of these scrape times.
    Strangers(Vec<i64>),
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
        let number = |name| {
            let of = form.iter().find(|(known, _)| *known == name).expect("the parameter is set");
            of.1.parse::<i64>().expect("whole seconds")
        };
        let (start, end, step) = (number("start"), number("end"), number("step"));
        let mut body = String::new();
        for pod in 0..self.since.max(self.before) {
            let start = if pod < self.before { start } else { start.max(self.change_at) };
            let end = if pod < self.since { end } else { end.min(self.change_at - 60) };
            let points = (start..=end).step_by(step as usize);
            let points: Vec<_> = points.map(|at| format!("[{at},\"1\"]")).collect();
            for container in CONTAINERS.iter().filter(|_| !points.is_empty()) {
                let comma = if body.is_empty() { "" } else { "," };
                let values = points.join(",");
                let _ = write!(
                    body,
                    r#"{comma}{{"metric":{{"namespace":"shop","pod":"web-{pod}","container":"{container}"}},"values":[{values}]}}"#
                );
            }
        }
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{body}]}}}}"#)
    }

    fn owners(&self, form: &[(&str, String)]) -> String {
        if !form.iter().any(|(_, text)| text.contains("kube_pod_owner")) {
            return r#"{"status":"success","data":[]}"#.to_owned();
        }
        self.owner_queries.fetch_add(1, Relaxed);
        let number = |name| {
            let of = form.iter().find(|(known, _)| *known == name).expect("the parameter is set");
            of.1.parse::<f64>().expect("seconds") as i64
        };
        let unused_label = "an unused label value ".repeat(20);
        let mut body = String::new();
        let mut add_series = |pod: String, kind: &str, name: String| {
            let comma = if body.is_empty() { "" } else { "," };
            let _ = write!(
                body,
                r#"{comma}{{"pod":"{pod}","owner_kind":"{kind}","owner_name":"{name}","uid":"{unused_label}"}}"#
            );
        };
        match &self.owned {
            Owned::None => {}
            Owned::Jobs(jobs) => (0..*jobs).for_each(|job| {
                let job = format!("tick-{}", 28_000_000 + job);
                add_series(format!("{job}-x2x4z"), "Job", job);
            }),
            Owned::Strangers(times) => {
                let (start, end) = (number("start"), number("end"));
                for (pod, at) in times.iter().enumerate() {
                    if (start..=end).contains(at) {
                        add_series(
                            format!("web-{}", 1000 + pod),
                            "StatefulSet",
                            "web-else".to_owned(),
                        );
                    }
                }
            }
        }
        format!(r#"{{"status":"success","data":[{body}]}}"#)
    }
}

fn client(crowd: Crowd) -> PrometheusClient {
    PrometheusClient::new(
        Arc::new(crowd),
        QueryLimits { max_attempts: 1, ..QueryLimits::default() },
    )
}

/// A server with this many pods before and since a time, and no owners.
fn crowd(before: usize, since: usize, change_at: i64) -> Crowd {
    Crowd { before, since, change_at, owned: Owned::None, owner_queries: AtomicUsize::new(0) }
}

/// Adds a kube-state-metrics with owners of pods.
fn with_owners(schema: Schema) -> Schema {
    let states = KubeStateMetrics {
        job: None,
        namespace: "namespace".to_owned(),
        pod: "pod".to_owned(),
        container: "container".to_owned(),
        families: ["kube_pod_owner".to_owned()].into(),
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

    fn abandon(&mut self, _: &ObjectKey) {}
}

#[tokio::test]
async fn a_time_slice_stays_within_its_limit_for_any_number_of_pods() {
    const DAY: i64 = 86_400;
    let budget = 6_000;
    let wanted = [(ObjectKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let schema = Arc::new(schema(60, 60));
    let plan = QueryPlan::new(Weighting::default(), &schema);
    for (before, since) in [(40, 40), (1, 40), (40, 1), (4, 6)] {
        let client = client(crowd(before, since, DAY / 2 + 60));
        let context =
            LoadContext { client, schema: Arc::clone(&schema), plan: plan.clone(), budget };
        let (mut batches, _) = WorkloadBatch::all(&wanted);
        let span = (Time::from_secs(0), Time::from_secs(DAY));
        let mut batch_load = BatchLoad::new(batches.remove(0), span);
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
    let schema = Arc::new(schema(60, 60));
    let plan = QueryPlan::new(Weighting::default(), &schema);
    let client = client(crowd(2, 2, 0));
    let (batches, _) = WorkloadBatch::all(&wanted.collect());
    let span = (Time::from_secs(0), Time::from_secs(86_400));
    let mut loading = HistoryLoad::new(client, schema, plan, 1_000, batches, span);
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
    let wanted = [(ObjectKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let schema = Arc::new(schema(60, 60));
    let plan = QueryPlan::new(Weighting::default(), &schema);
    let client = client(crowd(10, 10, 0));
    let context = LoadContext { client, schema, plan, budget: 1 };
    let (mut batches, _) = WorkloadBatch::all(&wanted);
    let mut batch_load =
        BatchLoad::new(batches.remove(0), (Time::from_secs(0), Time::from_secs(600)));
    let slice = batch_load.next(&context).await.expect("the query succeeds");
    assert!(slice.size_in_points() > 10 * 3 * 6, "{}", slice.size_in_points());
}

#[tokio::test]
async fn owners_of_too_many_pods_are_derived_from_names() {
    // 40 MB of labels.
    const JOBS: usize = 80_000;
    let schema = with_owners(schema(60, 60));
    let client = client(Crowd { owned: Owned::Jobs(JOBS), ..crowd(0, 0, 0) });
    let tick = OwnerRef::parse("batch/CronJob/tick").expect("an owner");
    let span = (Time::from_secs(0), Time::from_secs(600));
    let result =
        OwnerSeries::query(&client, &schema, "shop", &[&tick], &Arc::default(), span, 100).await;
    let owner_series = result.expect("the names identify the owners");
    assert_eq!((owner_series.pods(), owner_series.size_in_points()), (JOBS, 0));
    let pod = "tick-28000000-x2x4z";
    assert_eq!(owner_series.is_owned_by(pod, &tick), None, "its name says it");
    assert!(tick.matches(pod));
}

/// Reads a day of a workload with two pods. Returns the number of samples, the statistics and the number of owner
/// queries.
async fn read_beside(strangers: Vec<i64>, budget: u64) -> (u64, LoadStats, usize) {
    const DAY: i64 = 86_400;
    let wanted = [(ObjectKey::new("shop", "web"), Some("apps/StatefulSet/web".into()))].into();
    let schema = Arc::new(with_owners(schema(60, 60)));
    let plan = QueryPlan::new(Weighting::default(), &schema);
    let crowd = Arc::new(Crowd { owned: Owned::Strangers(strangers), ..crowd(2, 2, 0) });
    let limits = QueryLimits { max_attempts: 1, ..QueryLimits::default() };
    let client = PrometheusClient::new(crowd.clone(), limits);
    let context = LoadContext { client, schema, plan, budget };
    let (mut batches, _) = WorkloadBatch::all(&wanted);
    let mut batch_load =
        BatchLoad::new(batches.remove(0), (Time::from_secs(0), Time::from_secs(DAY)));
    let (mut count, mut report) = (Count::default(), LoadStats::default());
    while !batch_load.is_done() {
        let slice = batch_load.next(&context).await.expect("the query succeeds");
        let owner_points = batch_load.batch.proof.size_in_points();
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
