//! `plimsoll doctor`: probes a Prometheus server, compares it with a cluster, and reports whether it is usable.
//!
//! ```text
//!   reachable? ──▶ cluster: VPAs and pods ──▶ server: build and flags ──▶ schema of series ──▶ depth of history, cost
//! ```
//!
//! If the first query fails, the report is a single error line. The other queries have a common deadline; what is not
//! finished by then is reported as unknown.

mod cluster_coverage;
mod sample_read;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{CollectedSeries, CompletedQuery, PrometheusClient, QueryLimits, QueryObserver},
    decode::IgnoreSeries,
    detect::{SchemaOverrides, detect, find_recorded},
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema, THROTTLED_PERIODS_METRIC, WithOrigin},
    selector::{Pattern, Selector},
    transport::{HttpTransport, TransportConfig, TransportError, WallClock},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use self::{
    cluster_coverage::{ClusterPods, compare_with_series, find_pods},
    sample_read::SampleReader,
};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::command_client::ClusterOptions,
    report::{
        doctor::{
            DoctorReport, ProbeResults, diagnose,
            probe_results::{
                ClusterCoverage, Depth, KUBE_STATE_METRICS_FAMILIES, ProbeAnswer, Stage,
            },
            report::{Evidence, Range},
        },
        style::format_span,
    },
};

/// Timeout of the first query, which counts the scrape targets.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the interval in which history starts is bisected.
const BISECTION_STEPS: u32 = 5;
/// Ages at which series are probed, besides now and the wanted history.
const PROBED_AGES: [Duration; 5] = [
    Duration::from_hours(1),
    Duration::from_hours(24),
    Duration::from_hours(48),
    Duration::from_hours(96),
    Duration::from_hours(192),
];

#[derive(Clone, Debug)]
pub struct DoctorConfig {
    pub transport: TransportConfig,
    /// Overrides of the detected schema, and label matchers for every query.
    pub series_options: SchemaOverrides,
    pub wanted_history: Duration,
    pub timeout: Duration,
    pub deadline: Duration,
    /// How to reach the cluster to compare with.
    pub cluster_options: ClusterOptions,
    pub namespace: Option<String>,
    /// The given flags about the server, quoted for a shell.
    pub given_flags: Vec<String>,
    pub secret_flags: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("{0}")]
    Unreachable(String),
}

pub async fn examine(config: &DoctorConfig, clock: &Clock) -> Result<DoctorReport, DoctorError> {
    let started = Instant::now();
    let now = clock.now();
    let time_source = clock.clone();
    let wall = WallClock::new(move || time_source.now());
    let transport = HttpTransport::new(config.transport.clone(), wall.clone())?;
    let address = transport.address().to_owned();
    let query_log = Arc::new(QueryLog::default());
    let limits = QueryLimits {
        timeout: config.timeout,
        max_attempts: 1,
        initial_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(2),
        ..QueryLimits::default()
    };
    let shared_transport = Arc::new(transport);
    let client = |limits: QueryLimits| {
        PrometheusClient::new(shared_transport.clone(), limits).with_observer(query_log.clone())
    };
    let first =
        client(QueryLimits { timeout: FIRST_RESPONSE_TIMEOUT.min(config.timeout), ..limits });
    let up = Selector::metric("up").with_all(&config.series_options.matchers);
    let up = Query::from(up).aggregate(Aggregation::Count, &[]);
    if let Err(failure) = first.instant(&up, now, &mut IgnoreSeries).await {
        return Err(DoctorError::Unreachable(failure_message(&address, failure)));
    }
    let first_evidence = query_log.drain();
    let probe = ServerProbe { client: client(limits), query_log, clock: wall, now };

    let mut facts = ProbeResults {
        at: now,
        address,
        wanted_history: config.wanted_history,
        deadline: config.deadline,
        first_query: first_evidence,
        given_flags: config.given_flags.clone(),
        secret_flags: config.secret_flags.clone(),
        ..ProbeResults::default()
    };
    let remaining = config.deadline.saturating_sub(started.elapsed());
    if timeout(remaining, probe.collect(config, &mut facts)).await.is_ok() {
        facts.stage = Stage::Done;
    }
    Ok(diagnose(facts))
}

/// The error message of a failed query. Unlike controllers, the doctor does not retry.
fn failure_message(address: &str, failure: QueryError) -> String {
    let why = match failure {
        QueryError::Unavailable(why) => why,
        QueryError::Busy { why, .. } => format!("the server is too busy: {why}"),
        other => other.to_string(),
    };
    if why.contains(address) { why } else { format!("{address}: {why}") }
}

/// Probes of one server, all at the same time `now`.
#[derive(Debug)]
struct ServerProbe {
    client: PrometheusClient,
    query_log: Arc<QueryLog>,
    clock: WallClock,
    now: Time,
}

impl ServerProbe {
    /// Runs all probes in order. If this is cancelled, `facts` has the results so far and the current stage.
    async fn collect(&self, config: &DoctorConfig, facts: &mut ProbeResults) {
        // An unresponsive cluster must leave time to probe the server.
        let cluster_timeout = config.deadline / 3;
        let pods = find_pods(&config.cluster_options, config.namespace.as_deref());
        let pods = timeout(cluster_timeout, pods).await.unwrap_or_else(|_| {
            let why = format!(
                "timed out reading its VPAs and pods after {}",
                format_span(cluster_timeout)
            );
            Err(ClusterCoverage::Unreadable(why))
        });
        let mut namespaces: Vec<&str> = pods.iter().flat_map(ClusterPods::namespaces).collect();
        namespaces.extend(config.namespace.as_deref());
        namespaces.sort_unstable();
        namespaces.dedup();

        facts.stage = Stage::Server;
        facts.build = self.fetch_document("/api/v1/status/buildinfo").await;
        facts.flags = self.fetch_document("/api/v1/status/flags").await;
        facts.runtime = self.fetch_document("/api/v1/status/runtimeinfo").await;

        facts.stage = Stage::Schema;
        let found = detect(&self.client, &config.series_options, &namespaces, self.now).await;
        facts.schema = self.with_evidence(found);
        if let Ok(schema) = &mut facts.schema.answer {
            let span = (self.now.earlier(config.wanted_history), self.now);
            let recorded = find_recorded(&self.client, schema, &namespaces, span).await;
            let recorded = self.with_evidence(recorded);
            schema.recording_rules = recorded.answer.clone().unwrap_or_default();
            facts.recording_rules = Some(recorded);
        }
        let found = facts.schema.answer.clone();
        if let Ok(schema) = &found {
            facts.stage = Stage::Families;
            self.probe_series(schema, config, facts).await;
            facts.stage = Stage::Cost;
            facts.sample_read =
                SampleReader { probe: self, schema, config }.read(pods.as_ref().ok()).await;
        }

        facts.stage = Stage::Comparison;
        facts.cluster_coverage = match pods {
            Ok(pods) => compare_with_series(self, pods, found.as_ref().ok()).await,
            Err(not_comparable) => not_comparable,
        };
    }

    /// Adds the queries since the last result as evidence.
    fn with_evidence<T>(&self, answer: Result<T, impl ToString>) -> ProbeAnswer<T> {
        let answer = answer.map_err(|error| error.to_string());
        ProbeAnswer { evidence: self.query_log.drain(), answer }
    }

    async fn fetch_document<T: DeserializeOwned>(&self, path: &str) -> ProbeAnswer<T> {
        let answer = self.client.get_data(path, &[]).await;
        self.with_evidence(answer)
    }

    async fn query_vector(&self, query: &Query, at: Time) -> ProbeAnswer<Vec<CollectedSeries>> {
        let answer = self.client.vector(query, at).await;
        self.with_evidence(answer)
    }

    /// The result of an instant query that returns a single number.
    async fn query_count(&self, query: &Query, at: Time) -> ProbeAnswer<u64> {
        let answer = self.client.count(query, at).await;
        self.with_evidence(answer)
    }

    async fn probe_series(&self, schema: &Schema, config: &DoctorConfig, facts: &mut ProbeResults) {
        let containers = |metric: &WithOrigin<String>| {
            let selector = schema.usage_selector_in(metric, config.namespace.as_deref().as_slice());
            let one_each = Query::from(selector);
            one_each.aggregate(Aggregation::Group, &schema.usage.container_labels())
        };
        let throttled = WithOrigin::detected(THROTTLED_PERIODS_METRIC.to_owned());
        let throttled = containers(&throttled).aggregate(Aggregation::Count, &[]);
        facts.throttled = Some(self.query_count(&throttled, self.now).await);
        if let Some(kube_state_metrics) = &schema.kube_state_metrics {
            facts.families = Some(self.query_families(kube_state_metrics, schema).await);
        }

        facts.stage = Stage::Depth;
        let memory = containers(&schema.usage.memory);
        let count_query = memory.aggregate(Aggregation::Count, &[]);
        let mut ages = vec![Duration::ZERO, config.wanted_history];
        ages.extend(PROBED_AGES.into_iter().filter(|age| *age < config.wanted_history));
        ages.sort_unstable();
        for age in ages {
            facts.depth.push(self.query_depth(&count_query, age).await);
        }
        for _ in 0..BISECTION_STEPS {
            let has =
                |depth: &Depth| depth.containers.answer.as_ref().is_ok_and(|count| *count > 0);
            let Some(oldest) = facts.depth.iter().rposition(has) else { break };
            let Some(before) = facts.depth.get(oldest + 1) else { break };
            let age = (facts.depth[oldest].age + before.age) / 2;
            let depth = self.query_depth(&count_query, age).await;
            facts.depth.insert(oldest + 1, depth);
        }
    }

    /// The metric families of kube-state-metrics that the server has.
    async fn query_families(
        &self,
        kube_state_metrics: &KubeStateMetrics,
        schema: &Schema,
    ) -> ProbeAnswer<BTreeSet<String>> {
        const NAME: &str = "__name__";
        let mut selector = Selector::any_metric().matches(
            NAME,
            Pattern::any_literal(KUBE_STATE_METRICS_FAMILIES.map(|(name, ..)| name)),
        );
        if let Some(job) = &kube_state_metrics.job {
            selector = selector.equals("job", job);
        }
        let query = Query::from(selector.with_all(&schema.matchers));
        let query = query.aggregate(Aggregation::Group, &[NAME]);
        let ProbeAnswer { evidence, answer } = self.query_vector(&query, self.now).await;
        let names = |groups: Vec<CollectedSeries>| {
            groups.into_iter().filter_map(|mut group| group.labels.remove(NAME)).collect()
        };
        ProbeAnswer { evidence, answer: answer.map(names) }
    }

    /// The number of containers that had series at an age.
    async fn query_depth(&self, query: &Query, age: Duration) -> Depth {
        let mut containers = self.query_count(query, self.now.earlier(age)).await;
        let about =
            if age.is_zero() { "now".to_owned() } else { format!("{} ago", format_span(age)) };
        for evidence in &mut containers.evidence {
            evidence.about.clone_from(&about);
        }
        Depth { age, containers }
    }
}

#[derive(Debug, Default)]
struct QueryLog(Mutex<Vec<Evidence>>);

impl QueryLog {
    fn drain(&self) -> Vec<Evidence> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl QueryObserver for QueryLog {
    fn on_query(&self, query: &CompletedQuery<'_>) {
        let field = |name: &str| {
            query.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
        };
        let seconds = |name: &str| field(name)?.parse::<f64>().ok();
        let time =
            |name: &str| Some(Time::from_nanos((seconds(name)? * 1e3).round() as i64 * 1_000_000));
        let range = time("start").zip(time("end")).zip(seconds("step"));
        let range = range.map(|((from, to), step_seconds)| Range { from, to, step_seconds });
        let mut evidence = Evidence {
            asked: field("query").unwrap_or(query.path).to_owned(),
            range,
            millis: u64::try_from(query.duration.as_millis()).unwrap_or(u64::MAX),
            requests: 1,
            ..Evidence::default()
        };
        match query.outcome {
            Ok(summary) => {
                evidence.series = summary.series;
                evidence.points = summary.points;
                evidence.bytes = summary.bytes;
            }
            Err(failure) => evidence.error = Some(failure.to_string()),
        }
        self.0.lock().push(evidence);
    }
}
