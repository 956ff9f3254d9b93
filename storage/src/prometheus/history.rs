//! The read-only backend that loads history from a server with the Prometheus API.
//!
//! ```text
//!   VPAs ─▶ WorkloadBatch: one namespace, a pattern of pods ─▶ PodInfo: owners, OOM-killed pods
//!              └▶ TimeSlice: CPU, memory, OOM kills ─▶ complete? ─▶ in order of time ─▶ Sink
//! ```
//!
//! A slice is held in memory until it is complete, and then emitted as a whole. So a partial response never counts,
//! memory is bounded by a budget and not by the length of the history, and a load resumes where it stopped.

mod batch_group;
mod batch_load;
mod jvm_series;
mod live_pods;
mod load;
mod oom_kills;
mod owner_queries;
mod owner_series;
mod pod_info;
mod pod_labels;
mod pod_name_rules;
mod pod_value_collector;
mod pod_values;
mod query_plan;
#[cfg(test)]
mod tests;
mod throttling;
mod time_slice;
mod workload_batch;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;

use self::{
    batch_group::BatchGroup,
    batch_load::LoadContext,
    pod_labels::assign_labelled_pods,
    pod_values::{MAX_HALVINGS, PodQueries},
    query_plan::QueryPlan,
    workload_batch::{LONGEST_PATTERN, WorkloadBatch},
};
pub use self::{
    jvm_series::{JvmFigure, jvm_families},
    live_pods::{KnownPods, LivePods},
    load::{HistoryLoad, LoadIncomplete, LoadStats},
    pod_labels::{PodLabelQuery, PodOwnership, VpaMatcher},
    pod_name_rules::OwnerRef,
    pod_values::{PodQuery, PodValue, PodValueReport},
    query_plan::{QueryPreview, Weighting, preview_queries},
    throttling::ThrottlingReport,
    time_slice::SkippedCounts,
};
use super::{
    client::PrometheusClient,
    detect::{DetectError, SchemaOverrides, detect, find_recorded},
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{MAX_NAMESPACES, RecordingRules, Schema},
    selector::{Pattern, Selector, literal_groups},
    transport::WallClock,
};
use crate::{Error, LoadReport, LoadRequest, Storage, Writer};
use plimsoll_core::{
    history::{Sink, SkippedRecord},
    types::{ObjectKey, Time},
};

/// Default number of points in a slice. At sixteen bytes each, doubled while vectors grow: some MB per concurrent query.
const DEFAULT_POINT_BUDGET: u64 = 250_000;

/// An incomplete schema is detected again after this: the missing series may appear later.
const INCOMPLETE_SCHEMA_TTL: Duration = Duration::from_mins(10);
/// Even a complete schema is detected again after this: an upgrade may rename jobs and labels.
const SCHEMA_TTL: Duration = Duration::from_hours(1);

/// After this many consecutive reads without a series, the schema is detected again, at most every [`EMPTY_SCHEMA_TTL`].
const MAX_EMPTY_READS: u32 = 3;
const EMPTY_SCHEMA_TTL: Duration = Duration::from_mins(5);

/// The label with the name of a family.
const NAME_LABEL: &str = "__name__";

/// Settings of a history load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// Configured names of series.
    pub overrides: SchemaOverrides,
    /// Where to read pod labels, if they should determine which VPA a pod belongs to. Otherwise owners and names do.
    pub pod_labels: Option<PodLabelQuery>,
    /// The length of the history (`--history-length`).
    pub length: Duration,
    /// The weighting of samples (`--history-weighting`).
    pub weighting: Weighting,
    /// Maximum number of points held in memory per concurrent batch, including the owners of its pods. A single step is
    /// always read as a whole, however large it is.
    pub point_budget: u64,
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self {
            overrides: SchemaOverrides::default(),
            pod_labels: None,
            length: Duration::from_hours(8 * 24),
            weighting: Weighting::default(),
            point_budget: DEFAULT_POINT_BUDGET,
        }
    }
}

/// Reads history from the series of a server.
#[derive(Debug)]
pub struct PrometheusHistory {
    pub server: String,
    pub client: PrometheusClient,
    settings: HistorySettings,
    clock: WallClock,
    /// The schema, and when it was detected.
    schema: Mutex<Option<(Arc<Schema>, Time)>>,
    /// Consecutive reads without a series.
    empty_reads: AtomicU32,
    /// Whether it was logged that pod labels are used, or that they cannot be used.
    logged_pod_labels: AtomicBool,
    logged_no_pod_labels: AtomicBool,
}

impl PrometheusHistory {
    /// Creates a backend for this server; `server` is its address for errors.
    pub fn new(
        server: impl Into<String>,
        client: PrometheusClient,
        settings: HistorySettings,
        clock: WallClock,
    ) -> Self {
        Self {
            server: server.into(),
            client,
            settings,
            clock,
            schema: Mutex::new(None),
            empty_reads: AtomicU32::new(0),
            logged_pod_labels: AtomicBool::new(false),
            logged_no_pod_labels: AtomicBool::new(false),
        }
    }

    /// Returns the schema of the server's series. It is detected again every hour, and earlier if it is incomplete because
    /// the server or kube-state-metrics had just started, or if reads return nothing ([`Self::record_read`]). The previous
    /// schema stays in use while the server is unavailable or has less than before.
    pub async fn schema(&self, namespaces: &[&str]) -> Result<Arc<Schema>, DetectError> {
        let now = self.clock.now();
        let previous = self.schema.lock().clone();
        if let Some((schema, at)) = &previous
            && !self.is_redetection_due(schema, *at, now)
        {
            return Ok(Arc::clone(schema));
        }
        let previous = previous.map(|(schema, _)| schema);
        self.empty_reads.store(0, Ordering::Relaxed);
        let found = match (self.find(namespaces, now).await, &previous) {
            (Ok(found), None) => Arc::new(found),
            (Ok(found), Some(previous)) => Arc::new(found.or_previous(previous)),
            (Err(error), None) => return Err(error),
            (Err(error), Some(previous)) => {
                tracing::debug!(server = self.server, %error, "failed to detect series; using the previous schema");
                Arc::clone(previous)
            }
        };
        if previous.as_ref().is_none_or(|previous| !found.has_same_names(previous)) {
            tracing::info!(server = self.server, schema = %found, "detected metric and label names of Prometheus");
        }
        if previous.is_none() && found.mixes_clusters() {
            tracing::warn!(
                server = self.server,
                "Prometheus has series of several clusters, so pods with the same name are mixed up; select one cluster \
                 with --prometheus-matcher"
            );
        }
        *self.schema.lock() = Some((Arc::clone(&found), now));
        Ok(found)
    }

    fn is_redetection_due(&self, schema: &Schema, at: Time, now: Time) -> bool {
        let is_older_than = |ttl| now >= at.later(ttl);
        let is_empty = self.empty_reads.load(Ordering::Relaxed) >= MAX_EMPTY_READS;
        (schema.is_incomplete() && is_older_than(INCOMPLETE_SCHEMA_TTL))
            || (is_empty && schema.usage.containers > 0 && is_older_than(EMPTY_SCHEMA_TTL))
            || is_older_than(SCHEMA_TTL)
    }

    /// Records a read of usage with the current schema, and how many containers it returned.
    pub fn record_read(&self, containers: u64) {
        if containers > 0 {
            self.empty_reads.store(0, Ordering::Relaxed);
        } else {
            self.empty_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn find(&self, namespaces: &[&str], now: Time) -> Result<Schema, DetectError> {
        // In a partial response, existing series would seem to be missing.
        let client = self.client.clone().rejecting_partial();
        let mut schema = detect(&client, &self.settings.overrides, namespaces, now).await?;
        let plan = QueryPlan::new(self.settings.weighting, &schema);
        let span = plan.span(self.settings.length, now);
        schema.recording_rules = self.recorded(&schema, &plan, namespaces, span).await?;
        Ok(schema)
    }

    /// Starts to load the history of these VPAs, each with the owner of its pods, from `after` (or the start of the history)
    /// until `until` (or now). Both are rounded down to whole steps, so that the next load can start where this one ends
    /// ([`HistoryLoad::until`]). Also returns the VPAs that cannot be loaded.
    pub async fn start_load(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
    ) -> Result<(HistoryLoad, Vec<SkippedRecord>), DetectError> {
        self.start_load_with_pods(wanted, after, until, KnownPods::default()).await
    }

    /// Determines by labels which VPAs the pods of this time range belong to, if configured. `None` if that is impossible:
    /// then owners and names are used, and a warning is logged once.
    pub async fn pod_ownership(
        &self,
        namespaces: &[&str],
        within: Option<Duration>,
        selects: &dyn VpaMatcher,
    ) -> Result<Option<PodOwnership>, DetectError> {
        let Some(labels) = self.settings.pod_labels.as_ref().filter(|_| !namespaces.is_empty())
        else {
            return Ok(None);
        };
        let schema = &*self.schema(namespaces).await?;
        let span = (within.unwrap_or(self.settings.length), self.clock.now());
        // A partial response would be taken as complete.
        let client = self.client.clone().rejecting_partial();
        let why = match labels.query_ownership(&client, schema, namespaces, span, selects).await {
            Ok(Some(ownership)) => {
                if !self.logged_pod_labels.swap(true, Ordering::Relaxed) {
                    let [namespace, pod, prefix] = &ownership.names;
                    let query = &*labels.query;
                    tracing::info!(query, namespace, pod, prefix, "matching pods by their labels");
                }
                return Ok(Some(ownership));
            }
            Ok(None) => "the result has no pod labels".to_owned(),
            Err(failure) if failure.is_query_specific() => failure.to_string(),
            Err(failure) => return Err(failure.into()),
        };
        if !self.logged_no_pod_labels.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.server,
                query = labels.query,
                why,
                "cannot match pods by --metric-for-pod-labels; matching them by owners and names"
            );
        }
        Ok(None)
    }

    /// Like [`Self::start_load`], with pods that are known from their labels or because they exist now.
    pub async fn start_load_with_pods(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
        pods: KnownPods<'_>,
    ) -> Result<(HistoryLoad, Vec<SkippedRecord>), DetectError> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let namespaces: Vec<&str> = namespaces.into_iter().collect();
        let mut schema = self.schema(&namespaces).await?;
        let plan = QueryPlan::new(self.settings.weighting, &schema);
        let (start, end) = plan.span(self.settings.length, self.clock.now());
        let step_time = |time| plan.moment_before(end, time).max(start);
        let to = until.map_or(end, step_time);
        let after = after.map_or(start, step_time).min(to);
        // Check for this time range, and again: rules come and go.
        let recorded = self.recorded(&schema, &plan, &namespaces, (after, to)).await?;
        if recorded != schema.recording_rules {
            schema = Arc::new(Schema { recording_rules: recorded, ..Schema::clone(&schema) });
        }
        let (batches, skipped) = Self::batches(wanted, pods);
        let client = self.client.clone().with_dialect(schema.dialect).rejecting_partial();
        let budget = self.settings.point_budget.max(1);
        let context = LoadContext::new(client, schema, plan, budget);
        Ok((HistoryLoad::new(context, batches, (after, to)), skipped))
    }

    /// Queries how much CPU limits throttled the containers of these VPAs, within this time until now. Fails only if the
    /// schema is not available; other failures are part of the report.
    pub async fn throttling(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        lookback: Duration,
        pods: KnownPods<'_>,
    ) -> Result<ThrottlingReport, DetectError> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let schema = self.schema(&Vec::from_iter(namespaces)).await?;
        let (batches, _) = Self::batches(wanted, pods);
        let (client, now) = (&self.client.clone().rejecting_partial(), self.clock.now());
        let (queries, span) = (&throttling::QUERIES, (now.earlier(lookback), now));
        let budget = self.settings.point_budget.max(1);
        let queries =
            PodQueries { client, schema: &schema, queries, span, budget, max_halvings: 0 };
        let groups = batches.into_iter().map(BatchGroup::single).collect();
        Ok(ThrottlingReport::query(queries, groups).await)
    }

    /// Queries the largest value of each series of the pods of these VPAs in a time range. The values of a VPA are passed on
    /// only if all of its queries succeeded. Fails only if the schema is not available; other failures are part of the
    /// report.
    pub async fn pod_values(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        queries: &[PodQuery],
        span: (Time, Time),
        pods: KnownPods<'_>,
        accept: &mut (dyn FnMut(PodValue<'_>) + Send),
    ) -> Result<PodValueReport, DetectError> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let schema = self.schema(&Vec::from_iter(namespaces)).await?;
        let (batches, _) = Self::batches(wanted, pods);
        let client = &self.client.clone().with_dialect(schema.dialect).rejecting_partial();
        let (budget, max_halvings) = (self.settings.point_budget.max(1), MAX_HALVINGS);
        let queries = PodQueries { client, schema: &schema, queries, span, budget, max_halvings };
        Ok(queries.query(BatchGroup::all(batches), accept).await)
    }

    /// Returns the namespaces that have container series now: there, a workload without history is unexpected.
    pub async fn namespaces_with_series(
        &self,
        namespaces: &[&str],
    ) -> Result<HashSet<Box<str>>, DetectError> {
        let schema = self.schema(namespaces).await?;
        let (label, now) = (&*schema.usage.namespace.value, self.clock.now());
        let mut found = HashSet::new();
        for group in literal_groups(namespaces.iter().copied().collect(), LONGEST_PATTERN) {
            let series = schema.usage_selector_in(&schema.usage.memory, &group);
            let query = Query::from(series).aggregate(Aggregation::Group, &[label]);
            let series = self.client.vector(&query, now).await?;
            let names = series.iter().filter_map(|one| one.labels.get(label));
            found.extend(names.map(|name| name.as_str().into()));
        }
        Ok(found)
    }

    /// Returns which of these families have series in these namespaces now, in a single query.
    pub async fn present_families(
        &self,
        families: &[&str],
        namespaces: &[&str],
    ) -> Result<BTreeSet<String>, DetectError> {
        let schema = self.schema(namespaces).await?;
        let names = Pattern::any_literal(families.iter().copied());
        let mut series = Selector::any_metric().matches(NAME_LABEL, names);
        if namespaces.len() <= MAX_NAMESPACES {
            series = series.equals_any(&*schema.usage.namespace.value, namespaces);
        }
        let series = Query::from(series.with_all(&schema.matchers));
        let query = series.aggregate(Aggregation::Group, &[NAME_LABEL]);
        let found = self.client.vector(&query, self.clock.now()).await?;
        Ok(found.iter().map(|series| series.get(NAME_LABEL).to_owned()).collect())
    }

    /// Groups workloads into batches. Also returns those that cannot be queried.
    fn batches(
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        pods: KnownPods<'_>,
    ) -> (Vec<WorkloadBatch>, Vec<SkippedRecord>) {
        let (mut batches, skipped) = WorkloadBatch::all(wanted);
        for batch in &mut batches {
            if let Some(ownership) = pods.by_label {
                assign_labelled_pods(batch, ownership);
            }
            if let Some(live) = pods.live {
                live.assign_to(batch);
            }
        }
        (batches, skipped)
    }

    /// Detects the recording rules of this time range. If that is too expensive, they are not used.
    async fn recorded(
        &self,
        schema: &Schema,
        plan: &QueryPlan,
        namespaces: &[&str],
        span: (Time, Time),
    ) -> Result<RecordingRules, QueryError> {
        if !plan.may_be_recorded() || span.0 >= span.1 {
            return Ok(RecordingRules::Absent);
        }
        match find_recorded(&self.client.clone().rejecting_partial(), schema, namespaces, span)
            .await
        {
            Err(
                failure @ (QueryError::TooLarge(_)
                | QueryError::Timeout(_)
                | QueryError::BadQuery(_)),
            ) => {
                tracing::debug!(server = self.server, %failure, "not using recorded series");
                Ok(RecordingRules::Absent)
            }
            found => found,
        }
    }

    fn failed(&self, why: &impl ToString) -> Error {
        let why = why.to_string();
        // Errors of the connection name the server themselves.
        let own = why.strip_prefix(&format!("{} ", self.server));
        Error::Unavailable {
            place: self.server.clone(),
            why: own.map_or(why.clone(), str::to_owned),
        }
    }
}

#[async_trait]
impl Storage for PrometheusHistory {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    /// Loads all of the history, or fails. Use [`PrometheusHistory::start_load`] to resume after a failure.
    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let LoadRequest::Vpas(wanted) = wanted else {
            return Err(Error::Unusable {
                place: self.server.clone(),
                why: "it has series of pods and no list of VPAs: request specific VPAs".to_owned(),
            });
        };
        if wanted.is_empty() {
            return Ok(LoadReport::default());
        }
        let (mut load, mut skipped) =
            self.start_load(wanted, None, None).await.map_err(|error| self.failed(&error))?;
        load.advance(sink).await.map_err(|error| self.failed(&error))?;
        let report = load.report;
        tracing::info!(server = self.server, ?report, "loaded history");
        if report.skipped.unlabelled > 0 {
            skipped.push(SkippedRecord {
                record: format!("{} series", report.skipped.unlabelled),
                reason: "they have no pod and container labels".to_owned(),
            });
        }
        let samples = usize::try_from(report.samples).unwrap_or(usize::MAX);
        Ok(LoadReport { snapshots: 0, samples, skipped })
    }

    fn writer(&self) -> Option<&dyn Writer> {
        None
    }
}
