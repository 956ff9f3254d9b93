//! Reads timelines from Prometheus. Selectors are built by type; no text of a request becomes a query.

mod collector;
mod replica_queries;
mod workload_queries;

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, stream};
use plimsoll_core::{rightsizing::survey::Resource, types::Time};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryRange},
    promql::Query,
    selector::LabelMatchers,
};

use self::collector::{CollectedSeries, Collector, MAX_SERIES};
use super::{
    list_query::Span,
    replica_timeline::{MetricChart, ReplicaTimeline},
    timeline::{Timeline, TimelineChart, TimelineEvent},
};
use crate::report::recommend::server::ConnectedServer;

/// The most points of a series.
const MAX_POINTS: u64 = 590;
/// Concurrent queries.
const MAX_QUERIES: usize = 4;
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The window of rates and of last values, if steps are shorter.
const RATE_WINDOW: u64 = 300;

/// The workload of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimelineSubject {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    pub vpa: Option<String>,
}

/// The autoscaler of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaSubject {
    pub kind: ReplicaKind,
    pub namespace: String,
    pub name: String,
}

/// The kind of an autoscaler of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaKind {
    /// HorizontalPodAutoscaler.
    Hpa,
    /// WatermarkPodAutoscaler.
    Wpa,
}

impl ReplicaKind {
    /// The value of the label `kind`.
    fn label(self) -> &'static str {
        match self {
            Self::Hpa => "hpa",
            Self::Wpa => "wpa",
        }
    }
}

/// Reads timelines from one server.
#[derive(Debug)]
pub struct TimelineReader {
    client: PrometheusClient,
    server: String,
    matchers: LabelMatchers,
}

/// A query, what it is for, and the labels that its series are told apart by.
#[derive(Clone, Debug)]
struct PlannedQuery<P> {
    part: P,
    query: Query,
    labels: &'static [&'static str],
}

/// The points of a timeline.
#[derive(Clone, Copy, Debug)]
struct Grid {
    from: Time,
    until: Time,
    step: u64,
}

impl Grid {
    /// The time before `until`, in steps of whole minutes.
    fn before(until: Time, span: Span) -> Self {
        let step = (span.seconds().div_ceil(MAX_POINTS)).div_ceil(60) * 60;
        let until = Time::from_secs(until.as_secs().div_euclid(step as i64) * step as i64);
        Self { from: until.earlier(Duration::from_secs(span.seconds())), until, step }
    }
}

impl TimelineReader {
    /// A reader of a server. The matchers are added to every query.
    pub fn new(server: &ConnectedServer, matchers: LabelMatchers) -> Self {
        let limits = QueryLimits {
            max_in_flight: MAX_QUERIES,
            timeout: QUERY_TIMEOUT,
            max_attempts: 1,
            max_response_bytes: Some(8 << 20),
            max_response_points: Some(MAX_POINTS * MAX_SERIES as u64 * 2),
            ..QueryLimits::default()
        };
        Self { client: server.client(limits), server: server.name.clone(), matchers }
    }

    /// Reads the time of a workload before `until`. Queries that fail are named; if all fail, the first failure is the
    /// error.
    pub async fn read(
        &self,
        subject: &TimelineSubject,
        span: Span,
        until: Time,
    ) -> Result<Timeline, String> {
        let grid = Grid::before(until, span);
        let queries = workload_queries::queries(subject, grid.step, &self.matchers).into_iter();
        let labels = workload_queries::LABELS;
        let queries = queries.map(|(part, query)| PlannedQuery { part, query, labels });
        let (results, problems) = self.run(queries.collect(), grid).await?;
        let mut charts: BTreeMap<(String, Resource), TimelineChart> = BTreeMap::new();
        let mut events = Vec::new();
        for (part, series) in results {
            workload_queries::add(part, series, &mut charts, &mut events);
        }
        events.sort_by_key(|event: &TimelineEvent| (event.at, event.what));
        Ok(Timeline {
            from: grid.from,
            until: grid.until,
            step_seconds: grid.step,
            server: self.server.clone(),
            charts: charts.into_values().collect(),
            events,
            problems,
        })
    }

    /// Reads the time of an autoscaler of replicas before `until`, in the same way.
    pub async fn read_replicas(
        &self,
        subject: &ReplicaSubject,
        span: Span,
        until: Time,
    ) -> Result<ReplicaTimeline, String> {
        let grid = Grid::before(until, span);
        let queries = replica_queries::queries(subject, grid.step, &self.matchers).into_iter();
        let queries = queries.map(|(part, query)| {
            let labels = part.label();
            PlannedQuery { part, query, labels }
        });
        let (results, problems) = self.run(queries.collect(), grid).await?;
        let mut timeline = ReplicaTimeline {
            from: grid.from,
            until: grid.until,
            step_seconds: grid.step,
            server: self.server.clone(),
            problems,
            ..ReplicaTimeline::default()
        };
        let mut metrics: BTreeMap<String, MetricChart> = BTreeMap::new();
        for (part, series) in results {
            replica_queries::add(part, series, &mut timeline, &mut metrics);
        }
        timeline.metrics = metrics.into_values().collect();
        timeline.restrictions.sort_by(|one, other| {
            (&one.reason, one.from, one.until).cmp(&(&other.reason, other.from, other.until))
        });
        Ok(timeline)
    }

    /// The series of each query that succeeds, and why the others failed.
    async fn run<P: Copy>(
        &self,
        queries: Vec<PlannedQuery<P>>,
        grid: Grid,
    ) -> Result<(Vec<(P, Vec<CollectedSeries>)>, Vec<String>), String> {
        let Grid { from, until, step } = grid;
        let range = QueryRange::new(from, until, Duration::from_secs(step));
        let range = range.map_err(|error| error.to_string())?;
        let reads = queries.into_iter().map(|planned| async move {
            let mut collector = Collector::new(planned.labels);
            let read = self.client.range(&planned.query, range, &mut collector).await;
            (planned.part, read.map(|_| collector.into_series()))
        });
        let reads: Vec<_> = stream::iter(reads).buffered(MAX_QUERIES).collect().await;
        let (mut results, mut problems) = (Vec::new(), Vec::new());
        for (part, read) in reads {
            match read {
                Ok(series) => results.push((part, series)),
                Err(error) => problems.push(format!("{}: {}", self.server, error)),
            }
        }
        if let (true, Some(first)) = (results.is_empty(), problems.first()) {
            return Err(first.clone());
        }
        problems.dedup();
        Ok((results, problems))
    }
}
