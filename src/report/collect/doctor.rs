//! `plimsoll doctor`: asks a Prometheus what it is good for, looks at the cluster beside it, and reports.
//!
//! ```text
//!   does it answer ──▶ cluster: VPAs and pods ──▶ what it is ──▶ names of series ──▶ how far back, at what cost
//! ```
//!
//! The first question decides whether there are others: a server that does not answer is one line. The others have a
//! time for all of them together; what it does not suffice for is reported as not known.

mod cluster_coverage;
mod query_log;
mod sample_read;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    decode::IgnoreSeries,
    detect::{SchemaOverrides, detect, find_recorded},
    promql::{Aggregation, Grouping, Query},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema, THROTTLED_PERIODS_METRIC, WithOrigin},
    selector::{Pattern, Selector},
    transport::{HttpTransport, TransportConfig, TransportError, WallClock},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use self::{
    cluster_coverage::{ClusterPods, compare_with_series, find_pods},
    query_log::{InstantVector, QueryLog},
};
use crate::controllers::runtime::cluster::ClusterOptions;
use crate::{
    cluster::clock::Clock,
    report::{
        doctor::{
            DoctorReport, ProbeResults, diagnose,
            probe_results::{
                ClusterCoverage, Depth, KUBE_STATE_METRICS_FAMILIES, ProbeAnswer, Stage,
            },
        },
        style::format_span,
    },
};

/// How long the first answer may take: it counts what the server scrapes.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the time that has the beginning of history in it is halved.
const BISECTION_STEPS: u32 = 5;
/// Moments at which series are looked for, besides now and what is wanted.
const PROBED_AGES: [Duration; 5] = [
    Duration::from_hours(1),
    Duration::from_hours(24),
    Duration::from_hours(48),
    Duration::from_hours(96),
    Duration::from_hours(192),
];

/// What is examined.
#[derive(Clone, Debug)]
pub struct DoctorConfig {
    /// The server.
    pub transport: TransportConfig,
    /// What was set about its series, and what goes into every query.
    pub series_options: SchemaOverrides,
    /// How far back history is wanted.
    pub wanted_history: Duration,
    /// How long one query may take.
    pub timeout: Duration,
    /// How long all of it may take.
    pub deadline: Duration,
    /// The cluster beside it.
    pub cluster_options: ClusterOptions,
    /// Only VPAs and series of this namespace.
    pub namespace: Option<String>,
    /// Flags of the server as they were given, each as a shell takes it.
    pub given_flags: Vec<String>,
    /// Given flags that hold secrets.
    pub secret_flags: Vec<String>,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The way to the server makes no sense.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It does not answer queries.
    #[error("{0}")]
    Unreachable(String),
}

/// Asks everything and reports.
pub async fn examine(config: &DoctorConfig, clock: &Clock) -> Result<DoctorReport, DoctorError> {
    let begun = Instant::now();
    let now = clock.now();
    let own = clock.clone();
    let wall = WallClock::new(move || own.now());
    let door = HttpTransport::new(config.transport.clone(), wall.clone())?;
    let address = door.address().to_owned();
    let journal = Arc::new(QueryLog::default());
    let limits = QueryLimits {
        timeout: config.timeout,
        max_attempts: 1,
        initial_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(2),
        ..QueryLimits::default()
    };
    let transport = Arc::new(door);
    let client = |limits: QueryLimits| {
        PrometheusClient::new(transport.clone(), limits).with_observer(journal.clone())
    };
    let first =
        client(QueryLimits { timeout: FIRST_RESPONSE_TIMEOUT.min(config.timeout), ..limits });
    let up = Selector::metric("up").with_all(&config.series_options.matchers);
    let up = Query::from(up).aggregate(Aggregation::Count, Grouping::By(&[]));
    if let Err(failure) = first.instant(&up, now, &mut IgnoreSeries).await {
        return Err(DoctorError::Unreachable(failure_message(&address, failure)));
    }
    let hello = journal.drain();
    let exam = ServerProbe { client: client(limits), query_log: journal, clock: wall, now };

    let mut facts = ProbeResults {
        at: now,
        address,
        wanted_history: config.wanted_history,
        stage: Stage::Cluster,
        deadline: config.deadline,
        first_query: hello,
        build: ProbeAnswer::not_yet(),
        flags: ProbeAnswer::not_yet(),
        runtime: ProbeAnswer::not_yet(),
        schema: ProbeAnswer::not_yet(),
        recording_rules: None,
        throttled: None,
        families: None,
        depth: Vec::new(),
        sample_read: None,
        cluster_coverage: ClusterCoverage::Empty,
        given_flags: config.given_flags.clone(),
        secret_flags: config.secret_flags.clone(),
    };
    let left = config.deadline.saturating_sub(begun.elapsed());
    if timeout(left, exam.collect(config, &mut facts)).await.is_ok() {
        facts.stage = Stage::Done;
    }
    Ok(diagnose(facts))
}

/// Why there is no answer. Nothing is asked again here, whatever a role would do.
fn failure_message(address: &str, failure: QueryError) -> String {
    let why = match failure {
        QueryError::Unavailable(why) => why,
        QueryError::Busy { why, .. } => format!("the server is too busy: {why}"),
        other => other.to_string(),
    };
    if why.contains(address) { why } else { format!("{address}: {why}") }
}

/// Questions to one server, all about one moment.
#[derive(Debug)]
struct ServerProbe {
    client: PrometheusClient,
    query_log: Arc<QueryLog>,
    clock: WallClock,
    now: Time,
}

impl ServerProbe {
    /// Asks one thing after the other. Whoever gives up on it keeps what is known by then, and at which stage it is.
    async fn collect(&self, config: &DoctorConfig, facts: &mut ProbeResults) {
        // A cluster that does not answer leaves time to ask the server.
        let patience = config.deadline / 3;
        let pods = find_pods(&config.cluster_options, config.namespace.as_deref());
        let pods = timeout(patience, pods).await.unwrap_or_else(|_| {
            let why =
                format!("its VPAs and pods could not be read within {}", format_span(patience));
            ClusterPods::NotComparable(ClusterCoverage::Unreadable(why))
        });
        let mut namespaces: Vec<&str> = pods.namespaces();
        namespaces.extend(config.namespace.as_deref());
        namespaces.sort_unstable();
        namespaces.dedup();

        facts.stage = Stage::Server;
        facts.build = self.fetch_document("/api/v1/status/buildinfo").await;
        facts.flags = self.fetch_document("/api/v1/status/flags").await;
        facts.runtime = self.fetch_document("/api/v1/status/runtimeinfo").await;

        facts.stage = Stage::Schema;
        let found = detect(&self.client, &config.series_options, &namespaces, self.now).await;
        facts.schema = self.with_evidence(found.map_err(|error| error.to_string()));
        if let Ok(schema) = &mut facts.schema.answer {
            let span = (self.now.earlier(config.wanted_history), self.now);
            let recorded = find_recorded(&self.client, schema, &namespaces, span).await;
            let recorded = self.with_evidence(recorded.map_err(|failure| failure.to_string()));
            schema.recording_rules = recorded.answer.clone().unwrap_or_default();
            facts.recording_rules = Some(recorded);
        }
        let found = facts.schema.answer.clone();
        if let Ok(schema) = &found {
            facts.stage = Stage::Families;
            self.probe_series(schema, config, facts).await;
            facts.stage = Stage::Cost;
            facts.sample_read = self.read_sample(schema, config, &pods).await;
        }

        facts.stage = Stage::Comparison;
        facts.cluster_coverage = compare_with_series(self, pods, found.as_ref().ok()).await;
    }

    /// An answer with everything that was asked since the last one.
    fn with_evidence<T>(&self, answer: Result<T, String>) -> ProbeAnswer<T> {
        ProbeAnswer { evidence: self.query_log.drain(), answer }
    }

    async fn fetch_document<T: DeserializeOwned>(&self, path: &str) -> ProbeAnswer<T> {
        let answer = self.client.get_data(path, &[]).await;
        self.with_evidence(answer.map_err(|failure| failure.to_string()))
    }

    /// The groups of a query at a moment, with their values.
    async fn query_vector(&self, query: &Query, at: Time) -> ProbeAnswer<InstantVector> {
        let mut groups = InstantVector::default();
        let answer = self.client.instant(query, at, &mut groups).await;
        self.with_evidence(answer.map(|_| groups).map_err(|failure| failure.to_string()))
    }

    /// How many series or groups there are at a moment: a query that answers one number.
    async fn query_count(&self, query: &Query, at: Time) -> ProbeAnswer<u64> {
        let ProbeAnswer { evidence, answer } = self.query_vector(query, at).await;
        let first =
            |groups: InstantVector| groups.samples.first().map_or(0, |group| group.value as u64);
        ProbeAnswer { evidence, answer: answer.map(first) }
    }

    /// What else there is, and how far back the series go.
    async fn probe_series(&self, schema: &Schema, config: &DoctorConfig, facts: &mut ProbeResults) {
        let containers = |metric: &WithOrigin<String>| {
            let selector = schema.usage_selector_in(metric, config.namespace.as_deref().as_slice());
            let one_each = Query::from(selector);
            one_each.aggregate(Aggregation::Group, Grouping::By(&schema.usage.container_labels()))
        };
        let throttled = WithOrigin::detected(THROTTLED_PERIODS_METRIC.to_owned());
        let throttled = containers(&throttled).aggregate(Aggregation::Count, Grouping::By(&[]));
        facts.throttled = Some(self.query_count(&throttled, self.now).await);
        if let Some(states) = &schema.kube_state_metrics {
            facts.families = Some(self.query_families(states, schema).await);
        }

        facts.stage = Stage::Depth;
        let memory = containers(&schema.usage.memory);
        let number = memory.aggregate(Aggregation::Count, Grouping::By(&[]));
        let mut moments = vec![Duration::ZERO, config.wanted_history];
        moments.extend(PROBED_AGES.into_iter().filter(|moment| *moment < config.wanted_history));
        moments.sort_unstable();
        for back in moments {
            facts.depth.push(self.query_depth(&number, back).await);
        }
        for _ in 0..BISECTION_STEPS {
            let has =
                |depth: &Depth| depth.containers.answer.as_ref().is_ok_and(|count| *count > 0);
            let Some(oldest) = facts.depth.iter().rposition(has) else { break };
            let Some(before) = facts.depth.get(oldest + 1) else { break };
            let back = (facts.depth[oldest].age + before.age) / 2;
            let depth = self.query_depth(&number, back).await;
            facts.depth.insert(oldest + 1, depth);
        }
    }

    /// Which families of kube-state-metrics there are.
    async fn query_families(
        &self,
        states: &KubeStateMetrics,
        schema: &Schema,
    ) -> ProbeAnswer<BTreeSet<String>> {
        const NAME: &str = "__name__";
        let mut selector =
            Selector::any_metric().matches(NAME, Pattern::any_literal(KUBE_STATE_METRICS_FAMILIES));
        if let Some(job) = &states.job {
            selector = selector.equals("job", job);
        }
        let query = Query::from(selector.with_all(&schema.matchers));
        let query = query.aggregate(Aggregation::Group, Grouping::By(&[NAME]));
        let ProbeAnswer { evidence, answer } = self.query_vector(&query, self.now).await;
        let names = |groups: InstantVector| {
            groups.samples.into_iter().filter_map(|mut group| group.labels.remove(NAME)).collect()
        };
        ProbeAnswer { evidence, answer: answer.map(names) }
    }

    /// Containers that had series so long ago.
    async fn query_depth(&self, number: &Query, back: Duration) -> Depth {
        let mut containers = self.query_count(number, self.now.earlier(back)).await;
        let about =
            if back.is_zero() { "now".to_owned() } else { format!("{} ago", format_span(back)) };
        for evidence in &mut containers.evidence {
            evidence.about.clone_from(&about);
        }
        Depth { age: back, containers }
    }
}
