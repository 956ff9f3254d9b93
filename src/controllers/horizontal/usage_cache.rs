//! The usage of the pods of a namespace: one request per period for all objects of the namespace, and with Prometheus one
//! for each resource.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use kube::Client;
use moka::future::Cache;
use plimsoll_core::{
    hpa::{Answer, Fetched, Pod, pod_usage::pod_samples, samples::PodMetrics},
    scaling::pod_usage::{MAX_AGE, PodUsage, UsageResource},
};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryObserver},
    history::{HistorySettings, PrometheusHistory},
    transport::{HttpTransport, WallClock},
};

use super::config::{HorizontalConfig, PrometheusUsage, UsageSource};
use crate::cluster::{
    clock::Clock,
    metric_sources::{pod_samples::fetch_pod_samples, series_usage::SeriesUsage},
};

/// The maximum number of pods whose usage is cached.
const MAX_PODS: u64 = 1_000_000;
/// The maximum size of the response to one query: some 50,000 containers that are scraped every 10 seconds.
const MAX_RESPONSE_POINTS: u64 = 1_500_000;
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// A response by namespace, or why there is none.
type ByNamespace<K, T> = Cache<K, Arc<Result<HashMap<String, T>, String>>>;

/// Usage by namespace.
pub(super) struct UsageCache(Source);

enum Source {
    /// `metrics.k8s.io`. A response has all resources.
    Metrics {
        client: Client,
        timeout: Duration,
        cache: ByNamespace<Arc<str>, PodMetrics>,
    },
    Prometheus {
        series: Box<SeriesUsage>,
        cache: ByNamespace<(Arc<str>, UsageResource), PodUsage>,
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
        Ok(Self(match &config.usage {
            UsageSource::Metrics => {
                let timeout = config.request_timeout;
                Source::Metrics { client, timeout, cache: cache(config.period) }
            }
            UsageSource::Prometheus(prometheus) => {
                let series = SeriesUsage::new(history(prometheus, clock, observer)?, clock.clone());
                Source::Prometheus { series: Box::new(series), cache: cache(config.period) }
            }
        }))
    }

    /// The usage of a resource by these pods of a namespace. Concurrent callers share one request.
    pub async fn answer(&self, namespace: &Arc<str>, resource: &str, pods: &[Pod]) -> Fetched {
        let samples = match &self.0 {
            Source::Metrics { client, timeout, cache } => {
                let fetch = fetch_from_metrics_api(client, namespace, *timeout);
                let usage = cache.get_with_by_ref(namespace, fetch).await;
                let usage = usage.as_ref().as_ref().map_err(String::clone)?;
                pods.iter().filter_map(|pod| usage.get(&pod.name).cloned()).collect()
            }
            Source::Prometheus { series, cache } => {
                let Some(resource) = UsageResource::from_name(resource) else {
                    return Err(format!(
                        "--usage-source=prometheus has the usage of cpu and memory, and not of {resource}"
                    ));
                };
                let fetch = async { Arc::new(series.fetch(namespace, resource).await) };
                let usage = cache.get_with((Arc::clone(namespace), resource), fetch).await;
                let usage = usage.as_ref().as_ref().map_err(String::clone)?;
                pod_samples(pods, usage, resource)
            }
        };
        Ok(Answer::Resource(samples))
    }
}

fn cache<K, T>(period: Duration) -> ByNamespace<K, T>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    Cache::builder()
        .weigher(|_, usage: &Arc<Result<HashMap<String, T>, String>>| {
            let pods = usage.as_ref().as_ref().map_or(0, HashMap::len);
            u32::try_from(pods).unwrap_or(u32::MAX).saturating_add(1)
        })
        .max_capacity(MAX_PODS)
        .time_to_live(period)
        .build()
}

async fn fetch_from_metrics_api(
    client: &Client,
    namespace: &str,
    timeout: Duration,
) -> Arc<Result<HashMap<String, PodMetrics>, String>> {
    let samples = fetch_pod_samples(client, namespace, "", timeout).await;
    let usage = samples.map(|samples| {
        let usage = samples.into_iter().map(|sample| {
            let usage = PodMetrics {
                pod: sample.pod,
                timestamp: sample.at,
                window: sample.window,
                containers: sample.containers,
            };
            (usage.pod.clone(), usage)
        });
        usage.collect()
    });
    Arc::new(usage.map_err(|error| error.to_string()))
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
