//! The backend that reads history from a server that speaks Prometheus' API. It never writes.
//!
//! ```text
//!   VPAs ─▶ batches: one namespace, a pattern of pods ─▶ who owns which pod, who was killed
//!              └▶ slices of time: CPU, memory, kills ─▶ whole? ─▶ in order of time ─▶ Sink
//! ```
//!
//! A slice is held until all of it has come, and then handed on at once; so half an answer never counts, memory is
//! bounded by a budget and not by the length of a history, and reading goes on where it stopped.

mod batch;
#[cfg(test)]
mod crowded;
mod kills;
mod labelled;
mod live;
mod load;
mod names;
mod outline;
mod owner;
mod part;
mod plan;
mod presence;
mod proof;
mod report;
mod slice;
mod throttle;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use self::{
    batch::Batch,
    labelled::{Question, tell},
    plan::Plan,
    presence::with_series,
};
pub use self::{
    labelled::{PodLabels, Selects, Whose},
    live::{KnownPods, LivePods},
    load::{Loading, Stalled},
    outline::{Outline, outline},
    owner::Owner,
    plan::Weighting,
    report::Report,
    slice::Passed,
    throttle::Throttles,
};
use super::{
    client::Client,
    detect::{Known, Unknown, detect, find_recorded},
    door::Wall,
    failure::Failure,
    schema::{Recorded, Schema},
};
use crate::{Error, LoadReport, Storage, Wanted, Writer};
use plimsoll_core::{
    history::{Sink, Skipped},
    types::{Time, VpaKey},
};

/// Points of one slice. With sixteen bytes each, and as many again while they grow, some MB for each query under way.
const BUDGET: u64 = 250_000;

/// What was not found of a server's series is looked for again after this: they may just not have been there.
const LACKING: Duration = Duration::from_mins(10);
/// However much was found, it is looked for again after this: an upgrade renames jobs and labels while this process runs.
const STALE: Duration = Duration::from_hours(1);

/// After so many readings in a row without a series, names are looked for again at once, but not more often than this.
const EMPTY_READINGS: u32 = 3;
const BETWEEN_EMPTY: Duration = Duration::from_mins(5);

/// What is read of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is known of the server's names.
    pub known: Known,
    /// Where labels of pods are, if those are to tell whose pods there were. Otherwise owners and names do.
    pub labels: Option<PodLabels>,
    /// How far back (`--history-length`).
    pub length: Duration,
    /// What samples weigh (`--history-weighting`).
    pub weighting: Weighting,
    /// Points that are held of each batch that is under way, with what is known of the owners of its pods. A step is read
    /// whole, whatever it has.
    pub budget: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            known: Known::default(),
            labels: None,
            length: Duration::from_hours(8 * 24),
            weighting: Weighting::default(),
            budget: BUDGET,
        }
    }
}

/// History in a server's series.
#[derive(Debug)]
pub struct PrometheusHistory {
    place: String,
    client: Client,
    settings: Settings,
    now: Wall,
    schema: Mutex<Option<Found>>,
    /// Readings in a row that brought no series.
    empty: AtomicU32,
    /// Whether it was said that labels of pods tell whose they are, or that they do not.
    is_labelled: AtomicBool,
    is_unlabelled: AtomicBool,
}

#[derive(Clone, Debug)]
struct Found {
    schema: Arc<Schema>,
    at: Time,
}

impl PrometheusHistory {
    /// Of this server; `place` is its address, as errors are to show it.
    pub fn new(place: impl Into<String>, client: Client, settings: Settings, now: Wall) -> Self {
        Self {
            place: place.into(),
            client,
            settings,
            now,
            schema: Mutex::new(None),
            empty: AtomicU32::new(0),
            is_labelled: AtomicBool::new(false),
            is_unlabelled: AtomicBool::new(false),
        }
    }

    /// Who asks it, for other questions under the same limits.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is, as errors show it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What the server calls its series. It is found out again each hour; earlier where something was lacking, for a server or
    /// kube-state-metrics that had just begun, or where readings by it stay empty ([`Self::note_reading`]). What was found
    /// before is used on while the server cannot be asked or has less than before.
    pub async fn schema(&self, namespaces: &[&str]) -> Result<Arc<Schema>, Unknown> {
        let now = self.now.now();
        let before = self.kept().clone();
        if let Some(Found { schema, .. }) = before.as_ref().filter(|found| !self.is_due(found, now))
        {
            return Ok(Arc::clone(schema));
        }
        self.empty.store(0, Ordering::Relaxed);
        let found = match (self.find(namespaces, now).await, &before) {
            (Ok(found), None) => Arc::new(found),
            (Ok(found), Some(before)) => Arc::new(found.or_as_before(&before.schema)),
            (Err(unknown), None) => return Err(unknown),
            (Err(unknown), Some(before)) => {
                tracing::debug!(server = self.place, %unknown, "what was found before is used on");
                Arc::clone(&before.schema)
            }
        };
        if before.as_ref().is_none_or(|before| !found.has_same_names(&before.schema)) {
            tracing::info!(server = self.place, schema = %found, "the server's series");
        }
        if before.is_none() && found.mixes_clusters() {
            tracing::warn!(
                server = self.place,
                "there are series of several clusters: choose one by --prometheus-matcher, or pods of the same name \
                 are taken for one another"
            );
        }
        *self.kept() = Some(Found { schema: Arc::clone(&found), at: now });
        Ok(found)
    }

    /// Whether names are to be looked for again.
    fn is_due(&self, found: &Found, now: Time) -> bool {
        let since = |pause| now >= found.at.later(pause);
        let is_empty = self.empty.load(Ordering::Relaxed) >= EMPTY_READINGS;
        (found.schema.lacks() && since(LACKING))
            || (is_empty && found.schema.usage.containers > 0 && since(BETWEEN_EMPTY))
            || since(STALE)
    }

    /// Notes that usage was read by the schema, and of how many containers there was any.
    pub fn note_reading(&self, containers: u64) {
        if containers > 0 {
            self.empty.store(0, Ordering::Relaxed);
        } else {
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn find(&self, namespaces: &[&str], now: Time) -> Result<Schema, Unknown> {
        // Of half an answer some of what is there would seem to be lacking.
        let client = self.client.clone().insisting();
        let mut schema = detect(&client, &self.settings.known, namespaces, now).await?;
        let plan = Plan::new(self.settings.weighting, &schema);
        let span = plan.span(self.settings.length, now);
        schema.recorded = self.recorded(&schema, &plan, namespaces, span).await?;
        Ok(schema)
    }

    /// Begins to read: of these VPAs, each with the owner of its pods; what came after one time, or all of it, up to another
    /// one, or to now. Both are taken back to whole steps, so that what is read next may begin where this ends
    /// ([`Loading::until`]). Also returns what cannot be read at all.
    pub async fn begin(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
    ) -> Result<(Loading, Vec<Skipped>), Unknown> {
        self.begin_knowing(wanted, after, until, KnownPods::default()).await
    }

    /// Whose pods there were within this time until now by their labels, if those are to tell it. `None` where they do not:
    /// then owners and names do, and a warning is logged once.
    pub async fn whose(
        &self,
        namespaces: &[&str],
        within: Option<Duration>,
        selects: &dyn Selects,
    ) -> Result<Option<Whose>, Unknown> {
        let Some(labels) = self.settings.labels.as_ref().filter(|_| !namespaces.is_empty()) else {
            return Ok(None);
        };
        let schema = &*self.schema(namespaces).await?;
        let (within, now) = (within.unwrap_or(self.settings.length), self.now.now());
        let question = Question { schema, namespaces, within, now };
        // Half an answer would be taken for all pods that there were.
        let client = self.client.clone().insisting();
        let why = match labels.ask(&client, question, selects).await {
            Ok(Some(whose)) => {
                if !self.is_labelled.swap(true, Ordering::Relaxed) {
                    let [namespace, pod, prefix] = &whose.names;
                    let query = &*labels.query;
                    tracing::info!(query, namespace, pod, prefix, "pods are known by their labels");
                }
                return Ok(Some(whose));
            }
            Ok(None) => "it tells of no pod's labels".to_owned(),
            Err(failure) if failure.is_about_query() => failure.to_string(),
            Err(failure) => return Err(failure.into()),
        };
        if !self.is_unlabelled.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.place,
                query = labels.query,
                why,
                "--metric-for-pod-labels does not tell whose pods there were: owners and names of pods do"
            );
        }
        Ok(None)
    }

    /// As [`Self::begin`], with pods that are known by their labels, or because they are there now.
    pub async fn begin_knowing(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
        pods: KnownPods<'_>,
    ) -> Result<(Loading, Vec<Skipped>), Unknown> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let namespaces: Vec<&str> = namespaces.into_iter().collect();
        let mut schema = self.schema(&namespaces).await?;
        let plan = Plan::new(self.settings.weighting, &schema);
        let (start, end) = plan.span(self.settings.length, self.now.now());
        let moment = |time| plan.moment_before(end, time).max(start);
        let to = until.map_or(end, moment);
        let after = after.map_or(start, moment).min(to);
        // Of this time, and as it is now: rules come and go.
        let recorded = self.recorded(&schema, &plan, &namespaces, (after, to)).await?;
        if recorded != schema.recorded {
            schema = Arc::new(Schema { recorded, ..Schema::clone(&schema) });
        }
        let (batches, skipped) = Self::batches(wanted, pods);
        let client = self.client.clone().speaking(schema.dialect).insisting();
        let budget = self.settings.budget.max(1);
        Ok((Loading::new(client, schema, plan, budget, batches, (after, to)), skipped))
    }

    /// How much the containers of these VPAs were held back by their CPU limits, within this time until now. Fails only
    /// where not even the names of series can be had: what could not be asked otherwise is named.
    pub async fn throttling(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        over: Duration,
        pods: KnownPods<'_>,
    ) -> Result<Throttles, Unknown> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let schema = self.schema(&Vec::from_iter(namespaces)).await?;
        let (batches, _) = Self::batches(wanted, pods);
        let client = self.client.clone().insisting();
        let budget = self.settings.budget.max(1);
        let now = || self.now.now();
        Ok(Throttles::ask(&client, &schema, batches, (over, budget), now).await)
    }

    /// Which of these namespaces have containers with series now: a workload there without any history is odd.
    pub async fn with_series(&self, namespaces: &[&str]) -> Result<HashSet<Box<str>>, Unknown> {
        let schema = self.schema(namespaces).await?;
        Ok(with_series(&self.client, &schema, namespaces, self.now.now()).await?)
    }

    /// What is asked together, and what cannot be asked for.
    fn batches(
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        pods: KnownPods<'_>,
    ) -> (Vec<Batch>, Vec<Skipped>) {
        let (mut batches, skipped) = Batch::all(wanted);
        for batch in &mut batches {
            if let Some(whose) = pods.labelled {
                tell(batch, whose);
            }
            if let Some(live) = pods.live {
                live.tell(batch);
            }
        }
        (batches, skipped)
    }

    /// What of this time is recorded. Where that takes too much to find out, nothing is.
    async fn recorded(
        &self,
        schema: &Schema,
        plan: &Plan,
        namespaces: &[&str],
        span: (Time, Time),
    ) -> Result<Recorded, Failure> {
        if !plan.may_be_recorded() || span.0 >= span.1 {
            return Ok(Recorded::Absent);
        }
        match find_recorded(&self.client.clone().insisting(), schema, namespaces, span).await {
            Err(failure @ (Failure::TooLarge(_) | Failure::Timeout(_) | Failure::BadQuery(_))) => {
                tracing::debug!(server = self.place, %failure, "recorded series are not used");
                Ok(Recorded::Absent)
            }
            found => found,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Found>> {
        // Nothing can be half changed: it is one value.
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: &impl ToString) -> Error {
        Error::Unavailable { place: self.place.clone(), why: why.to_string() }
    }
}

#[async_trait]
impl Storage for PrometheusHistory {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    /// Reads all of it, or fails. Whoever wants to go on after a failure takes [`PrometheusHistory::begin`].
    async fn load(&self, wanted: &Wanted, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let Wanted::Vpas(wanted) = wanted else {
            return Err(Error::Unusable {
                place: self.place.clone(),
                why:
                    "it has series of pods and knows nothing of VPAs: ask for those that are known"
                        .to_owned(),
            });
        };
        if wanted.is_empty() {
            return Ok(LoadReport::default());
        }
        let (mut loading, mut skipped) =
            self.begin(wanted, None, None).await.map_err(|unknown| self.failed(&unknown))?;
        loading.advance(sink).await.map_err(|stalled| self.failed(&stalled))?;
        let report = loading.report();
        tracing::info!(server = self.place, ?report, "history read");
        if report.passed.unlabelled > 0 {
            skipped.push(Skipped {
                what: format!("{} series", report.passed.unlabelled),
                why: "they have no labels of pod and container".to_owned(),
            });
        }
        let samples = usize::try_from(report.samples).unwrap_or(usize::MAX);
        Ok(LoadReport { snapshots: 0, samples, skipped })
    }

    fn writer(&self) -> Option<&dyn Writer> {
        None
    }
}
