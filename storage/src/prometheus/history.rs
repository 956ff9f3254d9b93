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
mod kills;
mod load;
mod outline;
mod owner;
mod part;
mod plan;
mod proof;
mod report;
mod slice;
mod throttle;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use self::{batch::Batch, plan::Plan};
pub use self::{
    load::{Loading, Stalled},
    outline::{Outline, outline},
    owner::Owner,
    plan::Weighting,
    report::Report,
    slice::Passed,
};
use super::{
    client::Client,
    detect::{Known, Unknown, detect, find_recorded},
    door::Wall,
    failure::Failure,
    schema::{Recorded, Schema},
};
use crate::{
    Error, Key, LoadReport, Sink, Skipped, Storage, Throttling, Time, VpaKey, Wanted, Writer,
};

/// Points of one slice. With sixteen bytes each, and as many again while they grow, some MB for each query under way.
const BUDGET: u64 = 250_000;

/// What is read of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is known of the server's names.
    pub known: Known,
    /// How far back (`--history-length`).
    pub length: Duration,
    /// What samples weigh (`--history-weighting`).
    pub weighting: Weighting,
    /// Points that are held of each batch that is under way, roughly.
    pub budget: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            known: Known::default(),
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
    schema: Mutex<Option<Arc<Schema>>>,
}

impl PrometheusHistory {
    /// Of this server; `place` is its address, as errors are to show it.
    pub fn new(place: impl Into<String>, client: Client, settings: Settings, now: Wall) -> Self {
        Self { place: place.into(), client, settings, now, schema: Mutex::new(None) }
    }

    /// Who asks it, for other questions under the same limits.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is, as errors show it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What the server calls its series: found out once, and again when nothing was found.
    pub async fn schema(&self, namespaces: &[&str]) -> Result<Arc<Schema>, Unknown> {
        if let Some(schema) = &*self.kept() {
            return Ok(Arc::clone(schema));
        }
        let now = self.now.now();
        let mut schema = detect(&self.client, &self.settings.known, namespaces, now).await?;
        let plan = Plan::new(self.settings.weighting, &schema);
        let span = plan.span(self.settings.length, now);
        schema.recorded = self.recorded(&schema, &plan, namespaces, span).await?;
        let schema = Arc::new(schema);
        tracing::info!(server = self.place, %schema, "the server's series");
        if schema.mixes_clusters() {
            tracing::warn!(
                server = self.place,
                "there are series of several clusters: choose one by --prometheus-matcher, or pods of the same name \
                 are taken for one another"
            );
        }
        *self.kept() = Some(Arc::clone(&schema));
        Ok(schema)
    }

    /// Begins to read: of these VPAs, each with the owner of its pods; what came after one time, or all of it, up to
    /// another one, or to now. Both are taken back to whole steps, so that what is to be read next may begin where this
    /// ends ([`Loading::until`]). Also answers what cannot be read at all.
    pub async fn begin(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        after: Option<Time>,
        until: Option<Time>,
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
        let (batches, skipped) = Batch::all(wanted);
        let client = self.client.clone().speaking(schema.dialect);
        let budget = self.settings.budget.max(1);
        Ok((Loading::new(client, schema, plan, budget, batches, (after, to)), skipped))
    }

    /// How much the containers of these VPAs were held back by their CPU limits, within this time until now. Those
    /// without a limit, and those that did not run, are not among them.
    pub async fn throttling(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
        over: Duration,
    ) -> Result<HashMap<Key, Throttling>, Unknown> {
        let namespaces: BTreeSet<&str> = wanted.keys().map(|vpa| &*vpa.namespace).collect();
        let schema = self.schema(&Vec::from_iter(namespaces)).await?;
        let mut all = HashMap::new();
        for batch in Batch::all(wanted).0 {
            let now = self.now.now();
            throttle::ask(&self.client, &schema, batch, over, now, &mut all).await?;
        }
        Ok(all)
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
        match find_recorded(&self.client, schema, namespaces, span).await {
            Err(failure @ (Failure::TooLarge(_) | Failure::Timeout(_) | Failure::BadQuery(_))) => {
                tracing::debug!(server = self.place, %failure, "recorded series are not used");
                Ok(Recorded::Absent)
            }
            found => found,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Arc<Schema>>> {
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
