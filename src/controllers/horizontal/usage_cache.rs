//! The usage of the pods of a namespace: one request per period for all objects of the namespace, and with Prometheus one
//! for each resource. A reconcile prepares the usage that it needs, and is made again later if it is not there in time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use kube::Client;
use plimsoll_core::{
    hpa::{Answer, Fetched, Pod, pod_usage::pod_samples, samples::PodMetrics},
    scaling::pod_usage::{MAX_AGE, PodUsage, Resource},
    types::ObjectKey,
};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryObserver},
    history::{HistorySettings, PrometheusHistory},
    transport::{HttpTransport, WallClock},
};
use tokio::time::Instant;

use super::{
    config::{HorizontalConfig, PrometheusUsage, UsageSource},
    shared_requests::{ReadyObjects, SharedRequests},
};
use crate::cluster::{
    clock::Clock,
    metric_sources::{
        pod_samples::fetch_pod_samples, request_permits::RequestPermits, series_usage::SeriesUsage,
    },
};

/// The maximum number of requests in flight to the metrics API, one for each namespace.
const MAX_IN_FLIGHT: usize = 64;
/// A namespace whose last request took more than this part of the timeout is slow.
const SLOW_DIVISOR: u32 = 2;
/// The maximum size of the response to one query: some 50,000 containers that are scraped every 10 seconds.
const MAX_RESPONSE_POINTS: u64 = 1_500_000;
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// The usage of the pods of a namespace by their names.
type UsageByPod<T> = HashMap<String, T>;

pub(super) struct UsageCache {
    source: Source,
    ready: Arc<ReadyObjects>,
}

enum Source {
    /// `metrics.k8s.io`. A response has all resources.
    Metrics { api: Arc<MetricsApi>, requests: SharedRequests<Arc<str>, UsageByPod<PodMetrics>> },
    Prometheus {
        series: Arc<SeriesUsage>,
        requests: SharedRequests<(Arc<str>, Resource), UsageByPod<PodUsage>>,
    },
}

impl UsageCache {
    /// A cache whose entries are read again after a period.
    pub fn new(
        config: &HorizontalConfig,
        client: Client,
        clock: &Clock,
        observer: Arc<dyn QueryObserver>,
    ) -> Result<Self> {
        let ready = Arc::<ReadyObjects>::default();
        let source = match &config.usage {
            UsageSource::Metrics => Source::Metrics {
                api: Arc::new(MetricsApi {
                    client,
                    timeout: config.settings.request_timeout,
                    permits: RequestPermits::new(MAX_IN_FLIGHT),
                }),
                requests: SharedRequests::new(config.settings.period, Arc::clone(&ready)),
            },
            UsageSource::Prometheus(prometheus) => {
                let series = SeriesUsage::new(history(prometheus, clock, observer)?, clock.clone());
                let requests = SharedRequests::new(config.settings.period, Arc::clone(&ready));
                Source::Prometheus { series: Arc::new(series), requests }
            }
        };
        Ok(Self { source, ready })
    }

    /// Requests the usage that an object needs, unless that of this period is there. Returns whether the object can be
    /// decided now. If not, it is among the [ready objects](Self::next_ready) when the usage was read.
    pub async fn prepare(&self, object: &ObjectKey, resources: impl Iterator<Item = &str>) -> bool {
        let namespace = &object.namespace;
        match &self.source {
            Source::Metrics { api, requests } => {
                let request = || Arc::clone(api).fetch(Arc::clone(namespace));
                let mut resources = resources;
                resources.next().is_none() || requests.prepare(namespace, object, request).await
            }
            Source::Prometheus { series, requests } => {
                let resources: BTreeSet<_> =
                    resources.filter_map(|name| name.parse().ok()).collect();
                let mut is_prepared = true;
                for resource in resources {
                    let (series, of) = (Arc::clone(series), Arc::clone(namespace));
                    let request = || async move { series.fetch(&of, resource).await };
                    let key = (Arc::clone(namespace), resource);
                    is_prepared &= requests.prepare(&key, object, request).await;
                }
                is_prepared
            }
        }
    }

    /// The objects that were not decided, and whose usage was read since.
    pub async fn next_ready(&self) -> BTreeSet<ObjectKey> {
        self.ready.next().await
    }

    /// The usage of a resource by these pods of a namespace, which was [prepared](Self::prepare) before.
    pub fn answer(&self, namespace: &Arc<str>, resource: &str, pods: &[Pod]) -> Fetched {
        let samples = match &self.source {
            Source::Metrics { requests, .. } => {
                let usage = requests.response(namespace)?;
                pods.iter().filter_map(|pod| usage.get(&pod.name).cloned()).collect()
            }
            Source::Prometheus { requests, .. } => {
                let Some(resource) = resource.parse().ok() else {
                    return Err(format!(
                        "--usage-source=prometheus has the usage of cpu and memory, and not of {resource}"
                    ));
                };
                let usage = requests.response(&(Arc::clone(namespace), resource))?;
                pod_samples(pods, &usage, resource)
            }
        };
        Ok(Answer::Resource(samples))
    }
}

struct MetricsApi {
    client: Client,
    timeout: Duration,
    permits: RequestPermits<Arc<str>>,
}

impl MetricsApi {
    async fn fetch(self: Arc<Self>, namespace: Arc<str>) -> Result<UsageByPod<PodMetrics>, String> {
        let permit = self.permits.acquire(&namespace).await;
        let began = Instant::now();
        let samples = fetch_pod_samples(&self.client, &namespace, "", self.timeout).await;
        drop(permit);
        self.permits.set_slow(namespace, began.elapsed() > self.timeout / SLOW_DIVISOR);
        let samples = samples.map_err(|error| error.to_string())?;
        let usage = samples.into_iter().map(|sample| {
            let usage = PodMetrics {
                pod: sample.pod,
                timestamp: sample.at,
                window: sample.window,
                containers: sample.containers,
            };
            (usage.pod.clone(), usage)
        });
        Ok(usage.collect())
    }
}

/// The client of a Prometheus, which detects the names of its series. Failed queries are not retried: the next period does
/// that.
fn history(
    prometheus: &PrometheusUsage,
    clock: &Clock,
    observer: Arc<dyn QueryObserver>,
) -> Result<PrometheusHistory> {
    let wall = clock.clone();
    let wall = WallClock::new(move || wall.now());
    let transport = HttpTransport::new(prometheus.transport.clone(), wall.clone())
        .context("--prometheus-address")?;
    let address = transport.address().to_owned();
    let limits = QueryLimits {
        max_in_flight: prometheus.max_concurrent_queries,
        timeout: prometheus.query_timeout,
        max_response_bytes: Some(MAX_RESPONSE_BYTES),
        max_response_points: Some(MAX_RESPONSE_POINTS),
        max_attempts: 1,
        ..QueryLimits::default()
    };
    let client = PrometheusClient::new(Arc::new(transport), limits).with_observer(observer);
    let settings = HistorySettings {
        overrides: prometheus.series_options.clone(),
        length: MAX_AGE,
        ..HistorySettings::default()
    };
    Ok(PrometheusHistory::new(address, client, settings, wall))
}
