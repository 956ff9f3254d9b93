//! Ingests usage from its source into histories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use plimsoll_core::{
    recommender::{
        estimate::Resource,
        memory_window::SampleRejected,
        plan::KnownRequests,
        registry::{UsageResult, UsageSample},
    },
    types::{
        ObjectKey, Time,
        compat::Fix,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::history::PrometheusHistory;
use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::{
    Shared, config::UsageSource, node_clock_skew::NodeClockSkew, pass::PassSummary,
    state::RecommenderState,
};
use crate::{
    cluster::{
        cache::{recommender_pod::Requests, vpa_index::MissingUsage},
        container_usage::{
            external_usage::{PodQuery, fetch_external_usage},
            pod_metrics::{PodUsage, UsageError, UsageReport, fetch_usage},
            prometheus_usage::fetch_prometheus_usage,
        },
    },
    telemetry::RecommenderMetrics,
};

/// Limits for the timeout of a usage read, which is half an interval. After that the next read may succeed.
const USAGE_TIMEOUT_LIMITS: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(30));

/// Limits for the time that a pass waits for usage, which is a quarter of an interval. Most responses arrive by then,
/// and everything that does not depend on usage (OOM kills, conditions, changed policies) is not delayed for long
/// otherwise.
const USAGE_WAIT_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

type UsageRead = (SampleCounts, Result<UsageReport, UsageError>);

/// Number of samples by outcome.
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
    /// Nodes that sent samples from the future, with the latest timestamp.
    nodes_ahead: BTreeMap<Arc<str>, Time>,
    /// Pods that earlier reads contained and this one lacks, if it was complete.
    missing: Option<MissingUsage>,
}

#[derive(Debug, Default)]
pub(super) struct UsageReads {
    /// At most one, which may still run after its pass ended.
    running: JoinSet<UsageRead>,
    /// Nodes whose clocks are ahead; each is logged once.
    node_clock_skew: NodeClockSkew,
    /// Number of pods without usage in the last response.
    missing_pods: u64,
}

impl UsageReads {
    /// Ingests usage. A pass waits for it only up to a limit, and later samples are counted in the next pass. There is one
    /// read at a time.
    pub async fn ingest(&mut self, usage: &Arc<UsageIngest>, summary: &mut PassSummary) {
        while let Some(finished) = self.running.try_join_next() {
            self.record(usage, finished, summary);
        }
        if self.running.is_empty() {
            self.running.spawn(Arc::clone(usage).read());
        }
        let interval = usage.shared.config.interval;
        let wait = (interval / 4).clamp(USAGE_WAIT_LIMITS.0, USAGE_WAIT_LIMITS.1);
        match timeout(wait, self.running.join_next()).await {
            Ok(Some(finished)) => self.record(usage, finished, summary),
            Ok(None) => {}
            Err(_) => tracing::warn!(
                waited = ?wait,
                "usage fetch is still running; continuing this pass without it"
            ),
        }
    }

    fn record(
        &mut self,
        usage: &UsageIngest,
        finished: Result<UsageRead, JoinError>,
        summary: &mut PassSummary,
    ) {
        let Shared { metrics, health, .. } = &*usage.shared;
        let (counts, result) = match finished {
            Ok(read) => read,
            Err(error) => {
                metrics.count_fetch(true);
                tracing::error!(%error, "usage fetch panicked");
                return;
            }
        };
        for (outcome, count) in [
            ("taken", counts.accepted),
            ("negative", counts.negative),
            ("out_of_order", counts.out_of_order),
            ("unknown_pod", counts.unknown_pod),
            ("unknown_container", counts.unknown_container),
            ("init_container", counts.init),
            ("unwatched", counts.unwatched),
            ("boosted", counts.boosted),
            ("in_future", counts.in_future),
            ("repeated", counts.repeated),
            ("missing_pod", counts.missing.as_ref().map_or(0, |missing| missing.pods)),
        ] {
            health.samples.with_labels([outcome]).add(count);
        }
        if let Some(missing) = &counts.missing {
            self.report_missing(missing);
        }
        let is_complete = result.as_ref().is_ok_and(UsageReport::is_complete);
        self.node_clock_skew.warn(&counts.nodes_ahead, is_complete);
        summary.samples += counts.accepted;
        match result {
            Ok(report) => {
                summary.pods += report.pods;
                health.samples.with_labels(["malformed"]).add(report.malformed);
                metrics.count_fetch(!report.is_complete());
                for failure in &report.failures {
                    tracing::warn!(error = %failure, "received incomplete usage; using the part that was received");
                }
                for example in &report.malformed_examples {
                    tracing::warn!(example = %example, "ignoring invalid usage");
                }
            }
            Err(error) => {
                metrics.count_fetch(true);
                tracing::warn!(%error, "failed to fetch usage; recommendations are based on earlier samples");
            }
        }
    }

    /// Logs changes of the number of pods without usage.
    fn report_missing(&mut self, MissingUsage { pods, example }: &MissingUsage) {
        if std::mem::replace(&mut self.missing_pods, *pods) == *pods {
            return;
        }
        if let Some((namespace, pod)) = example {
            let example = format_args!("{namespace}/{pod}");
            tracing::warn!(
                pods,
                %example,
                "usage of pods is no longer available; recommendations are based on earlier samples"
            );
        } else {
            tracing::info!("usage of all pods is available again");
        }
    }
}

/// Adds the usage from its configured source to histories.
pub(super) struct UsageIngest {
    pub shared: Arc<Shared>,
    /// The Prometheus server, if usage or history is read from one.
    pub prometheus: Option<Arc<PrometheusHistory>>,
}

fn known_requests(requests: Requests) -> KnownRequests {
    KnownRequests {
        cpu: requests.cpu.map(MilliCpu::as_cores),
        memory: requests.memory.map(Bytes::as_f64),
    }
}

impl UsageIngest {
    async fn read(self: Arc<Self>) -> UsageRead {
        let counts = Mutex::new(SampleCounts::default());
        let mut sink = |usage: PodUsage| {
            let mut counts = counts.lock();
            self.add_pod_usage(&usage, &mut counts);
        };
        let result = self.fetch_usage(&mut sink).await;
        let mut counts = counts.into_inner();
        // An incomplete response says nothing about the pods that it lacks.
        if result.as_ref().is_ok_and(UsageReport::is_complete) {
            counts.missing = Some(self.shared.state.lock().index.finish_usage_fetch());
        }
        (counts, result)
    }

    async fn fetch_usage(
        &self,
        sink: &mut (dyn FnMut(PodUsage) + Send),
    ) -> Result<UsageReport, UsageError> {
        let config = &self.shared.config;
        let timeout_limit =
            (config.interval / 2).clamp(USAGE_TIMEOUT_LIMITS.0, USAGE_TIMEOUT_LIMITS.1);
        match &config.usage {
            UsageSource::Metrics => {
                let namespaces = config.scope.only.as_deref().map(|namespace| [namespace]);
                let namespaces = namespaces.as_ref().map(<[&str; 1]>::as_slice);
                fetch_usage(&self.shared.client, namespaces, sink, timeout_limit).await
            }
            UsageSource::External(metrics) => {
                let concurrency = config.workers;
                let pods = self.external_queries();
                fetch_external_usage(
                    &self.shared.client,
                    metrics,
                    pods,
                    concurrency,
                    sink,
                    timeout_limit,
                )
                .await
            }
            UsageSource::Prometheus => self.fetch_usage_from_prometheus(sink, timeout_limit).await,
        }
    }

    async fn fetch_usage_from_prometheus(
        &self,
        sink: &mut (dyn FnMut(PodUsage) + Send),
        timeout_limit: Duration,
    ) -> Result<UsageReport, UsageError> {
        let Some(prometheus) = &self.prometheus else { return Ok(UsageReport::default()) };
        let namespaces: BTreeSet<Arc<str>> = {
            let state = self.shared.state.lock();
            state.vpa_registry.keys_after(None).map(|key| Arc::clone(&key.namespace)).collect()
        };
        let namespaces: Vec<&str> = namespaces.iter().map(|namespace| &**namespace).collect();
        if namespaces.is_empty() {
            return Ok(UsageReport::default());
        }
        let unreachable = |reason: &dyn ToString| UsageError::Unreachable {
            path: prometheus.server.clone(),
            reason: reason.to_string(),
        };
        let schema = timeout(timeout_limit, prometheus.schema(&namespaces)).await;
        let schema =
            schema.map_err(|_| unreachable(&format!("no response within {timeout_limit:?}")))?;
        let schema = schema.map_err(|error| unreachable(&error))?;
        let now = self.shared.clock.now();
        // A long history load must not delay current usage.
        let client = prometheus.client.with_separate_permits(1);
        let report =
            fetch_prometheus_usage(&client, &schema, &namespaces, now, sink, timeout_limit).await?;
        // A failed query says nothing about the names of series.
        if report.is_complete() {
            prometheus.record_read(report.containers);
        }
        Ok(report)
    }

    fn external_queries(&self) -> Vec<PodQuery> {
        let state = self.shared.state.lock();
        let mut queries = Vec::new();
        for key in state.vpa_registry.keys_after(None) {
            let Some(vpa) = state.index.vpa(key) else { continue };
            let selector = vpa.selector.to_string();
            queries.extend(state.index.pods_of(key).map(|(pod, _)| PodQuery {
                namespace: (*key.namespace).into(),
                selector: selector.as_str().into(),
                pod: (**pod).into(),
            }));
        }
        queries
    }

    fn add_pod_usage(&self, usage: &PodUsage, counts: &mut SampleCounts) {
        let Shared { clock, metrics, .. } = &*self.shared;
        let now = clock.now();
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let Some((_, vpas)) = state.index.pod(&usage.namespace, &usage.pod) else {
            counts.unknown_pod += usage.containers.len() as u64;
            return;
        };
        if vpas.is_empty() {
            counts.unwatched += usage.containers.len() as u64;
            return;
        }
        let Some(namespace) = state.index.namespace(&usage.namespace).cloned() else { return };
        let keys: Vec<ObjectKey> = vpas
            .iter()
            .map(|name| ObjectKey::new(Arc::clone(&namespace), Arc::clone(name)))
            .collect();
        state.index.record_pod_usage(&usage.namespace, &usage.pod);
        let Some((pod, _)) = state.index.pod(&usage.namespace, &usage.pod) else { return };
        let mut containers = Vec::with_capacity(usage.containers.len());
        for container in &usage.containers {
            match pod.container(&container.name) {
                None => counts.unknown_container += 1,
                Some(registered) if !state.counts_usage(registered.container_type) => {
                    counts.init += 1;
                }
                Some(registered) => {
                    let requests = known_requests(registered.requests);
                    containers.push((Arc::clone(&registered.name), requests, container));
                }
            }
        }
        let exclude_boosted = state.vpa_registry.has(Fix::BoostSamplesStayOut);
        let startup = pod.startup_boost.as_deref().filter(|_| exclude_boosted);
        // Upstream counts missing values as zero, unless the read itself was incomplete.
        let fill_missing = state.vpa_registry.is_upstream() && !usage.is_incomplete;
        for (name, requests, container) in containers {
            let mut sample = UsageSample {
                pod: &usage.pod,
                container: &name,
                at: usage.at,
                cpu: container.cpu.or(fill_missing.then_some(MilliCpu(0))),
                memory: container.memory.or(fill_missing.then_some(Bytes(0))),
            };
            let cpu = sample.cpu;
            for key in &keys {
                let is_boosted = startup.is_some_and(|startup| {
                    let durations =
                        state.index.vpa(key).and_then(|vpa| vpa.boost_durations.as_deref());
                    startup.is_boosted_at(&name, durations, sample.at)
                });
                sample.cpu = cpu.filter(|_| !is_boosted);
                counts.boosted += u64::from(sample.cpu != cpu);
                state.vpa_registry.ingest().observe_requests(key, &name, requests);
                let Some(result) = state.vpa_registry.ingest().add_usage(key, sample, now) else {
                    continue;
                };
                counts.count(result);
                if result.values().any(|one| *one == Err(SampleRejected::InFuture)) {
                    let node = pod.node.clone().unwrap_or_else(|| "unknown".into());
                    let latest = counts.nodes_ahead.entry(node).or_insert(sample.at);
                    *latest = sample.at.max(*latest);
                }
                if result.cpu == Some(Ok(())) {
                    let used = sample.cpu.unwrap_or_default().as_cores();
                    observe_quality(metrics, state, key, &name, Resource::Cpu, false, used);
                }
                if result.memory == Some(Ok(())) {
                    let used = sample.memory.unwrap_or_default().as_f64();
                    observe_quality(metrics, state, key, &name, Resource::Memory, false, used);
                }
            }
        }
    }
}

/// Records the difference between usage and recommendation.
pub(super) fn observe_quality(
    metrics: &RecommenderMetrics,
    state: &RecommenderState,
    key: &ObjectKey,
    container: &str,
    resource: Resource,
    is_oom: bool,
    usage: f64,
) {
    let (Some(registered), Some(vpa)) = (state.vpa_registry.get(key), state.index.vpa(key)) else {
        return;
    };
    if registered.is_off(container) {
        return;
    }
    let summary = registered.summary_for(container);
    let recommendation =
        summary.and_then(|summary| summary.resources.get(resource)).map(|value| value.uncapped);
    let update_mode = vpa.mode.map(|mode| mode.into_str());
    metrics.quality.observe_sample(update_mode, resource, is_oom, usage, recommendation);
}

impl SampleCounts {
    fn count(&mut self, result: UsageResult) {
        for outcome in result.values() {
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
