//! A little history, read as a recommender reads it: to see that it can be, and what it costs.

use std::{collections::HashSet, time::Duration};

use plimsoll_core::{
    history::{Run, Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_storage::prometheus::{
    answer::{Labels, Series, Wants},
    client::Grid,
    history::{KnownPods, Outline, PrometheusHistory, Settings, outline},
    query::{Along, Fold, Query},
    schema::{RECORDED_CPU, RECORDED_MEMORY, Schema},
};

use super::{
    DoctorConfig, Exam,
    beside::{Owned, Pods},
    journal::Groups,
};
use crate::doctor::{
    facts::{Asked, Trial},
    report::Evidence,
};

/// How much of it is read.
const LENGTH: Duration = Duration::from_hours(24);

impl Exam {
    /// Reads the history of the VPAs of a namespace, or of all its pods where no VPA is known.
    pub(super) async fn try_history(
        &self,
        schema: &Schema,
        config: &DoctorConfig,
        pods: &Pods,
    ) -> Option<Trial> {
        if let Some((namespace, vpas, live)) = pods.largest() {
            let whose = match vpas.len() {
                1 => format!("the VPA of namespace {namespace}"),
                more => format!("{more} VPAs of namespace {namespace}"),
            };
            let mut found = Found::default();
            let pods = KnownPods { live: Some(&live), ..KnownPods::default() };
            let (queries, failure) = self.load(schema, config, (&vpas, pods), &mut found).await;
            let unfound = vpas.keys().filter(|vpa| !found.0.contains(*vpa));
            let mut unfound: Vec<String> = unfound.map(ToString::to_string).collect();
            unfound.sort();
            return Some(Trial { whose, queries, failure, unfound });
        }
        let label = &schema.usage.namespace.value;
        let memory = schema.usage_in(&schema.usage.memory, &[]);
        let by_namespace = Query::from(memory).fold(Fold::Count, Along::By(&[label]));
        let Asked { answer, .. } = self.groups(&by_namespace.largest(1, &[]), self.now).await;
        let largest = |groups: Groups| groups.all.first()?.labels.get(label).cloned();
        let namespace = config.namespace.clone().or(answer.ok().and_then(largest))?;
        let (queries, failure) = self.sketch(schema, &namespace).await;
        let (whose, unfound) = (format!("namespace {namespace}"), Vec::new());
        Some(Trial { whose, queries, failure, unfound })
    }

    /// Loads histories, and forgets them.
    async fn load(
        &self,
        schema: &Schema,
        config: &DoctorConfig,
        (vpas, pods): (&Owned, KnownPods<'_>),
        found: &mut Found,
    ) -> (Vec<Evidence>, Option<String>) {
        let (known, length) = (config.known.clone(), config.wanted);
        let settings = Settings { known, length, ..Settings::default() };
        let client = self.client.clone();
        let history = PrometheusHistory::new("", client, settings, self.wall.clone());
        let namespaces: Vec<&str> = vpas.keys().map(|vpa| &*vpa.namespace).collect();
        // What it finds out was found out before.
        let schema_found = history.schema(&namespaces).await;
        self.journal.take();
        if let Err(unknown) = schema_found {
            return (Vec::new(), Some(unknown.to_string()));
        }
        let after = Some(self.now.earlier(LENGTH));
        let begun = history.begin_knowing(vpas, after, None, pods).await;
        let asked = self.journal.take();
        let failure = match begun {
            Ok((mut loading, _)) => loading.advance(found).await.err(),
            Err(unknown) => return (asked, Some(unknown.to_string())),
        };
        let mut queries = self.journal.take();
        for query in &mut queries {
            let has = |metric: &str| query.asked.contains(&format!("{metric}{{"));
            let about = if has(&schema.usage.cpu.value) || has(RECORDED_CPU) {
                "CPU"
            } else if has(&schema.usage.memory.value) || has(RECORDED_MEMORY) {
                "memory"
            } else {
                "owners and kills"
            };
            about.clone_into(&mut query.about);
        }
        (queries, failure.map(|stalled| stalled.to_string()))
    }

    /// Asks the queries for the history of all pods of a namespace.
    async fn sketch(&self, schema: &Schema, namespace: &str) -> (Vec<Evidence>, Option<String>) {
        let weighting = Settings::default().weighting;
        let (mut queries, mut failure) = (Vec::new(), None);
        let from = self.now.earlier(LENGTH);
        let client = self.client.clone().speaking(schema.dialect);
        for Outline { about, query, step } in outline(weighting, schema, namespace) {
            let Ok(grid) = Grid::new(from, self.now, step) else { continue };
            if let Err(interrupted) = client.range(&query, grid, &mut Counted).await {
                failure.get_or_insert(interrupted.to_string());
            }
            for mut asked in self.journal.take() {
                about.clone_into(&mut asked.about);
                queries.push(asked);
            }
        }
        (queries, failure)
    }
}

/// Takes a history, and remembers of which VPAs there was any.
#[derive(Debug, Default)]
struct Found(HashSet<VpaKey>);

impl Sink for Found {
    fn snapshot(&mut self, _: Key, _: Snapshot) {}

    fn sample(&mut self, key: &Key, _: Sample) {
        if !self.0.contains(&key.vpa) {
            self.0.insert(key.vpa.clone());
        }
    }

    fn run(&mut self, key: &Key, _: Run<'_>) {
        self.0.insert(key.vpa.clone());
    }
}

/// Wants all points, and keeps none.
struct Counted;

impl Series for Counted {
    fn begin(&mut self, _: Labels<'_>) -> Wants {
        Wants::Points
    }

    fn point(&mut self, _: Time, _: f64) {}
}
