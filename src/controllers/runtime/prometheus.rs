//! Configuration of Prometheus as a source of history and usage: connection, series names and query limits.

use std::{sync::Arc, time::Duration};

use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryObserver},
    detect::SchemaOverrides,
    history::{HistorySettings, PodLabelQuery, PrometheusHistory, Weighting},
    transport::{HttpTransport, Transport, TransportConfig, TransportError, WallClock},
};

use crate::cluster::clock::Clock;
use plimsoll_core::recommender::weighting::HistoryWeighting;

/// Memory per point while a time slice is incomplete: timestamp and value, doubled for the growth of the vector.
const POINT_BYTES: u64 = 32;

/// Default step for CPU: short enough for bursts of a minute.
const CPU_STEP: Duration = Duration::from_mins(1);
/// Window of the maximum of memory usage.
const MEMORY_STEP: Duration = Duration::from_mins(5);
/// Upstream's default step.
const UPSTREAM_STEP: Duration = Duration::from_hours(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusConfig {
    /// Address and authentication.
    pub transport: TransportConfig,
    /// Configured series names, and matchers to add to every query. The rest is detected.
    pub series_options: SchemaOverrides,
    /// The metric with pod labels, if ownership of pods is determined by labels.
    pub pod_labels: Option<PodLabelQuery>,
    /// How far back to read history.
    pub history_length: Duration,
    /// The step of range queries; `None` uses the default.
    pub resolution: Option<Duration>,
    pub query_timeout: Duration,
    pub max_concurrent_queries: usize,
    /// Memory limit for history of incomplete time slices.
    pub buffer_bytes: u64,
    /// Whether checkpoints are written as well, and used while Prometheus is unavailable.
    pub has_fallback: bool,
}

impl PrometheusConfig {
    /// Opens the history. Does not send any query.
    pub fn open_history(
        &self,
        weighting: HistoryWeighting,
        clock: &Clock,
        observer: Arc<dyn QueryObserver>,
    ) -> Result<PrometheusHistory, TransportError> {
        let history_clock = clock.clone();
        let wall = WallClock::new(move || history_clock.now());
        let transport = HttpTransport::new(self.transport.clone(), wall.clone())?;
        let address = transport.address().to_owned();
        let transport = Arc::new(transport);
        Ok(self.history_over(transport, address, weighting, wall, observer))
    }

    /// The history of the server behind a transport; `address` is its address for errors. Does not send any query.
    pub fn history_over(
        &self,
        transport: Arc<dyn Transport>,
        address: String,
        weighting: HistoryWeighting,
        clock: WallClock,
        observer: Arc<dyn QueryObserver>,
    ) -> PrometheusHistory {
        // Callers have their own retries, and log failures.
        let limits = QueryLimits {
            max_in_flight: self.max_concurrent_queries,
            timeout: self.query_timeout,
            max_attempts: 3,
            ..QueryLimits::default()
        };
        let client = PrometheusClient::new(transport, limits).with_observer(observer);
        let settings = HistorySettings {
            overrides: self.series_options.clone(),
            pod_labels: self.pod_labels.clone(),
            length: self.history_length,
            weighting: self.weighting(weighting),
            point_budget: self.point_budget(),
        };
        PrometheusHistory::new(address, client, settings, clock)
    }

    /// Maximum number of points of a time slice. There is one slice more than queries in flight, because one is being
    /// consumed.
    pub fn point_budget(&self) -> u64 {
        self.buffer_bytes / POINT_BYTES / (self.max_concurrent_queries as u64 + 1)
    }

    fn weighting(&self, weighting: HistoryWeighting) -> Weighting {
        match weighting {
            HistoryWeighting::Upstream => {
                Weighting::Upstream { resolution: self.resolution.unwrap_or(UPSTREAM_STEP) }
            }
            HistoryWeighting::Duration => {
                let cpu = self.resolution.unwrap_or(CPU_STEP);
                Weighting::Duration { cpu, memory: cpu.max(MEMORY_STEP) }
            }
        }
    }
}
