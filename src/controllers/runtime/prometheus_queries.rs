//! Configuration of the Prometheus for PromQL queries of objects.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryObserver},
    selector::LabelMatchers,
    transport::{HttpTransport, TransportConfig, WallClock},
};

use crate::cluster::{
    clock::Clock,
    metric_sources::promql::{PromqlCache, TenantScope},
};

/// The Prometheus server for PromQL queries of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusQueries {
    /// Address and authentication. Queries are disabled if the address is empty.
    pub transport: TransportConfig,
    pub matchers: LabelMatchers,
    /// Which series the queries of a namespace may read.
    pub scope: TenantScope,
    pub max_concurrent: usize,
    pub timeout: Duration,
}

impl PrometheusQueries {
    /// The client of the server, if one is configured. A result is valid for one period. Does not send any query.
    pub fn open(
        &self,
        period: Duration,
        max_metric_age: Option<Duration>,
        clock: &Clock,
        observer: Arc<dyn QueryObserver>,
    ) -> Result<Option<PromqlCache>> {
        if self.transport.address.is_empty() {
            return Ok(None);
        }
        let wall = clock.clone();
        let transport =
            HttpTransport::new(self.transport.clone(), WallClock::new(move || wall.now()))
                .context("--prometheus-address")?;
        let limits = QueryLimits {
            max_in_flight: self.max_concurrent,
            timeout: self.timeout,
            max_attempts: 1,
            ..QueryLimits::default()
        };
        let client = PrometheusClient::new(Arc::new(transport), limits).with_observer(observer);
        let mut promql = PromqlCache::new(client, period);
        promql.matchers = self.matchers.clone();
        promql.scope = Some(self.scope.clone());
        // The age of samples costs another query and is only needed for --max-metric-age.
        promql.include_sample_age = max_metric_age.is_some();
        Ok(Some(promql))
    }
}
