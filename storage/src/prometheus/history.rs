//! The backend that reads history from a server that speaks Prometheus' API. It never writes.
//!
//! ```text
//!   VPAs ─▶ batches: one namespace, a pattern of pods ─▶ who owns which pod, who was killed
//!              └▶ slices of time: CPU, memory, kills ─▶ whole? ─▶ in order of time ─▶ Sink
//! ```
//!
//! A slice is held until all of it has come, and then handed on at once; so half an answer never counts, memory is
//! bounded by a budget and not by the length of a history, and reading goes on where it stopped.

mod batch_load;
mod live_pods;
mod load;
mod load_stats;
#[cfg(test)]
mod memory_bound_tests;
mod namespaces;
mod oom_kills;
mod owner_series;
mod pod_info;
mod pod_labels;
mod pod_name_rules;
mod query_plan;
mod query_preview;
mod throttling;
mod time_slice;
mod workload_batch;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

pub use self::{
    live_pods::{KnownPods, LivePods},
    load::{HistoryLoad, LoadIncomplete},
    load_stats::LoadStats,
    pod_labels::{PodLabelQuery, PodOwnership, VpaMatcher},
    pod_name_rules::OwnerRef,
    query_plan::Weighting,
    query_preview::{QueryPreview, preview_queries},
    throttling::ThrottlingReport,
    time_slice::SkippedCounts,
};
use self::{
    namespaces::with_series,
    pod_labels::{OwnershipQuery, assign_labelled_pods},
    query_plan::QueryPlan,
    workload_batch::WorkloadBatch,
};
use super::{
    client::PrometheusClient,
    detect::{DetectError, SchemaOverrides, detect, find_recorded},
    query_error::QueryError,
    schema::{RecordingRules, Schema},
    transport::WallClock,
};
use crate::{Error, LoadReport, LoadRequest, Storage, Writer};
use plimsoll_core::{
    history::{Sink, SkippedRecord},
    types::{ObjectKey, Time},
};

/// Points of one slice. With sixteen bytes each, and as many again while they grow, some MB for each query under way.
const DEFAULT_POINT_BUDGET: u64 = 250_000;

/// What was not found of a server's series is looked for again after this: they may just not have been there.
const INCOMPLETE_SCHEMA_TTL: Duration = Duration::from_mins(10);
/// However much was found, it is looked for again after this: an upgrade renames jobs and labels while this process runs.
const SCHEMA_TTL: Duration = Duration::from_hours(1);

/// After so many readings in a row without a series, names are looked for again at once, but not more often than this.
const MAX_EMPTY_READS: u32 = 3;
const EMPTY_SCHEMA_TTL: Duration = Duration::from_mins(5);

/// What is read of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// What is known of the server's names.
    pub overrides: SchemaOverrides,
    /// Where labels of pods are, if those are to tell whose pods there were. Otherwise owners and names do.
    pub pod_labels: Option<PodLabelQuery>,
    /// How far back (`--history-length`).
    pub length: Duration,
    /// What samples weigh (`--history-weighting`).
    pub weighting: Weighting,
    /// Points that are held of each batch that is under way, with what is known of the owners of its pods. A step is read
    /// whole, whatever it has.
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

/// History in a server's series.
#[derive(Debug)]
pub struct PrometheusHistory {
    server: String,
    client: PrometheusClient,
    settings: HistorySettings,
    clock: WallClock,
    schema: Mutex<Option<CachedSchema>>,
    /// Readings in a row that brought no series.
    empty_reads: AtomicU32,
    /// Whether it was said that labels of pods tell whose they are, or that they do not.
    logged_pod_labels: AtomicBool,
    logged_no_pod_labels: AtomicBool,
}

#[derive(Clone, Debug)]
struct CachedSchema {
    schema: Arc<Schema>,
    at: Time,
}

impl PrometheusHistory {
    /// Of this server; `place` is its address, as errors are to show it.
    pub fn new(
        place: impl Into<String>,
        client: PrometheusClient,
        settings: HistorySettings,
        now: WallClock,
    ) -> Self {
        Self {
            server: place.into(),
            client,
            settings,
            clock: now,
            schema: Mutex::new(None),
            empty_reads: AtomicU32::new(0),
            logged_pod_labels: AtomicBool::new(false),
            logged_no_pod_labels: AtomicBool::new(false),
        }
    }

    /// Who asks it, for other questions under the same limits.
    pub fn client(&self) -> &PrometheusClient {
        &self.client
    }

    /// Where it is, as errors show it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What the server calls its series. It is found out again each hour; earlier where something was lacking, for a server or
    /// kube-state-metrics that had just begun, or where readings by it stay empty ([`Self::note_reading`]). What was found
    /// before is used on while the server cannot be asked or has less than before.
    pub async fn schema(&self, namespaces: &[&str]) -> Result<Arc<Schema>, DetectError> {
        let now = self.clock.now();
        let before = self.cached_schema().clone();
        if let Some(CachedSchema { schema, .. }) =
            before.as_ref().filter(|found| !self.is_redetection_due(found, now))
        {
            return Ok(Arc::clone(schema));
        }
        self.empty_reads.store(0, Ordering::Relaxed);
        let found = match (self.find(namespaces, now).await, &before) {
            (Ok(found), None) => Arc::new(found),
            (Ok(found), Some(before)) => Arc::new(found.or_previous(&before.schema)),
            (Err(unknown), None) => return Err(unknown),
            (Err(unknown), Some(before)) => {
                tracing::debug!(server = self.server, %unknown, "what was found before is used on");
                Arc::clone(&before.schema)
            }
        };
        if before.as_ref().is_none_or(|before| !found.has_same_names(&before.schema)) {
            tracing::info!(server = self.server, schema = %found, "the server's series");
        }
        if before.is_none() && found.mixes_clusters() {
            tracing::warn!(
                server = self.server,
                "there are series of several clusters: choose one by --prometheus-matcher, or pods of the same name \
                 are taken for one another"
            );
        }
        *self.cached_schema() = Some(CachedSchema { schema: Arc::clone(&found), at: now });
        Ok(found)
    }

    /// Whether names are to be looked for again.
    fn is_redetection_due(&self, found: &CachedSchema, now: Time) -> bool {
        let since = |pause| now >= found.at.later(pause);
        let is_empty = self.empty_reads.load(Ordering::Relaxed) >= MAX_EMPTY_READS;
        (found.schema.is_incomplete() && since(INCOMPLETE_SCHEMA_TTL))
            || (is_empty && found.schema.usage.containers > 0 && since(EMPTY_SCHEMA_TTL))
            || since(SCHEMA_TTL)
    }

    /// Notes that usage was read by the schema, and of how many containers there was any.
    pub fn record_read(&self, containers: u64) {
        if containers > 0 {
            self.empty_reads.store(0, Ordering::Relaxed);
        } else {
            self.empty_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn find(&self, namespaces: &[&str], now: Time) -> Result<Schema, DetectError> {
        // Of half an answer some of what is there would seem to be lacking.
        let client = self.client.clone().rejecting_partial();
        let mut schema = detect(&client, &self.settings.overrides, namespaces, now).await?;
        let plan = QueryPlan::new(self.settings.weighting, &schema);
        let span = plan.span(self.settings.length, now);
        schema.recording_rules = self.recorded(&schema, &plan, namespaces, span).await?;
        Ok(schema)
    }

    /// Begins to read: of these VPAs, each with the owner of its pods; what came after one time, or all of it, up to another
    /// one, or to now. Both are taken back to whole steps, so that what is read next may begin where this ends
    /// ([`Loading::until`]). Also returns what cannot be read at all.
    pub async fn start_load(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
    ) -> Result<(HistoryLoad, Vec<SkippedRecord>), DetectError> {
        self.start_load_with_pods(wanted, after, until, KnownPods::default()).await
    }

    /// Whose pods there were within this time until now by their labels, if those are to tell it. `None` where they do not:
    /// then owners and names do, and a warning is logged once.
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
        let (within, now) = (within.unwrap_or(self.settings.length), self.clock.now());
        let question = OwnershipQuery { schema, namespaces, within, now };
        // Half an answer would be taken for all pods that there were.
        let client = self.client.clone().rejecting_partial();
        let why = match labels.query_ownership(&client, question, selects).await {
            Ok(Some(whose)) => {
                if !self.logged_pod_labels.swap(true, Ordering::Relaxed) {
                    let [namespace, pod, prefix] = &whose.names;
                    let query = &*labels.query;
                    tracing::info!(query, namespace, pod, prefix, "pods are known by their labels");
                }
                return Ok(Some(whose));
            }
            Ok(None) => "it tells of no pod's labels".to_owned(),
            Err(failure) if failure.is_query_specific() => failure.to_string(),
            Err(failure) => return Err(failure.into()),
        };
        if !self.logged_no_pod_labels.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.server,
                query = labels.query,
                why,
                "--metric-for-pod-labels does not tell whose pods there were: owners and names of pods do"
            );
        }
        Ok(None)
    }

    /// As [`Self::begin`], with pods that are known by their labels, or because they are there now.
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
        let moment = |time| plan.moment_before(end, time).max(start);
        let to = until.map_or(end, moment);
        let after = after.map_or(start, moment).min(to);
        // Of this time, and as it is now: rules come and go.
        let recorded = self.recorded(&schema, &plan, &namespaces, (after, to)).await?;
        if recorded != schema.recording_rules {
            schema = Arc::new(Schema { recording_rules: recorded, ..Schema::clone(&schema) });
        }
        let (batches, skipped) = Self::batches(wanted, pods);
        let client = self.client.clone().with_dialect(schema.dialect).rejecting_partial();
        let budget = self.settings.point_budget.max(1);
        Ok((HistoryLoad::new(client, schema, plan, budget, batches, (after, to)), skipped))
    }

    /// How much the containers of these VPAs were held back by their CPU limits, within this time until now. Fails only
    /// where not even the names of series can be had: what could not be asked otherwise is named.
    pub async fn throttling(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        over: Duration,
        pods: KnownPods<'_>,
    ) -> Result<ThrottlingReport, DetectError> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let schema = self.schema(&Vec::from_iter(namespaces)).await?;
        let (batches, _) = Self::batches(wanted, pods);
        let client = self.client.clone().rejecting_partial();
        let budget = self.settings.point_budget.max(1);
        let now = || self.clock.now();
        Ok(ThrottlingReport::query(&client, &schema, batches, (over, budget), now).await)
    }

    /// Which of these namespaces have containers with series now: a workload there without any history is odd.
    pub async fn namespaces_with_series(
        &self,
        namespaces: &[&str],
    ) -> Result<HashSet<Box<str>>, DetectError> {
        let schema = self.schema(namespaces).await?;
        Ok(with_series(&self.client, &schema, namespaces, self.clock.now()).await?)
    }

    /// What is asked together, and what cannot be asked for.
    fn batches(
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
        pods: KnownPods<'_>,
    ) -> (Vec<WorkloadBatch>, Vec<SkippedRecord>) {
        let (mut batches, skipped) = WorkloadBatch::all(wanted);
        for batch in &mut batches {
            if let Some(whose) = pods.by_label {
                assign_labelled_pods(batch, whose);
            }
            if let Some(live) = pods.live {
                live.assign_to(batch);
            }
        }
        (batches, skipped)
    }

    /// What of this time is recorded. Where that takes too much to find out, nothing is.
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
                tracing::debug!(server = self.server, %failure, "recorded series are not used");
                Ok(RecordingRules::Absent)
            }
            found => found,
        }
    }

    fn cached_schema(&self) -> std::sync::MutexGuard<'_, Option<CachedSchema>> {
        // Nothing can be half changed: it is one value.
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: &impl ToString) -> Error {
        Error::Unavailable { place: self.server.clone(), why: why.to_string() }
    }
}

#[async_trait]
impl Storage for PrometheusHistory {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    /// Reads all of it, or fails. Whoever wants to go on after a failure takes [`PrometheusHistory::begin`].
    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let LoadRequest::Vpas(wanted) = wanted else {
            return Err(Error::Unusable {
                place: self.server.clone(),
                why:
                    "it has series of pods and knows nothing of VPAs: ask for those that are known"
                        .to_owned(),
            });
        };
        if wanted.is_empty() {
            return Ok(LoadReport::default());
        }
        let (mut loading, mut skipped) =
            self.start_load(wanted, None, None).await.map_err(|unknown| self.failed(&unknown))?;
        loading.advance(sink).await.map_err(|stalled| self.failed(&stalled))?;
        let report = loading.report();
        tracing::info!(server = self.server, ?report, "history read");
        if report.skipped.unlabelled > 0 {
            skipped.push(SkippedRecord {
                record: format!("{} series", report.skipped.unlabelled),
                reason: "they have no labels of pod and container".to_owned(),
            });
        }
        let samples = usize::try_from(report.samples).unwrap_or(usize::MAX);
        Ok(LoadReport { snapshots: 0, samples, skipped })
    }

    fn writer(&self) -> Option<&dyn Writer> {
        None
    }
}
