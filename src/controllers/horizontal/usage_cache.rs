//! The usage of the pods of a namespace: one request per period for all objects of the namespace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::Client;
use moka::future::Cache;
use plimsoll_core::hpa::samples::PodMetrics;

use crate::cluster::metric_sources::pod_samples::fetch_pod_samples;

/// The maximum number of pods whose usage is cached.
const MAX_PODS: u64 = 1_000_000;

/// The usage of each pod of a namespace by name, or why it cannot be read.
pub(super) type NamespaceUsage = Arc<Result<HashMap<String, PodMetrics>, String>>;

/// Usage by namespace.
pub(super) struct UsageCache {
    client: Client,
    namespaces: Cache<Arc<str>, NamespaceUsage>,
    timeout: Duration,
}

impl UsageCache {
    /// A cache whose entries are read again after `period`.
    pub fn new(client: Client, period: Duration, timeout: Duration) -> Self {
        let namespaces = Cache::builder()
            .weigher(|_, usage: &NamespaceUsage| {
                let pods = usage.as_ref().as_ref().map_or(0, HashMap::len);
                u32::try_from(pods).unwrap_or(u32::MAX).saturating_add(1)
            })
            .max_capacity(MAX_PODS)
            .time_to_live(period)
            .build();
        Self { client, namespaces, timeout }
    }

    /// The usage in a namespace. Concurrent callers share one request.
    pub async fn get(&self, namespace: &Arc<str>) -> NamespaceUsage {
        self.namespaces.get_with_by_ref(namespace, self.fetch(namespace)).await
    }

    async fn fetch(&self, namespace: &str) -> NamespaceUsage {
        let samples = fetch_pod_samples(&self.client, namespace, "", self.timeout).await;
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
}
