//! Reads a sample of history like a recommender does, to check that it works and to measure the cost.

use std::{collections::HashSet, time::Duration};

use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::prometheus::{
    client::{CollectedSeries, QueryRange},
    decode::{Interest, Labels, SeriesVisitor},
    history::{HistorySettings, KnownPods, PrometheusHistory, QueryPreview, preview_queries},
    promql::{Aggregation, Query},
    schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, Schema},
};

use super::{
    DoctorConfig, ServerProbe,
    cluster_coverage::{ClusterPods, VpaOwners},
};
use crate::report::doctor::{
    probe_results::{ProbeAnswer, SampleRead},
    report::Evidence,
};

const SAMPLE_LENGTH: Duration = Duration::from_hours(24);

/// Reads a sample by the schema of a server.
pub(super) struct SampleReader<'a> {
    pub probe: &'a ServerProbe,
    pub schema: &'a Schema,
    pub config: &'a DoctorConfig,
}

impl SampleReader<'_> {
    /// Reads the history of the VPAs of a namespace, or of all its pods if there are no VPAs.
    pub async fn read(&self, pods: Option<&ClusterPods>) -> Option<SampleRead> {
        if let Some((namespace, vpas, live)) = pods.and_then(ClusterPods::largest_namespace) {
            let scope = match vpas.len() {
                1 => format!("the VPA of namespace {namespace}"),
                more => format!("{more} VPAs of namespace {namespace}"),
            };
            let mut found = FoundVpas::default();
            let pods = KnownPods { live: Some(&live), ..KnownPods::default() };
            let (queries, failure) = self.load((&vpas, pods), &mut found).await;
            let without_history = vpas.keys().filter(|vpa| !found.0.contains(*vpa));
            let mut without_history: Vec<String> =
                without_history.map(ToString::to_string).collect();
            without_history.sort();
            return Some(SampleRead {
                scope,
                queries,
                failure,
                vpas_without_history: without_history,
            });
        }
        let label = &self.schema.usage.namespace.value;
        let memory = self.schema.usage_selector_in(&self.schema.usage.memory, &[]);
        let by_namespace = Query::from(memory).aggregate(Aggregation::Count, &[label]);
        let ProbeAnswer { answer, .. } =
            self.probe.query_vector(&by_namespace.topk(1, &[]), self.probe.now).await;
        let largest = |groups: Vec<CollectedSeries>| groups.first()?.labels.get(label).cloned();
        let namespace = self.config.namespace.clone().or(answer.ok().and_then(largest))?;
        let (queries, failure) = self.preview_queries(&namespace).await;
        let (scope, without_history) = (format!("namespace {namespace}"), Vec::new());
        Some(SampleRead { scope, queries, failure, vpas_without_history: without_history })
    }

    async fn load(
        &self,
        (vpas, pods): (&VpaOwners, KnownPods<'_>),
        found: &mut FoundVpas,
    ) -> (Vec<Evidence>, Option<String>) {
        let (overrides, length) = (self.config.series_options.clone(), self.config.wanted_history);
        let settings = HistorySettings { overrides, length, ..HistorySettings::default() };
        let client = self.probe.client.clone();
        let history = PrometheusHistory::new("", client, settings, self.probe.clock.clone());
        let namespaces: Vec<&str> = vpas.keys().map(|vpa| &*vpa.namespace).collect();
        // The schema was already detected; do not report these queries again.
        let schema_found = history.schema(&namespaces).await;
        self.probe.query_log.drain();
        if let Err(error) = schema_found {
            return (Vec::new(), Some(error.to_string()));
        }
        let after = Some(self.probe.now.earlier(SAMPLE_LENGTH));
        let loading_started = history.start_load_with_pods(vpas, after, None, pods).await;
        let queries = self.probe.query_log.drain();
        let failure = match loading_started {
            Ok((mut loading, _)) => loading.advance(found).await.err(),
            Err(error) => return (queries, Some(error.to_string())),
        };
        let mut queries = self.probe.query_log.drain();
        for query in &mut queries {
            let has = |metric: &str| query.asked.contains(&format!("{metric}{{"));
            let about = if has(&self.schema.usage.cpu.value) || has(RECORDED_CPU_METRIC) {
                "CPU"
            } else if has(&self.schema.usage.memory.value) || has(RECORDED_MEMORY_METRIC) {
                "memory"
            } else {
                "owners and kills"
            };
            about.clone_into(&mut query.about);
        }
        (queries, failure.map(|error| error.to_string()))
    }

    /// Runs the queries for the history of all pods of a namespace.
    async fn preview_queries(&self, namespace: &str) -> (Vec<Evidence>, Option<String>) {
        let weighting = HistorySettings::default().weighting;
        let (mut queries, mut failure) = (Vec::new(), None);
        let from = self.probe.now.earlier(SAMPLE_LENGTH);
        let client = self.probe.client.clone().with_dialect(self.schema.dialect);
        for QueryPreview { resource: about, query, step } in
            preview_queries(weighting, self.schema, namespace)
        {
            let Ok(range) = QueryRange::new(from, self.probe.now, step) else { continue };
            if let Err(error) = client.range(&query, range, &mut DiscardedPoints).await {
                failure.get_or_insert(error.to_string());
            }
            for mut evidence in self.probe.query_log.drain() {
                about.clone_into(&mut evidence.about);
                queries.push(evidence);
            }
        }
        (queries, failure)
    }
}

/// Discards history, and records which VPAs have any.
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

struct DiscardedPoints;

impl SeriesVisitor for DiscardedPoints {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        Interest::Points
    }

    fn point(&mut self, _: Time, _: f64) {}
}
