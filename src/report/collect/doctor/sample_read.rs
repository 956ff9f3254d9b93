//! A little history, read as a recommender reads it: to see that it can be, and what it costs.

use std::{collections::HashSet, time::Duration};

use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::prometheus::{
    client::QueryRange,
    decode::{Interest, Labels, SeriesVisitor},
    history::{HistorySettings, KnownPods, PrometheusHistory, QueryPreview, preview_queries},
    promql::{Aggregation, Grouping, Query},
    schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, Schema},
};

use super::{
    DoctorConfig, ServerProbe,
    cluster_coverage::{ClusterPods, VpaOwners},
    query_log::InstantVector,
};
use crate::report::doctor::{
    probe_results::{ProbeAnswer, SampleRead},
    report::Evidence,
};

/// How much of it is read.
const SAMPLE_LENGTH: Duration = Duration::from_hours(24);

impl ServerProbe {
    /// Reads the history of the VPAs of a namespace, or of all its pods where no VPA is known.
    pub(super) async fn read_sample(
        &self,
        schema: &Schema,
        config: &DoctorConfig,
        pods: &ClusterPods,
    ) -> Option<SampleRead> {
        if let Some((namespace, vpas, live)) = pods.largest_namespace() {
            let whose = match vpas.len() {
                1 => format!("the VPA of namespace {namespace}"),
                more => format!("{more} VPAs of namespace {namespace}"),
            };
            let mut found = FoundVpas::default();
            let pods = KnownPods { live: Some(&live), ..KnownPods::default() };
            let (queries, failure) = self.load(schema, config, (&vpas, pods), &mut found).await;
            let unfound = vpas.keys().filter(|vpa| !found.0.contains(*vpa));
            let mut unfound: Vec<String> = unfound.map(ToString::to_string).collect();
            unfound.sort();
            return Some(SampleRead {
                scope: whose,
                queries,
                failure,
                vpas_without_history: unfound,
            });
        }
        let label = &schema.usage.namespace.value;
        let memory = schema.usage_selector_in(&schema.usage.memory, &[]);
        let by_namespace =
            Query::from(memory).aggregate(Aggregation::Count, Grouping::By(&[label]));
        let ProbeAnswer { answer, .. } =
            self.query_vector(&by_namespace.topk(1, &[]), self.now).await;
        let largest = |groups: InstantVector| groups.samples.first()?.labels.get(label).cloned();
        let namespace = config.namespace.clone().or(answer.ok().and_then(largest))?;
        let (queries, failure) = self.preview_queries(schema, &namespace).await;
        let (whose, unfound) = (format!("namespace {namespace}"), Vec::new());
        Some(SampleRead { scope: whose, queries, failure, vpas_without_history: unfound })
    }

    /// Loads histories, and forgets them.
    async fn load(
        &self,
        schema: &Schema,
        config: &DoctorConfig,
        (vpas, pods): (&VpaOwners, KnownPods<'_>),
        found: &mut FoundVpas,
    ) -> (Vec<Evidence>, Option<String>) {
        let (known, length) = (config.series_options.clone(), config.wanted_history);
        let settings = HistorySettings { overrides: known, length, ..HistorySettings::default() };
        let client = self.client.clone();
        let history = PrometheusHistory::new("", client, settings, self.clock.clone());
        let namespaces: Vec<&str> = vpas.keys().map(|vpa| &*vpa.namespace).collect();
        // What it finds out was found out before.
        let schema_found = history.schema(&namespaces).await;
        self.query_log.drain();
        if let Err(unknown) = schema_found {
            return (Vec::new(), Some(unknown.to_string()));
        }
        let after = Some(self.now.earlier(SAMPLE_LENGTH));
        let begun = history.start_load_with_pods(vpas, after, None, pods).await;
        let asked = self.query_log.drain();
        let failure = match begun {
            Ok((mut loading, _)) => loading.advance(found).await.err(),
            Err(unknown) => return (asked, Some(unknown.to_string())),
        };
        let mut queries = self.query_log.drain();
        for query in &mut queries {
            let has = |metric: &str| query.asked.contains(&format!("{metric}{{"));
            let about = if has(&schema.usage.cpu.value) || has(RECORDED_CPU_METRIC) {
                "CPU"
            } else if has(&schema.usage.memory.value) || has(RECORDED_MEMORY_METRIC) {
                "memory"
            } else {
                "owners and kills"
            };
            about.clone_into(&mut query.about);
        }
        (queries, failure.map(|stalled| stalled.to_string()))
    }

    /// Asks the queries for the history of all pods of a namespace.
    async fn preview_queries(
        &self,
        schema: &Schema,
        namespace: &str,
    ) -> (Vec<Evidence>, Option<String>) {
        let weighting = HistorySettings::default().weighting;
        let (mut queries, mut failure) = (Vec::new(), None);
        let from = self.now.earlier(SAMPLE_LENGTH);
        let client = self.client.clone().with_dialect(schema.dialect);
        for QueryPreview { resource: about, query, step } in
            preview_queries(weighting, schema, namespace)
        {
            let Ok(grid) = QueryRange::new(from, self.now, step) else { continue };
            if let Err(interrupted) = client.range(&query, grid, &mut DiscardedPoints).await {
                failure.get_or_insert(interrupted.to_string());
            }
            for mut asked in self.query_log.drain() {
                about.clone_into(&mut asked.about);
                queries.push(asked);
            }
        }
        (queries, failure)
    }
}

/// Takes a history, and remembers of which VPAs there was any.
#[derive(Debug, Default)]
struct FoundVpas(HashSet<ObjectKey>);

impl Sink for FoundVpas {
    fn snapshot(&mut self, _: ContainerKey, _: Snapshot) {}

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        if !self.0.contains(&key.vpa) {
            self.0.insert(key.vpa.clone());
        }
    }

    fn batch(&mut self, key: &ContainerKey, _: SampleBatch<'_>) {
        self.0.insert(key.vpa.clone());
    }
}

/// Wants all points, and keeps none.
struct DiscardedPoints;

impl SeriesVisitor for DiscardedPoints {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        Interest::Points
    }

    fn point(&mut self, _: Time, _: f64) {}
}
