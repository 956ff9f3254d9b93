//! Usage on its way into the histories, from wherever it is measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};
use tokio::{task::JoinError, time::timeout};

use super::{
    Recommender,
    node_clock_skew::NodeClockSkew,
    pass::{PassState, PassSummary},
    state::RecommenderState,
};
use crate::{
    cluster::{
        cache::vpa_index::MissingUsage,
        metrics_api::{
            external_usage::{ExternalMetrics, PodQuery, fetch_external_usage},
            pod_metrics::{PodUsage, UsageError, UsageReport, fetch_usage},
            prometheus_usage::fetch_prometheus_usage,
        },
    },
    controllers::recommender::config::UsageSource,
    telemetry::QualitySample,
};
use plimsoll_core::{
    api::vpa::UpdateMode,
    recommender::{
        estimate::Resource,
        memory_window::SampleRejected,
        registry::{UsageResult, UsageSample},
    },
    types::{
        compat::Fix,
        units::{Bytes, MilliCpu},
    },
};

/// A read of usage is given up after half an interval, within these limits: the next one may be answered.
const USAGE_TIMEOUT_LIMITS: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(30));

/// A pass waits a quarter of an interval for it, within these limits: most answers are there by then, and what depends
/// on no usage (kills, conditions, changed policies) is not held up for long where none comes.
const USAGE_WAIT_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// A read of usage that has ended.
pub(super) struct UsageRead {
    sample_counts: SampleCounts,
    result: Result<UsageReport, UsageError>,
}

/// Counts of samples by what became of them.
#[derive(Debug, Default)]
struct SampleCounts {
    accepted: u64,
    negative: u64,
    out_of_order: u64,
    unknown_pod: u64,
    unknown_container: u64,
    init: u64,
    unwatched: u64,
    boosted: u64,
    in_future: u64,
    repeated: u64,
    /// Nodes that dated a sample into the future, with the latest such time.
    nodes_ahead: BTreeMap<Arc<str>, Time>,
    /// Pods that earlier readings had, if this one came whole.
    missing: Option<MissingUsage>,
}

impl Recommender {
    /// Takes usage into the histories. It is read beside the passes: one waits for it only so long, and what comes later
    /// is taken when it comes, as samples of the next pass. There is one read at a time.
    pub(super) async fn ingest_usage(
        self: &Arc<Self>,
        passes: &mut PassState,
        summary: &mut PassSummary,
    ) {
        let PassState { usage_reads: reads, node_clock_skew: clocks_ahead, .. } = passes;
        while let Some(ended) = reads.try_join_next() {
            self.record_usage_read(ended, clocks_ahead, summary);
        }
        if reads.is_empty() {
            reads.spawn(Arc::clone(self).read_usage());
        }
        let wait = (self.config.interval / 4).clamp(USAGE_WAIT_LIMITS.0, USAGE_WAIT_LIMITS.1);
        match timeout(wait, reads.join_next()).await {
            Ok(Some(ended)) => self.record_usage_read(ended, clocks_ahead, summary),
            Ok(None) => {}
            Err(_) => tracing::warn!(
                waited = ?wait,
                "usage is late; the pass goes on with what is known, and takes it when it comes"
            ),
        }
    }

    async fn read_usage(self: Arc<Self>) -> UsageRead {
        let tally = Mutex::new(SampleCounts::default());
        let mut sink = |usage: PodUsage| {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            self.add_pod_usage(&usage, &mut tally);
        };
        let read = self.fetch_usage(&mut sink).await;
        let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        // What did not come whole says nothing of what it lacks.
        if read.as_ref().is_ok_and(UsageReport::is_complete) {
            tally.missing = Some(self.state.lock().index.finish_usage_fetch());
        }
        UsageRead { sample_counts: tally, result: read }
    }

    fn record_usage_read(
        &self,
        ended: Result<UsageRead, JoinError>,
        clocks_ahead: &mut NodeClockSkew,
        summary: &mut PassSummary,
    ) {
        let UsageRead { sample_counts: tally, result: read } = match ended {
            Ok(reading) => reading,
            Err(error) => {
                self.metrics.count_fetch(true);
                tracing::error!(%error, "usage was not read to its end");
                return;
            }
        };
        for (outcome, count) in [
            ("taken", tally.accepted),
            ("negative", tally.negative),
            ("out_of_order", tally.out_of_order),
            ("unknown_pod", tally.unknown_pod),
            ("unknown_container", tally.unknown_container),
            ("init_container", tally.init),
            ("unwatched", tally.unwatched),
            ("boosted", tally.boosted),
            ("in_future", tally.in_future),
            ("repeated", tally.repeated),
            ("missing_pod", tally.missing.as_ref().map_or(0, |lacking| lacking.pods)),
        ] {
            self.health.count_samples(outcome, count);
        }
        if let Some(lacking) = &tally.missing {
            self.report_missing_usage(lacking);
        }
        clocks_ahead.warn(&tally.nodes_ahead, read.as_ref().is_ok_and(UsageReport::is_complete));
        summary.samples += tally.accepted;
        match read {
            Ok(report) => {
                summary.pods += report.pods;
                self.health.count_samples("malformed", report.malformed);
                self.metrics.count_fetch(!report.is_complete());
                for failure in &report.failures {
                    tracing::warn!(error = %failure, "usage is incomplete; what came was taken");
                }
                for example in &report.malformed_examples {
                    tracing::warn!(what = %example, "usage that makes no sense was left out");
                }
            }
            Err(error) => {
                self.metrics.count_fetch(true);
                tracing::warn!(%error, "no usage could be read; recommendations rest on what is known");
            }
        }
    }

    /// Says on change how many pods the answers about usage lack.
    fn report_missing_usage(&self, lacking: &MissingUsage) {
        let MissingUsage { pods, example } = lacking;
        if self.missing_pods.swap(*pods, Ordering::Relaxed) == *pods {
            return;
        }
        if let Some((namespace, pod)) = example {
            let example = format_args!("{namespace}/{pod}");
            tracing::warn!(
                pods,
                %example,
                "usage of pods is missing that was there before; recommendations rest on what is known"
            );
        } else {
            tracing::info!("usage of all pods is there again");
        }
    }

    async fn fetch_usage(
        &self,
        sink: &mut (dyn FnMut(PodUsage) + Send),
    ) -> Result<UsageReport, UsageError> {
        let patience =
            (self.config.interval / 2).clamp(USAGE_TIMEOUT_LIMITS.0, USAGE_TIMEOUT_LIMITS.1);
        match &self.config.usage {
            UsageSource::Metrics => {
                let only = self.config.scope.only.as_deref().map(|one| [one]);
                let only = only.as_ref().map(<[&str; 1]>::as_slice);
                fetch_usage(&self.client, only, sink, patience).await
            }
            UsageSource::External { cpu, memory, container_label } => {
                let metrics = ExternalMetrics {
                    cpu: cpu.clone(),
                    memory: memory.clone(),
                    container_label: container_label.clone(),
                };
                let at_once = self.config.workers;
                let pods = self.external_queries();
                fetch_external_usage(&self.client, &metrics, pods, at_once, sink, patience).await
            }
            UsageSource::Prometheus => self.fetch_usage_from_prometheus(sink, patience).await,
        }
    }

    async fn fetch_usage_from_prometheus(
        &self,
        sink: &mut (dyn FnMut(PodUsage) + Send),
        patience: Duration,
    ) -> Result<UsageReport, UsageError> {
        let Some(prometheus) = &self.prometheus else { return Ok(UsageReport::default()) };
        let namespaces: BTreeSet<Arc<str>> = {
            let core = self.state.lock();
            core.vpa_registry.keys_after(None).map(|key| Arc::clone(&key.namespace)).collect()
        };
        let namespaces: Vec<&str> = namespaces.iter().map(|namespace| &**namespace).collect();
        if namespaces.is_empty() {
            return Ok(UsageReport::default());
        }
        let unknown = |reason: &dyn ToString| UsageError::Unreachable {
            path: prometheus.server().to_owned(),
            reason: reason.to_string(),
        };
        let schema = timeout(patience, prometheus.schema(&namespaces)).await;
        let schema = schema.map_err(|_| unknown(&format!("no answer within {patience:?}")))?;
        let schema = schema.map_err(|why| unknown(&why))?;
        let now = self.clock.now();
        // A long load must not hold up what is used now.
        let client = prometheus.client().with_separate_permits(1);
        let report =
            fetch_prometheus_usage(&client, &schema, &namespaces, now, sink, patience).await?;
        // What failed says nothing about the names of series.
        if report.is_complete() {
            prometheus.record_read(report.containers);
        }
        Ok(report)
    }

    fn external_queries(&self) -> Vec<PodQuery> {
        let core = self.state.lock();
        let mut queries = Vec::new();
        for key in core.vpa_registry.keys_after(None) {
            let Some(vpa) = core.index.vpa(key) else { continue };
            let selector = vpa.selector().to_string();
            queries.extend(core.index.pods_of(key).map(|(pod, _)| PodQuery {
                namespace: (*key.namespace).into(),
                selector: selector.as_str().into(),
                pod: (**pod).into(),
            }));
        }
        queries
    }

    /// Takes the usage of one pod into the histories of its VPAs.
    fn add_pod_usage(&self, usage: &PodUsage, tally: &mut SampleCounts) {
        let now = self.clock.now();
        let mut core = self.state.lock();
        let core = &mut *core;
        let Some((_, vpas)) = core.index.pod(&usage.namespace, &usage.pod) else {
            tally.unknown_pod += usage.containers.len() as u64;
            return;
        };
        if vpas.is_empty() {
            tally.unwatched += usage.containers.len() as u64;
            return;
        }
        let Some(namespace) = core.index.namespace(&usage.namespace).cloned() else { return };
        let keys: Vec<ObjectKey> = vpas
            .iter()
            .map(|name| ObjectKey::new(Arc::clone(&namespace), Arc::clone(name)))
            .collect();
        core.index.record_pod_usage(&usage.namespace, &usage.pod);
        let Some((pod, _)) = core.index.pod(&usage.namespace, &usage.pod) else { return };
        let mut wanted = Vec::with_capacity(usage.containers.len());
        for container in &usage.containers {
            match pod.container(&container.name) {
                None => tally.unknown_container += 1,
                Some(known) if !core.counts_usage(known.container_type) => tally.init += 1,
                Some(known) => wanted.push((Arc::clone(&known.name), container)),
            }
        }
        let stays_out = core.vpa_registry.has(Fix::BoostSamplesStayOut);
        let startup = pod.startup_boost.as_deref().filter(|_| stays_out);
        // Upstream takes what is missing for nothing used, unless the reading itself failed.
        let fill = core.vpa_registry.is_upstream() && !usage.is_incomplete;
        for (name, container) in wanted {
            let mut sample = UsageSample {
                pod: &usage.pod,
                container: &name,
                at: usage.at,
                cpu: container.cpu.or(fill.then_some(MilliCpu(0))),
                memory: container.memory.or(fill.then_some(Bytes(0))),
            };
            let cpu = sample.cpu;
            for key in &keys {
                let is_boosted = startup.is_some_and(|startup| {
                    let boosts = core.index.vpa(key).and_then(|vpa| vpa.boost_durations.as_deref());
                    startup.is_boosted_at(&name, boosts, sample.at)
                });
                sample.cpu = cpu.filter(|_| !is_boosted);
                tally.boosted += u64::from(sample.cpu != cpu);
                let Some(taken) = core.vpa_registry.add_usage(key, sample, now) else { continue };
                tally.count(taken);
                if taken.is_in_future() {
                    let node = pod.node.clone().unwrap_or_else(|| "unknown".into());
                    let latest = tally.nodes_ahead.entry(node).or_insert(sample.at);
                    *latest = sample.at.max(*latest);
                }
                if taken.cpu == Some(Ok(())) {
                    let used = sample.cpu.unwrap_or_default().as_cores();
                    self.observe_quality(core, key, &name, Resource::Cpu, false, used);
                }
                if taken.memory == Some(Ok(())) {
                    let used = sample.memory.unwrap_or_default().as_f64();
                    self.observe_quality(core, key, &name, Resource::Memory, false, used);
                }
            }
        }
    }

    /// How far what was used is from what is recommended.
    pub(super) fn observe_quality(
        &self,
        core: &RecommenderState,
        key: &ObjectKey,
        container: &str,
        resource: Resource,
        is_oom: bool,
        usage: f64,
    ) {
        let (Some(watched), Some(vpa)) = (core.vpa_registry.get(key), core.index.vpa(key)) else {
            return;
        };
        if watched.is_off(container) {
            return;
        }
        let advice = watched.summary_for(container);
        let recommendation =
            advice.and_then(|advice| advice.resource(resource)).map(|one| one.uncapped);
        let update_mode = vpa.mode.map(UpdateMode::as_str);
        self.metrics.observe_sample(&QualitySample {
            update_mode,
            resource,
            is_oom,
            usage,
            recommendation,
        });
    }
}

impl SampleCounts {
    fn count(&mut self, taken: UsageResult) {
        for outcome in [taken.cpu, taken.memory].into_iter().flatten() {
            match outcome {
                Ok(()) => self.accepted += 1,
                Err(SampleRejected::Negative) => self.negative += 1,
                Err(SampleRejected::InFuture) => self.in_future += 1,
                Err(SampleRejected::Duplicate) => self.repeated += 1,
                Err(SampleRejected::OutOfOrder | SampleRejected::TooOld) => self.out_of_order += 1,
            }
        }
    }
}
